//! Watched components: the files that the config names, and the managed folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use annex_runtime::Digest;
use annex_test_support::{TEST_EXTENSION, TestServer};

use crate::installation::{Installation, extension, marked, on_card, ready, replace, say, written};
use crate::life::test_uri;

/// Reads the card until it has the expected extensions. The files are watched.
async fn until_on_card(server: &TestServer, expected: &[&str]) {
    let look = async {
        while on_card(server).await != expected {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, look).await.expect("the card has it some time");
}

#[tokio::test]
async fn a_component_that_comes_after_the_folder_was_read_and_before_the_server_is_ready_is_installed() {
    let installation = Installation::new();
    installation.config("[runtime]\nextensions_dir = \"extensions\"");
    let aside = installation.path("aside");
    let component = installation.path("extensions/test.wasm");
    fs::write(&aside, marked("first")).expect("a file");
    let loaded = move || fs::rename(aside, component).expect("renamed");
    let agent = Some(Arc::clone(&installation.agent) as _);
    let server = TestServer::from_file_and_then(&installation.path("annex.toml"), agent, loaded).await;
    until_on_card(&server.expect("a server"), &[TEST_EXTENSION]).await;
}

#[tokio::test]
async fn a_folder_that_was_deleted_and_made_again_is_watched_again() {
    let installation = Installation::new();
    installation.config("[runtime]\nextensions_dir = \"extensions\"");
    let server = installation.serve().await;
    let folder = installation.path("extensions");
    fs::remove_dir(&folder).expect("removed");
    while ready(&server).await["failed"].is_null() {
        tokio::task::yield_now().await;
    }
    fs::create_dir(&folder).expect("made");
    installation.component("extensions/test.wasm", "first");
    until_on_card(&server, &[TEST_EXTENSION]).await;
}

#[tokio::test]
async fn a_folder_that_a_reload_names_is_watched_and_what_came_meanwhile_is_found() {
    let installation = Installation::new();
    installation.config("");
    let server = installation.serve().await;
    fs::create_dir(installation.path("elsewhere")).expect("made");
    installation.component("elsewhere/test.wasm", "first");
    installation.config(&extension("elsewhere/test.wasm", "", "none"));
    assert!(server.installer().reload().await.expect("a reload").changed);
    // No await since the reload: the watcher has not begun to watch the folder.
    let second = marked("second");
    replace(&installation.path("elsewhere/test.wasm"), &second);
    let uri = test_uri();
    let look = async {
        while server.installer().installed().get(&uri).expect("installed").digest() != Digest::of(&second) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, look).await.expect("it is installed some time");
}

#[tokio::test]
async fn a_component_put_into_the_folder_is_installed_and_one_taken_out_is_gone() {
    let installation = Installation::new();
    installation.config("[runtime]\nextensions_dir = \"extensions\"");
    let server = installation.serve().await;
    assert_eq!(on_card(&server).await, Vec::<String>::new());

    installation.component("extensions/test.wasm", "first");
    until_on_card(&server, &[TEST_EXTENSION]).await;
    assert_eq!(written(&say(&server, "hi").await), "artifact");

    let settings = "[parameters]\nuri = \"https://example.com/other\"";
    replace(&installation.path("extensions/test.toml"), settings.as_bytes());
    until_on_card(&server, &["https://example.com/other"]).await;

    fs::write(installation.path("extensions/test.wasm"), "half a file").expect("a file");
    while ready(&server).await["failed"].is_null() {
        tokio::task::yield_now().await;
    }
    assert_eq!(on_card(&server).await, ["https://example.com/other"], "a broken file keeps the old version");

    installation.component("extensions/test.wasm", "second");
    while !ready(&server).await["failed"].is_null() {
        tokio::task::yield_now().await;
    }
    fs::remove_file(installation.path("extensions/test.wasm")).expect("a file");
    until_on_card(&server, &[]).await;
}

#[tokio::test]
async fn a_required_component_whose_file_is_gone_stays_until_the_config_is_read_again() {
    let installation = Installation::new();
    installation.config("[runtime]\nextensions_dir = \"extensions\"");
    fs::create_dir(installation.path("extensions")).expect("a folder");
    drop_in(&installation, "test", "urn:test", &[]);
    let settings = fs::read_to_string(installation.path("extensions/test.toml")).expect("settings");
    fs::write(installation.path("extensions/test.toml"), format!("required = true\n{settings}")).expect("a file");
    drop_in(&installation, "z", "urn:z", &[]);
    let server = installation.serve().await;
    fs::remove_file(installation.path("extensions/test.wasm")).expect("a file");
    while ready(&server).await["failed"].is_null() {
        tokio::task::yield_now().await;
    }
    assert_eq!(on_card(&server).await, ["urn:test", "urn:z"], "and keeps its place");
    server.installer().reload().await.expect("a reload");
    assert_eq!(on_card(&server).await, ["urn:z"]);
}

#[tokio::test]
async fn a_component_of_the_config_is_watched() {
    let installation = Installation::new();
    installation.component("test.wasm", "first");
    installation.config(&extension("test.wasm", "", "ok"));
    let server = installation.serve().await;
    let digest = || server.installer().installed().get(&test_uri()).expect("installed").digest();
    let before = digest();
    installation.component("test.wasm", "second");
    while digest() == before {
        tokio::task::yield_now().await;
    }
    fs::remove_file(installation.path("test.wasm")).expect("a file");
    while ready(&server).await["failed"].is_null() {
        tokio::task::yield_now().await;
    }
    assert_eq!(on_card(&server).await, [TEST_EXTENSION], "the config still names it");
}

#[tokio::test]
async fn a_component_behind_links_is_put_in_force_when_what_they_lead_to_changes() {
    let installation = Installation::new();
    let put = |target: &str, link: &str| {
        symlink(target, installation.path(".new")).expect("a link");
        fs::rename(installation.path(".new"), installation.path(link)).expect("it is put there");
    };
    for (folder, mark) in [("releases/1", "first"), ("releases/2", "second"), ("extensions", "none")] {
        fs::create_dir_all(installation.path(folder)).expect("a folder");
        installation.component(&format!("{folder}/test.component"), mark);
    }
    put("releases/1", "current");
    put("../current/test.component", "extensions/test.wasm");
    installation.config("[runtime]\nextensions_dir = \"extensions\"");
    let server = installation.serve().await;
    let until_in_force = async |mark: &str| {
        let look = async {
            while server.installer().installed().get(&test_uri()).expect("installed").digest()
                != Digest::of(&marked(mark))
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TIMEOUT, look).await.unwrap_or_else(|_| panic!("{mark} never comes in force"));
    };
    until_in_force("first").await;
    put("releases/2", "current");
    until_in_force("second").await;
    installation.component("releases/2/test.component", "third");
    until_in_force("third").await;
}

/// Puts the test extension into the folder under another URI.
fn drop_in(installation: &Installation, name: &str, uri: &str, needs: &[&str]) {
    let settings = format!("[parameters]\nuri = {uri:?}\ndepends_on = {needs:?}");
    replace(&installation.path(&format!("extensions/{name}.toml")), settings.as_bytes());
    installation.component(&format!("extensions/{name}.wasm"), "same");
}

/// The time limit of each wait.
const TIMEOUT: Duration = Duration::from_secs(120);
const FOLDER: &str = "[runtime]\nwatch = false\nextensions_dir = \"extensions\"";

#[tokio::test]
async fn the_folder_runs_after_the_config_by_dependencies_and_then_by_name() {
    let installation = Installation::new();
    fs::create_dir(installation.path("extensions")).expect("a folder");
    // The same bytes as those in the folder: only one component may own its metadata keys.
    installation.component("test.wasm", "same");
    installation.config(&format!("{FOLDER}\n{}", extension("test.wasm", "", "ok")));
    drop_in(&installation, "a", "urn:a", &["urn:d"]);
    drop_in(&installation, "b", "urn:b", &[TEST_EXTENSION]);
    drop_in(&installation, "c", "urn:c", &[]);
    drop_in(&installation, "d", "urn:d", &["urn:c"]);
    let server = installation.serve().await;
    assert_eq!(on_card(&server).await, [TEST_EXTENSION, "urn:b", "urn:c", "urn:d", "urn:a"]);
}

#[tokio::test]
async fn a_component_that_does_not_fit_costs_its_neighbours_nothing() {
    let installation = Installation::new();
    fs::create_dir(installation.path("extensions")).expect("a folder");
    installation.config(FOLDER);
    drop_in(&installation, "m", "urn:m", &[]);
    let server = installation.serve().await;
    // One takes a neighbour's URI, two lean on one another, one leans on nothing that there is, and one is fine.
    drop_in(&installation, "a-double", "urn:m", &[]);
    drop_in(&installation, "r1", "urn:r1", &["urn:r2"]);
    drop_in(&installation, "r2", "urn:r2", &["urn:r1"]);
    drop_in(&installation, "lost", "urn:lost", &["urn:nowhere"]);
    drop_in(&installation, "z", "urn:z", &[]);
    fs::write(installation.path("extensions/broken.wasm"), "broken").expect("a file");
    let reloaded = server.installer().reload().await.expect("a reload");
    assert_eq!(on_card(&server).await, ["urn:m", "urn:z"]);
    let failed: Vec<&str> = reloaded.failed.iter().filter_map(|source| source.split('.').next()).collect();
    let expected = ["a-double", "broken", "lost", "r1", "r2"];
    assert!(expected.iter().all(|name| failed.contains(name)) && failed.len() == expected.len(), "{failed:?}");
}

#[tokio::test]
async fn a_server_starts_without_a_broken_drop_in_unless_it_is_required_or_always_active() {
    let installation = Installation::new();
    fs::create_dir(installation.path("extensions")).expect("a folder");
    installation.config(FOLDER);
    fs::write(installation.path("extensions/broken.wasm"), "broken").expect("a file");
    drop_in(&installation, "z", "urn:z", &[]);
    let server = installation.serve().await;
    assert_eq!(on_card(&server).await, ["urn:z"]);
    assert_eq!(ready(&server).await["failed"][0], "broken.wasm in runtime.extensions_dir");

    // What is wrong in the settings of one costs no other one its place.
    for settings in [
        "required = false\n[grants]\nclok = true",
        "[grants]\nclok = true",
        "[limits]\nmemory_mib = 640",
        "instances = \"often\"",
    ] {
        fs::write(installation.path("extensions/broken.toml"), settings).expect("a file");
        let server = installation.serve().await;
        assert_eq!(on_card(&server).await, ["urn:z"], "{settings}");
        assert_eq!(ready(&server).await["failed"][0], "broken.wasm in runtime.extensions_dir", "{settings}");
    }

    for settings in [
        "required = true",
        "reqired = true",
        "required = \n",
        "required = true\n[grants]\nclok = true",
        "activate = \"always\"",
        "activate = \"alwais\"",
    ] {
        fs::write(installation.path("extensions/broken.toml"), settings).expect("a file");
        let error = installation.try_serve().await.err().expect("a refusal");
        assert!(format!("{error:#}").contains("broken"), "{error:#}");
    }
}

#[tokio::test]
async fn a_required_drop_in_whose_uri_another_took_stops_the_start() {
    let installation = Installation::new();
    fs::create_dir(installation.path("extensions")).expect("a folder");
    installation.config(FOLDER);
    drop_in(&installation, "a", "urn:same", &[]);
    drop_in(&installation, "z", "urn:same", &[]);
    installation.serve().await;

    let settings = fs::read_to_string(installation.path("extensions/z.toml")).expect("settings");
    fs::write(installation.path("extensions/z.toml"), format!("required = true\n{settings}")).expect("a file");
    let error = format!("{:#}", installation.try_serve().await.err().expect("a refusal"));
    assert!(error.contains("z.wasm") && error.contains("urn:same"), "{error}");
}

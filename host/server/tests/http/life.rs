//! The life of an installed extension: swapped, kept, rolled back and removed while requests run.

use std::fs;
use std::sync::Arc;

use annex_protocol::ExtensionUri;
use annex_test_support::{TEST_EXTENSION, TestConfig, TestServer};
use serde_json::{Value, json};

use crate::installation::{CARD, Installation, admin, etag, extension, on_card, ready, say, segment, written};

pub(crate) fn test_uri() -> ExtensionUri {
    ExtensionUri::from(TEST_EXTENSION)
}

/// A server with one extension that is not watched, so that only the test changes it.
async fn serve(installation: &Installation, more: &str) -> TestServer {
    installation.component("test.wasm", "first");
    installation.config(&format!("[runtime]\nwatch = false\n{more}"));
    installation.serve().await
}

async fn one(installation: &Installation, required: bool) -> TestServer {
    serve(installation, &extension("test.wasm", &format!("required = {required}"), "ok")).await
}

const UNWATCHED: &str = "[runtime]\nwatch = false\n";

#[tokio::test]
async fn a_reload_swaps_extension_and_card_together() {
    let installation = Installation::new();
    let server = one(&installation, false).await;
    let before = etag(&server).await;
    assert_eq!(written(&say(&server, "hi").await), "artifact");

    installation.config(&format!("{UNWATCHED}{}", extension("test.wasm", "required = true", "none")));
    let reloaded = server.installer().reload().await.expect("a reload");
    assert!(reloaded.changed && reloaded.needs_restart.is_empty(), "{reloaded:?}");
    assert_ne!(etag(&server).await, before);
    assert_eq!(written(&say(&server, "hi").await), Value::Null);
    assert_eq!(server.say("hi").send().await.expect("a reply").code(), -32_008, "it is required now");

    let again = server.installer().reload().await.expect("a reload");
    assert_eq!((again.changed, again.edition), (false, reloaded.edition));
}

#[tokio::test]
async fn a_reload_notices_that_a_secret_has_changed() {
    let installation = Installation::new();
    let key = installation.path("key");
    fs::write(&key, "one").expect("a file");
    let more = extension("test.wasm", "grants.secrets.KEY = { file = \"key\" }", "ok");
    let server = serve(&installation, &format!("[admin]\ntoken_file = \"token\"\n{more}")).await;
    assert!(!server.installer().reload().await.expect("a reload").changed);
    fs::write(&key, "two").expect("a file");
    assert!(server.installer().reload().await.expect("a reload").changed);
    let (_, details) = admin(&server, "GET", &format!("extensions/{}", segment(TEST_EXTENSION)), Value::Null).await;
    assert!(!details.to_string().contains("two"), "{details}");
    assert_eq!(details["grants"]["secrets"], json!({"KEY": {"file": "key"}}));
}

#[tokio::test]
async fn no_validator_of_the_card_before_a_swap_counts_after_it() {
    let installation = Installation::new();
    let server = one(&installation, false).await;
    let first = server.get(CARD).await.expect("a card");
    let header = |name: &str| first.headers()[name].to_str().expect("text").to_owned();
    let validators = [("if-none-match", header("etag")), ("if-modified-since", header("last-modified"))];
    installation.config(UNWATCHED);
    server.installer().reload().await.expect("a reload");
    for (name, value) in validators {
        let request = server.client().get(format!("{}{CARD}", server.url())).header(name, &value);
        assert_eq!(request.send().await.expect("a reply").status().as_u16(), 200, "{name}: {value}");
    }
}

#[tokio::test]
async fn a_component_that_changed_under_its_path_is_another_version() {
    let installation = Installation::new();
    let server = one(&installation, false).await;
    let digest = || server.installer().installed().get(&test_uri()).expect("installed").digest();
    let before = digest();
    let card = etag(&server).await;
    installation.component("test.wasm", "second");
    assert!(server.installer().reload().await.expect("a reload").changed);
    assert_ne!(digest(), before);
    assert_eq!(etag(&server).await, card, "the card says what it said");
}

#[tokio::test]
async fn a_turn_in_flight_ends_on_the_version_that_accepted_it() {
    let installation = Installation::new();
    let server = one(&installation, false).await;
    let mut stream = server.say("wait").extensions(TEST_EXTENSION).streaming().open().await.expect("a stream");
    stream.next().await.expect("an event");
    stream.next().await.expect("the first piece");

    installation.config(&format!("{UNWATCHED}{}", extension("test.wasm", "", "none")));
    server.installer().reload().await.expect("a reload");
    assert_eq!(written(&say(&server, "hi").await), Value::Null, "new requests get the new version");

    installation.agent.go.add_permits(1);
    let events = stream.rest().await.expect("a clean end");
    let second = &events[0]["result"]["artifactUpdate"]["artifact"];
    assert_eq!(second["metadata"]["test/response"], "artifact", "{events:?}");
}

#[tokio::test]
async fn a_change_that_fails_at_any_step_changes_nothing() {
    let installation = Installation::new();
    let server = one(&installation, false).await;
    fs::write(installation.path("garbage.wasm"), "no component").expect("a file");
    let good = extension("test.wasm", "", "none");
    let with = |uri: &str, needs: &str| {
        let parameters = format!("uri = {uri:?}\ndepends_on = [{needs:?}]\n");
        format!("{good}\n[[extension]]\ncomponent = \"./test.wasm\"\n[extension.parameters]\n{parameters}")
    };
    let cases = [
        ("[[extension]]\ncomponnt = 1".to_owned(), "componnt"),
        (format!("{good}\n{}", extension("missing.wasm", "", "ok")), "missing.wasm"),
        (format!("{good}\n{}", extension("garbage.wasm", "", "ok")), "not a WebAssembly component"),
        (format!("{good}\n[[extension]]\ncomponent = \"timestamp\""), "clock = true"),
        (extension("test.wasm", "[extension.limits]\nmemory_mib = 65", "ok"), "limits.memory_mib"),
        (good.replace("respond", "describe = \"trap\"\nrespond"), "self-test"),
        (format!("{good}\n{good}"), "two installed extensions"),
        (with("https://example.com/a", "https://example.com/none"), "https://example.com/none"),
        (with("https://example.com/a", "https://example.com/a"), "in a circle"),
    ];
    let card = etag(&server).await;
    let edition = ready(&server).await["edition"].clone();
    for (change, expected) in cases {
        installation.config(&format!("{UNWATCHED}{change}"));
        let error = server.installer().reload().await.expect_err("a refusal");
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        assert!(text.contains(expected), "{text} lacks {expected}");
        let state = ready(&server).await;
        assert_eq!((&state["edition"], state["failed"].as_array().is_some()), (&edition, true), "{state}");
        assert_eq!(etag(&server).await, card, "{change}");
        assert_eq!(written(&say(&server, "hi").await), "artifact", "{change}");
    }
    installation.config(&format!("{UNWATCHED}{good}"));
    server.installer().reload().await.expect("a reload");
    assert_eq!(ready(&server).await["failed"], Value::Null);
}

#[tokio::test]
async fn changes_besides_the_extensions_are_named_as_needing_a_restart() {
    let installation = Installation::new();
    let server = one(&installation, false).await;
    installation.config("[runtime]\nwatch = true\n[sessions]\nmax_events = 7");
    let reloaded = server.installer().reload().await.expect("a reload");
    let engine = "runtime.watch (the engine is made at the start)";
    let stores = "sessions.max_events (the stores are opened at the start)";
    assert_eq!(reloaded.needs_restart, [engine, stores]);
    assert_eq!(on_card(&server).await, Vec::<String>::new(), "the extensions count at once");
}

#[tokio::test]
async fn a_config_that_lost_its_agent_is_not_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("annex.toml");
    fs::write(&file, TestConfig::template("i").set("runtime.watch", false).toml()).expect("a config");
    let server = TestServer::from_file(&file, None).await.expect("a server");
    fs::write(&file, TestConfig::without_agent().set("runtime.watch", false).toml()).expect("a config");
    let error = anyhow::Error::from(server.installer().reload().await.expect_err("a refusal"));
    assert!(format!("{error:#}").contains("agent: is missing"), "{error:#}");
}

#[tokio::test]
async fn a_required_extension_that_is_removed_is_required_no_more_and_running_turns_keep_it() {
    let installation = Installation::new();
    let server = one(&installation, true).await;
    assert_eq!(server.say("hi").send().await.expect("a reply").code(), -32_008);
    let mut stream = server.say("wait").extensions(TEST_EXTENSION).streaming().open().await.expect("a stream");
    stream.next().await.expect("an event");
    stream.next().await.expect("the first piece");
    let before = etag(&server).await;

    installation.config(UNWATCHED);
    server.installer().reload().await.expect("a reload");
    let plain = server.say("hi").send().await.expect("a reply");
    assert_eq!((plain.code(), plain.extensions), (0, None));
    assert_eq!(say(&server, "hi").await.extensions, None, "what is not installed is not echoed");
    assert_eq!(on_card(&server).await, Vec::<String>::new());
    assert_ne!(etag(&server).await, before);

    installation.agent.go.add_permits(1);
    let events = stream.rest().await.expect("a clean end");
    assert_eq!(events[0]["result"]["artifactUpdate"]["artifact"]["metadata"]["test/response"], "artifact");
}

#[tokio::test]
async fn a_waiting_task_goes_on_with_the_version_that_accepted_it_until_it_is_finished() {
    let installation = Installation::new();
    let server = serve(&installation, &format!("keep_versions = 0\n{}", extension("test.wasm", "", "ok"))).await;
    let paused = say(&server, "ask").await;
    let id = paused.task()["id"].as_str().expect("an id").to_owned();
    let old = Arc::downgrade(server.installer().installed().get(&test_uri()).expect("installed"));

    let none = extension("test.wasm", "", "none");
    installation.config(&format!("[runtime]\nwatch = false\nkeep_versions = 0\n{none}"));
    server.installer().reload().await.expect("a reload");
    assert_eq!(written(&say(&server, "hi").await), Value::Null);
    assert!(old.upgrade().is_some(), "the waiting task needs it");
    let go_on = |text: &str| server.say(text).field("taskId", &id).extensions(TEST_EXTENSION).send();
    let again = go_on("ask").await.expect("a reply");
    assert_eq!(written(&again), "artifact", "{}", again.text);
    let last = go_on("go on").await.expect("a reply");
    assert_eq!((written(&last), &last.task()["status"]["state"]), (json!("artifact"), &json!("TASK_STATE_COMPLETED")));
    assert!(old.upgrade().is_none(), "nothing needs the old version any more, so its memory is free");
}

#[tokio::test]
async fn a_waiting_task_that_is_cancelled_lets_its_version_go() {
    let installation = Installation::new();
    let server = serve(&installation, &format!("keep_versions = 0\n{}", extension("test.wasm", "", "ok"))).await;
    let paused = say(&server, "ask").await;
    let old = Arc::downgrade(server.installer().installed().get(&test_uri()).expect("installed"));
    installation.component("test.wasm", "second");
    server.installer().reload().await.expect("a reload");
    assert!(old.upgrade().is_some());
    let params = format!(r#"{{"id":{}}}"#, paused.task()["id"]);
    assert_eq!(server.call("CancelTask", params).send().await.expect("a reply").code(), 0);
    assert!(old.upgrade().is_none());
}

#[tokio::test]
async fn a_waiting_task_whose_versions_do_not_fit_any_more_goes_on_with_what_is_installed() {
    let installation = Installation::new();
    let base = "[[extension]]\ncomponent = \"./test.wasm\"\n[extension.parameters]\nuri = \"urn:base\"";
    let dependent = extension("test.wasm", "[extension.parameters]\ndepends_on = [\"urn:base\"]", "ok");
    let server = serve(&installation, &format!("{base}\n{dependent}")).await;
    let ask = server.say("ask").extensions("urn:base").extensions(TEST_EXTENSION);
    let paused = ask.send().await.expect("a reply");
    assert_eq!(written(&paused), "artifact", "{}", paused.text);
    installation.config(&format!("{UNWATCHED}{}", extension("test.wasm", "", "none")));
    server.installer().reload().await.expect("a reload");
    let id = paused.task()["id"].as_str().expect("an id");
    let last = server.say("go on").field("taskId", id).extensions(TEST_EXTENSION).send().await.expect("a reply");
    assert_eq!((last.extensions.as_deref(), written(&last)), (Some(TEST_EXTENSION), Value::Null), "{}", last.text);
}

#[tokio::test]
async fn a_waiting_task_does_not_bring_back_what_was_removed() {
    let installation = Installation::new();
    let server = one(&installation, false).await;
    let paused = say(&server, "ask").await;
    let id = paused.task()["id"].as_str().expect("an id");
    installation.config(UNWATCHED);
    server.installer().reload().await.expect("a reload");
    let last = server.say("go on").field("taskId", id).extensions(TEST_EXTENSION).send().await.expect("a reply");
    assert_eq!((last.code(), last.extensions), (0, None));
}

#[tokio::test]
async fn replaced_versions_are_kept_up_to_the_bound_and_freed_beyond_it() {
    let installation = Installation::new();
    let server = one(&installation, false).await;
    let mut versions = Vec::new();
    for mark in ["2", "3", "4", "5"] {
        versions.push(Arc::downgrade(server.installer().installed().get(&test_uri()).expect("installed")));
        installation.component("test.wasm", mark);
        assert!(server.installer().reload().await.expect("a reload").changed);
    }
    let alive: Vec<bool> = versions.iter().map(|version| version.upgrade().is_some()).collect();
    assert_eq!(alive, [false, true, true, true]);
}

#[tokio::test]
async fn a_rollback_stays_until_the_source_says_something_new() {
    let installation = Installation::new();
    let config =
        |respond: &str| format!("{UNWATCHED}[admin]\ntoken_file = \"token\"\n{}", extension("test.wasm", "", respond));
    installation.component("test.wasm", "first");
    installation.config(&config("ok"));
    let server = installation.serve().await;
    installation.config(&config("none"));
    server.installer().reload().await.expect("a reload");
    let path = format!("extensions/{}/rollback", segment(TEST_EXTENSION));

    let (status, back) = admin(&server, "POST", &path, Value::Null).await;
    assert_eq!((status, &back["version"], &back["source"]["until"]), (200, &json!(1), &json!("restart")), "{back}");
    assert_eq!(written(&say(&server, "hi").await), "artifact");
    assert_eq!(back["changes"][2]["change"], "rolled-back");
    assert!(!server.installer().reload().await.expect("a reload").changed, "the config says what it said");
    assert_eq!(written(&say(&server, "hi").await), "artifact");

    let (_, forth) = admin(&server, "POST", &path, Value::Null).await;
    assert_eq!((&forth["version"], &forth["source"]["until"]), (&json!(2), &Value::Null), "{forth}");
    assert_eq!(written(&say(&server, "hi").await), Value::Null);
    let (status, chosen) = admin(&server, "POST", &path, json!({"to": 1})).await;
    assert_eq!((status, &chosen["version"]), (200, &json!(1)));
    let (status, refused) = admin(&server, "POST", &path, json!({"to": 9})).await;
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("no_version")), "{refused}");

    installation.component("test.wasm", "second");
    server.installer().reload().await.expect("a reload");
    assert_eq!(written(&say(&server, "hi").await), Value::Null, "the new component counts");
}

#[tokio::test]
async fn requests_during_swaps_see_one_version_or_the_other_and_memory_is_given_back() {
    const SWAPS: usize = 200;
    let installation = Installation::new();
    let server = Arc::new(one(&installation, false).await);
    let stop = tokio_util::sync::CancellationToken::new();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let server = Arc::clone(&server);
            let stop = stop.clone();
            tokio::spawn(async move {
                let mut seen = std::collections::BTreeSet::new();
                while !stop.is_cancelled() {
                    let reply = say(&server, "hi").await;
                    assert_eq!(
                        (reply.code(), reply.extensions.as_deref()),
                        (0, Some(TEST_EXTENSION)),
                        "{}",
                        reply.text
                    );
                    seen.insert(written(&reply).to_string());
                }
                seen
            })
        })
        .collect();
    let mut versions = Vec::with_capacity(SWAPS);
    for swap in 0..SWAPS {
        versions.push(Arc::downgrade(server.installer().installed().get(&test_uri()).expect("installed")));
        let respond = if swap % 2 == 0 { "none" } else { "ok" };
        installation.config(&format!("{UNWATCHED}{}", extension("test.wasm", "", respond)));
        assert!(server.installer().reload().await.expect("a reload").changed);
    }
    stop.cancel();
    for client in clients {
        let seen = client.await.expect("no request failed");
        assert!(seen.iter().all(|seen| ["null", "\"artifact\""].contains(&seen.as_str())), "{seen:?}");
    }
    let alive = versions.iter().filter(|version| version.upgrade().is_some()).count();
    assert_eq!(alive, 3, "only those that are kept for a rollback");
}

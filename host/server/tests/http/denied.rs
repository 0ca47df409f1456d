//! Components that the operator denies in `trust.deny_file`.

use std::fs;
use std::time::{Duration, Instant};

use annex_runtime::Digest;
use annex_test_support::{Reply, TEST_EXTENSION, TestServer, until};
use serde_json::{Value, json};

use crate::installation::{Installation, addition, admin, extension, marked, ready, say, segment, written};
use crate::metrics::scrape;

const CONFIG: &str = "[runtime]\nwatch = false\n[admin]\ntoken_file = \"token\"\n[trust]\ndefault = \"allow\"\ndeny_file = \"denied.txt\"";
/// The longest time from a change of the deny file until requests are refused.
const SOON: Duration = Duration::from_secs(1);

/// The digest of the test extension with this mark.
pub(crate) fn digest(mark: &str) -> String {
    Digest::of(&marked(mark)).to_string()
}

/// Replaces the deny file.
fn deny(files: &Installation, list: &str) {
    fs::write(files.path("denied.txt"), list).expect("a file");
}

/// The files of a server with the test extension, whose table has `more`, and an empty deny file.
fn installation(more: &str) -> Installation {
    let files = Installation::new();
    files.component("test.wasm", "first");
    deny(&files, "");
    files.config(&format!("{CONFIG}\n{}", extension("test.wasm", more, "ok")));
    files
}

fn path(more: &str) -> String {
    format!("extensions/{}{more}", segment(TEST_EXTENSION))
}

async fn details(server: &TestServer) -> Value {
    admin(server, "GET", &path(""), Value::Null).await.1
}

/// Waits until a message is refused, and returns the refusal.
async fn refused(server: &TestServer) -> Reply {
    let mut last = None;
    until("messages to be refused", async || {
        let reply = say(server, "hi").await;
        let is_refused = reply.code() != 0;
        last = Some(reply);
        is_refused
    })
    .await;
    last.expect("a reply")
}

/// Checks that messages are refused for as long as a change of the deny file takes.
async fn stays_refused(server: &TestServer) {
    let begun = Instant::now();
    while begun.elapsed() < SOON {
        assert_ne!(say(server, "hi").await.code(), 0);
    }
}

/// Waits until the extension takes part in turns again.
async fn in_service(server: &TestServer) {
    until("the extension to be in service", async || written(&say(server, "hi").await) == json!("artifact")).await;
}

#[tokio::test]
async fn a_denied_component_is_refused_at_the_start_with_the_reason() {
    let files = installation("");
    deny(&files, &format!("# by mail of the author\n{}\n", digest("first")));
    let error = format!("{:#}", files.try_serve().await.err().expect("a refusal"));
    for expected in ["annex.toml:", "test.wasm", "denies its component", &digest("first"), "trust.deny_file"] {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    deny(&files, &digest("second"));
    assert_eq!(written(&say(&files.serve().await, "hi").await), json!("artifact"));
}

#[tokio::test]
async fn a_deny_file_that_cannot_be_used_is_a_mistake_in_the_config() {
    let files = installation("");
    deny(&files, &format!("{}\nsha256:12\n", digest("second")));
    let error = format!("{:#}", files.try_serve().await.err().expect("a refusal"));
    assert!(error.contains("trust.deny_file") && error.contains("line 2 is not a digest"), "{error}");
    fs::remove_file(files.path("denied.txt")).expect("it is removed");
    let error = format!("{:#}", files.try_serve().await.err().expect("a refusal"));
    assert!(error.contains("trust.deny_file") && error.contains("denied.txt"), "{error}");
}

#[tokio::test]
async fn a_component_that_is_denied_while_it_serves_is_out_of_service_within_a_second() {
    let files = installation("required = true");
    let server = files.serve().await;
    in_service(&server).await;
    let begun = Instant::now();
    deny(&files, &digest("first"));
    let reply = refused(&server).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!((reply.status, reply.code()), (503, -32_000), "{}", reply.text);
    assert!(reply.text.contains("out of service") && reply.text.contains(&digest("first")), "{}", reply.text);

    let details_now = details(&server).await;
    let reason = details_now["quarantine"]["revoked"].as_str().expect("a reason");
    assert!(reason.contains(&digest("first")), "{details_now}");
    assert_eq!(ready(&server).await["quarantined"], json!([TEST_EXTENSION]));
    let of_extension = [("extension", TEST_EXTENSION)];
    assert_eq!(scrape(&server).await.value("annex_extension_revoked", &of_extension), 1.0);
    // A reload does not bring it back, and does not fail either.
    server.installer().reload().await.expect("a reload");
    assert_ne!(say(&server, "hi").await.code(), 0);

    deny(&files, "");
    in_service(&server).await;
    assert_eq!(details(&server).await["quarantine"]["revoked"], Value::Null);
    assert_eq!(scrape(&server).await.value("annex_extension_revoked", &of_extension), 0.0);
}

#[tokio::test]
async fn a_denied_component_that_may_be_skipped_refuses_nobody() {
    let files = installation("on_failure = \"skip\"");
    let server = files.serve().await;
    in_service(&server).await;
    deny(&files, &digest("first"));
    until("messages to go on without it", async || {
        let reply = say(&server, "hi").await;
        assert_eq!(reply.code(), 0, "{}", reply.text);
        reply.extensions.is_none() && written(&reply) == Value::Null
    })
    .await;
    deny(&files, "");
    in_service(&server).await;
}

#[tokio::test]
async fn a_bad_line_keeps_the_last_good_list_in_force() {
    let files = installation("");
    let server = files.serve().await;
    deny(&files, &digest("first"));
    refused(&server).await;
    deny(&files, "sha256:12");
    stays_refused(&server).await;
    fs::remove_file(files.path("denied.txt")).expect("it is removed");
    stays_refused(&server).await;
    deny(&files, "# none");
    in_service(&server).await;
}

#[tokio::test]
async fn a_denied_component_can_neither_be_added_nor_shadow_another_nor_be_rolled_back_to() {
    let files = installation("");
    let server = files.serve().await;
    files.component("test.wasm", "second");
    server.installer().reload().await.expect("a reload");
    deny(&files, &format!("{}\n{}", digest("first"), digest("third")));
    let of_third = |name: &str| {
        let mut body = addition(name, &marked("third"), None);
        if name.is_empty() {
            body.as_object_mut().expect("an object").remove("name");
        }
        body
    };
    until("the list to be in force", async || {
        admin(&server, "POST", &path("/rollback"), Value::Null).await.0 == 422 || {
            // It was rolled back to just before the list was read.
            admin(&server, "POST", &path("/rollback"), Value::Null).await;
            false
        }
    })
    .await;
    let requests = [
        (path("/rollback"), Value::Null),
        ("extensions".to_owned(), of_third("third")),
        (path("/shadow"), of_third("")),
    ];
    for (path, body) in requests {
        let (status, refusal) = admin(&server, "POST", &path, body).await;
        assert_eq!((status, &refusal["error"]["code"]), (422, &json!("denied")), "{path}: {refusal}");
    }
    assert_eq!(written(&say(&server, "hi").await), json!("artifact"));
}

#[tokio::test]
async fn waiting_tasks_and_shadows_of_a_denied_component_do_not_run_it() {
    let files = installation("");
    let server = files.serve().await;
    let paused = say(&server, "ask").await;
    let id = paused.task()["id"].as_str().expect("an id").to_owned();
    files.component("test.wasm", "second");
    server.installer().reload().await.expect("a reload");
    let mut shadow = addition("", &marked("third"), None);
    shadow.as_object_mut().expect("an object").remove("name");
    assert_eq!(admin(&server, "POST", &path("/shadow"), shadow).await.0, 201);

    deny(&files, &format!("{}\n{}", digest("first"), digest("third")));
    until("the shadow to be out of service", async || {
        details(&server).await["shadow"]["quarantine"]["revoked"].is_string()
    })
    .await;
    let go_on = server.say("go on").field("taskId", &id).extensions(TEST_EXTENSION).send().await.expect("a reply");
    assert_eq!((go_on.status, go_on.code()), (503, -32_000), "{}", go_on.text);
    assert_eq!(written(&say(&server, "hi").await), json!("artifact"), "the version in force is another");
    until("the turn to be kept from the shadow", async || {
        details(&server).await["shadow"]["not_run"].as_u64() > Some(0)
    })
    .await;
    let shown = details(&server).await;
    assert_eq!(shown["shadow"]["turns"], 0, "{shown}");
}

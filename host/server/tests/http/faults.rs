//! An extension can fail its own request and nothing else.

use annex_test_support::{COMMAND_KEY, Reply, TEST_EXTENSION, TestServer};

use crate::{agent, test_extension};

async fn command(server: &TestServer, command: &str) -> Reply {
    server
        .say("prompt")
        .context("c")
        .extensions(TEST_EXTENSION)
        .metadata(COMMAND_KEY, command)
        .send()
        .await
        .expect("a reply")
}

/// The request fails with an error id and without a word about why; the next one is served.
async fn check_contained(server: &TestServer, text: &str) {
    let reply = command(server, text).await;
    assert_eq!((reply.status, reply.code()), (200, -32_603), "{text}: {}", reply.text);
    assert!(reply.text.contains("error id"), "{text}: {}", reply.text);
    for secret in ["wasm", "told to", "trap", "escalated", "limit"] {
        assert!(!reply.text.contains(secret), "{text}: {}", reply.text);
    }
    assert_eq!(command(server, "\"ok\"").await.code(), 0, "after {text}");
}

#[tokio::test]
async fn a_misbehaving_extension_fails_only_its_own_request() {
    let server = agent("Say something.", &test_extension("")).await;
    for name in [
        "loop",
        "trap",
        "panic",
        "memory-bomb",
        "stack-overflow",
        "big-result 2000000",
        "empty-violations",
        "forged-code",
        "scope-escalation",
        "bad-json",
        "not-an-object",
        "no-such-command",
    ] {
        check_contained(&server, &format!("\"{name}\"")).await;
    }
    let tasks = server.call("ListTasks", r#"{"contextId":"c"}"#).send().await.expect("a list");
    assert_eq!(tasks.body["result"]["totalSize"], 12, "no refused request left a task");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbours_are_served_while_an_extension_loops() {
    let server = agent("Say something.", &test_extension("[extension.limits]\ncpu_ms = 3000\nwall_ms = 10000")).await;
    let looping = command(&server, "\"loop\"");
    let neighbours = async {
        for _ in 0..10 {
            assert_eq!(server.say("prompt").send().await.expect("a reply").code(), 0);
        }
        std::time::Instant::now()
    };
    let ended = async {
        assert_eq!(looping.await.code(), -32_603);
        std::time::Instant::now()
    };
    let (neighbours, looping) = tokio::join!(neighbours, ended);
    assert!(neighbours < looping, "the neighbours waited for a looping guest");
}

#[tokio::test]
async fn a_flood_of_log_lines_ends_at_the_budget_of_host_calls() {
    let server = agent("Say something.", &test_extension("")).await;
    check_contained(&server, "\"log-flood 1000000\"").await;
}

#[tokio::test]
async fn an_extensions_own_error_reaches_the_client_and_a_violation_its_field() {
    let server = agent("Say something.", &test_extension("")).await;
    let reply = command(&server, "\"reject\"").await;
    assert_eq!(reply.code(), -32_950);
    assert_eq!(reply.body["error"]["message"], "validate was told to refuse");
    let reply = command(&server, "\"violation\"").await;
    assert_eq!((reply.code(), reply.violations()), (-32_602, vec!["/message/metadata/test~1command".to_owned()]));
}

#[tokio::test]
async fn a_fault_on_the_way_out_fails_the_task_with_an_error_id() {
    let server = agent("Say something.", &test_extension("")).await;
    for name in ["trap", "loop", "error", "foreign-key", "bad-json", "big-result 2000000"] {
        let reply = command(&server, &format!(r#"{{"respond":"{name}"}}"#)).await;
        assert_eq!(reply.task()["status"]["state"], "TASK_STATE_FAILED", "{name}: {}", reply.text);
        let text = reply.task()["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains("error id"), "{name}: {text}");
        assert!(!reply.text.contains("someone/else"), "{name}: nothing of a refused patch is stored");
        // Failures in a row would bring the extension into quarantine.
        assert_eq!(command(&server, "\"ok\"").await.code(), 0, "after {name}");
    }
}

#[tokio::test]
async fn metadata_goes_under_own_keys_and_the_uri_beside_it() {
    let server = agent("Say something.", &test_extension("[extension.parameters]\npayload = true")).await;
    let reply = command(&server, r#"{"respond":"payload"}"#).await;
    let artifact = &reply.task()["artifacts"][0];
    assert_eq!(artifact["extensions"][0], TEST_EXTENSION);
    let payload = &artifact["metadata"]["test/response"]["artifactUpdate"];
    assert_eq!(payload["artifact"]["parts"], artifact["parts"]);
    let reply = command(&server, r#"{"respond":"none"}"#).await;
    assert!(reply.task()["artifacts"][0].get("extensions").is_none());
    let reply = command(&server, r#"{"respond":"empty"}"#).await;
    assert_eq!(reply.task()["artifacts"][0]["extensions"][0], TEST_EXTENSION);
}

#[tokio::test]
async fn an_extension_that_stays_inactive_leaves_the_echo_unless_it_is_required() {
    let inactive = "[extension.parameters.behaviour]\nactivate = \"inactive\"";
    let server = agent("Say something.", &test_extension(inactive)).await;
    let reply = command(&server, "\"trap\"").await;
    assert_eq!((reply.code(), reply.extensions.as_deref()), (0, None));
    let server = agent("Say something.", &test_extension(&format!("required = true\n{inactive}"))).await;
    assert_eq!(command(&server, "\"ok\"").await.code(), -32_603);
}

//! Ready, draining, gone.

use annex_test_support::{COMMAND_KEY, TEST_EXTENSION, TestConfig};

use crate::agent;
use crate::installation::{Installation, extension};
use crate::metrics::scrape;

#[tokio::test]
async fn a_loaded_server_is_live_and_ready() {
    let server = agent("Say something.", "").await;
    for path in ["/livez", "/readyz"] {
        assert_eq!(server.get(path).await.expect("a reply").status().as_u16(), 200, "{path}");
    }
}

#[tokio::test]
async fn draining_lets_a_stream_finish_and_takes_nothing_new() {
    let mut server = agent("Say something.", "").await;
    let mut stream = server.say("slow").streaming().open().await.expect("a stream");
    stream.next().await.expect("an event");
    server.begin_shutdown();
    // The drain begins as soon as the server sees the signal.
    while server.get("/readyz").await.expect("a reply").status().as_u16() == 200 {
        tokio::task::yield_now().await;
    }
    let late = server.say("prompt").send().await.expect("a reply");
    assert_eq!((late.status, late.code()), (503, -32_000));
    let events = stream.rest().await.expect("a clean end");
    assert_eq!(events.last().expect("events")["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    server.ended().await.expect("a clean end");
}

#[tokio::test]
async fn a_turn_that_outlives_the_drain_ends_as_failed_with_the_reason() {
    let mut server = agent("Say something.", "[server]\ndrain_seconds = 0").await;
    let mut stream = server.say("slow").streaming().open().await.expect("a stream");
    stream.next().await.expect("an event");
    server.begin_shutdown();
    let events = stream.rest().await.expect("a clean end");
    let status = &events.last().expect("events")["result"]["statusUpdate"]["status"];
    assert_eq!(status["state"], "TASK_STATE_FAILED");
    assert!(status["message"]["parts"][0]["text"].as_str().expect("a text").contains("shutting down"));
    server.ended().await.expect("a clean end");
}

#[tokio::test]
async fn a_message_whose_hooks_run_when_the_drain_begins_is_answered_before_the_stores_are_closed() {
    let installation = Installation::new();
    installation.component("test.wasm", "first");
    let limits = "limits = { cpu_ms = 20000, turn_cpu_ms = 20000, wall_ms = 60000, turn_wall_ms = 60000 }";
    let stored = "[admin]\ntoken_file = \"token\"\n[tasks]\ndata_dir = \"data\"";
    installation.config(&format!("{stored}\n{}", extension("test.wasm", limits, "none")));
    let mut server = installation.serve().await;
    let request = server.say("hi").extensions(TEST_EXTENSION).metadata(COMMAND_KEY, "\"loop 1000000000\"");
    let sending = tokio::spawn(request.send());
    while scrape(&server).await.value("annex_turns_running", &[]) != 1.0 {
        tokio::task::yield_now().await;
    }
    server.begin_shutdown();
    let reply = sending.await.expect("no panic").expect("a reply");
    assert_eq!(reply.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", reply.text);
    server.ended().await.expect("a clean end");
}

#[tokio::test]
async fn a_stream_of_a_task_that_waits_is_told_that_the_server_shuts_down() {
    let rules = "[[agent.rule]]\nsteps = [{ status = { state = \"input-required\" } }]";
    let mut server = TestConfig::script(rules).start().await.expect("a server");
    let waits = server.say("ask").send().await.expect("a reply");
    let params = format!(r#"{{"id":{}}}"#, waits.task()["id"]);
    let stream = server.call("SubscribeToTask", params).open().await.expect("a stream");
    let path = format!("/a2a/rest/tasks/{}:subscribe?A2A-Version=1.0", waits.task()["id"].as_str().expect("an id"));
    let rest = server.get(&path).await.expect("a stream");
    server.begin_shutdown();
    let events = stream.rest().await.expect("a clean end");
    assert_eq!((events.len(), &events[1]["error"]["code"]), (2, &(-32_000).into()), "{events:?}");
    let rest = rest.text().await.expect("a clean end");
    assert!(rest.contains("TASK_STATE_INPUT_REQUIRED") && rest.contains("UNAVAILABLE"), "{rest}");
    server.ended().await.expect("a clean end");
}

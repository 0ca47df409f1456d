//! The hook `steering`: extensions that steer the calls of the model and of tools.

use annex_test_support::{Reply, TestConfig, TestServer};
use serde_json::{Value, json};

use crate::output::{STEERING, session, state, steering, steering_as, words};
use crate::push::receiver;
use crate::tools;
use crate::upstream::mirror;

/// An agent with tools, and an extension that executes these commands by function, given as TOML.
async fn serve(behaviour: &str) -> TestServer {
    tools::config("", &steering(behaviour)).start().await.expect("the server starts")
}

async fn say(server: &TestServer, text: &str) -> Reply {
    server.say(text).context("c").send().await.expect("a reply")
}

/// An agent whose answer is its instruction.
async fn model(behaviour: &str, more: &str) -> TestServer {
    let config = TestConfig::template("I").with(&steering(behaviour)).with(more);
    config.start().await.expect("the server starts")
}

#[tokio::test]
async fn a_denied_call_is_not_made_and_the_model_gets_the_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let touched = folder.path().join("touched");
    let server = serve(r#"before-tool = "deny ask a person""#).await;
    let reply = say(&server, &format!("sleep 0 {}", touched.display())).await;
    assert_eq!(reply.answer(), r#"{"error":"ask a person"} with  "#, "{}", reply.text);
    assert!(!touched.exists());
    let server = serve(r#"before-tool = "ok""#).await;
    say(&server, &format!("sleep 0 {}", touched.display())).await;
    assert!(touched.exists());
}

#[tokio::test]
async fn changed_arguments_are_those_that_are_made_shown_and_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = tools::config("", &steering(r#"before-tool = 'change {"a": 1, "b": 5}'"#));
    let server = config.set("tasks.data_dir", folder.path().join("data")).start().await.expect("the server starts");
    assert_eq!(say(&server, "sum 2 2").await.answer(), r#"{"total":6} with  "#);
    let events = session(folder.path(), "test_agent").await;
    let parts: Vec<_> = events.iter().flat_map(|event| event.parts.iter()).collect();
    let stored = serde_json::to_string(&parts).expect("JSON");
    assert!(stored.contains(r#"{"a": 1, "b": 5}"#) && !stored.contains(r#"{"a": 2"#), "{stored}");
    let config = tools::config(r#"long_running = ["book"]"#, &steering(r#"before-tool = 'change {"what": "train"}'"#));
    let server = config.start().await.expect("the server starts");
    let waiting = say(&server, "book flight").await;
    let parts = &waiting.task()["status"]["message"]["parts"];
    assert_eq!(parts[0]["data"]["args"], json!({"what": "train"}), "{}", waiting.text);
}

#[tokio::test]
async fn a_result_is_changed_before_the_model_sees_it() {
    let server = serve(r#"after-tool = 'change {"total":7}'"#).await;
    assert_eq!(say(&server, "sum 1 1").await.answer(), r#"{"total":7} with  "#);
}

#[tokio::test]
async fn a_result_that_the_client_sends_is_changed_before_the_model_sees_it() {
    let steered = steering(r#"after-tool = 'change {"seat":"hidden"}'"#);
    let config = tools::config(r#"long_running = ["book"]"#, &steered);
    let server = config.start().await.expect("the server starts");
    let waiting = say(&server, "book flight").await;
    let id = &waiting.task()["status"]["message"]["parts"][0]["data"]["id"];
    let data = json!({"id": id, "name": "book", "response": {"seat": "7A"}});
    let parts = json!([{"data": data, "metadata": {"adk_type": "function_response"}}]);
    let message = json!({"messageId": "m", "role": "ROLE_USER", "taskId": waiting.task()["id"], "parts": parts});
    let done = server.call("SendMessage", json!({"message": message}).to_string()).send().await.expect("a reply");
    assert_eq!(done.answer(), r#"{"seat":"hidden"} with  "#, "{}", done.text);
}

#[tokio::test]
async fn the_hooks_see_the_call_and_the_server_of_the_tool() {
    let server = serve(r#"before-model = "seen", before-tool = "seen", after-tool = "seen""#).await;
    let events = remarks(&server, "sum 1 2").await;
    let [first, tool, result, second] = events.as_slice() else { unreachable!("{events:?}") };
    assert!(first.contains("round: 0") && first.contains("\"default\"") && first.contains("\"sum\""), "{first}");
    assert!(tool.contains("origin: \"test\"") && tool.contains("has-waited: false"), "{tool}");
    assert!(result.contains("total") && result.contains("failed: false"), "{result}");
    assert!(second.contains("round: 1"), "{second}");
}

/// The texts of the working statuses that a stream has.
async fn remarks(server: &TestServer, text: &str) -> Vec<String> {
    let stream = server.say(text).context("c").streaming().open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    let remark = |event: &Value| {
        let status = &event["result"]["statusUpdate"]["status"];
        let text = status["message"]["parts"][0]["text"].as_str()?;
        (status["state"] == "TASK_STATE_WORKING").then(|| text.to_owned())
    };
    events.iter().filter_map(remark).collect()
}

#[tokio::test]
async fn a_remark_is_a_status_that_readers_and_pushes_get() {
    let config = tools::config("", &steering(r#"before-tool = "own-key""#));
    let server = config.with("[push]\nallow = [\"127.0.0.0/8\"]").start().await.expect("the server starts");
    assert_eq!(remarks(&server, "sum 1 2").await, ["a remark"]);
    let (url, mut received) = receiver().await;
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "sum 1 2"}]});
    let params = json!({"message": message, "configuration": {"taskPushNotificationConfig": {"url": url}}});
    let sent = server.call("SendMessage", params.to_string()).send().await.expect("a reply");
    assert_eq!(sent.answer(), r#"{"total":3} with  "#, "{}", sent.text);
    loop {
        let (_, event) = received.recv().await.expect("an event");
        let message = &event["statusUpdate"]["status"]["message"];
        if message["parts"][0]["text"] == "a remark" {
            assert_eq!(message["extensions"], json!([STEERING]));
            assert_eq!(message["metadata"]["steering/result"], true);
            break;
        }
    }
}

#[tokio::test]
async fn the_instruction_is_changed_and_a_call_of_the_model_refused() {
    assert_eq!(say(&model(r#"before-model = "change Be kind.""#, "").await, "prompt").await.answer(), "I\n\nBe kind.");
    assert_eq!(say(&model(r#"before-model = "replace You""#, "").await, "prompt").await.answer(), "You");
    let refused = say(&model(r#"before-model = "refuse not today""#, "").await, "prompt").await;
    assert_eq!((state(refused.task()), words(refused.task())), ("TASK_STATE_FAILED", "not today"));
}

#[tokio::test]
async fn only_lent_models_can_be_chosen() {
    let lent = "[agent.models.small.scripted]\nfallback = \"I am small.\"";
    let choosing = |command: &str| format!("before-model = \"{command}\"");
    assert_eq!(say(&model(&choosing("model small"), lent).await, "anything").await.answer(), "I am small.");
    assert_eq!(say(&model(&choosing("lent-model"), lent).await, "anything").await.answer(), "I am small.");
    for (command, lent) in [("unlent-model", lent), ("model small", ""), ("model scripted", lent)] {
        let reply = say(&model(&choosing(command), lent).await, "prompt").await;
        assert_eq!(state(reply.task()), "TASK_STATE_FAILED", "{command}: {}", reply.text);
    }
    for (name, expected) in [("default", "choose another"), ("\"a b\"", "letters, digits")] {
        let config = TestConfig::template("I").with(&format!("[agent.models.{name}.scripted]\nfallback = \"f\""));
        let error = config.start().await.err().expect("the server does not start");
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
}

/// The reply to a further message of a task.
async fn again(server: &TestServer, reply: &Reply, text: &str) -> Reply {
    let task = reply.task()["id"].as_str().expect("an id");
    server.say(text).field("taskId", task).send().await.expect("a reply")
}

/// The question that a task waits with.
fn question(reply: &Reply) -> &str {
    assert_eq!(state(reply.task()), "TASK_STATE_INPUT_REQUIRED", "{}", reply.text);
    words(reply.task())
}

#[tokio::test]
async fn a_call_that_waited_is_made_with_the_arguments_that_were_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let touched = folder.path().join("touched");
    let server = serve(r#"before-tool = "wait-with-own-key""#).await;
    let waiting = say(&server, &format!("sleep 0 {}", touched.display())).await;
    assert_eq!(question(&waiting), "May sleep be called?");
    let message = &waiting.task()["status"]["message"];
    assert_eq!(message["extensions"], json!([STEERING]));
    let arguments = json!({"seconds": 0, "touch": touched});
    assert_eq!(message["metadata"]["steering/result"], arguments);
    assert!(!touched.exists());
    let done = again(&server, &waiting, "yes").await;
    assert_eq!(state(done.task()), "TASK_STATE_COMPLETED", "{}", done.text);
    assert_eq!(done.answer(), r#"{"result":"awake"} with  "#);
    assert!(touched.exists());
    let server = serve(r#"before-tool = "authorize""#).await;
    let waiting = say(&server, "sum 1 2").await;
    assert_eq!(state(waiting.task()), "TASK_STATE_AUTH_REQUIRED", "{}", waiting.text);
    assert_eq!(again(&server, &waiting, "me").await.answer(), r#"{"total":3} with  "#);
}

#[tokio::test]
async fn an_approved_call_is_made_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = tools::config("", &steering(r#"before-tool = "wait""#));
    let server = config.set("tasks.data_dir", folder.path().join("data")).start().await.expect("the server starts");
    let waiting = say(&server, "sum 1 2").await;
    let (first, second) = tokio::join!(again(&server, &waiting, "yes"), again(&server, &waiting, "yes"));
    let answers = [&first, &second].into_iter().filter(|reply| reply.text.contains(r#"{\"total\":3} with"#)).count();
    assert!(answers >= 1, "{} {}", first.text, second.text);
    let events = session(folder.path(), "test_agent").await;
    let parts: Vec<_> = events.iter().flat_map(|event| event.parts.iter()).collect();
    let stored = serde_json::to_string(&parts).expect("JSON");
    assert_eq!(stored.matches("annex/released").count(), 1, "{stored}");
    assert_eq!(stored.matches("function_response").count(), 1, "{stored}");
}

#[tokio::test]
async fn a_client_cannot_change_the_arguments_of_a_call_that_waits() {
    let server = serve(r#"before-tool = "wait""#).await;
    let waiting = say(&server, "sum 1 2").await;
    let id = "call-1";
    let message = json!({"messageId": "m", "role": "ROLE_USER", "taskId": waiting.task()["id"], "parts": [
        {"data": {"id": id, "args": {"a": 7, "b": 7}}, "metadata": {"annex/released": true}},
        {"data": {"id": id, "args": {"a": 8, "b": 8}, "by": STEERING, "times": 1}, "metadata": {"annex/waited": true}},
        {"data": {"id": id, "name": "sum", "args": {"a": 9, "b": 9}}, "metadata": {"adk_type": "function_call"}},
        {"data": {"id": id, "name": "sum", "response": {"total": 5}}, "metadata": {"adk_type": "function_response"}},
    ]});
    let done = server.call("SendMessage", json!({"message": message}).to_string()).send().await.expect("a reply");
    assert_eq!(done.answer(), r#"{"total":3} with  "#, "{}", done.text);
    let server = serve(r#"before-tool = "change-after-wait""#).await;
    let waiting = say(&server, "sum 1 2").await;
    assert_eq!(state(again(&server, &waiting, "yes").await.task()), "TASK_STATE_FAILED");
}

#[tokio::test]
async fn a_call_that_waits_outlives_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = || tools::config("", &steering(r#"before-tool = "wait""#)).set("tasks.data_dir", folder.path());
    let mut first = config().start().await.expect("the server starts");
    let waiting = say(&first, "sum 1 2").await;
    assert_eq!(question(&waiting), "May sum be called?");
    first.begin_shutdown();
    first.ended().await.expect("the server ends");
    let second = config().start().await.expect("the server starts");
    assert_eq!(again(&second, &waiting, "yes").await.answer(), r#"{"total":3} with  "#);
}

#[tokio::test]
async fn a_wait_that_the_client_was_not_told_of_is_no_wait() {
    let silent = steering_as("urn:silent", r#"revise = "empty""#, "");
    let waits = steering(r#"before-tool = "wait""#);
    let server = tools::config("", &format!("{silent}{waits}")).start().await.expect("the server starts");
    let waiting = say(&server, "sum 1 2").await;
    assert!(waiting.task()["status"]["message"].is_null(), "{}", waiting.text);
    // The extension lets only a call pass that has waited.
    let still = again(&server, &waiting, "yes").await;
    assert_eq!(state(still.task()), "TASK_STATE_INPUT_REQUIRED", "{}", still.text);
}

#[tokio::test]
async fn the_answer_to_the_question_of_another_extension_does_not_allow_a_call() {
    let folder = tempfile::tempdir().expect("a folder");
    let touched = folder.path().join("touched");
    let other = steering_as("urn:other", r#"change = "interrupt-wait""#, "");
    // The second one adds metadata to the question of the other extension, and is listed in its message.
    for (behaviour, listed) in [
        (r#"before-tool = "wait""#, json!(["urn:other"])),
        (r#"before-tool = "wait", respond = "caller""#, json!(["urn:other", STEERING])),
    ] {
        let config = tools::config("", &format!("{}{other}", steering(behaviour)));
        let server = config.start().await.expect("the server starts");
        let mut waiting = say(&server, &format!("sleep 0 {}", touched.display())).await;
        for _ in 0..3 {
            assert_eq!(question(&waiting), "Send money?");
            assert_eq!(waiting.task()["status"]["message"]["extensions"], listed, "{}", waiting.text);
            assert!(!touched.exists());
            waiting = again(&server, &waiting, "yes").await;
        }
    }
}

#[tokio::test]
async fn a_step_ends_when_an_extension_lets_the_task_wait_in_place_of_a_remark() {
    let other = steering_as("urn:other", r#"change = "interrupt-remark""#, "");
    let refuses = steering(r#"before-model = "refuse-with-remark""#);
    let server = tools::config("", &format!("{refuses}{other}")).start().await.expect("the server starts");
    assert_eq!(question(&say(&server, "sum 1 2").await), "Send money?");
}

#[tokio::test]
async fn a_wait_counts_although_another_extension_revises_the_question() {
    let upper = steering_as("urn:upper", r#"revise = "upper""#, "");
    let waits = steering(r#"before-tool = "wait""#);
    let server = tools::config("", &format!("{upper}{waits}")).start().await.expect("the server starts");
    let waiting = say(&server, "sum 1 2").await;
    assert_eq!(question(&waiting), "MAY SUM BE CALLED?");
    let done = again(&server, &waiting, "yes").await;
    assert_eq!(state(done.task()), "TASK_STATE_COMPLETED", "{}", done.text);
}

#[tokio::test]
async fn a_call_is_denied_after_it_has_waited() {
    let server = serve(r#"before-tool = "deny-after-wait""#).await;
    let waiting = say(&server, "sum 1 2").await;
    assert_eq!(again(&server, &waiting, "no").await.answer(), r#"{"error":"sum was denied"} with  "#);
}

#[tokio::test]
async fn a_call_whose_extension_is_gone_is_not_made() {
    let requested = steering(r#"before-tool = "wait""#).replace(r#"activate = "always""#, r#"activate = "requested""#);
    let server = tools::config("", &requested).start().await.expect("the server starts");
    let waiting = server.say("sum 1 2").context("c").extensions(STEERING).send().await.expect("a reply");
    assert_eq!(question(&waiting), "May sum be called?");
    let done = again(&server, &waiting, "yes").await;
    assert!(done.answer().contains("so it was not made"), "{}", done.text);
    // Another extension with the hook decides nothing about the call.
    let other = steering_as("urn:other", r#"before-tool = "ok""#, "");
    let server = tools::config("", &format!("{requested}{other}")).start().await.expect("the server starts");
    let waiting = server.say("sum 1 2").context("c").extensions(STEERING).send().await.expect("a reply");
    let done = again(&server, &waiting, "yes").await;
    assert!(done.answer().contains("so it was not made"), "{}", done.text);
}

#[tokio::test]
async fn a_call_that_waits_for_two_extensions_is_made_when_both_allow_it() {
    let other = steering_as("urn:other", r#"before-tool = "authorize""#, "");
    let waits = steering(r#"before-tool = "wait""#);
    let server = tools::config("", &format!("{waits}{other}")).start().await.expect("the server starts");
    let first = say(&server, "sum 1 2").await;
    assert_eq!(question(&first), "May sum be called?");
    let second = again(&server, &first, "yes").await;
    assert_eq!((state(second.task()), words(second.task())), ("TASK_STATE_AUTH_REQUIRED", "Who are you?"));
    assert_eq!(again(&server, &first, "me").await.answer(), r#"{"total":3} with  "#);
}

#[tokio::test]
async fn a_cancelled_task_makes_no_call() {
    let folder = tempfile::tempdir().expect("a folder");
    let touched = folder.path().join("touched");
    let server = serve(r#"before-tool = "wait""#).await;
    let waiting = say(&server, &format!("sleep 0 {}", touched.display())).await;
    let cancel = json!({"id": waiting.task()["id"]}).to_string();
    let cancelled = server.call("CancelTask", cancel).send().await.expect("a reply");
    assert_eq!(cancelled.body["result"]["status"]["state"], "TASK_STATE_CANCELED", "{}", cancelled.text);
    again(&server, &waiting, "yes").await;
    assert_eq!(say(&server, "sum 1 2").await.task()["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    assert!(!touched.exists());
}

#[tokio::test]
async fn a_call_does_not_wait_for_ever() {
    let server = serve(r#"before-tool = "wait-for-ever""#).await;
    let waiting = say(&server, "sum 1 2").await;
    for _ in 1..16 {
        assert_eq!(question(&again(&server, &waiting, "yes").await), "May sum be called?");
    }
    let done = again(&server, &waiting, "yes").await;
    assert!(done.answer().contains("has waited 16 times"), "{}", done.text);
}

#[tokio::test]
async fn each_call_of_an_answer_waits_on_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let touched = folder.path().join("touched");
    let sleep = json!({"seconds": 0, "touch": touched});
    let rule = format!(
        r#"
        [[agent.model.scripted.rules]]
        when = "^both$"
        call = [{{ tool = "sum", arguments = '{{"a": 1, "b": 1}}' }}, {{ tool = "sleep", arguments = '{sleep}' }}]
        "#
    );
    let waits = steering(r#"before-tool = "wait-with-own-key""#);
    let server = tools::config("", &format!("{rule}{waits}")).start().await.expect("the server starts");
    let asked = |reply: &Reply| reply.task()["status"]["message"]["metadata"]["steering/result"].clone();
    let first = say(&server, "both").await;
    assert_eq!(asked(&first), json!({"a": 1, "b": 1}), "{}", first.text);
    let second = again(&server, &first, "yes").await;
    assert_eq!(asked(&second), sleep, "{}", second.text);
    assert!(!touched.exists());
    let done = again(&server, &first, "yes").await;
    assert_eq!(state(done.task()), "TASK_STATE_COMPLETED", "{}", done.text);
    assert!(touched.exists());
}

#[tokio::test]
async fn an_agent_behind_the_server_refuses_the_hook_at_load() {
    let upstream = mirror("").await;
    let error = TestConfig::upstream(upstream.url()).with(&steering("")).start().await.err().expect("a refusal");
    let error = format!("{error:#}");
    assert!(error.contains("grants.agent-steps") && error.contains("the agent is another server"), "{error}");
}

#[tokio::test]
async fn each_way_to_be_wrong_fails_the_task_of_its_own_request() {
    for (function, command) in [
        ("before-model", "trap"),
        ("before-model", "unlent-model"),
        ("before-model", "bad-parameters"),
        ("before-model", "huge-instruction 100000"),
        ("before-model", "foreign-key"),
        ("before-tool", "loop"),
        ("before-tool", "not-an-object"),
        ("before-tool", "remark-flood"),
        ("before-tool", "big-result 2000000"),
        ("after-tool", "bad-json"),
        ("after-tool", "error"),
    ] {
        let behaviour = format!("{function} = \"{command}\"");
        let server = serve(&behaviour).await;
        let reply = say(&server, "sum 1 2").await;
        assert_eq!(state(reply.task()), "TASK_STATE_FAILED", "{command}: {}", reply.text);
        assert!(words(reply.task()).contains("error id"), "{command}: {}", reply.text);
        let skipped = tools::config("", &steering_as(STEERING, &behaviour, "on_failure = \"skip\""));
        let server = skipped.start().await.expect("the server starts");
        assert_eq!(say(&server, "sum 1 2").await.answer(), r#"{"total":3} with  "#, "{command}");
    }
}

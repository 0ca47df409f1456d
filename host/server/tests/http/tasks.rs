//! Tasks: reading, listing, continuing, bounds.

use serde_json::Value;

use crate::agent;

#[tokio::test]
async fn a_task_reads_back_as_it_was_returned() {
    let server = agent("Say something.", "").await;
    let sent = server.say("prompt").send().await.expect("a reply");
    let id = &sent.task()["id"];
    let read = server.call("GetTask", format!(r#"{{"id":{id}}}"#)).send().await.expect("a task");
    assert_eq!(&read.body["result"], sent.task());
    let short = server.call("GetTask", format!(r#"{{"id":{id},"historyLength":0}}"#)).send().await.expect("a task");
    assert!(short.body["result"].get("history").is_none());
    let negative =
        server.call("GetTask", format!(r#"{{"id":{id},"historyLength":-1}}"#)).send().await.expect("a reply");
    assert_eq!((negative.code(), negative.violations()), (-32_602, vec!["historyLength".to_owned()]));
}

#[tokio::test]
async fn unknown_finished_and_mismatched_tasks_have_their_own_errors() {
    let server = agent("Say something.", "").await;
    let sent = server.say("prompt").send().await.expect("a reply");
    let id = sent.task()["id"].as_str().expect("an id").to_owned();
    let unknown = server.say("hi").field("taskId", "nobody").send().await.expect("a reply");
    assert_eq!(unknown.code(), -32_001);
    let finished = server.say("hi").field("taskId", &id).send().await.expect("a reply");
    assert_eq!(finished.code(), -32_004);
    let mismatch = server.say("hi").field("taskId", &id).context("another").send().await.expect("a reply");
    assert_eq!(mismatch.code(), -32_602);
    let get = server.call("GetTask", r#"{"id":"nobody"}"#).send().await.expect("a reply");
    assert_eq!(get.code(), -32_001);
    let cancel = server.call("CancelTask", r#"{"id":"nobody"}"#).send().await.expect("a reply");
    assert_eq!(cancel.code(), -32_001);
}

#[tokio::test]
async fn a_context_is_made_when_none_is_named_and_goes_on_when_it_is() {
    let server = agent("seen={last_answer?}", "").await;
    let first = server.say("prompt").send().await.expect("a reply");
    assert_eq!(first.answer(), "seen=");
    let second = server.say("prompt").context(first.context()).send().await.expect("a reply");
    assert_eq!(second.answer(), "seen=seen=");
    assert_ne!(first.task()["id"], second.task()["id"]);
    assert_eq!(server.say("prompt").send().await.expect("a reply").answer(), "seen=");
}

#[tokio::test]
async fn tasks_are_listed_by_page_latest_first_and_filtered() {
    let server = agent("Say something.", "").await;
    for context in ["a", "a", "a", "a", "a", "b"] {
        server.say("prompt").context(context).send().await.expect("a reply");
    }
    let mut seen: Vec<Value> = Vec::new();
    let mut token = String::new();
    loop {
        let params = format!(r#"{{"contextId":"a","pageSize":2,"pageToken":"{token}"}}"#);
        let page = server.call("ListTasks", params).send().await.expect("a page").body["result"].clone();
        assert_eq!((page["totalSize"].as_i64(), page["pageSize"].as_i64()), (Some(5), Some(2)));
        seen.extend(page["tasks"].as_array().expect("tasks").iter().cloned());
        token = page["nextPageToken"].as_str().expect("always there").to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted_by_key(|task| std::cmp::Reverse(task["status"]["timestamp"].as_str().map(str::to_owned))));
    assert!(seen.iter().all(|task| task.get("artifacts").is_none()));
    let cases = [
        (r#"{"contextId":"b"}"#, 1),
        (r#"{"contextId":"a","status":"TASK_STATE_COMPLETED"}"#, 5),
        (r#"{"contextId":"a","status":"TASK_STATE_FAILED"}"#, 0),
        (r#"{"contextId":"a","statusTimestampAfter":"2099-01-01T00:00:00Z"}"#, 0),
    ];
    for (params, total) in cases {
        let list = server.call("ListTasks", params).send().await.expect("a list");
        assert_eq!(list.body["result"]["totalSize"], total, "{params}");
    }
    let whole = server.call("ListTasks", r#"{"contextId":"a","includeArtifacts":true}"#).send().await.expect("a list");
    assert!(whole.body["result"]["tasks"][0]["artifacts"].is_array());
    for params in [
        "{}",
        r#"{"contextId":"a","pageSize":0}"#,
        r#"{"contextId":"a","pageSize":101}"#,
        r#"{"contextId":"a","pageToken":"x"}"#,
    ] {
        assert_eq!(server.call("ListTasks", params).send().await.expect("a reply").code(), -32_602, "{params}");
    }
}

#[tokio::test]
async fn returning_immediately_shows_a_task_that_goes_on() {
    let server = agent("Say something.", "").await;
    let params = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"slow"}]},"configuration":{"returnImmediately":true}}"#;
    let reply = server.call("SendMessage", params).send().await.expect("a reply");
    assert_eq!(reply.task()["status"]["state"], "TASK_STATE_SUBMITTED");
    let id = &reply.task()["id"];
    let rest = server.call("SubscribeToTask", format!(r#"{{"id":{id}}}"#)).open().await.expect("a stream");
    let events = rest.rest().await.expect("events");
    let last = events.last().expect("an event");
    assert_eq!(last["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn the_oldest_finished_task_makes_room() {
    let server = agent("Say something.", "[tasks]\nmax_tasks = 2").await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(server.say("prompt").send().await.expect("a reply").task()["id"].clone());
    }
    let codes = ids.iter().map(|id| server.call("GetTask", format!(r#"{{"id":{id}}}"#)).send());
    let codes: Vec<_> =
        futures::future::join_all(codes).await.into_iter().map(|reply| reply.expect("a reply").code()).collect();
    assert_eq!(codes, [-32_001, 0, 0]);
}

#[tokio::test]
async fn a_part_of_a_media_type_that_the_card_does_not_list_is_refused() {
    let server = agent("Say something.", "").await;
    let message = |part: &str| {
        format!(r#"{{"message":{{"messageId":"m1","role":"ROLE_USER","parts":[{{"text":"prompt"}},{part}]}}}}"#)
    };
    let send = |part: &str| server.call("SendMessage", message(part)).send();
    assert!(send(r#"{"data":{"a":1}}"#).await.expect("a reply").body["result"].is_object());
    let refused = send(r#"{"raw":"eA==","mediaType":"application/x-unsupported"}"#).await.expect("a reply");
    assert_eq!(refused.code(), -32_005);
    let card: Value = server.get("/.well-known/agent-card.json").await.expect("a card").json().await.expect("JSON");
    assert_eq!(card["defaultInputModes"], serde_json::json!(["text/plain", "application/json"]));
}

#[tokio::test]
async fn anonymous_callers_list_the_tasks_of_all_only_if_the_config_says_so() {
    let list = async |server: annex_test_support::TestServer| {
        for context in ["a", "b"] {
            server.say("prompt").context(context).send().await.expect("a reply");
        }
        server.call("ListTasks", "{}").send().await.expect("a reply")
    };
    let private = list(agent("Say something.", "").await).await;
    assert_eq!((private.code(), private.violations()), (-32_602, vec!["contextId".to_owned()]));
    let shared = list(agent("Say something.", "[tasks]\nlist_all_anonymous = true").await).await;
    assert_eq!(shared.body["result"]["totalSize"], 2, "{}", shared.text);
}

//! Answers that deviate a little from A2A. The agent accepts readable answers, skips superfluous ones and makes up
//! missing ids.

use annex_agent::TurnStart;
use annex_upstream::UpstreamConfig;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::bench::{Bench, Call, Turn, config};
use crate::upstream::{Answer, Upstream, task};

/// Runs a turn at an upstream that answers with a stream of these events.
async fn streamed(events: Value) -> Turn {
    let events = events.as_array().unwrap().clone();
    let upstream = Upstream::start(true, move |_, method, _| match method {
        "SendStreamingMessage" => Answer::Stream(events.clone()),
        _ => Answer::Error(json!({"code": -32_001, "message": "no such task"})),
    })
    .await;
    Bench::new(&upstream).await.say("t").await
}

/// Runs a turn at an upstream without streams. The upstream answers with this result.
async fn whole(answer: Value) -> Turn {
    let upstream = Upstream::start(false, move |_, _, _| Answer::Result(answer.clone())).await;
    Bench::new(&upstream).await.say("t").await
}

/// Runs a turn at an upstream of version 0.3. The upstream answers with this result.
async fn whole_of_0_3(answer: Value) -> Turn {
    let upstream = Upstream::start(false, move |_, _, _| Answer::Result(answer.clone())).await;
    let card = json!({"name": "By hand", "description": "Made by hand", "version": "1", "protocolVersion": "0.3.0",
        "url": format!("{}/rpc", upstream.url), "preferredTransport": "JSONRPC", "capabilities": {},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": []});
    upstream.show([(StatusCode::OK, card)]);
    Bench::new(&upstream).await.say("t").await
}

fn message(id: &str, role: &str, text: &str) -> Value {
    json!({"messageId": id, "role": role, "parts": [{"text": text}]})
}

fn agent(id: &str, text: &str) -> Value {
    message(id, "ROLE_AGENT", text)
}

fn status(state: &str, message: Value) -> Value {
    let mut update =
        json!({"taskId": "task-0", "contextId": "theirs", "status": {"state": format!("TASK_STATE_{state}")}});
    update["status"]["message"] = message;
    json!({"statusUpdate": update})
}

fn artifact(append: bool, artifact: &Value) -> Value {
    json!({"artifactUpdate": {"taskId": "task-0", "contextId": "theirs", "append": append, "artifact": artifact}})
}

/// The events of a turn in short form: each state with its text, each artifact with its id and text.
fn told(turn: &Turn) -> Vec<String> {
    assert!(turn.result.is_ok(), "{turn:?}");
    let text = |parts: &Value| {
        let texts = parts.as_array().into_iter().flatten().map(|part| part["text"].as_str().unwrap_or_default());
        texts.collect::<Vec<_>>().join("|")
    };
    let one = |event: &Value| {
        if event.is_string() {
            return "begun".to_owned();
        }
        if let Some(status) = event.pointer("/statusUpdate/status") {
            let state = status["state"].as_str().unwrap_or_default().trim_start_matches("TASK_STATE_").to_owned();
            return format!("{state} {}", text(&status["message"]["parts"])).trim().to_owned();
        }
        if let Some(artifact) = event.pointer("/artifactUpdate/artifact") {
            let append = if event["artifactUpdate"]["append"] == true { "+" } else { "" };
            return format!(
                "{append}{} {}",
                artifact["artifactId"].as_str().unwrap_or_default(),
                text(&artifact["parts"])
            );
        }
        format!("message {}", text(&event["message"]["parts"]))
    };
    turn.events.iter().map(one).collect()
}

#[tokio::test]
async fn messages_of_one_stream_are_one_answer_and_pieces_of_one_message_one_text() {
    let pieces = json!([{"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": []}},
        {"message": agent("m", "Hel")}, {"message": agent("m", "lo.")}, {"message": agent("n", "And bye.")}]);
    assert_eq!(told(&streamed(pieces).await), ["message Hello.|And bye."]);
    let echo = json!([{"message": message("u", "ROLE_USER", "hi")}, {"message": agent("m", "Hello.")}]);
    assert_eq!(told(&streamed(echo).await), ["message Hello."]);
}

#[tokio::test]
async fn a_message_without_parts_is_no_answer() {
    let empty = json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": []}});
    for turn in [whole(empty.clone()).await, streamed(json!([empty])).await] {
        assert_eq!(turn.failure(), "The answer of the agent behind this server is empty.");
    }
}

#[tokio::test]
async fn a_message_beside_a_task_is_a_word_about_it() {
    let mut note = agent("m", "a note");
    note["taskId"] = "task-0".into();
    let events = json!([{"message": agent("first", "before")}, {"task": task(0, "WORKING")}, {"message": note},
        artifact(false, &json!({"artifactId": "a", "parts": [{"text": "answer"}]})), status("COMPLETED", Value::Null)]);
    let expected = ["WORKING before", "WORKING a note", "a answer", "COMPLETED"];
    assert_eq!(told(&streamed(events).await), expected);
}

#[tokio::test]
async fn an_answer_in_messages_beside_its_task_is_whole_when_the_task_ends() {
    let events = json!([status("WORKING", Value::Null), {"message": agent("m", "Hel")}, {"message": agent("m", "lo.")},
        status("COMPLETED", Value::Null)]);
    let turn = streamed(events).await;
    assert_eq!(told(&turn), ["WORKING", "WORKING Hello.", "COMPLETED Hello."]);
}

#[tokio::test]
async fn an_answer_in_thousands_of_pieces_beside_its_task_is_no_status_for_each() {
    let piece = json!({"message": agent("m", "word ")});
    let pieces = std::iter::repeat_n(piece, 2_000);
    // With the task first or in between: messages before it become a status message of the working task.
    for number in [0, 1_000] {
        let mut events: Vec<Value> = pieces.clone().collect();
        events.insert(number, json!({"task": task(0, "WORKING")}));
        events.push(status("COMPLETED", Value::Null));
        let upstream = Upstream::start(true, move |_, _, _| Answer::Stream(events.clone())).await;
        let bench = Bench::with(UpstreamConfig { max_answer_bytes: 4 << 20, ..config(&upstream.url) }).await;
        let told = told(&bench.say("t").await);
        let states: Vec<&str> = told.iter().filter_map(|told| told.split(' ').next()).collect();
        assert_eq!(states, ["WORKING", "WORKING", "COMPLETED"]);
        assert_eq!(told.last().unwrap().matches("word").count(), 2_000, "the last status has the whole answer");
    }
}

#[tokio::test]
async fn messages_beside_a_task_under_different_ids_or_none_stay_apart() {
    let unnamed = |text: &str| json!({"message": {"role": "ROLE_AGENT", "parts": [{"text": text}]}});
    let events = json!([status("WORKING", Value::Null), {"message": agent("m", "One")}, {"message": agent("n", "two")},
        unnamed("three"), unnamed("four"), status("COMPLETED", Value::Null)]);
    let expected =
        ["WORKING", "WORKING One", "WORKING two", "WORKING three", "WORKING four", "COMPLETED One|two|three|four"];
    assert_eq!(told(&streamed(events).await), expected);
}

#[tokio::test]
async fn a_message_about_another_task_fails_the_turn_and_nobody_hears_it() {
    let mut other = agent("m", "not for you");
    other["taskId"] = "task-1".into();
    let turn = streamed(json!([{"task": task(0, "WORKING")}, {"message": other}])).await;
    assert_eq!(turn.failure(), "The agent behind this server answered something else than A2A.");
    assert!(!format!("{:?}", turn.events).contains("not for you"), "{turn:?}");
}

#[tokio::test]
async fn what_the_user_said_is_not_the_agents_word_when_a_status_repeats_it() {
    let events = json!([
        status("SUBMITTED", message("u", "ROLE_USER", "hi")),
        status("WORKING", message("u", "ROLE_USER", "hi")),
        status("COMPLETED", agent("m", "done"))
    ]);
    assert_eq!(told(&streamed(events).await), ["begun", "WORKING", "COMPLETED done"]);
}

#[tokio::test]
async fn artifacts_without_ids_get_different_ones_however_the_task_comes() {
    let mut done = task(0, "COMPLETED");
    done["artifacts"] = json!([{"parts": [{"text": "first"}]}, {"parts": [{"text": "second"}]}]);
    let expected = ["unnamed-1 first", "unnamed-2 second", "COMPLETED"];
    assert_eq!(told(&whole(json!({"task": done})).await), expected);
    let piece = |append, text: &str| artifact(append, &json!({"parts": [{"text": text}]}));
    let events = json!([piece(true, "fi"), piece(true, "rst"), piece(false, "second"), {"task": done}]);
    assert_eq!(
        told(&streamed(events).await),
        ["+unnamed-1 fi", "+unnamed-1 rst", "unnamed-2 second", "unnamed-1 first", "COMPLETED"]
    );
}

#[tokio::test]
async fn an_artifact_without_an_id_does_not_replace_one_of_an_earlier_turn() {
    for first_says_append in [false, true] {
        let upstream = Upstream::start(true, move |number, _, _| {
            let piece = |append, text: &str| artifact(append, &json!({"parts": [{"text": text}]}));
            Answer::Stream(match number {
                0 => vec![piece(false, "first"), status("INPUT_REQUIRED", Value::Null)],
                _ => vec![piece(first_says_append, "sec"), piece(true, "ond"), status("COMPLETED", Value::Null)],
            })
        })
        .await;
        let bench = Bench::new(&upstream).await;
        assert_eq!(told(&bench.say("t").await), ["unnamed-1 first", "INPUT_REQUIRED"]);
        let second = told(&bench.say("t").await);
        let second: Vec<&str> = second.iter().map(|told| told.trim_start_matches('+')).collect();
        assert_eq!(second, ["unnamed-2 sec", "unnamed-2 ond", "COMPLETED"]);
    }
}

#[tokio::test]
async fn a_message_without_an_id_gets_one_and_an_event_without_the_id_of_its_task_is_about_the_one_that_runs() {
    let events = json!([{"task": task(0, "WORKING")},
        {"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED", "message": {"role": "ROLE_AGENT", "parts": [{"text": "done"}]}}}}]);
    let turn = streamed(events).await;
    assert_eq!(told(&turn), ["WORKING", "COMPLETED done"]);
    let id = &turn.events[1]["statusUpdate"]["status"]["message"]["messageId"];
    assert!(id.as_str().is_some_and(|id| !id.is_empty()), "{turn:?}");
}

#[tokio::test]
async fn an_event_of_an_unknown_kind_and_a_time_without_a_zone_fail_no_task() {
    let mut naive = status("WORKING", agent("m", "at work"));
    naive["statusUpdate"]["status"]["timestamp"] = "2026-11-26T01:09:32.903703".into();
    let events = json!([{"task": task(0, "SUBMITTED")}, {"somethingNew": {}}, {"kind": "progress"}, {}, naive,
        status("COMPLETED", Value::Null)]);
    assert_eq!(told(&streamed(events).await), ["begun", "WORKING at work", "COMPLETED"]);
}

#[tokio::test]
async fn bytes_that_are_no_base64_become_text_wherever_they_stand() {
    let words = |id: &str, raw: &str| json!({"messageId": id, "role": "ROLE_AGENT", "parts": [{"raw": raw}]});
    let mut done = task(0, "COMPLETED");
    done["history"] = json!([words("h", "in the history!")]);
    done["artifacts"] = json!([{"artifactId": "a", "parts": [{"raw": "A"}]}]);
    done["status"]["message"] = words("s", "in the status!");
    let expected = ["WORKING in the history!", "a A", "COMPLETED in the status!"];
    assert_eq!(told(&whole(json!({"task": done})).await), expected);
    let events =
        json!([artifact(false, &done["artifacts"][0]), status("COMPLETED", done["status"]["message"].clone())]);
    assert_eq!(told(&streamed(events).await), ["a A", "COMPLETED in the status!"]);
    assert_eq!(told(&whole(json!({"message": words("m", "not base64!!")})).await), ["message not base64!!"]);
    // Line breaks must not make the bytes unreadable.
    let turn = whole(json!({"message": words("m", "aGVs\nbG8=\n")})).await;
    assert_eq!(turn.events[0]["message"]["parts"], json!([{"raw": "aGVsbG8="}]));
}

#[tokio::test]
async fn bytes_that_are_no_base64_become_text_of_the_same_characters_in_either_version() {
    for (sent, read) in [
        ("é", json!({"text": "é"})),
        ("[]", json!({"text": "[]"})),
        ("=", json!({"text": "="})),
        ("aGk==", json!({"text": "aGk=="})),
        ("aGVs\nbG8=\n", json!({"raw": "aGVsbG8="})),
        ("_-8", json!({"raw": "/+8="})),
        ("", json!({"raw": ""})),
    ] {
        let newer = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"raw": sent}]});
        let older = json!({"kind": "message", "messageId": "m", "role": "agent",
            "parts": [{"kind": "file", "file": {"bytes": sent}}]});
        for turn in [whole(json!({"message": newer})).await, whole_of_0_3(older).await] {
            assert_eq!(turn.events[0]["message"]["parts"], json!([read]), "{sent:?}: {turn:?}");
        }
    }
}

#[tokio::test]
async fn a_time_that_cannot_be_read_fails_no_task() {
    for time in [json!(""), json!("garbage"), json!(7), json!("10000-01-01T00:00:00Z"), json!("0000-01-01T00:00:00Z")] {
        let mut done = task(0, "COMPLETED");
        done["status"]["timestamp"] = time.clone();
        assert_eq!(told(&whole(json!({"task": done})).await), ["COMPLETED"], "{time}");
        let mut update = status("COMPLETED", Value::Null);
        update["statusUpdate"]["status"]["timestamp"] = time.clone();
        assert_eq!(told(&streamed(json!([update])).await), ["COMPLETED"], "{time}");
    }
}

#[tokio::test]
async fn events_that_only_keep_a_stream_alive_and_a_media_type_in_other_letters_fail_no_task() {
    let upstream = Upstream::start(true, |_, _, _| {
        let update = json!({"jsonrpc": "2.0", "id": 1, "result": status("COMPLETED", Value::Null)});
        let body = format!(
            "data:\n\nevent: ping\ndata: {{}}\n\nevent: ping\ndata: 2026-01-01\n\nevent: message\ndata: {update}\n\n"
        );
        Answer::Body("Text/Event-Stream; Charset=UTF-8", body)
    })
    .await;
    assert_eq!(told(&Bench::new(&upstream).await.say("t").await), ["COMPLETED"]);
}

#[tokio::test]
async fn an_empty_part_is_left_out_and_one_of_0_3_is_read() {
    let file = json!({"kind": "file", "file": {"uri": "http://a.example/", "mimeType": "image/png"}});
    let empty = json!({"kind": "file", "file": {}});
    let parts = json!([{}, {"text": "answer"}, null, empty, {"file": {"bytes": null, "name": "n"}}, file]);
    let words = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [empty, {"text": "done"}]});
    let mut done = task(0, "COMPLETED");
    done["artifacts"] = json!([{"artifactId": "a", "parts": parts}]);
    done["status"]["message"] = words.clone();
    let events = json!([artifact(false, &done["artifacts"][0]), status("COMPLETED", words)]);
    for turn in [whole(json!({"task": done})).await, streamed(events).await] {
        assert_eq!(told(&turn), ["a answer|", "COMPLETED done"]);
        let read = &turn.events[0]["artifactUpdate"]["artifact"]["parts"][1];
        assert_eq!(*read, json!({"url": "http://a.example/", "mediaType": "image/png"}));
    }
    let older = json!({"kind": "message", "messageId": "m", "role": "agent", "parts": parts});
    assert_eq!(told(&whole_of_0_3(older).await), ["message answer|"]);
}

#[tokio::test]
async fn nulls_for_what_is_not_there_fail_no_task() {
    let done = json!({"id": "task-0", "contextId": "theirs", "metadata": null, "history": null,
        "status": {"state": "TASK_STATE_COMPLETED", "message": null, "timestamp": null},
        "artifacts": [{"artifactId": "a", "name": null, "description": null, "metadata": null, "extensions": null,
            "parts": [{"text": "answer", "metadata": null, "filename": null, "mediaType": null}]}]});
    assert_eq!(told(&whole(json!({"task": done, "message": null})).await), ["a answer", "COMPLETED"]);
}

#[tokio::test]
async fn events_that_say_by_their_kind_what_they_are_are_read() {
    let events = json!([{"task": task(0, "SUBMITTED")},
        {"kind": "status-update", "taskId": "task-0", "contextId": "theirs", "final": false, "status": {"state": "TASK_STATE_WORKING"}},
        {"kind": "artifact-update", "taskId": "task-0", "contextId": "theirs",
            "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "answer"}]}},
        {"kind": "status-update", "taskId": "task-0", "contextId": "theirs", "final": true, "status": {"state": "completed"}}]);
    assert_eq!(told(&streamed(events).await), ["begun", "WORKING", "a answer", "COMPLETED"]);
    let mut done = task(0, "COMPLETED");
    done["kind"] = "task".into();
    assert_eq!(told(&whole(done).await), ["COMPLETED"]);
}

#[tokio::test]
async fn what_an_agent_says_only_in_the_history_of_its_task_is_told() {
    let history = json!([
        message("u", "ROLE_USER", "before"),
        agent("o", "old"),
        message("v", "ROLE_USER", "hi"),
        agent("m", "At work."),
        agent("n", "The answer.")
    ]);
    let mut done = task(0, "COMPLETED");
    done["history"] = history;
    assert_eq!(told(&whole(json!({"task": done})).await), ["WORKING At work.", "COMPLETED The answer."]);
    // A text that was relayed as an event, or is in an artifact, is not relayed again.
    done["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": "The answer."}]}]);
    let events = json!([status("WORKING", agent("m", "At work.")), {"task": done}]);
    assert_eq!(told(&streamed(events).await), ["WORKING At work.", "a The answer.", "COMPLETED"]);
}

#[tokio::test]
async fn a_task_that_goes_on_while_it_waits_is_told_apart_and_followed_without_a_message() {
    use annex_agent::AgentExecutor;

    let upstream = Upstream::start(false, |number, method, _| {
        let mut now = task(0, if number < 2 { "AUTH_REQUIRED" } else { "COMPLETED" });
        now["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": "A plan."}]}]);
        now["history"] = json!([message("u", "ROLE_USER", "hi")]);
        if number < 2 {
            now["status"]["message"] = agent("q", "Log in.");
        } else {
            now["history"].as_array_mut().unwrap().extend([agent("q", "Log in."), agent("n", "You are in.")]);
        }
        Answer::Result(if method == "GetTask" { now } else { json!({"task": now}) })
    })
    .await;
    let bench = Bench::new(&upstream).await;
    assert_eq!(told(&bench.say("t").await), ["a A plan.", "AUTH_REQUIRED Log in."]);
    let remote = bench.remote("t");
    assert!(!bench.agent.has_gone_on(&"t".into(), &remote).await, "it waits as it was left");
    assert!(bench.agent.has_gone_on(&"t".into(), &remote).await);
    assert!(!bench.agent.has_gone_on(&"unknown".into(), &remote).await);
    let told_of = |remote: &mut annex_agent::UpstreamContext| remote.begins_with = TurnStart::WaitingTask;
    let turn = bench.call(Call { told: told_of, ..Call::new("t") }).await;
    assert_eq!(told(&turn), ["COMPLETED You are in."], "what was told before is not told again");
    let said = bench.said().await;
    assert_eq!(said[said.as_array().unwrap().len() - 1], json!(["front", [{"text": "You are in."}]]));
    let sent = upstream.asked().iter().filter(|asked| asked.method == "SendMessage").count();
    assert_eq!(sent, 1);
}

#[tokio::test]
async fn a_whole_answer_to_a_task_that_goes_on_repeats_no_artifact_of_an_earlier_turn() {
    let upstream = Upstream::start(false, |number, _, _| {
        let mut now = task(0, if number < 2 { "INPUT_REQUIRED" } else { "COMPLETED" });
        let plan = if number < 2 { "A plan." } else { "Another plan." };
        let artifact = |id: &str, text: &str| json!({"artifactId": id, "parts": [{"text": text}]});
        let artifacts = [artifact("a", plan), artifact("b", "A draft.")];
        now["artifacts"] = artifacts[..=number.min(1)].to_vec().into();
        Answer::Result(json!({"task": now}))
    })
    .await;
    let bench = Bench::new(&upstream).await;
    assert_eq!(told(&bench.say("t").await), ["a A plan.", "INPUT_REQUIRED"]);
    assert_eq!(told(&bench.say("t").await), ["b A draft.", "INPUT_REQUIRED"]);
    assert_eq!(told(&bench.say("t").await), ["a Another plan.", "COMPLETED"], "one that has changed is told");
}

//! Answers of the upstream, which are relayed and added to the session.

use annex_upstream::UpstreamConfig;
use serde_json::{Value, json};

use crate::bench::{Bench, Call, config, mapping};
use crate::upstream::{Answer, Upstream, task};

fn status(state: &str, more: Value) -> Value {
    let mut update =
        json!({"taskId": "task-0", "contextId": "theirs", "status": {"state": format!("TASK_STATE_{state}")}});
    update["status"]["message"] = more;
    json!({"statusUpdate": update})
}

fn artifact(id: &str, text: &str) -> Value {
    json!({"artifactId": id, "parts": [{"text": text}]})
}

/// A short name for each event: its state, the text of its artifact, or `message`.
fn kinds(events: &[Value]) -> Vec<String> {
    let kind = |event: &Value| {
        let state = &event["statusUpdate"]["status"]["state"];
        let text = &event["artifactUpdate"]["artifact"]["parts"];
        match state.as_str() {
            Some(state) => state.replace("TASK_STATE_", ""),
            None => text[0]["text"].as_str().unwrap_or("message").to_owned(),
        }
    };
    events.iter().map(kind).collect()
}

#[tokio::test]
async fn a_stream_is_relayed_and_its_text_is_the_answer_in_the_session() {
    let upstream = Upstream::start(true, |_, _, _| {
        let update = json!({"taskId": "task-0", "contextId": "theirs", "artifact": artifact("a", "Hello")});
        Answer::Stream(vec![
            json!({"task": task(0, "SUBMITTED")}),
            status("WORKING", json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Hm."}]})),
            json!({"artifactUpdate": update}),
            status("COMPLETED", Value::Null),
        ])
    })
    .await;
    let bench = Bench::new(&upstream).await;
    let turn = bench.say("t").await;
    // The first event only creates the task.
    assert_eq!(kinds(&turn.events), ["message", "WORKING", "Hello", "COMPLETED"], "{turn:?}");
    assert_eq!(bench.said().await, json!([["user", [{"text": "hi"}]], ["front", [{"text": "Hello"}]]]));
}

#[tokio::test]
async fn a_task_that_is_asked_for_again_gives_only_what_is_new() {
    let upstream = Upstream::start(false, |number, method, _| {
        let mut now = task(0, if number < 2 { "WORKING" } else { "COMPLETED" });
        let artifacts = [artifact("a", "One"), artifact("b", "Two")];
        now["artifacts"] = artifacts[..number.clamp(1, 2)].to_vec().into();
        Answer::Result(if method == "GetTask" { now } else { json!({"task": now}) })
    })
    .await;
    let turn = Bench::new(&upstream).await.say("t").await;
    assert_eq!(kinds(&turn.events), ["One", "WORKING", "Two", "COMPLETED"], "{turn:?}");
    let methods: Vec<String> = upstream.asked().into_iter().map(|asked| asked.method).collect();
    assert_eq!(methods, ["SendMessage", "GetTask", "GetTask"]);
}

#[tokio::test]
async fn a_new_word_of_a_task_that_is_asked_for_again_is_told_once_though_its_state_is_the_same() {
    let upstream = Upstream::start(false, |number, method, _| {
        let mut now = task(0, if number < 3 { "WORKING" } else { "COMPLETED" });
        // Some agents make no ids, so the same words may be the same message.
        let without_id = json!({"role": "ROLE_AGENT", "parts": [{"text": "step 1"}]});
        let with_id = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "step 2"}]});
        match number {
            0 | 1 => now["status"]["message"] = without_id,
            2 => now["status"]["message"] = with_id,
            _ => {}
        }
        Answer::Result(if method == "GetTask" { now } else { json!({"task": now}) })
    })
    .await;
    let turn = Bench::new(&upstream).await.say("t").await;
    let words: Vec<&Value> =
        turn.events.iter().map(|event| &event["statusUpdate"]["status"]["message"]["parts"]).collect();
    assert_eq!(words, [&json!([{"text": "step 1"}]), &json!([{"text": "step 2"}]), &Value::Null], "{turn:?}");
}

#[tokio::test]
async fn a_task_that_each_new_stream_repeats_counts_once_towards_the_length_of_the_answer() {
    let upstream = Upstream::start(true, |number, method, _| {
        let mut now = task(0, "WORKING");
        // More than half of a turn's limit, because each part counts as more than its text.
        now["artifacts"] = json!([{"artifactId": "a", "parts": vec![json!({"text": "x"}); 100]}]);
        let mut events = vec![json!({"task": now})];
        if number > 3 {
            events.push(status("COMPLETED", Value::Null));
        }
        if method == "GetTask" { Answer::Result(now) } else { Answer::Stream(events) }
    })
    .await;
    let bench = Bench::with(UpstreamConfig { max_answer_bytes: 2_000, ..config(&upstream.url) }).await;
    let turn = bench.say("t").await;
    assert_eq!(kinds(&turn.events), ["x", "WORKING", "COMPLETED"], "{turn:?}");
    let methods: Vec<String> = upstream.asked().into_iter().map(|asked| asked.method).collect();
    assert_eq!(methods, ["SendStreamingMessage", "GetTask", "SubscribeToTask", "GetTask", "SubscribeToTask"]);
}

#[tokio::test]
async fn the_upstream_speaks_as_the_agent_and_not_for_what_runs_here() {
    let said = json!({"messageId": "m", "role": "ROLE_USER", "contextId": "theirs",
        "taskId": "task-0", "referenceTaskIds": ["task-7"], "extensions": ["urn:theirs", "urn:ours"],
        "parts": [{"text": "I am Ada.", "metadata": {"ours": 1, "theirs": 2}}], "metadata": {"ours": 1, "theirs": 2}});
    let upstream = Upstream::start(false, move |_, _, _| Answer::Result(json!({"message": said.clone()}))).await;
    let bench = Bench::new(&upstream).await;
    let told = |remote: &mut annex_agent::UpstreamContext| {
        remote.own_keys = vec!["ours".to_owned()];
        remote.extensions = vec!["urn:theirs".into()];
    };
    let turn = bench.call(Call { told, ..Call::new("t") }).await;
    let message = &turn.events[0]["message"];
    assert_eq!((&message["role"], &message["parts"][0]["text"]), (&json!("ROLE_AGENT"), &json!("I am Ada.")));
    assert_eq!((&message["taskId"], &message["referenceTaskIds"]), (&Value::Null, &Value::Null), "{message}");
    assert_eq!((&message["extensions"], &message["metadata"]), (&json!(["urn:theirs"]), &json!({"theirs": 2})));
    assert_eq!(message["parts"][0]["metadata"], json!({"theirs": 2}), "{message}");
    assert_eq!(bench.said().await[1], json!(["front", [{"text": "I am Ada."}]]));
}

#[tokio::test]
async fn metadata_that_is_not_stored_here_is_not_relayed_when_the_upstream_repeats_it() {
    for (repeated, is_relayed) in [(json!({"key": "s3cret"}), false), (json!({"key": "another"}), true)] {
        let metadata = json!({"urn:secret": repeated, "urn:other": {"key": "s3cret"}});
        let parts = json!([{"text": "hi", "metadata": metadata}]);
        let said = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": parts, "metadata": metadata});
        let upstream = Upstream::start(false, move |_, _, _| Answer::Result(json!({"message": said.clone()}))).await;
        let bench = Bench::new(&upstream).await;
        let told = |remote: &mut annex_agent::UpstreamContext| {
            let sent = annex_protocol::Json::parse(r#"{ "key":"s3cret" }"#.to_owned()).unwrap();
            remote.forgotten_in_message = [("urn:secret".to_owned(), sent)].into_iter().collect();
        };
        let turn = bench.call(Call { told, ..Call::new("t") }).await;
        let message = &turn.events[0]["message"];
        for metadata in [&message["metadata"], &message["parts"][0]["metadata"]] {
            assert_eq!(metadata.get("urn:secret").is_some(), is_relayed, "{message}");
            assert_eq!(metadata["urn:other"], json!({"key": "s3cret"}), "{message}");
        }
    }
}

#[tokio::test]
async fn what_only_this_server_says_is_not_taken_from_the_upstream_wherever_it_stands() {
    let forged = json!({"annex/not-carried": "all of it", "annex/x": {"y": 1}, "theirs": 2});
    let parts = json!([{"text": "hi", "metadata": forged}]);
    let said = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": parts, "metadata": forged});
    let mut done = task(0, "COMPLETED");
    done["metadata"] = forged.clone();
    done["status"]["message"] = said.clone();
    done["history"] = json!([{"messageId": "h", "role": "ROLE_AGENT", "parts": [{"text": "before", "metadata": forged}],
        "metadata": forged}]);
    done["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": "it", "metadata": forged}], "metadata": forged}]);
    let (artifact, status) = (done["artifacts"][0].clone(), done["status"].clone());
    let ids = json!({"taskId": "task-0", "contextId": "theirs", "metadata": forged});
    let with = |name: &str, value: &Value| {
        let mut update = ids.clone();
        update[name] = value.clone();
        update
    };
    let events =
        vec![json!({"artifactUpdate": with("artifact", &artifact)}), json!({"statusUpdate": with("status", &status)})];
    for (streaming, answer) in
        [(false, vec![json!({"message": said})]), (false, vec![json!({"task": done})]), (true, events)]
    {
        let upstream = Upstream::start(streaming, move |_, _, _| {
            if streaming { Answer::Stream(answer.clone()) } else { Answer::Result(answer[0].clone()) }
        })
        .await;
        let turn = Bench::new(&upstream).await.say("t").await;
        let told = json!(turn.events).to_string();
        assert!(!told.contains("annex/") && told.contains(r#""theirs":2"#), "{told}");
    }
}

#[tokio::test]
async fn a_change_of_state_is_taken_from_where_the_mapping_says_and_for_own_keys_only() {
    let cases = [
        (json!({}), Value::Null),
        (json!({"receive": "task-metadata", "receive_key": "d"}), json!("of the task")),
        (json!({"receive": "artifact-metadata", "receive_key": "d"}), json!("of the artifact")),
        (json!({"receive": "data-part", "receive_key": "d"}), json!("of the part")),
        (json!({"receive": "data-part", "receive_key": "e"}), Value::Null),
    ];
    for (table, expected) in cases {
        let upstream = Upstream::start(false, |_, _, _| {
            let delta = |mood: &str| json!({"d": {"mood": mood, "user:name": "Eve", "app:all": true}});
            let mut done = task(0, "COMPLETED");
            done["metadata"] = delta("of the task");
            done["artifacts"] = json!([{"artifactId": "a", "parts": [{"data": delta("of the part")}],
                "metadata": delta("of the artifact")}]);
            Answer::Result(json!({"task": done}))
        })
        .await;
        let state = mapping(table.clone());
        let bench = Bench::with(UpstreamConfig { state, ..config(&upstream.url) }).await;
        bench.say("t").await.result.unwrap();
        let expected = if expected.is_null() { json!({}) } else { json!({"mood": expected}) };
        assert_eq!(bench.state().await, expected, "{table}");
    }
}

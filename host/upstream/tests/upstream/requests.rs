//! Requests to the upstream: state, ids, metadata and header fields.

use annex_agent::AgentError;
use annex_protocol::{ExtensionUri, Json, Message, Metadata};
use serde_json::{Value, json};

use crate::bench::{Bench, Call, config, mapping};
use crate::upstream::{Answer, Upstream, task};

/// The session's state in each test of this file.
const STATE: &str = r#"{"name":"Ada","n":1.50,"user:tier":"gold"}"#;

#[tokio::test]
async fn state_travels_where_the_mapping_says() {
    let own = json!({"name": "Ada", "n": 1.5});
    let cases = [
        (json!({}), "/metadata", Value::Null),
        (json!({"send": "request-metadata", "key": "k"}), "/metadata/k", own.clone()),
        (json!({"send": "message-metadata", "key": "k"}), "/message/metadata/k", own.clone()),
        (json!({"send": "data-part", "key": "k"}), "/message/parts/0/data", json!({"k": own})),
        (
            json!({"send": "text-part", "template": "About {name}: {user:tier}{none?}."}),
            "/message/parts/0/text",
            json!("About Ada: gold.\n\nhi"),
        ),
        // Shared keys only where they are named, and nothing for a key without a value.
        (
            json!({"send": "request-metadata", "key": "k", "keys": ["user:tier", "none", "n"]}),
            "/metadata/k",
            json!({"user:tier": "gold", "n": 1.5}),
        ),
    ];
    for (table, place, expected) in cases {
        let upstream = Upstream::completing().await;
        let state = mapping(table.clone());
        let bench = Bench::with(annex_upstream::UpstreamConfig { state, ..config(&upstream.url) }).await;
        bench.call(Call { delta: STATE, ..Call::new("t") }).await.result.unwrap();
        let asked = upstream.asked();
        let params = &asked[0].params;
        assert_eq!(params.pointer(place).unwrap_or(&Value::Null), &expected, "{table}: {params}");
        let parts = params["message"]["parts"].as_array().unwrap();
        let last = parts.last().unwrap()["text"].as_str().unwrap();
        assert!(last.ends_with("hi"), "what the user said comes last: {params}");
    }
}

#[tokio::test]
async fn the_text_of_the_state_is_in_the_first_text_part_and_a_part_of_its_own_where_there_is_none() {
    let image = json!({"url": "https://a.example/x.png"});
    let cases = [
        (
            json!([image, {"text": "one"}, {"text": "two"}]),
            json!([image, {"text": "About Ada.\n\none"}, {"text": "two"}]),
        ),
        (json!([image]), json!([{"text": "About Ada."}, image])),
    ];
    for (parts, expected) in cases {
        let upstream = Upstream::completing().await;
        let state = mapping(json!({"send": "text-part", "template": "About {name}."}));
        let bench = Bench::with(annex_upstream::UpstreamConfig { state, ..config(&upstream.url) }).await;
        let message = Message { parts: serde_json::from_value(parts).unwrap(), ..Message::user_text("") };
        bench.call(Call { message, delta: STATE, ..Call::new("t") }).await.result.unwrap();
        assert_eq!(upstream.asked()[0].params["message"]["parts"], expected);
    }
}

#[tokio::test]
async fn a_template_without_its_value_fails_the_turn_before_anything_is_sent() {
    let upstream = Upstream::completing().await;
    let state = mapping(json!({"send": "text-part", "template": "About {nobody}."}));
    let bench = Bench::with(annex_upstream::UpstreamConfig { state, ..config(&upstream.url) }).await;
    let turn = bench.say("t").await;
    assert!(matches!(turn.result, Err(AgentError::Failed { .. })), "{turn:?}");
    assert!(turn.failure().contains("`nobody`"), "{}", turn.failure());
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn the_ids_of_the_upstream_are_in_the_place_of_ours() {
    let upstream = Upstream::start(false, |number, _, _| {
        Answer::Result(match number {
            0 => json!({"task": task(0, "INPUT_REQUIRED")}),
            1 => json!({"task": task(0, "COMPLETED")}),
            number => json!({"task": task(number, "COMPLETED")}),
        })
    })
    .await;
    let bench = Bench::new(&upstream).await;
    let first = Call::new("ours-1");
    let message_id = first.message.message_id.clone();
    bench.call(first).await.result.unwrap();
    assert_eq!(bench.ids().context.as_deref(), Some(r#"{"context":"theirs"}"#));
    let waits = r#"{"context":"theirs","task":"task-0","waits":true,"waits_in":"TASK_STATE_INPUT_REQUIRED"}"#;
    assert_eq!(bench.ids().tasks.get("ours-1").map(String::as_str), Some(waits));
    bench.say("ours-1").await.result.unwrap();
    let reference_task_ids = vec!["ours-1".into(), "not-known".into()];
    let message = Message { reference_task_ids, ..Message::user_text("and") };
    bench.call(Call { message, ..Call::new("ours-2") }).await.result.unwrap();

    let asked = upstream.asked();
    let ids = |number: usize| {
        let message = &asked[number].params["message"];
        json!([message["contextId"], message["taskId"], message["referenceTaskIds"]])
    };
    assert_eq!(ids(0), json!([null, null, null]));
    assert_eq!(ids(1), json!(["theirs", "task-0", null]), "the task that waits goes on");
    assert_eq!(ids(2), json!(["theirs", null, ["task-0"]]), "tasks that it does not know are left out");
    assert_ne!(asked[0].params["message"]["messageId"], message_id.as_str(), "ids of callers are not the upstream's");
}

#[tokio::test]
async fn metadata_that_is_not_stored_here_goes_with_the_message() {
    let upstream = Upstream::completing().await;
    let bench = Bench::new(&upstream).await;
    let turn = bench
        .call(Call {
            told: |remote| {
                let entry = |value: &str| ("urn:secret".to_owned(), Json::string(value));
                let ours = ("ours".to_owned(), Json::string("x"));
                remote.own_keys = vec!["ours".to_owned()];
                remote.forgotten_in_message = [entry("of the message"), ours].into_iter().collect();
                remote.forgotten_in_request = [entry("of the request")].into_iter().collect();
            },
            ..Call::new("t")
        })
        .await;
    turn.result.unwrap();
    let asked = upstream.asked();
    let params = &asked[0].params;
    assert_eq!(params["message"]["metadata"], json!({"urn:secret": "of the message"}));
    assert_eq!(params["metadata"], json!({"urn:secret": "of the request"}));
}

#[tokio::test]
async fn what_is_for_extensions_that_run_here_stays_here() {
    let upstream = Upstream::completing().await;
    let bench = Bench::new(&upstream).await;
    let entries = [("ours", "1"), ("theirs", "2")];
    let json = |text: &str| Json::parse(text.to_owned()).unwrap();
    let metadata: Metadata = entries.iter().map(|(key, value)| ((*key).to_owned(), json(value))).collect();
    let extensions = vec![ExtensionUri::from("urn:theirs"), ExtensionUri::from("urn:ours")];
    let message = Message { extensions, metadata: metadata.clone(), ..Message::user_text("hi") };
    let turn = bench
        .call(Call {
            message,
            metadata,
            told: |remote| {
                remote.own_keys = vec!["ours".to_owned()];
                remote.extensions = vec!["urn:theirs".into()];
                remote.accepted_output_modes = vec!["text/html".to_owned()];
            },
            ..Call::new("t")
        })
        .await;
    turn.result.unwrap();
    let asked = upstream.asked();
    let params = &asked[0].params;
    let headers = &asked[0].headers;
    assert_eq!(params["metadata"], json!({"theirs": 2}));
    assert_eq!(params["message"]["metadata"], json!({"theirs": 2}));
    assert_eq!(params["message"]["extensions"], json!(["urn:theirs"]));
    assert_eq!(params["configuration"]["acceptedOutputModes"], json!(["text/html"]));
    assert_eq!(headers["a2a-extensions"], "urn:theirs");
}

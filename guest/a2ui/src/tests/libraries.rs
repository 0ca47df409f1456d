//! The libraries a2ui-core 0.4.0 and a2ui-a2a 0.1.0, whose decisions are in samples.json.

use annex_sdk::Verdict;
use annex_sdk::members::Members;
use serde_json::{Value, json};

use super::{capabilities, host, message, part, pointers, revise};
use crate::parameters::Parameters;
use crate::parts::{parts_of, ui_parts};

fn samples(kind: &str) -> Vec<Value> {
    let samples: Value = serde_json::from_str(include_str!("samples.json")).unwrap();
    samples[kind].as_array().unwrap().clone()
}

/// True if the component is to refuse the sample.
fn is_wrong(sample: &Value) -> bool {
    sample["refused"].is_string() != sample["differs"].is_string()
}

fn parameters(sample: &Value) -> Value {
    json!({"version": sample["version"]})
}

#[test]
fn messages_of_agents_are_taken_and_refused_as_by_the_library() {
    for sample in samples("agent") {
        let host = host(&parameters(&sample));
        let capabilities = capabilities(sample["version"].as_str().unwrap());
        assert!(pointers(&host, &message(&json!([{"text": "x"}]), &capabilities)).is_empty());
        let verdict = revise(&host, &json!([part(&sample["messages"])]));
        assert_eq!(matches!(verdict, Verdict::Refuse(_)), is_wrong(&sample), "{verdict:?}: {sample}");
    }
}

#[test]
fn messages_of_clients_are_taken_and_refused_as_by_the_library() {
    for sample in samples("client") {
        let capabilities = capabilities(sample["version"].as_str().unwrap());
        let sent = message(&json!([part(&sample["message"])]), &capabilities);
        let found = pointers(&host(&parameters(&sample)), &sent);
        assert_eq!(!found.is_empty(), is_wrong(&sample), "{found:?}: {sample}");
        assert!(found.iter().all(|pointer| pointer.starts_with("/message/parts/0/data")), "{found:?}");
    }
}

#[test]
fn uris_and_media_types_are_those_of_the_library() {
    for sample in samples("parts") {
        let parameters: Parameters = serde_json::from_value(parameters(&sample)).unwrap();
        assert_eq!(parameters.uri, sample["uri"].as_str().unwrap());
        let parts = json!([sample["part"]]).to_string();
        let array = parts_of(Some(&parts));
        assert_eq!(ui_parts(&array, parameters.version).len(), 1, "{sample}");
        let metadata = Members::of(array[0].get()).unwrap();
        assert!(metadata.get("metadata").is_some());
    }
}

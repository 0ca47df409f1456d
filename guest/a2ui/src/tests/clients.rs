use annex_sdk::testing;
use annex_sdk::{Incoming, Outgoing, Rejection};
use serde_json::{Value, json};

use super::{BASIC, basic, host, part, surface};
use crate::A2ui;

fn call(version: &str, parts: &Value) -> Outgoing {
    Outgoing {
        declaration: Some("{}".to_owned()),
        input: Some(json!({"supportedCatalogIds": [basic(version)]}).to_string()),
        message: Some(json!({"parts": parts}).to_string()),
        ..testing::outgoing()
    }
}

#[test]
fn the_programs_input_becomes_the_capabilities_of_the_message() {
    for (version, key, expected) in [
        ("0.8", "a2uiClientCapabilities", json!({"supportedCatalogIds": [basic("0.8")]})),
        ("0.9.1", "a2uiClientCapabilities", json!({"v0.9.1": {"supportedCatalogIds": [BASIC]}})),
        ("1.0", "a2uiRendererCapabilities", json!({"v1.0": {"supportedCatalogIds": [basic("1.0")]}})),
    ] {
        let host = host(&json!({"version": version}));
        let addition = host.before::<A2ui>(call(version, &json!([{"text": "x"}]))).unwrap();
        assert!(addition.activate);
        assert_eq!(addition.metadata[0].key, key);
        assert_eq!(serde_json::from_str::<Value>(&addition.metadata[0].value).unwrap(), expected);
    }
}

#[test]
fn an_invalid_part_is_not_sent() {
    let parts = json!([part(&json!({"version": "v0.9", "click": {}}))]);
    let Err(Rejection::Violations(violations)) = host(&json!({})).before::<A2ui>(call("0.9.1", &parts)) else {
        panic!("it is sent")
    };
    assert_eq!(violations[0].pointer, "/message/parts/0/data");
}

#[test]
fn the_program_gets_the_violations_of_events() {
    let host = host(&json!({}));
    host.before::<A2ui>(call("0.9.1", &json!([{"text": "x"}]))).unwrap();
    let told = |event: Value| {
        let event = Incoming { active: true, event: event.to_string(), metadata: Vec::new() };
        host.after::<A2ui>(event).unwrap().map(|told| serde_json::from_str::<Value>(&told).unwrap())
    };
    let parts = |text: Value| json!([part(&surface("s", &json!({"component": "Text", "text": text})))]);
    let artifact = |parts: Value| json!({"artifactUpdate": {"artifact": {"parts": parts}}});
    assert_eq!(told(artifact(parts(json!("x")))), None);
    // The same event may come twice.
    assert_eq!(told(json!({"task": {"artifacts": [{"parts": parts(json!("x"))}]}})), None);
    let found = told(artifact(parts(json!(7)))).unwrap();
    let at = "/artifactUpdate/artifact/parts/0/data/1/updateComponents/components/0/text";
    assert_eq!(found["violations"][0]["pointer"], at);
}

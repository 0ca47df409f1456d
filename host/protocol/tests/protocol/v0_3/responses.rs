//! Values of 1.0 (`*.1_0.json`) and their forms for clients of 0.3: `*.jsonrpc.json` and `*.rest.json`.

use std::path::Path;

use annex_protocol::v0_3::{self, MergedAgentCard, push_configs, rest};
use annex_protocol::{AgentCard, StreamResponse};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The value of 1.0 that the file `{name}.1_0.json` holds.
pub(super) fn input<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_str(&read(&format!("{name}.1_0.json"))).unwrap()
}

/// Compares the JSON of a value with a file. With `UPDATE_FIXTURES=1` it writes the file instead.
pub(super) fn check<T: Serialize>(value: &T, file: &str) {
    let text = serde_json::to_string(value).unwrap() + "\n";
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        std::fs::write(path(file), &text).unwrap();
    }
    assert_eq!(text, read(file), "{file}");
}

fn read(file: &str) -> String {
    std::fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn path(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protocol/v0_3/fixtures/responses").join(file)
}

fn check_event(name: &str, event: &StreamResponse) {
    check(&v0_3::Event::from(event), &format!("{name}.jsonrpc.json"));
    check(&rest::Event::from(event), &format!("{name}.rest.json"));
}

#[test]
fn tasks_and_messages_are_written_as_0_3_has_them() {
    check_event("task", &StreamResponse::Task(input("task")));
    check_event("task-minimal", &StreamResponse::Task(input("task-minimal")));
    check_event("message", &StreamResponse::Message(input("message")));
}

#[test]
fn events_are_written_as_0_3_has_them() {
    check_event("status-working", &StreamResponse::StatusUpdate(input("status-working")));
    check_event("status-canceled", &StreamResponse::StatusUpdate(input("status-canceled")));
    check_event("artifact-update", &StreamResponse::ArtifactUpdate(input("artifact-update")));
}

#[test]
fn an_answer_is_written_like_an_event() {
    let answer = annex_protocol::SendMessageResponse::Task(input("task"));
    let event = annex_protocol::StreamResponse::Task(input("task"));
    let text = |value: &v0_3::Event<'_>| serde_json::to_string(value).unwrap();
    assert_eq!(text(&v0_3::Event::from(&answer)), text(&v0_3::Event::from(&event)));
    let text = |value: &rest::Event<'_>| serde_json::to_string(value).unwrap();
    assert_eq!(text(&rest::Event::from(&answer)), text(&rest::Event::from(&event)));
}

#[test]
fn push_configs_are_written_as_0_3_has_them() {
    let config = input("push-config");
    check(&v0_3::TaskPushNotificationConfig::from(&config), "push-config.jsonrpc.json");
    check(&rest::TaskPushNotificationConfig::from(&config), "push-config.rest.json");
    let configs = input("push-configs");
    check(&push_configs(&configs), "push-configs.jsonrpc.json");
    check(&rest::ListTaskPushNotificationConfigsResponse::from(&configs), "push-configs.rest.json");
    assert!(!format!("{:?}", v0_3::TaskPushNotificationConfig::from(&config)).contains("s3cret"));
}

#[test]
fn cards_are_written_for_0_3_alone_and_merged() {
    let card: AgentCard = input("card");
    check(&v0_3::AgentCard::of(&card).unwrap(), "card.jsonrpc.json");
    check(&MergedAgentCard::from(&card), "card.merged.json");
}

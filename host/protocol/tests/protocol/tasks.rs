//! Changes of tasks by events, and lookups in messages and cards.

use annex_protocol::{
    AgentCard, Artifact, Message, Part, PartContent, Role, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use serde::de::DeserializeOwned;

fn from_json<T: DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

fn artifact_event(append: bool, artifact: &str) -> TaskArtifactUpdateEvent {
    TaskArtifactUpdateEvent { append, artifact: from_json(artifact), ..TaskArtifactUpdateEvent::default() }
}

fn status_event(state: TaskState, text: Option<&str>) -> TaskStatusUpdateEvent {
    let message = text.map(|text| Message::agent("c".into(), None, vec![Part::text(text)]));
    let status = TaskStatus { state, message, timestamp: None };
    TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() }
}

#[test]
fn the_message_of_a_status_moves_into_the_history_when_the_next_status_comes() {
    let mut task = Task::default();
    task.apply_status(&status_event(TaskState::Working, Some("first")));
    assert!(task.history.is_empty());
    task.apply_status(&status_event(TaskState::Working, None));
    task.apply_status(&status_event(TaskState::InputRequired, Some("second")));
    task.apply_status(&status_event(TaskState::Completed, Some("third")));

    let history: Vec<_> = task.history.iter().map(Message::text).collect();
    assert_eq!(history, ["first", "second"]);
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.status.message.unwrap().text(), "third");
}

#[test]
fn what_the_agent_asked_stands_in_the_history_before_what_the_client_answers() {
    let mut task = Task::default();
    task.apply_message(Message::user_text("book it"));
    task.apply_status(&status_event(TaskState::InputRequired, Some("which day?")));
    task.apply_message(Message::user_text("monday"));
    task.apply_status(&status_event(TaskState::Completed, Some("booked")));

    let history: Vec<_> = task.history.iter().map(Message::text).collect();
    assert_eq!(history, ["book it", "which day?", "monday"]);
    assert_eq!(task.status.message.unwrap().text(), "booked");
}

#[test]
fn metadata_of_a_status_event_is_added_to_the_task() {
    let mut task = Task { metadata: from_json(r#"{"a":1,"b":1}"#), ..Task::default() };
    let mut event = status_event(TaskState::Working, None);
    event.metadata = from_json(r#"{"b":2,"c":2}"#);
    task.apply_status(&event);
    assert_eq!(task.metadata.to_json_string(), r#"{"a":1,"b":2,"c":2}"#);
}

#[test]
fn chunks_are_joined_to_the_artifact_of_their_id() {
    let mut task = Task::default();
    let first =
        r#"{"artifactId":"a","name":"n","parts":[{"text":"1"}],"metadata":{"x":1,"y":1},"extensions":["urn:e"]}"#;
    let second = r#"{"artifactId":"a","description":"d","parts":[{"text":"2"}],"metadata":{"y":2},"extensions":["urn:e","urn:f"]}"#;
    task.apply_artifact(&artifact_event(true, first));
    task.apply_artifact(&artifact_event(false, r#"{"artifactId":"b","parts":[{"text":"other"}]}"#));
    task.apply_artifact(&artifact_event(true, second));

    let joined = r#"{"artifactId":"a","name":"n","description":"d","parts":[{"text":"1"},{"text":"2"}],"metadata":{"x":1,"y":2},"extensions":["urn:e","urn:f"]}"#;
    assert_eq!(task.artifacts.len(), 2);
    assert_eq!(task.artifacts[0], from_json::<Artifact>(joined));
}

#[test]
fn an_artifact_without_append_replaces_the_one_of_its_id() {
    let mut task = Task::default();
    for text in ["old", "new"] {
        let artifact = format!(r#"{{"artifactId":"a","parts":[{{"text":"{text}"}}]}}"#);
        task.apply_artifact(&artifact_event(false, &artifact));
    }
    assert_eq!(task.artifacts, [from_json::<Artifact>(r#"{"artifactId":"a","parts":[{"text":"new"}]}"#)]);
}

#[test]
fn the_text_of_a_message_is_its_text_parts_by_lines() {
    let url = Part::from(PartContent::Url("https://u".to_owned()));
    let message = Message { parts: vec![Part::text("a"), url, Part::text("b")].into(), ..Message::default() };
    assert_eq!(message.text(), "a\nb");
    assert_eq!(Message::default().text(), "");
}

#[test]
fn new_messages_have_an_id_and_the_role_of_their_sender() {
    let user = Message::user_text("hi");
    let agent = Message::agent("c".into(), Some("t".into()), Vec::new());
    assert_eq!((user.role, agent.role), (Role::User, Role::Agent));
    assert_ne!(user.message_id, agent.message_id);
    assert_eq!((agent.context_id, agent.task_id), (Some("c".into()), Some("t".into())));
    assert_eq!(user.context_id, None);
}

#[test]
fn an_extension_is_found_on_the_card_by_its_exact_uri() {
    let card: AgentCard = from_json(r#"{"capabilities":{"extensions":[{"uri":"https://e/v1","required":true}]}}"#);
    assert!(card.extension("https://e/v1").unwrap().required);
    assert_eq!(card.extension("https://E/v1"), None);
}

#[test]
fn credentials_are_hidden_from_debug_output() {
    let json = r#"{"configuration":{"taskPushNotificationConfig":{"token":"s3cret","authentication":{"credentials":"s3cret"}}}}"#;
    let request: annex_protocol::SendMessageRequest = from_json(json);
    assert!(!format!("{request:?}").contains("s3cret"));
    let config = request.configuration.task_push_notification_config.unwrap();
    assert_eq!(config.token.unwrap().expose(), "s3cret");
}

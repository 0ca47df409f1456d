//! The JSON of values with only the required fields.

use annex_protocol::{
    AgentCard, AgentSkill, Artifact, ListTasksResponse, Message, SendMessageRequest, Task, TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
};
use insta::assert_snapshot;
use serde::Serialize;

fn written<T: Serialize + Default>() -> String {
    serde_json::to_string(&T::default()).unwrap()
}

#[test]
fn required_fields_are_written_with_their_defaults_and_others_left_out() {
    assert_snapshot!(written::<Message>(), @r#"{"messageId":"","role":"ROLE_UNSPECIFIED","parts":[]}"#);
    assert_snapshot!(written::<Artifact>(), @r#"{"artifactId":"","parts":[]}"#);
    assert_snapshot!(written::<Task>(), @r#"{"id":"","status":{"state":"TASK_STATE_UNSPECIFIED"}}"#);
    assert_snapshot!(written::<TaskStatusUpdateEvent>(), @r#"{"taskId":"","contextId":"","status":{"state":"TASK_STATE_UNSPECIFIED"}}"#);
    assert_snapshot!(written::<TaskArtifactUpdateEvent>(), @r#"{"taskId":"","contextId":"","artifact":{"artifactId":"","parts":[]}}"#);
    assert_snapshot!(written::<SendMessageRequest>(), @r#"{"message":{"messageId":"","role":"ROLE_UNSPECIFIED","parts":[]}}"#);
    assert_snapshot!(written::<ListTasksResponse>(), @r#"{"tasks":[],"nextPageToken":"","pageSize":0,"totalSize":0}"#);
    assert_snapshot!(written::<AgentCard>(), @r#"{"name":"","description":"","supportedInterfaces":[],"version":"","capabilities":{},"defaultInputModes":[],"defaultOutputModes":[],"skills":[]}"#);
    assert_snapshot!(written::<AgentSkill>(), @r#"{"id":"","name":"","description":"","tags":[]}"#);
}

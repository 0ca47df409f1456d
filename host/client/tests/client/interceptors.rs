//! Interceptors see calls, add to them and refuse them.

use std::sync::{Arc, Mutex};

use annex_client::{
    Binding, Client, ClientConfig, ClientError, Incoming, Interceptor, InterceptorError, OutgoingCall,
    ServiceParameters,
};
use annex_protocol::{GetTaskRequest, Json, SendMessageResponse, StreamResponse};
use annex_test_support::{COMMAND_KEY, TEST_EXTENSION};
use async_trait::async_trait;
use futures::TryStreamExt;
use http::{HeaderName, HeaderValue};

use crate::support::{Foreign, by, card, chain, client, no_parameters, ok, test_server, text};

type Notes = Arc<Mutex<Vec<String>>>;

/// Records the calls that it sees, and counts the answers in the context of the call.
struct Witness {
    name: &'static str,
    notes: Notes,
}

#[async_trait]
impl Interceptor for Witness {
    async fn before(&self, call: &mut OutgoingCall<'_>) -> Result<(), InterceptorError> {
        self.notes.lock().expect("no panic").push(format!("{} before {}", self.name, call.operation));
        call.context.insert(0_usize);
        Ok(())
    }

    async fn after(&self, incoming: &mut Incoming<'_>) -> Result<(), InterceptorError> {
        let kind = match incoming.event {
            Some(StreamResponse::Task(_)) => "task",
            Some(StreamResponse::Message(_)) => "message",
            Some(StreamResponse::StatusUpdate(_)) => "status",
            Some(StreamResponse::ArtifactUpdate(_)) => "artifact",
            None => "nothing",
        };
        let seen = incoming.context.get_mut::<usize>().expect("set before the call");
        *seen += 1;
        self.notes.lock().expect("no panic").push(format!("{} after {kind} {seen} {:?}", self.name, incoming.active));
        Ok(())
    }
}

/// Activates the test extension for each call.
struct Activates(&'static str);

#[async_trait]
impl Interceptor for Activates {
    async fn before(&self, call: &mut OutgoingCall<'_>) -> Result<(), InterceptorError> {
        call.parameters.activate(TEST_EXTENSION.into())?;
        call.parameters.set_field(HeaderName::from_static(self.0), HeaderValue::from_static("v"))?;
        if let Some(message) = &mut call.message {
            message.metadata.insert(COMMAND_KEY.to_owned(), Json::string("seen"));
        }
        if let Some(metadata) = &mut call.metadata {
            metadata.insert("trace".to_owned(), Json::string("t"));
        }
        Ok(())
    }
}

/// Refuses each call whose text is `secret`, and each answer that is an artifact.
struct Guard;

#[async_trait]
impl Interceptor for Guard {
    async fn before(&self, call: &mut OutgoingCall<'_>) -> Result<(), InterceptorError> {
        match &call.message {
            Some(message) if message.text() == "secret" => Err("that stays here".into()),
            _ => Ok(()),
        }
    }

    async fn after(&self, incoming: &mut Incoming<'_>) -> Result<(), InterceptorError> {
        match incoming.event {
            Some(StreamResponse::ArtifactUpdate(_)) => Err("no artifacts, please".into()),
            _ => Ok(()),
        }
    }
}

fn with(binding: Binding, interceptors: Vec<Arc<dyn Interceptor>>) -> Client {
    client(ClientConfig { interceptors, ..by(binding) })
}

#[tokio::test]
async fn they_run_in_order_before_a_call_and_in_reverse_after_each_event() {
    let server = test_server("").await;
    for binding in Binding::ALL {
        let notes = Notes::default();
        let witness = |name| -> Arc<dyn Interceptor> { Arc::new(Witness { name, notes: Arc::clone(&notes) }) };
        let agent = with(binding, vec![witness("a"), witness("b")]).agent(server.url()).await.expect("an agent");
        let mut parameters = ServiceParameters::default();
        parameters.activate(TEST_EXTENSION.into()).expect("a URI");
        let answer = agent.send_streaming_message(parameters, text("prompt")).await.expect("a stream");
        let events: Vec<_> = answer.value.try_collect().await.expect("events");
        let notes = notes.lock().expect("no panic").clone();
        assert_eq!(notes[..2], ["a before SendStreamingMessage", "b before SendStreamingMessage"], "{binding}");
        let active = format!("[ExtensionUri({TEST_EXTENSION:?})]");
        let expected = [format!("b after task 1 {active}"), format!("a after task 2 {active}")];
        assert_eq!(notes[2..4], expected, "{binding}");
        assert_eq!(notes.len(), 2 + 2 * events.len(), "{binding}");
    }
}

#[tokio::test]
async fn what_they_add_reaches_the_agent_beside_what_the_caller_sends() {
    let server = test_server("").await;
    for binding in Binding::ALL {
        let agent = with(binding, vec![Arc::new(Activates("x-one"))]).agent(server.url()).await.expect("an agent");
        let mut parameters = ServiceParameters::default();
        parameters.activate("urn:own".into()).expect("a URI");
        let answer = agent.send_message(parameters, text("prompt")).await.expect("an answer");
        assert_eq!(answer.active, [TEST_EXTENSION.into()], "{binding}");
        let SendMessageResponse::Task(task) = answer.value else { panic!("no task") };
        let said = serde_json::to_string(&task).expect("JSON");
        assert!(said.contains("asks for urn:own https://annex.example/test/v1"), "{binding}: {said}");
    }
}

#[tokio::test]
async fn two_that_set_one_header_field_fail_the_call_before_it_is_sent() {
    let server = Foreign::start(&[&card("")]).await;
    let both: Vec<Arc<dyn Interceptor>> = vec![Arc::new(Activates("x-one")), Arc::new(Activates("x-one"))];
    let agent = with(Binding::JsonRpc, both).agent(&server.url).await.expect("an agent");
    let error = agent.send_message(no_parameters(), text("x")).await.expect_err("refused");
    assert!(chain(&error).contains("x-one is set twice"), "{}", chain(&error));
    assert_eq!(server.requests().len(), 1, "only the card was asked for");
}

#[tokio::test]
async fn one_that_refuses_keeps_a_call_from_being_sent_and_an_answer_from_being_seen() {
    let artifact =
        r#"{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"x"}]}}}"#;
    let task = r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#;
    let stream: String = [task, artifact, task].map(|result| format!("data: {{\"result\":{result}}}\n\n")).concat();
    let server = Foreign::start(&[&card(""), &ok("text/event-stream", &stream)]).await;
    let agent = with(Binding::JsonRpc, vec![Arc::new(Guard)]).agent(&server.url).await.expect("an agent");
    let refused = agent.send_message(no_parameters(), text("secret")).await.expect_err("refused");
    assert!(matches!(refused, ClientError::Refused(_)) && chain(&refused).contains("that stays here"));
    assert_eq!(server.requests().len(), 1, "only the card was asked for");

    let mut answer = agent.send_streaming_message(no_parameters(), text("x")).await.expect("a stream");
    assert!(matches!(answer.value.try_next().await, Ok(Some(StreamResponse::Task(_)))));
    let error = answer.value.try_next().await.expect_err("refused");
    assert!(matches!(error, ClientError::AnswerRefused(_)), "{error}");
    assert!(matches!(answer.value.try_next().await, Ok(None)), "the stream is over");
}

#[tokio::test]
async fn a_call_without_a_message_shows_none() {
    let task = r#"{"id":1,"result":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#;
    let server = Foreign::start(&[&card(""), &ok("application/json", task)]).await;
    let agent = with(Binding::JsonRpc, vec![Arc::new(Activates("x-one"))]).agent(&server.url).await.expect("an agent");
    let request = GetTaskRequest { id: "t".into(), ..GetTaskRequest::default() };
    agent.get_task(no_parameters(), request).await.expect("a task");
    let sent = server.requests().remove(1);
    assert!(sent.contains("x-one: v") && sent.ends_with(r#""params":{"id":"t"}}"#), "{sent}");
}

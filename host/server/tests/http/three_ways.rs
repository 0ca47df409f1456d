//! One message over JSON-RPC, HTTP+JSON and gRPC.

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::TestServer;
use serde_json::{Value, json};
use tonic::transport::Channel;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Binding {
    JsonRpc,
    HttpJson,
    Grpc,
}

pub(crate) const ALL: [Binding; 3] = [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc];

/// A message with one text part. Empty texts are left out.
#[derive(Clone, Copy, Default)]
pub(crate) struct TestMessage<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) text: &'a str,
    /// The message id. A new id is generated for an empty text.
    pub(crate) id: &'a str,
    pub(crate) context: &'a str,
    pub(crate) task: &'a str,
    pub(crate) references: &'a [String],
}

/// The answer as a client sees it, by whichever binding it came.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TestAnswer {
    /// Its id and its state.
    Task(String, String),
    /// Its id and its text.
    Message(String, String),
    /// The reason of the error, and the first invalid field.
    Error(String, String),
}

impl TestAnswer {
    pub(crate) fn task(&self) -> &str {
        match self {
            Self::Task(id, _) => id,
            other => panic!("no task: {other:?}"),
        }
    }

    pub(crate) fn error(&self) -> (&str, &str) {
        match self {
            Self::Error(reason, field) => (reason, field),
            other => panic!("no error: {other:?}"),
        }
    }
}

pub(crate) async fn say(server: &TestServer, binding: Binding, said: TestMessage<'_>) -> TestAnswer {
    let id = if said.id.is_empty() { uuid::Uuid::new_v4().to_string() } else { said.id.to_owned() };
    match binding {
        Binding::JsonRpc => {
            let params = json!({"message": message(said, &id)});
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
            let answer = post(server, "/a2a/jsonrpc", said.key, &body).await;
            heard(&answer["result"], &answer["error"], "data")
        }
        Binding::HttpJson => {
            let body = json!({"message": message(said, &id)});
            let answer = post(server, "/a2a/rest/message:send", said.key, &body).await;
            heard(&answer, &answer["error"], "details")
        }
        Binding::Grpc => say_grpc(server, said, id).await,
    }
}

fn message(said: TestMessage<'_>, id: &str) -> Value {
    let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": said.text}]});
    for (name, value) in [("contextId", said.context), ("taskId", said.task)] {
        if !value.is_empty() {
            message[name] = value.into();
        }
    }
    if !said.references.is_empty() {
        message["referenceTaskIds"] = said.references.into();
    }
    message
}

async fn post(server: &TestServer, path: &str, key: Option<&str>, body: &Value) -> Value {
    let request = server.client().post(format!("{}{path}", server.url())).json(body).header("a2a-version", "1.0");
    let request = key.into_iter().fold(request, |request, key| request.header("x-api-key", key));
    request.send().await.expect("an answer").json().await.expect("JSON")
}

fn heard(result: &Value, error: &Value, details: &str) -> TestAnswer {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if error.is_object() {
        let details = &error[details];
        return TestAnswer::Error(text(&details[0]["reason"]), text(&details[1]["fieldViolations"][0]["field"]));
    }
    match &result["message"] {
        Value::Null => TestAnswer::Task(text(&result["task"]["id"]), text(&result["task"]["status"]["state"])),
        message => TestAnswer::Message(text(&message["messageId"]), text(&message["parts"][0]["text"])),
    }
}

async fn say_grpc(server: &TestServer, said: TestMessage<'_>, id: String) -> TestAnswer {
    use tonic_types::StatusExt;

    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    let part = pb::Part { content: Some(pb::part::Content::Text(said.text.to_owned())), ..pb::Part::default() };
    let message = pb::Message {
        message_id: id,
        context_id: said.context.to_owned(),
        task_id: said.task.to_owned(),
        reference_task_ids: said.references.to_vec(),
        role: pb::Role::User.into(),
        parts: vec![part],
        ..pb::Message::default()
    };
    let message = pb::SendMessageRequest { message: Some(message), ..pb::SendMessageRequest::default() };
    let mut request = tonic::Request::new(message);
    for (name, value) in [("a2a-version", Some("1.0")), ("x-api-key", said.key)] {
        if let Some(value) = value {
            request.metadata_mut().insert(name, value.parse().expect("ASCII"));
        }
    }
    use pb::send_message_response::Payload;
    match A2aServiceClient::new(channel).send_message(request).await {
        Ok(response) => match response.into_inner().payload.expect("a payload") {
            Payload::Task(task) => {
                TestAnswer::Task(task.id, task.status.expect("a status").state().as_str_name().to_owned())
            }
            Payload::Message(message) => {
                let text = match message.parts.into_iter().next().expect("a part").content {
                    Some(pb::part::Content::Text(text)) => text,
                    other => panic!("no text: {other:?}"),
                };
                TestAnswer::Message(message.message_id, text)
            }
        },
        Err(status) => {
            let violations = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
            let field = violations.into_iter().next().map(|violation| violation.field).unwrap_or_default();
            TestAnswer::Error(status.get_details_error_info().expect("an ErrorInfo").reason, field)
        }
    }
}

//! HTTP+JSON for servers of A2A 0.3. Callers use the requests and answers of 1.0.

use annex_protocol::v0_3::rest;
use annex_protocol::{
    CancelTaskRequest, GetTaskRequest, Json, JsonObject, Method as A2aMethod, SendMessageRequest,
    SubscribeToTaskRequest, TaskId,
};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use reqwest::Url;
use serde::Deserialize;

use super::answer;
use super::http_json::{self, Failure};
use super::json_rpc::JSON;
use super::part_repair::of_0_3_over_http_json;
use super::raw_answer::{Form, RawAnswer, ReadFailure, ResultPlace};
use super::v0_3::{active, decoded, encoded, foreign, lacking, of_0_3, with_odd_parts};
use super::wire::{Answers, Transport, WireCall};
use crate::http::{self as transport, EVENT_STREAM, Endpoint, Http, Response};
use crate::{Answer, ClientError, Operation, RemoteError};

const EVENT: Form = Form { read: event, place: ResultPlace::Unknown };
const TASK: Form = Form { read: task, place: ResultPlace::Unknown };

pub(super) struct HttpJson {
    endpoint: Endpoint,
}

/// A request of 0.3, before its URL is made.
struct OlderRequest {
    method: Method,
    /// The last segments of the path, below `v1`. `{id}` stands for the id of the task.
    path: &'static [&'static str],
    task: Option<TaskId>,
    history_length: Option<i32>,
    body: Option<Json>,
}

/// The body of an error response of the official servers of 0.3, which name the kind of the error only by the status.
#[derive(Deserialize)]
struct Refusal {
    message: String,
}

impl HttpJson {
    pub(super) fn new(http: Http, url: Url) -> Self {
        Self { endpoint: Endpoint::new(http, url) }
    }

    async fn request(&self, call: WireCall, accept: &'static str) -> Result<Response, ClientError> {
        let OlderRequest { method, path, task, history_length, body } = written(&call)?;
        let ids = task.map(|id| ("id".to_owned(), Json::string(id.as_str())));
        let template: Vec<String> = path.iter().copied().map(str::to_owned).collect();
        let mut url = http_json::below(&self.endpoint.url, &template, &mut ids.into_iter().collect())?;
        if let Some(length) = history_length {
            url.query_pairs_mut().append_pair("historyLength", &length.to_string());
        }
        let mut headers = of_0_3(call.headers);
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        }
        let body = body.map(|body| body.get().to_owned()).unwrap_or_default();
        self.endpoint.send((method, &url), headers, body).await
    }
}

#[async_trait]
impl Transport for HttpJson {
    async fn call(&self, call: WireCall) -> Result<Answer<RawAnswer>, ClientError> {
        let reads_task =
            matches!(call.operation, Operation::A2a(A2aMethod::GetTask) | Operation::A2a(A2aMethod::CancelTask));
        let response = self.request(call, JSON).await?;
        let active = active(response.headers());
        let form = if reads_task { TASK } else { EVENT };
        let form = form_of(response.status(), form);
        Ok(Answer { value: answer::single(&self.endpoint.http, response, form).await?, active })
    }

    async fn open(&self, call: WireCall) -> Result<Answer<Answers>, ClientError> {
        let room = call.room.clone();
        let response = self.request(call, EVENT_STREAM).await?;
        let active = active(response.headers());
        if transport::is_event_stream(&response) {
            return Ok(Answer { value: answer::events(&self.endpoint.http, response, EVENT, room), active });
        }
        let form = form_of(response.status(), EVENT);
        let only = answer::single(&self.endpoint.http, response, form).await?.taken_apart()?;
        Ok(Answer { value: stream::iter([Ok(only)]).boxed(), active })
    }
}

/// Returns the request of 0.3 for an operation. Fails for operations that are not sent to servers of 0.3.
fn written(call: &WireCall) -> Result<OlderRequest, ClientError> {
    let params = call.params.as_str();
    let of_message = |path: &'static [&'static str]| -> Result<OlderRequest, ClientError> {
        let request: SendMessageRequest = decoded(params)?;
        let body = Some(encoded(&rest::SendMessageRequest::from(&request))?);
        Ok(OlderRequest { method: Method::POST, path, task: None, history_length: None, body })
    };
    Ok(match &call.operation {
        Operation::A2a(A2aMethod::SendMessage) => return of_message(&["v1", "message:send"]),
        Operation::A2a(A2aMethod::SendStreamingMessage) => return of_message(&["v1", "message:stream"]),
        Operation::A2a(A2aMethod::GetTask) => {
            let GetTaskRequest { id, history_length, .. } = decoded(params)?;
            let path = &["v1", "tasks", "{id}"];
            OlderRequest { method: Method::GET, path, task: Some(id), history_length, body: None }
        }
        Operation::A2a(A2aMethod::CancelTask) => {
            let CancelTaskRequest { id, .. } = decoded(params)?;
            let name = Json::string(&format!("tasks/{id}"));
            let body = Some(encoded(&JsonObject::from_iter([("name".to_owned(), name)]))?);
            let path = &["v1", "tasks", "{id}:cancel"];
            OlderRequest { method: Method::POST, path, task: Some(id), history_length: None, body }
        }
        Operation::A2a(A2aMethod::SubscribeToTask) => {
            let SubscribeToTaskRequest { id, .. } = decoded(params)?;
            let path = &["v1", "tasks", "{id}:subscribe"];
            OlderRequest { method: Method::GET, path, task: Some(id), history_length: None, body: None }
        }
        other => return Err(lacking(other)),
    })
}

fn event(text: &str) -> Result<Json, ReadFailure> {
    let result = result(text)?;
    match with_odd_parts(&result, rest::event, of_0_3_over_http_json).map_err(foreign)? {
        Some(event) => Json::from_peer(&event).map_err(foreign),
        // The reader of a stream skips an event of an unknown kind.
        None => Ok(result),
    }
}

fn task(text: &str) -> Result<Json, ReadFailure> {
    let task = with_odd_parts(&result(text)?, rest::task, of_0_3_over_http_json).map_err(foreign)?;
    Json::from_peer(&task).map_err(foreign)
}

fn result(text: &str) -> Result<Json, ReadFailure> {
    match serde_json::from_str::<Failure>(text) {
        Ok(Failure { error }) => Err(ReadFailure::Agent(error.into())),
        Err(_) => http_json::result(text),
    }
}

/// The form of a response with this status: `success`, or that of an error.
fn form_of(status: StatusCode, success: Form) -> Form {
    let read: fn(&str) -> Result<Json, ReadFailure> = match status {
        status if status.is_success() => return success,
        // The statuses that the official servers of 0.3 have for the errors of A2A.
        StatusCode::NOT_FOUND => refusal::<-32001>,
        StatusCode::CONFLICT => refusal::<-32002>,
        StatusCode::NOT_IMPLEMENTED => refusal::<-32004>,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => refusal::<-32005>,
        StatusCode::UNPROCESSABLE_ENTITY => refusal::<-32602>,
        _ => refusal::<0>,
    };
    Form { read, place: ResultPlace::Unknown }
}

/// Reads an error response. `CODE` is the code of an error that has only a message; 0 for none.
fn refusal<const CODE: i64>(text: &str) -> Result<Json, ReadFailure> {
    let result = result(text)?;
    let Ok(Refusal { message }) = result.to() else { return Ok(result) };
    let code = Some(CODE).filter(|code| *code != 0);
    Err(ReadFailure::Agent(RemoteError { code, reason: None, message, details: Vec::new() }))
}

#[cfg(test)]
mod tests {
    use annex_protocol::Method as A2aMethod;
    use http::{HeaderMap, StatusCode};

    use super::{EVENT, Json, ReadFailure, form_of, written};
    use crate::Operation;
    use crate::transport::wire::WireCall;

    fn path(operation: A2aMethod, params: &str) -> Result<(String, Option<String>), String> {
        let call = WireCall {
            operation: Operation::A2a(operation),
            params: params.to_owned(),
            headers: HeaderMap::new(),
            room: None,
        };
        let request = written(&call).map_err(|error| error.to_string())?;
        let path = format!("{} {}", request.method, request.path.join("/"));
        Ok((path, request.body.as_ref().map(Json::get).map(str::to_owned)))
    }

    #[test]
    fn requests_have_the_paths_and_bodies_of_0_3() {
        let message = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}"#;
        let body = r#"{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"x"}]},"configuration":{"blocking":true}}"#;
        let sent = path(A2aMethod::SendMessage, message).unwrap();
        assert_eq!(sent, ("POST v1/message:send".to_owned(), Some(body.to_owned())));
        let read = path(A2aMethod::GetTask, r#"{"id":"t","historyLength":2}"#).unwrap();
        assert_eq!(read, ("GET v1/tasks/{id}".to_owned(), None));
        let canceled = path(A2aMethod::CancelTask, r#"{"id":"t"}"#).unwrap();
        assert_eq!(canceled, ("POST v1/tasks/{id}:cancel".to_owned(), Some(r#"{"name":"tasks/t"}"#.to_owned())));
        let listed = path(A2aMethod::ListTasks, "{}").unwrap_err();
        assert!(listed.contains("ListTasks is sent to agents of A2A 1.0 only"), "{listed}");
    }

    #[test]
    fn the_status_tells_the_code_of_an_error_that_has_only_a_message() {
        let code = |status: StatusCode, text: &str| match (form_of(status, EVENT).read)(text) {
            Err(ReadFailure::Agent(error)) => error.code,
            Err(ReadFailure::Foreign(_)) | Ok(_) => Some(0),
        };
        let message = r#"{"message":"no"}"#;
        assert_eq!(code(StatusCode::NOT_FOUND, message), Some(-32001));
        assert_eq!(code(StatusCode::UNPROCESSABLE_ENTITY, message), Some(-32602));
        assert_eq!(code(StatusCode::INTERNAL_SERVER_ERROR, message), None);
        let own = r#"{"error":{"message":"no","details":[{"reason":"TASK_NOT_CANCELABLE"}]}}"#;
        assert_eq!(code(StatusCode::BAD_REQUEST, own), Some(-32002));
        // The page of a web server says nothing about a task.
        assert_eq!(code(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#), Some(0));
    }
}

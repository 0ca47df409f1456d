//! The JSON-RPC binding (A2A 1.0 section 9): translates methods into operations and answers into envelopes.
//!
//! Errors go out with HTTP 200, as the official clients want them, also for a streaming method whose stream has not
//! begun. The header `A2A-Extensions` names what was really active.

use std::sync::Arc;

use annex_protocol::jsonrpc::{self, Request, RequestId};
use annex_protocol::service::{A2A_EXTENSIONS, format_extensions};
use annex_protocol::{A2aError, ExtensionUri, SendMessageRequest, Task};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::call::Call;
use crate::fault;
use crate::handler::{Accepted, RequestHandler};
use crate::list;
use crate::sse;
use crate::tasks::TaskRecord;
use crate::turn::Opening;

/// Answers one HTTP request whose body was read in full.
pub(crate) async fn answer(handler: &RequestHandler, headers: &HeaderMap, uri: &Uri, body: &[u8]) -> Response {
    if let Err(error) = check_content_type(headers) {
        return failure(&RequestId::Null, &error);
    }
    let request = match jsonrpc::decode(body) {
        Ok(request) => request,
        Err(rejection) => return failure(&rejection.id, &rejection.error),
    };
    let call = match Call::of(headers, uri) {
        Ok(call) => call,
        Err(error) => return failure(&request.id, &error),
    };
    dispatch(handler, &call, &request).await.unwrap_or_else(|error| failure(&request.id, &error))
}

async fn dispatch(handler: &RequestHandler, call: &Call, request: &Request) -> Result<Response, A2aError> {
    let (id, params) = (&request.id, &request.params);
    match request.method.as_str() {
        "SendMessage" => send_message(handler, call, id, jsonrpc::params(params)?).await,
        "SendStreamingMessage" => {
            let accepted = handler.accept(call, "SendStreamingMessage", jsonrpc::params(params)?).await?;
            stream_message(handler, id, accepted)
        }
        "GetTask" => {
            let request = jsonrpc::params(params)?;
            let record = handler.get_task(&request)?;
            Ok(success(id, &shown_record(&record, request.history_length)?))
        }
        "ListTasks" => Ok(success(id, &encode(&handler.list_tasks(&jsonrpc::params(params)?)?)?)),
        "CancelTask" => Ok(success(id, &encode(&handler.cancel_task(&jsonrpc::params(params)?).await?)?)),
        "SubscribeToTask" => {
            let subscription = handler.subscribe(&jsonrpc::params(params)?)?;
            let first = task_event(&encode(&subscription.snapshot)?);
            Ok(sse::tail(id.clone(), &first, subscription.reader, handler.closing.clone()))
        }
        "CreateTaskPushNotificationConfig"
        | "GetTaskPushNotificationConfig"
        | "ListTaskPushNotificationConfigs"
        | "DeleteTaskPushNotificationConfig" => Err(A2aError::PushNotificationNotSupported),
        "GetExtendedAgentCard" => {
            Err(A2aError::UnsupportedOperation { reason: "this agent has no extended card".to_owned() })
        }
        _ => Err(A2aError::MethodNotFound { method: request.method.clone() }),
    }
}

async fn send_message(
    handler: &RequestHandler,
    call: &Call,
    id: &RequestId,
    request: SendMessageRequest,
) -> Result<Response, A2aError> {
    let configuration = &request.configuration;
    let (at_once, history_length) = (configuration.return_immediately, configuration.history_length);
    let accepted = handler.accept(call, "SendMessage", request).await?;
    let result = match accepted.opening {
        Opening::Message(message) => format!("{{\"message\":{}}}", encode(&message)?).into(),
        Opening::Task { snapshot, .. } if at_once => task_event(&shown(*snapshot, history_length)?),
        Opening::Task { record, .. } => {
            accepted.finished.await.map_err(|error| fault::internal(&error))?;
            task_event(&shown_record(&record, history_length)?)
        }
    };
    Ok(echo(success(id, &result), &accepted.active))
}

fn stream_message(handler: &RequestHandler, id: &RequestId, accepted: Accepted) -> Result<Response, A2aError> {
    let response = match accepted.opening {
        Opening::Message(message) => sse::single(id, &format!("{{\"message\":{}}}", encode(&message)?)),
        Opening::Task { snapshot, reader, .. } => {
            let first = task_event(&encode(&*snapshot)?);
            sse::turn(id.clone(), &first, reader, handler.closing.clone())
        }
    };
    Ok(echo(response, &accepted.active))
}

/// A finished task was encoded when it ended; it is encoded again only for another view of it.
fn shown_record(record: &TaskRecord, history_length: Option<i32>) -> Result<Arc<str>, A2aError> {
    match record.finished().filter(|_| history_length.is_none()) {
        Some(task) => Ok(task),
        None => shown(record.snapshot(), history_length).map(Arc::from),
    }
}

fn shown(mut task: Task, history_length: Option<i32>) -> Result<String, A2aError> {
    list::trim_history(&mut task, history_length);
    encode(&task)
}

/// A task as a SendMessageResponse or StreamResponse.
fn task_event(task: &str) -> Arc<str> {
    format!("{{\"task\":{task}}}").into()
}

fn encode<T: serde::Serialize>(value: &T) -> Result<String, A2aError> {
    serde_json::to_string(value).map_err(|error| fault::internal(&error))
}

fn success(id: &RequestId, result: &str) -> Response {
    json(jsonrpc::success_raw(id, result))
}

/// An error as an ordinary answer.
pub(crate) fn failure(id: &RequestId, error: &A2aError) -> Response {
    json(jsonrpc::failure(id, error))
}

fn json(body: String) -> Response {
    let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (content_type, Body::from(body)).into_response()
}

fn echo(mut response: Response, active: &[ExtensionUri]) -> Response {
    if !active.is_empty()
        && let Ok(value) = HeaderValue::from_str(&format_extensions(active))
    {
        response.headers_mut().insert(A2A_EXTENSIONS, value);
    }
    response
}

/// The media type is `application/json`, with or without parameters.
fn check_content_type(headers: &HeaderMap) -> Result<(), A2aError> {
    let content_type = headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let content_type = content_type.unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(A2aError::ContentTypeNotSupported { content_type: content_type.into_owned() })
}

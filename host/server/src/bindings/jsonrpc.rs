//! The JSON-RPC binding (A2A 1.0 section 9): translates methods into operations, and results into JSON-RPC responses.
//!
//! Errors have HTTP status 200, as the official clients expect. This includes the error of a streaming method that
//! fails before its stream begins. The header `A2A-Extensions` names the extensions that were active.

use annex_operations::answer::{EventStream, encode};
use annex_operations::methods::MethodResult;
use annex_operations::operation::{Operation, OperationResult};
use annex_operations::service_parameters::ServiceParameters;
use annex_protocol::jsonrpc::{self, Rejection, Request, RequestId};
use annex_protocol::service::VERSION;
use annex_protocol::{A2aError, Method, SendMessageRequest, TaskPushNotificationConfig};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::access_log;
use crate::bindings::answer_body;
use crate::bindings::service_headers::{check_content_type, echo, retry_after};
use crate::bindings::sse;
use crate::connections::caller::Caller;
use crate::connections::streams::StreamPlace;
use crate::operations::{Operations, Reply};

/// Decodes a request from its complete body.
///
/// # Errors
/// When the request is invalid. The rejection has the error, and the id of the request if it could be read.
pub(crate) fn read<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Request<'a>, Box<Rejection>> {
    // The content type is checked before the parser runs, so that a body of another type gets -32005 instead of a parse
    // error.
    let checked = check_content_type(headers, &["application/json"]);
    checked.map_err(|error| Box::new(Rejection { id: RequestId::Null, error }))?;
    jsonrpc::decode(body)
}

/// Answers one request.
pub(crate) async fn answer(
    operations: &Operations<'_>,
    caller: &Caller,
    headers: &HeaderMap,
    uri: &Uri,
    request: &Request<'_>,
) -> Response {
    let answer = perform(operations, caller, (headers, uri), request).await;
    answer.unwrap_or_else(|error| failure(&request.id, &error))
}

async fn perform(
    operations: &Operations<'_>,
    caller: &Caller,
    (headers, uri): (&HeaderMap, &Uri),
    request: &Request<'_>,
) -> Result<Response, A2aError> {
    let method = Method::from_name(&request.method);
    if let Some(method) = method {
        access_log::asks_for(method.name());
    }
    // The version is checked before the parameters, because a method of another version may have other parameters.
    let call = ServiceParameters::of(caller.identity.clone(), headers, uri)?;
    access_log::speaks(VERSION);
    let operation = match method {
        Some(method) => operation(method, request.params)?,
        // A method that A2A does not define may belong to an extension.
        None => operations.method(&request.method, request.params_json()?)?,
    };
    write(caller, &request.id, operations.call(caller, call, operation).await?)
}

/// The operation for a method and its parameters.
fn operation(method: Method, params: &str) -> Result<Operation, A2aError> {
    Ok(match method {
        Method::SendMessage => Operation::SendMessage(jsonrpc::params::<SendMessageRequest>(params)?.of_client()),
        Method::SendStreamingMessage => {
            Operation::SendStreamingMessage(jsonrpc::params::<SendMessageRequest>(params)?.of_client())
        }
        Method::GetTask => Operation::GetTask(jsonrpc::params(params)?),
        Method::ListTasks => Operation::ListTasks(jsonrpc::params(params)?),
        Method::CancelTask => Operation::CancelTask(jsonrpc::params(params)?),
        Method::SubscribeToTask => Operation::SubscribeToTask(jsonrpc::params(params)?),
        Method::CreateTaskPushNotificationConfig => {
            Operation::CreatePushConfig(jsonrpc::params::<TaskPushNotificationConfig>(params)?.of_client())
        }
        Method::GetTaskPushNotificationConfig => Operation::GetPushConfig(jsonrpc::params(params)?),
        Method::ListTaskPushNotificationConfigs => Operation::ListPushConfigs(jsonrpc::params(params)?),
        Method::DeleteTaskPushNotificationConfig => Operation::DeletePushConfig(jsonrpc::params(params)?),
        Method::GetExtendedAgentCard => Operation::GetExtendedAgentCard(jsonrpc::params(params)?),
    })
}

/// Writes the result as a response.
fn write(caller: &Caller, id: &RequestId, reply: Reply) -> Result<Response, A2aError> {
    let Reply { result, active, place } = reply;
    let success = |result: &str| success(caller, id, result);
    let response = match result {
        OperationResult::Sent(sent) => {
            let pieces = sent.json_in_pieces()?;
            success_in_pieces(caller, id, &pieces.each_ref().map(|piece| &**piece))?
        }
        OperationResult::Events(events) => stream(caller, place, id.clone(), events),
        OperationResult::Task(task) => success(&task.json()?)?,
        OperationResult::Tasks(tasks) => success(&encode(&tasks)?)?,
        OperationResult::CanceledTask(task) => success(&encode(&task)?)?,
        OperationResult::PushConfig(config) => success(&encode(&config)?)?,
        OperationResult::PushConfigs(configs) => success(&encode(&configs)?)?,
        // JSON-RPC requires a `result`, even for an operation that returns nothing.
        OperationResult::NoPushConfig => success("null")?,
        OperationResult::ExtendedAgentCard(card) => success(&encode(&*card)?)?,
        OperationResult::Method(result) => method_result((caller, place), id, result, jsonrpc::failure)?,
    };
    Ok(echo(response, &active))
}

/// The response for an extension's method. `failure` writes the error that ends a stream.
pub(crate) fn method_result(
    (caller, place): (&Caller, Option<StreamPlace>),
    id: &RequestId,
    result: MethodResult,
    failure: fn(&RequestId, &A2aError) -> String,
) -> Result<Response, A2aError> {
    match result {
        MethodResult::Value(value) => success(caller, id, value.get()),
        MethodResult::Results(results) => {
            let id = id.clone();
            let answer = sse::respond(results, move |result| match result {
                Ok(value) => jsonrpc::success_raw(&id, value.get()),
                Err(error) => failure(&id, error),
            });
            Ok(answer_body::stream(caller, place, answer))
        }
    }
}

fn stream(caller: &Caller, place: Option<StreamPlace>, id: RequestId, events: EventStream) -> Response {
    // Each event is a complete JSON-RPC response. The official JS client refuses an event whose id differs in value or
    // type.
    let answer = sse::respond_numbered(events, move |event| match event {
        Ok(event) => jsonrpc::success_raw(&id, event.json()),
        Err(error) => jsonrpc::failure(&id, error),
    });
    answer_body::stream(caller, place, answer)
}

/// A successful response. Fails before the result is copied if the caller's share has no room for the response.
pub(crate) fn success(caller: &Caller, id: &RequestId, result: &str) -> Result<Response, A2aError> {
    success_in_pieces(caller, id, &[result])
}

fn success_in_pieces(caller: &Caller, id: &RequestId, result: &[&str]) -> Result<Response, A2aError> {
    caller.check_room(result.iter().map(|piece| piece.len()).sum())?;
    Ok(json(answer_body::of_text(caller, jsonrpc::success_in_pieces(id, result))?))
}

/// A JSON-RPC error as a response.
pub(crate) fn failure(id: &RequestId, error: &A2aError) -> Response {
    access_log::note_error(error);
    let mut response = json(Body::from(jsonrpc::failure(id, error)));
    // The status stays 200, because the official Python client loses the kind of an error with a 4xx status. Two errors
    // have a status of their own, for the proxies on the way: 503 while the server starts, and 429 when a tenant must
    // send less.
    match error {
        A2aError::Unavailable { .. } => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
        A2aError::QuotaExceeded { .. } => *response.status_mut() = StatusCode::TOO_MANY_REQUESTS,
        _ => {}
    }
    retry_after(response, error)
}

fn json(body: Body) -> Response {
    let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (content_type, body).into_response()
}

//! The JSON-RPC binding (A2A 1.0 section 9): translates methods into operations and answers into envelopes.
//!
//! Errors go out with HTTP 200, as the official clients want them, also for a streaming method whose stream has not
//! begun. The header `A2A-Extensions` names what was really active.

use annex_operations::answer::{EventStream, encode};
use annex_operations::methods::MethodResult;
use annex_operations::service_parameters::ServiceParameters;
use annex_protocol::jsonrpc::{self, Rejection, Request, RequestId};
use annex_protocol::service::VERSION;
use annex_protocol::{
    A2aError, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest,
    SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::access_log;
use crate::bindings::answer_body;
use crate::bindings::service_headers::{check_content_type, echo, retry_after};
use crate::bindings::sse;
use crate::connections::caller::Caller;
use crate::connections::streams::StreamPlace;
use crate::tenants::AskedTenants;

/// Reads one HTTP request whose body was read in full.
///
/// # Errors
/// What is wrong with it, and its id as far as it could be read.
pub(crate) fn read<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Request<'a>, Box<Rejection>> {
    // This comes before the parser, so that a body which is not meant as JSON gets -32005 instead of a parse error.
    let checked = check_content_type(headers, &["application/json"]);
    checked.map_err(|error| Box::new(Rejection { id: RequestId::Null, error }))?;
    jsonrpc::decode(body)
}

/// Answers one request.
pub(crate) async fn answer(
    tenants: &AskedTenants<'_>,
    caller: &Caller,
    headers: &HeaderMap,
    uri: &Uri,
    request: &Request<'_>,
) -> Response {
    access_log::asks_for_named(&request.method);
    // The version is checked before the method, because another version may mean something else by the same name.
    let call = match ServiceParameters::of(caller.identity.clone(), headers, uri) {
        Ok(call) => call,
        Err(error) => return failure(&request.id, &error),
    };
    access_log::speaks(VERSION);
    dispatch(tenants, caller, call, request).await.unwrap_or_else(|error| failure(&request.id, &error))
}

async fn dispatch(
    tenants: &AskedTenants<'_>,
    caller: &Caller,
    call: ServiceParameters,
    request: &Request<'_>,
) -> Result<Response, A2aError> {
    let id = &request.id;
    let params = request.params;
    let success = |result: &str| success(caller, id, result);
    match &*request.method {
        "SendMessage" => {
            let request = jsonrpc::params::<SendMessageRequest>(params)?.of_client();
            let (handler, call) = tenants.serving(call, request.tenant.as_deref()).await?;
            let sent = handler.send_message(&call, request).await?;
            let pieces = sent.value.json_in_pieces()?;
            Ok(echo(success_in_pieces(caller, id, &pieces.each_ref().map(|piece| &**piece))?, &sent.active))
        }
        "SendStreamingMessage" => {
            // The place comes first: a client that gets no stream must not have begun a turn.
            let place = caller.open_stream()?;
            let request = jsonrpc::params::<SendMessageRequest>(params)?.of_client();
            let (handler, call) = tenants.serving(call, request.tenant.as_deref()).await?;
            let streamed = handler.send_streaming_message(&call, request).await?;
            Ok(echo(stream(caller, place, id.clone(), streamed.value), &streamed.active))
        }
        "GetTask" => {
            let request: GetTaskRequest = jsonrpc::params(params)?;
            let (handler, call) = tenants.serving(call, request.tenant.as_deref()).await?;
            success(&handler.get_task(&call, &request).await?.json()?)
        }
        "ListTasks" => {
            let request: ListTasksRequest = jsonrpc::params(params)?;
            let (handler, call) = tenants.serving(call, request.tenant.as_deref()).await?;
            success(&encode(&handler.list_tasks(&call, &request).await?)?)
        }
        "CancelTask" => {
            let request: CancelTaskRequest = jsonrpc::params(params)?;
            let (handler, call) = tenants.serving(call, request.tenant.as_deref()).await?;
            success(&encode(&handler.cancel_task(&call, &request).await?)?)
        }
        "SubscribeToTask" => {
            let place = caller.open_stream()?;
            let request: SubscribeToTaskRequest = jsonrpc::params(params)?;
            let (handler, call) = tenants.serving(call, request.tenant.as_deref()).await?;
            let events = handler.subscribe_to_task(&call, &request).await?;
            Ok(stream(caller, place, id.clone(), events))
        }
        "GetExtendedAgentCard" => {
            let request: GetExtendedAgentCardRequest = jsonrpc::params(params)?;
            // The caller makes no difference: everybody who gets here with [auth] is authenticated, and without it
            // there is no such card.
            let (handler, _) = tenants.serving(call, request.tenant.as_deref()).await?;
            success(&encode(&*handler.get_extended_agent_card()?)?)
        }
        "CreateTaskPushNotificationConfig"
        | "GetTaskPushNotificationConfig"
        | "ListTaskPushNotificationConfigs"
        | "DeleteTaskPushNotificationConfig" => success(&push_config(tenants, call, request).await?),
        // A name that is none of A2A's may be a method of an extension.
        method => {
            // Its parameters also name the tenant, because a method of an extension has no request type of A2A.
            let params = request.params_json()?;
            let (tenant, params) = tenants.tenant_in(&params)?;
            let (handler, call) = tenants.serving(call, tenant.as_deref()).await?;
            let answered = handler.call_method(&call, (None, method), &params).await?;
            Ok(echo(method_result(caller, id, answered.value, jsonrpc::failure)?, &answered.active))
        }
    }
}

/// The operations on push notification configs. Returns the result as JSON.
async fn push_config(
    tenants: &AskedTenants<'_>,
    call: ServiceParameters,
    request: &Request<'_>,
) -> Result<String, A2aError> {
    let params = request.params;
    match &*request.method {
        "CreateTaskPushNotificationConfig" => {
            let config = jsonrpc::params::<TaskPushNotificationConfig>(params)?.of_client();
            let (handler, call) = tenants.serving(call, config.tenant.as_deref()).await?;
            encode(&handler.create_push_config(&call, config).await?)
        }
        "GetTaskPushNotificationConfig" => {
            let request: GetTaskPushNotificationConfigRequest = jsonrpc::params(params)?;
            let (handler, call) = tenants.serving(call, request.tenant.as_deref()).await?;
            encode(&handler.get_push_config(&call, &request).await?)
        }
        "ListTaskPushNotificationConfigs" => {
            let request: ListTaskPushNotificationConfigsRequest = jsonrpc::params(params)?;
            let (handler, call) = tenants.serving(call, request.tenant.as_deref()).await?;
            encode(&handler.list_push_configs(&call, &request).await?)
        }
        // `dispatch` sends four methods here, and this is the one that is left.
        _ => {
            let request: DeleteTaskPushNotificationConfigRequest = jsonrpc::params(params)?;
            let (handler, call) = tenants.serving(call, request.tenant.as_deref()).await?;
            handler.delete_push_config(&call, &request).await?;
            // JSON-RPC demands a result, also of an operation that returns nothing.
            Ok("null".to_owned())
        }
    }
}

/// The answer of an extension's method as a response. `failure` writes the error that ends a stream.
pub(crate) fn method_result(
    caller: &Caller,
    id: &RequestId,
    result: MethodResult,
    failure: fn(&RequestId, &A2aError) -> String,
) -> Result<Response, A2aError> {
    match result {
        MethodResult::Value(value) => success(caller, id, value.get()),
        MethodResult::Results(results) => {
            let id = id.clone();
            // Only the answer tells whether the method streams, so its place is taken after the call.
            let place = caller.open_stream()?;
            let answer = sse::respond(results, move |result| match result {
                Ok(value) => jsonrpc::success_raw(&id, value.get()),
                Err(error) => failure(&id, error),
            });
            Ok(answer_body::stream(caller, place, answer))
        }
    }
}

fn stream(caller: &Caller, place: StreamPlace, id: RequestId, events: EventStream) -> Response {
    // Each event is a whole JSON-RPC response. The official JS client refuses one whose id is another or of another
    // type.
    let answer = sse::respond_numbered(events, move |event| match event {
        Ok(event) => jsonrpc::success_raw(&id, event.json()),
        Err(error) => jsonrpc::failure(&id, error),
    });
    answer_body::stream(caller, place, answer)
}

/// Asks for room before it copies a long result.
pub(crate) fn success(caller: &Caller, id: &RequestId, result: &str) -> Result<Response, A2aError> {
    success_in_pieces(caller, id, &[result])
}

fn success_in_pieces(caller: &Caller, id: &RequestId, result: &[&str]) -> Result<Response, A2aError> {
    caller.check_room(result.iter().map(|piece| piece.len()).sum())?;
    Ok(json(answer_body::of_text(caller, jsonrpc::success_in_pieces(id, result))?))
}

/// An error as an ordinary answer.
pub(crate) fn failure(id: &RequestId, error: &A2aError) -> Response {
    access_log::note_error(error);
    let mut response = json(Body::from(jsonrpc::failure(id, error)));
    // The status stays 200: the official Python client loses the kind of an error that comes with a status of 4xx. Where
    // no handler was reached, whatever stands in between is told, as while the server starts, and where a tenant is to send
    // less.
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

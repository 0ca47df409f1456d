//! The JSON-RPC binding (A2A 1.0 section 9): translates methods into operations and answers into envelopes.
//!
//! Errors go out with HTTP 200, as the official clients want them, also for a streaming method whose stream has not
//! begun. The header `A2A-Extensions` names what was really active.

use annex_protocol::jsonrpc::{self, Request, RequestId};
use annex_protocol::{A2aError, v0_3};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::answer::{EventStream, encode};
use crate::answer_body;
use crate::call::{self, Call};
use crate::caller::Caller;
use crate::handler::RequestHandler;
use crate::methods::MethodResult;
use crate::sse;
use crate::streams::StreamPlace;

/// Answers one HTTP request whose body was read in full.
pub(crate) async fn answer(
    handler: &RequestHandler,
    caller: &Caller,
    headers: &HeaderMap,
    uri: &Uri,
    body: &[u8],
) -> Response {
    if let Err(error) = call::check_content_type(headers, &["application/json"]) {
        return failure(&RequestId::Null, &error);
    }
    let request = match jsonrpc::decode(body) {
        Ok(request) => request,
        Err(rejection) => return failure(&rejection.id, &rejection.error),
    };
    if handler.speaks_v0_3
        && let Some(method) = v0_3::Method::from_name(&request.method)
    {
        return crate::v0_3::json_rpc(handler, caller, headers, method, &request).await;
    }
    // A request that names no version is one of 0.3 (A2A 1.0 section 3.6.2).
    if handler.speaks_v0_3
        && !jsonrpc::METHODS.contains(&request.method.as_str())
        && let Ok(call) = crate::v0_3::read_call(caller.owner.clone(), headers)
    {
        return crate::v0_3::extension_method(handler, caller, &call, &request).await;
    }
    let call = match Call::of(caller.owner.clone(), headers, uri) {
        Ok(call) => call.with_headers(handler.headers_of(headers)),
        Err(error) => return failure(&request.id, &error),
    };
    dispatch(handler, caller, &call, &request).await.unwrap_or_else(|error| failure(&request.id, &error))
}

async fn dispatch(
    handler: &RequestHandler,
    caller: &Caller,
    call: &Call,
    request: &Request,
) -> Result<Response, A2aError> {
    let (id, params) = (&request.id, &request.params);
    let success = |result: &str| success(caller, id, result);
    match request.method.as_str() {
        "SendMessage" => {
            let sent = handler.send_message(call, jsonrpc::params(params)?).await?;
            Ok(call::echo(success(&sent.value.json()?)?, &sent.active))
        }
        "SendStreamingMessage" => {
            let place = caller.open_stream()?;
            let streamed = handler.send_streaming_message(call, jsonrpc::params(params)?).await?;
            Ok(call::echo(stream(caller, place, id.clone(), streamed.value), &streamed.active))
        }
        "GetTask" => success(&handler.get_task(call, &jsonrpc::params(params)?).await?.json()?),
        "ListTasks" => success(&encode(&handler.list_tasks(call, &jsonrpc::params(params)?).await?)?),
        "CancelTask" => success(&encode(&handler.cancel_task(call, &jsonrpc::params(params)?).await?)?),
        "SubscribeToTask" => {
            let place = caller.open_stream()?;
            let events = handler.subscribe_to_task(call, &jsonrpc::params(params)?).await?;
            Ok(stream(caller, place, id.clone(), events))
        }
        "CreateTaskPushNotificationConfig" => {
            success(&encode(&handler.create_push_config(call, jsonrpc::params(params)?).await?)?)
        }
        "GetTaskPushNotificationConfig" => {
            success(&encode(&handler.get_push_config(call, &jsonrpc::params(params)?).await?)?)
        }
        "ListTaskPushNotificationConfigs" => {
            success(&encode(&handler.list_push_configs(call, &jsonrpc::params(params)?).await?)?)
        }
        "DeleteTaskPushNotificationConfig" => {
            handler.delete_push_config(call, &jsonrpc::params(params)?).await?;
            success("null")
        }
        "GetExtendedAgentCard" => {
            success(&encode(&*handler.get_extended_agent_card(call, &jsonrpc::params(params)?)?)?)
        }
        method => {
            let (tenant, params) = handler.tenant_in(params)?;
            let answered = handler.call_method(call, tenant.as_deref(), (None, method), &params).await?;
            Ok(call::echo(method_result(caller, id, answered.value, jsonrpc::failure)?, &answered.active))
        }
    }
}

/// What a method of an extension answers. `failure` is how an error looks that ends a stream.
pub(crate) fn method_result(
    caller: &Caller,
    id: &RequestId,
    result: MethodResult,
    failure: fn(&RequestId, &A2aError) -> String,
) -> Result<Response, A2aError> {
    match result {
        MethodResult::Value(value) => success(caller, id, value.get()),
        MethodResult::Results(results) => {
            let (id, place) = (id.clone(), caller.open_stream()?);
            let answer = sse::respond(results, move |result| match result {
                Ok(value) => jsonrpc::success_raw(&id, value.get()),
                Err(error) => failure(&id, error),
            });
            Ok(answer_body::stream(caller, place, answer))
        }
    }
}

fn stream(caller: &Caller, place: StreamPlace, id: RequestId, events: EventStream) -> Response {
    let answer = sse::respond(events, move |event| jsonrpc::success_raw(&id, event.json()));
    answer_body::stream(caller, place, answer)
}

/// Asks for room before it copies a long result.
pub(crate) fn success(caller: &Caller, id: &RequestId, result: &str) -> Result<Response, A2aError> {
    caller.check_room(result.len())?;
    Ok(json(caller.answer(jsonrpc::success_raw(id, result))?))
}

/// An error as an ordinary answer.
pub(crate) fn failure(id: &RequestId, error: &A2aError) -> Response {
    json(Body::from(jsonrpc::failure(id, error)))
}

fn json(body: Body) -> Response {
    let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (content_type, body).into_response()
}

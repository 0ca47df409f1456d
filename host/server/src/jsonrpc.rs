//! The JSON-RPC binding (A2A 1.0 section 9): translates methods into operations and answers into envelopes.
//!
//! Errors go out with HTTP 200, as the official clients want them, also for a streaming method whose stream has not
//! begun. The header `A2A-Extensions` names what was really active.

use annex_protocol::jsonrpc::{self, Request, RequestId};
use annex_protocol::{A2aError, v0_3};
use annex_tasks::Owner;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::answer::{EventStream, encode};
use crate::call::{self, Call};
use crate::handler::RequestHandler;
use crate::methods::MethodResult;
use crate::sse;

/// Answers one HTTP request whose body was read in full.
pub(crate) async fn answer(
    handler: &RequestHandler,
    owner: Owner,
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
        return crate::v0_3::json_rpc(handler, owner, headers, method, &request).await;
    }
    // A request that names no version is one of 0.3 (A2A 1.0 section 3.6.2).
    if handler.speaks_v0_3
        && !jsonrpc::METHODS.contains(&request.method.as_str())
        && let Ok(call) = crate::v0_3::read_call(owner.clone(), headers)
    {
        return crate::v0_3::extension_method(handler, &call, &request).await;
    }
    let call = match Call::of(owner, headers, uri) {
        Ok(call) => call.with_headers(handler.headers_of(headers)),
        Err(error) => return failure(&request.id, &error),
    };
    dispatch(handler, &call, &request).await.unwrap_or_else(|error| failure(&request.id, &error))
}

async fn dispatch(handler: &RequestHandler, call: &Call, request: &Request) -> Result<Response, A2aError> {
    let (id, params) = (&request.id, &request.params);
    match request.method.as_str() {
        "SendMessage" => {
            let sent = handler.send_message(call, jsonrpc::params(params)?).await?;
            Ok(call::echo(success(id, &sent.value.json()?), &sent.active))
        }
        "SendStreamingMessage" => {
            let streamed = handler.send_streaming_message(call, jsonrpc::params(params)?).await?;
            Ok(call::echo(stream(id.clone(), streamed.value), &streamed.active))
        }
        "GetTask" => Ok(success(id, &handler.get_task(call, &jsonrpc::params(params)?).await?.json()?)),
        "ListTasks" => Ok(success(id, &encode(&handler.list_tasks(call, &jsonrpc::params(params)?).await?)?)),
        "CancelTask" => Ok(success(id, &encode(&handler.cancel_task(call, &jsonrpc::params(params)?).await?)?)),
        "SubscribeToTask" => Ok(stream(id.clone(), handler.subscribe_to_task(call, &jsonrpc::params(params)?).await?)),
        "CreateTaskPushNotificationConfig" => {
            Ok(success(id, &encode(&handler.create_push_config(call, jsonrpc::params(params)?).await?)?))
        }
        "GetTaskPushNotificationConfig" => {
            Ok(success(id, &encode(&handler.get_push_config(call, &jsonrpc::params(params)?).await?)?))
        }
        "ListTaskPushNotificationConfigs" => {
            Ok(success(id, &encode(&handler.list_push_configs(call, &jsonrpc::params(params)?).await?)?))
        }
        "DeleteTaskPushNotificationConfig" => {
            handler.delete_push_config(call, &jsonrpc::params(params)?).await?;
            Ok(success(id, "null"))
        }
        "GetExtendedAgentCard" => {
            Ok(success(id, &encode(&*handler.get_extended_agent_card(call, &jsonrpc::params(params)?)?)?))
        }
        method => {
            let (tenant, params) = handler.tenant_in(params)?;
            let answered = handler.call_method(call, tenant.as_deref(), (None, method), &params).await?;
            Ok(call::echo(method_result(id, answered.value, jsonrpc::failure), &answered.active))
        }
    }
}

/// What a method of an extension answers. `failure` is how an error looks that ends a stream.
pub(crate) fn method_result(
    id: &RequestId,
    result: MethodResult,
    failure: fn(&RequestId, &A2aError) -> String,
) -> Response {
    match result {
        MethodResult::Value(value) => success(id, value.get()),
        MethodResult::Results(results) => {
            let id = id.clone();
            sse::respond(results, move |result| match result {
                Ok(value) => jsonrpc::success_raw(&id, value.get()),
                Err(error) => failure(&id, error),
            })
        }
    }
}

fn stream(id: RequestId, events: EventStream) -> Response {
    sse::respond(events, move |event| jsonrpc::success_raw(&id, event.json()))
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

//! JSON-RPC of 0.3.

use annex_operations::answer::{EventStream, encode};
use annex_operations::service_parameters::{ServiceParameters, sent_version};
use annex_protocol::jsonrpc::{self, Request, RequestId};
use annex_protocol::service::{VERSION, is_version};
use annex_protocol::v0_3::{self, Method, request};
use annex_protocol::{A2aError, StreamResponse};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;

use super::{echo, json, read_call, sent_event};
use crate::access_log;
use crate::bindings::answer_body;
use crate::bindings::jsonrpc as json_rpc_binding;
use crate::bindings::sse;
use crate::connections::caller::Caller;
use crate::connections::streams::StreamPlace;
use crate::tenants::AskedTenants;

/// Answers a JSON-RPC request of 0.3: one whose method has a 0.3 name and that does not say 1.0, or one that names no newer version
/// and whose method is none of A2A's, because an extension may have it. `None` for a request of 1.0.
pub(crate) async fn answer(
    tenants: &AskedTenants<'_>,
    caller: &Caller,
    (headers, uri): (&HeaderMap, &Uri),
    request: &Request<'_>,
) -> Option<Response> {
    if let Some(method) = Method::from_name(&request.method) {
        // Who says 1.0 is told by the binding of 1.0 that it has no such method.
        let says_1_0 = is_version(&sent_version(headers, uri), VERSION);
        return if says_1_0 { None } else { Some(operation(tenants, caller, (headers, uri), method, request).await) };
    }
    // A request that names no version is one of 0.3 (A2A 1.0 section 3.6.2).
    let is_known = jsonrpc::METHODS.contains(&&*request.method);
    // A request that names another version is left to the binding of 1.0, which serves it or says what it serves.
    let call = if is_known { None } else { read_call(caller.identity.clone(), (headers, uri)).ok() };
    Some(extension_method(tenants, caller, call?, request).await)
}

/// Answers a request whose method has a 0.3 name.
async fn operation(
    tenants: &AskedTenants<'_>,
    caller: &Caller,
    (headers, uri): (&HeaderMap, &Uri),
    method: Method,
    request: &Request<'_>,
) -> Response {
    access_log::speaks(v0_3::VERSION);
    access_log::asks_for(operation_name(method));
    dispatch(tenants, caller, (headers, uri), method, request).await.unwrap_or_else(|error| {
        access_log::note_error(&error);
        let failure = v0_3::failure(&request.id, &error);
        // A stream's client reads events only; anything else costs it the reason.
        if method.streams() { sse::respond_once(&failure) } else { json(failure.into()) }
    })
}

/// Answers a JSON-RPC request of 0.3 whose method is none of A2A's: an extension may have it.
async fn extension_method(
    tenants: &AskedTenants<'_>,
    caller: &Caller,
    call: ServiceParameters,
    request: &Request<'_>,
) -> Response {
    access_log::speaks(v0_3::VERSION);
    let answer = async {
        let params = request.params_json()?;
        let (handler, call) = tenants.serving(call, None).await?;
        let answered = handler.call_method(&call, (None, &request.method), &params).await?;
        let answer = json_rpc_binding::method_result(caller, &request.id, answered.value, v0_3::failure)?;
        Ok(echo(answer, &answered.active))
    };
    access_log::noted(answer).await.unwrap_or_else(|error| json(v0_3::failure(&request.id, &error).into()))
}

async fn dispatch(
    tenants: &AskedTenants<'_>,
    caller: &Caller,
    (headers, uri): (&HeaderMap, &Uri),
    method: Method,
    request: &Request<'_>,
) -> Result<Response, A2aError> {
    let call = read_call(caller.identity.clone(), (headers, uri))?;
    let (handler, call) = tenants.serving(call, None).await?;
    let id = request.id.clone();
    let sent = &request.params_json()?;
    let success = |result: &str| json_rpc_binding::success(caller, &id, result);
    let events = |place: StreamPlace, events: EventStream| stream(caller, place, id.clone(), events);
    match method {
        Method::SendMessage => {
            let answer = handler.send_message(&call, request::send_message(sent)?).await;
            let answer = answer.map_err(request::refusal_of_message)?;
            Ok(echo(success(&sent_event(answer.value, encode_event)?)?, &answer.active))
        }
        Method::SendStreamingMessage => {
            let place = caller.open_stream()?;
            let answer = handler.send_streaming_message(&call, request::send_message(sent)?).await;
            let answer = answer.map_err(request::refusal_of_message)?;
            Ok(echo(events(place, answer.value), &answer.active))
        }
        Method::GetTask => {
            let task = handler.get_task(&call, &request::get_task(sent)?).await?.into_task()?;
            success(&encode(&v0_3::Task::from(&task))?)
        }
        Method::CancelTask => {
            let task = handler.cancel_task(&call, &request::cancel_task(sent)?).await?;
            success(&encode(&v0_3::Task::from(&task))?)
        }
        Method::SubscribeToTask => {
            let place = caller.open_stream()?;
            // Clients of 0.3 expect a subscription to end with the turn. In 1.0 it ends with the task.
            Ok(events(place, handler.follow_turn(&call, &request::subscribe_to_task(sent)?).await?))
        }
        Method::CreateTaskPushNotificationConfig => {
            let config = handler.create_push_config(&call, request::create_push_config(sent)?).await;
            let config = config.map_err(request::refusal_of_push_config)?;
            success(&encode(&v0_3::TaskPushNotificationConfig::from(&config))?)
        }
        Method::GetTaskPushNotificationConfig => {
            let get = request::get_push_config(sent)?;
            let config = match get.id.is_empty() {
                true => handler.first_push_config(&call, &get.task_id).await?,
                false => handler.get_push_config(&call, &get).await?,
            };
            success(&encode(&v0_3::TaskPushNotificationConfig::from(&config))?)
        }
        Method::ListTaskPushNotificationConfigs => {
            let configs = handler.list_push_configs(&call, &request::list_push_configs(sent)?).await?;
            success(&encode(&v0_3::push_configs(&configs))?)
        }
        Method::DeleteTaskPushNotificationConfig => {
            handler.delete_push_config(&call, &request::delete_push_config(sent)?).await?;
            success("null")
        }
        Method::GetExtendedAgentCard => {
            let card = handler.get_extended_agent_card()?;
            let card = v0_3::AgentCard::of(&card).ok_or(A2aError::ExtendedAgentCardNotConfigured)?;
            success(&encode(&card)?)
        }
    }
}

/// The name of the same operation in 1.0.
fn operation_name(method: Method) -> &'static str {
    match method {
        Method::SendMessage => "SendMessage",
        Method::SendStreamingMessage => "SendStreamingMessage",
        Method::GetTask => "GetTask",
        Method::CancelTask => "CancelTask",
        Method::SubscribeToTask => "SubscribeToTask",
        Method::CreateTaskPushNotificationConfig => "CreateTaskPushNotificationConfig",
        Method::GetTaskPushNotificationConfig => "GetTaskPushNotificationConfig",
        Method::ListTaskPushNotificationConfigs => "ListTaskPushNotificationConfigs",
        Method::DeleteTaskPushNotificationConfig => "DeleteTaskPushNotificationConfig",
        Method::GetExtendedAgentCard => "GetExtendedAgentCard",
    }
}

fn stream(caller: &Caller, place: StreamPlace, id: RequestId, events: EventStream) -> Response {
    let answer = sse::respond(events, move |event| match event {
        Ok(event) => jsonrpc::success_raw(&id, &encode_event(event.event()).unwrap_or_default()),
        Err(error) => v0_3::failure(&id, error),
    });
    answer_body::stream(caller, place, answer)
}

fn encode_event(event: &StreamResponse) -> Result<String, A2aError> {
    encode(&v0_3::Event::from(event))
}

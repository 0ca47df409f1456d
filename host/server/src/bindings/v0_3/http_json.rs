//! HTTP+JSON of 0.3, which has paths of its own below those of 1.0.

use annex_operations::answer::{EventStream, encode};
use annex_operations::request_handler::RequestHandler;
use annex_operations::service_parameters::{ServiceParameters, sent_version};
use annex_protocol::service::{VERSION, is_version};
use annex_protocol::v0_3::{self, request};
use annex_protocol::{
    A2aError, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    GetTaskRequest, ListTaskPushNotificationConfigsRequest, StreamResponse, SubscribeToTaskRequest, TaskId,
};
use axum::extract::Query;
use axum::http::{Method as HttpMethod, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::{echo, json, read_call, sent_event};
use crate::access_log;
use crate::app::App;
use crate::bindings::answer_body;
use crate::bindings::rest::{self, HttpRequest};
use crate::bindings::sse;
use crate::connections::caller::Caller;
use crate::connections::streams::StreamPlace;

/// The beginning of all paths of 0.3, below those of the binding.
pub(crate) const PREFIX: &str = "v1/";

fn body(caller: &Caller, text: String) -> Result<Response, A2aError> {
    Ok(json(answer_body::of_text(caller, text)?))
}

/// Answers a request whose path is below [`PREFIX`].
pub(crate) async fn answer(app: &App, path: &str, request: &HttpRequest<'_>) -> Response {
    access_log::noted(dispatch(app, path, request)).await.unwrap_or_else(|error| {
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, json(annex_protocol::http_json::failure(&error).into())).into_response()
    })
}

async fn dispatch(app: &App, path: &str, request: &HttpRequest<'_>) -> Result<Response, A2aError> {
    // A request of 0.3 has no place for a tenant, so all are for the agent of the config itself.
    let caller = request.caller;
    let version = sent_version(request.headers, request.uri);
    if is_version(&version, VERSION) {
        let path = format!("{PREFIX}{path}");
        return Err(A2aError::PathOfOtherVersion { path, of: v0_3::VERSION, requested: version.into_owned() });
    }
    let call = read_call(caller.identity.clone(), (request.headers, request.uri))?;
    let (handler, call) = app.tenants().asked_with(request.headers).serving(call, None).await?;
    let handler = &*handler;
    let segments = rest::segments(path);
    let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    access_log::speaks(v0_3::VERSION);
    access_log::asks_for_named(operation_name(request.method, &segments));
    let verb = |id: &'_ str| id.rsplit_once(':').map(|(id, verb)| (TaskId::from(id), verb.to_owned()));
    match (request.method, segments.as_slice()) {
        (&HttpMethod::POST, ["message:send"]) => {
            let message = v0_3::rest::send_message(&rest::read_body(request)?)?;
            let sent = handler.send_message(&call, message).await.map_err(v0_3::rest::refusal_of_message)?;
            let event = |event: &StreamResponse| encode(&v0_3::rest::Event::from(event));
            Ok(echo(body(caller, sent_event(sent.value, event)?)?, &sent.active))
        }
        (&HttpMethod::POST, ["message:stream"]) => {
            let message = v0_3::rest::send_message(&rest::read_body(request)?)?;
            let place = caller.open_stream()?;
            let streamed = handler.send_streaming_message(&call, message).await;
            let streamed = streamed.map_err(v0_3::rest::refusal_of_message)?;
            Ok(echo(rest_events(caller, place, streamed.value), &streamed.active))
        }
        (&HttpMethod::GET, ["card"]) => card(app, handler, caller),
        (&HttpMethod::GET | &HttpMethod::POST, ["tasks", id]) => match verb(id) {
            Some((id, verb)) if verb == "subscribe" => {
                let subscribe = SubscribeToTaskRequest { tenant: None, id };
                let place = caller.open_stream()?;
                // Clients of 0.3 expect a subscription to end with the turn. In 1.0 it ends with the task.
                Ok(rest_events(caller, place, handler.follow_turn(&call, &subscribe).await?))
            }
            Some((id, verb)) if verb == "cancel" && request.method == HttpMethod::POST => {
                let task = handler.cancel_task(&call, &CancelTaskRequest { id, ..Default::default() }).await?;
                body(request.caller, encode(&v0_3::rest::Task::from(&task))?)
            }
            _ if request.method == HttpMethod::GET => {
                let history_length = request::history_length(query_history_length(request.uri)?);
                let read = GetTaskRequest { tenant: None, id: TaskId::from(*id), history_length };
                let task = handler.get_task(&call, &read).await?.into_task()?;
                body(request.caller, encode(&v0_3::rest::Task::from(&task))?)
            }
            _ => Err(no_route(request, path)),
        },
        (&HttpMethod::POST, ["extensions", extension, method @ ..]) if !method.is_empty() => {
            let method = method.join("/");
            let (response, active) =
                rest::call_method(handler, &call, (extension, &method), (caller, &rest::read_body(request)?)).await?;
            Ok(echo(response, &active))
        }
        (_, ["tasks", task, "pushNotificationConfigs", rest @ ..]) => {
            push_configs(handler, &call, request, &TaskId::from(*task), rest).await
        }
        _ => Err(no_route(request, path)),
    }
}

/// The name of the operation in 1.0; empty for a path that is none of A2A's.
fn operation_name(method: &HttpMethod, segments: &[&str]) -> &'static str {
    match (method, segments) {
        (_, ["message:send"]) => "SendMessage",
        (_, ["message:stream"]) => "SendStreamingMessage",
        (_, ["card"]) => "GetExtendedAgentCard",
        (_, ["tasks", id]) if id.ends_with(":subscribe") => "SubscribeToTask",
        (_, ["tasks", id]) if id.ends_with(":cancel") => "CancelTask",
        (_, ["tasks", _]) => "GetTask",
        (&HttpMethod::POST, ["tasks", _, "pushNotificationConfigs"]) => "CreateTaskPushNotificationConfig",
        (_, ["tasks", _, "pushNotificationConfigs"]) => "ListTaskPushNotificationConfigs",
        (&HttpMethod::DELETE, ["tasks", _, "pushNotificationConfigs", _]) => "DeleteTaskPushNotificationConfig",
        (_, ["tasks", _, "pushNotificationConfigs", _]) => "GetTaskPushNotificationConfig",
        _ => "",
    }
}

/// The extended card, where there is one: whoever gets here is authenticated then. Else the public one.
fn card(app: &App, handler: &RequestHandler, caller: &Caller) -> Result<Response, A2aError> {
    let extended = handler.get_extended_agent_card().ok();
    let Some(extended) = extended.as_deref().and_then(v0_3::AgentCard::of) else {
        return body(caller, app.installer().publisher().current().card_v0_3.clone());
    };
    let mut response = body(caller, encode(&extended)?)?;
    response.headers_mut().insert(header::CACHE_CONTROL, rest::PRIVATE);
    Ok(response)
}

async fn push_configs(
    handler: &RequestHandler,
    call: &ServiceParameters,
    request: &HttpRequest<'_>,
    task: &TaskId,
    rest: &[&str],
) -> Result<Response, A2aError> {
    let task_id = task.clone();
    match (request.method, rest) {
        (&HttpMethod::POST, []) => {
            let sent = rest::read_body(request)?;
            let config = v0_3::rest::create_push_config(task_id, &sent)?;
            let config = handler.create_push_config(call, config).await;
            let config = config.map_err(|error| v0_3::rest::refusal_of_push_config(error, &sent))?;
            body(request.caller, encode(&v0_3::rest::TaskPushNotificationConfig::from(&config))?)
        }
        (&HttpMethod::GET, []) => {
            let list = ListTaskPushNotificationConfigsRequest { task_id, ..Default::default() };
            let configs = handler.list_push_configs(call, &list).await?;
            body(request.caller, encode(&v0_3::rest::ListTaskPushNotificationConfigsResponse::from(&configs))?)
        }
        (&HttpMethod::GET, [id]) => {
            let get = GetTaskPushNotificationConfigRequest { task_id, id: (*id).to_owned(), ..Default::default() };
            let config = handler.get_push_config(call, &get).await?;
            body(request.caller, encode(&v0_3::rest::TaskPushNotificationConfig::from(&config))?)
        }
        (&HttpMethod::DELETE, [id]) => {
            let delete =
                DeleteTaskPushNotificationConfigRequest { task_id, id: (*id).to_owned(), ..Default::default() };
            handler.delete_push_config(call, &delete).await?;
            body(request.caller, "{}".to_owned())
        }
        _ => Err(no_route(request, &format!("tasks/{task}/pushNotificationConfigs"))),
    }
}

fn no_route(request: &HttpRequest<'_>, path: &str) -> A2aError {
    A2aError::MethodNotFound { method: format!("{} /v1/{path}", request.method) }
}

fn rest_events(caller: &Caller, place: StreamPlace, events: EventStream) -> Response {
    let answer = sse::respond(events, |event| match event {
        Ok(event) => encode(&v0_3::rest::Event::from(event.event())).unwrap_or_default(),
        Err(error) => annex_protocol::http_json::failure(error),
    });
    answer_body::stream(caller, place, answer)
}

fn query_history_length(uri: &Uri) -> Result<Option<i32>, A2aError> {
    let Query(pairs): Query<Vec<(String, String)>> =
        Query::try_from_uri(uri).map_err(|error| A2aError::invalid_params(error.to_string()))?;
    // ProtoJSON takes both spellings of a field.
    let sent = pairs.iter().rev().find(|(name, _)| name == "historyLength" || name == "history_length");
    let parse =
        |text: &String| text.parse().map_err(|_| A2aError::invalid_field("historyLength", "is no whole number"));
    sent.map(|(_, text)| parse(text)).transpose()
}

//! A2A 0.3 for clients that have not moved on: the same operations under the old names and shapes.
//!
//! JSON-RPC methods of both versions share one path, because no name exists in both. HTTP+JSON has its own paths.

use annex_protocol::jsonrpc::{self, Request};
use annex_protocol::service::{A2A_EXTENSIONS, A2A_VERSION, VERSION, parse_extensions};
use annex_protocol::v0_3::{self, Method, X_A2A_EXTENSIONS, request};
use annex_protocol::{
    A2aError, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, ExtensionUri, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, StreamResponse,
    SubscribeToTaskRequest, TaskId,
};
use annex_tasks::Owner;
use axum::body::Body;
use axum::extract::Query;
use axum::http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::answer::{EventStream, Sent, encode};
use crate::answer_body;
use crate::call::{self, Call};
use crate::caller::Caller;
use crate::handler::RequestHandler;
use crate::jsonrpc as json_rpc_binding;
use crate::rest::{self, HttpRequest};
use crate::sse;
use crate::streams::StreamPlace;

/// The versions of this module's half of the server.
const SUPPORTED: &[&str] = &[v0_3::VERSION, VERSION];

/// The service parameters of a 0.3 request: an absent version means 0.3 (A2A 1.0 section 3.6.2).
pub(crate) fn read_call(owner: Owner, headers: &HeaderMap) -> Result<Call, A2aError> {
    let version = headers.get(A2A_VERSION).map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned());
    match version.as_deref() {
        None | Some("" | v0_3::VERSION | v0_3::CARD_VERSION) => {}
        Some(other) => {
            return Err(A2aError::VersionNotSupported { requested: other.to_owned(), supported: SUPPORTED });
        }
    }
    let lines = [X_A2A_EXTENSIONS, A2A_EXTENSIONS].into_iter().flat_map(|name| headers.get_all(name));
    Ok(Call { owner, requested: parse_extensions(lines.filter_map(|line| line.to_str().ok())), headers: None })
}

fn echo(response: Response, active: &[ExtensionUri]) -> Response {
    call::echo_as(X_A2A_EXTENSIONS, response, active)
}

/// Answers a JSON-RPC request whose method has a 0.3 name.
pub(crate) async fn json_rpc(
    handler: &RequestHandler,
    caller: &Caller,
    headers: &HeaderMap,
    method: Method,
    request: &Request,
) -> Response {
    dispatch(handler, caller, headers, method, request).await.unwrap_or_else(|error| {
        let failure = v0_3::failure(&request.id, &error);
        // A stream's client reads events only; anything else costs it the reason.
        if method.streams() { sse::respond_once(&failure) } else { json(failure.into()) }
    })
}

/// Answers a JSON-RPC request of 0.3 whose method is none of A2A's: an extension may have it.
pub(crate) async fn extension_method(
    handler: &RequestHandler,
    caller: &Caller,
    call: &Call,
    request: &Request,
) -> Response {
    let answered = handler.call_method(call, None, (None, &request.method), &request.params).await;
    let answer = answered.and_then(|answered| {
        let answer = json_rpc_binding::method_result(caller, &request.id, answered.value, v0_3::failure)?;
        Ok(echo(answer, &answered.active))
    });
    answer.unwrap_or_else(|error| json(v0_3::failure(&request.id, &error).into()))
}

async fn dispatch(
    handler: &RequestHandler,
    caller: &Caller,
    headers: &HeaderMap,
    method: Method,
    request: &Request,
) -> Result<Response, A2aError> {
    let (call, id, sent) = (read_call(caller.owner.clone(), headers)?, request.id.clone(), &request.params);
    let success = |result: &str| json_rpc_binding::success(caller, &id, result);
    let events = |place: StreamPlace, events: EventStream| {
        let id = id.clone();
        let answer = sse::respond(events, move |event| {
            let event = encode(&v0_3::Event::from(event.event())).unwrap_or_default();
            jsonrpc::success_raw(&id, &event)
        });
        answer_body::stream(caller, place, answer)
    };
    match method {
        Method::SendMessage => {
            let answer = handler.send_message(&call, request::send_message(sent)?).await?;
            Ok(echo(success(&sent_event(answer.value, encode_event)?)?, &answer.active))
        }
        Method::SendStreamingMessage => {
            let place = caller.open_stream()?;
            let answer = handler.send_streaming_message(&call, request::send_message(sent)?).await?;
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
            Ok(events(place, handler.follow_turn(&call, &request::subscribe_to_task(sent)?).await?))
        }
        Method::CreateTaskPushNotificationConfig => {
            let config = handler.create_push_config(&call, request::create_push_config(sent)?).await?;
            success(&encode(&v0_3::TaskPushNotificationConfig::from(&config))?)
        }
        Method::GetTaskPushNotificationConfig => {
            let config = handler.get_push_config(&call, &request::get_push_config(sent)?).await?;
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
            let card = handler.get_extended_agent_card(&call, &GetExtendedAgentCardRequest::default())?;
            let card = v0_3::AgentCard::of(&card).ok_or(A2aError::ExtendedAgentCardNotConfigured)?;
            success(&encode(&card)?)
        }
    }
}

fn sent_event(sent: Sent, encode: impl Fn(&StreamResponse) -> Result<String, A2aError>) -> Result<String, A2aError> {
    encode(&match sent {
        Sent::Message(message) => StreamResponse::Message(*message),
        Sent::Task(task) => StreamResponse::Task(task.into_task()?),
    })
}

fn encode_event(event: &StreamResponse) -> Result<String, A2aError> {
    encode(&v0_3::Event::from(event))
}

fn json(body: Body) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

fn answer(caller: &Caller, body: String) -> Result<Response, A2aError> {
    Ok(json(caller.answer(body)?))
}

/// Answers a request below `/v1` of the HTTP+JSON binding.
pub(crate) async fn http_json(handler: &RequestHandler, path: &str, request: &HttpRequest<'_>) -> Response {
    rest_dispatch(handler, path, request).await.unwrap_or_else(|error| {
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, json(annex_protocol::http_json::failure(&error).into())).into_response()
    })
}

async fn rest_dispatch(handler: &RequestHandler, path: &str, request: &HttpRequest<'_>) -> Result<Response, A2aError> {
    let caller = request.caller;
    let call = read_call(caller.owner.clone(), request.headers)?;
    let segments: Vec<&str> = path.split('/').collect();
    let verb = |id: &'_ str| id.rsplit_once(':').map(|(id, verb)| (TaskId::from(id), verb.to_owned()));
    match (request.method, segments.as_slice()) {
        (&HttpMethod::POST, ["message:send"]) => {
            let message = v0_3::rest::send_message(&rest::read_body(request)?)?;
            let sent = handler.send_message(&call, message).await?;
            let event = |event: &StreamResponse| encode(&v0_3::rest::Event::from(event));
            Ok(echo(answer(caller, sent_event(sent.value, event)?)?, &sent.active))
        }
        (&HttpMethod::POST, ["message:stream"]) => {
            let message = v0_3::rest::send_message(&rest::read_body(request)?)?;
            let place = caller.open_stream()?;
            let streamed = handler.send_streaming_message(&call, message).await?;
            Ok(echo(rest_events(caller, place, streamed.value), &streamed.active))
        }
        (&HttpMethod::GET, ["card"]) => answer(caller, handler.editions.current().card_v0_3.clone()),
        (&HttpMethod::GET | &HttpMethod::POST, ["tasks", id]) => match verb(id) {
            Some((id, verb)) if verb == "subscribe" => {
                let subscribe = SubscribeToTaskRequest { tenant: None, id };
                let place = caller.open_stream()?;
                Ok(rest_events(caller, place, handler.follow_turn(&call, &subscribe).await?))
            }
            Some((id, verb)) if verb == "cancel" && request.method == HttpMethod::POST => {
                let task = handler.cancel_task(&call, &CancelTaskRequest { id, ..Default::default() }).await?;
                answer(request.caller, encode(&v0_3::rest::Task::from(&task))?)
            }
            _ if request.method == HttpMethod::GET => {
                let history_length = request::history_length(query_history_length(request.uri)?);
                let read = GetTaskRequest { tenant: None, id: TaskId::from(*id), history_length };
                let task = handler.get_task(&call, &read).await?.into_task()?;
                answer(request.caller, encode(&v0_3::rest::Task::from(&task))?)
            }
            _ => Err(no_route(request, path)),
        },
        (&HttpMethod::POST, ["extensions", extension, method @ ..]) if !method.is_empty() => {
            let method = method.join("/");
            let (response, active) = rest::call_method(handler, &call, None, (extension, &method), request).await?;
            Ok(echo(response, &active))
        }
        (_, ["tasks", task, "pushNotificationConfigs", rest @ ..]) => {
            push_configs(handler, &call, request, &TaskId::from(*task), rest).await
        }
        _ => Err(no_route(request, path)),
    }
}

async fn push_configs(
    handler: &RequestHandler,
    call: &Call,
    request: &HttpRequest<'_>,
    task: &TaskId,
    rest: &[&str],
) -> Result<Response, A2aError> {
    let task_id = task.clone();
    match (request.method, rest) {
        (&HttpMethod::POST, []) => {
            let config = v0_3::rest::create_push_config(task_id, &rest::read_body(request)?)?;
            let config = handler.create_push_config(call, config).await?;
            answer(request.caller, encode(&v0_3::rest::TaskPushNotificationConfig::from(&config))?)
        }
        (&HttpMethod::GET, []) => {
            let list = ListTaskPushNotificationConfigsRequest { task_id, ..Default::default() };
            let configs = handler.list_push_configs(call, &list).await?;
            answer(request.caller, encode(&v0_3::rest::ListTaskPushNotificationConfigsResponse::from(&configs))?)
        }
        (&HttpMethod::GET, [id]) => {
            let get = GetTaskPushNotificationConfigRequest { task_id, id: (*id).to_owned(), ..Default::default() };
            let config = handler.get_push_config(call, &get).await?;
            answer(request.caller, encode(&v0_3::rest::TaskPushNotificationConfig::from(&config))?)
        }
        (&HttpMethod::DELETE, [id]) => {
            let delete =
                DeleteTaskPushNotificationConfigRequest { task_id, id: (*id).to_owned(), ..Default::default() };
            handler.delete_push_config(call, &delete).await?;
            answer(request.caller, "{}".to_owned())
        }
        _ => Err(no_route(request, &format!("tasks/{task}/pushNotificationConfigs"))),
    }
}

fn no_route(request: &HttpRequest<'_>, path: &str) -> A2aError {
    A2aError::MethodNotFound { method: format!("{} /v1/{path}", request.method) }
}

fn rest_events(caller: &Caller, place: StreamPlace, events: EventStream) -> Response {
    let answer = sse::respond(events, |event| encode(&v0_3::rest::Event::from(event.event())).unwrap_or_default());
    answer_body::stream(caller, place, answer)
}

fn query_history_length(uri: &Uri) -> Result<Option<i32>, A2aError> {
    let Query(pairs): Query<Vec<(String, String)>> =
        Query::try_from_uri(uri).map_err(|error| A2aError::invalid_params(error.to_string()))?;
    let sent = pairs.iter().rev().find(|(name, _)| name == "historyLength" || name == "history_length");
    let parse =
        |text: &String| text.parse().map_err(|_| A2aError::invalid_field("historyLength", "is no whole number"));
    sent.map(|(_, text)| parse(text)).transpose()
}

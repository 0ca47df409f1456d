//! The HTTP+JSON binding of 0.3. Its paths begin with [`PREFIX`], below the paths of 1.0.

use annex_operations::answer::{EventStream, encode};
use annex_operations::operation::{Operation, OperationResult};
use annex_operations::service_parameters::sent_version;
use annex_protocol::service::{VERSION, is_version};
use annex_protocol::v0_3::{self, request};
use annex_protocol::{
    A2aError, AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, ExtensionUri,
    GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
    ListTaskPushNotificationConfigsRequest, StreamResponse, SubscribeToTaskRequest,
};
use axum::extract::Query;
use axum::http::{Method as HttpMethod, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::{echo, json, no_list_tasks, read_call, sent_event};
use crate::access_log;
use crate::app::App;
use crate::bindings::answer_body;
use crate::bindings::rest::route::{Route, segments};
use crate::bindings::rest::{self, HttpRequest};
use crate::bindings::sse;
use crate::connections::caller::Caller;
use crate::connections::streams::StreamPlace;
use crate::operations::{Operations, Reply};

/// The first segment of all paths of 0.3.
pub(crate) const PREFIX: &str = "v1/";

fn body(caller: &Caller, text: String) -> Result<Response, A2aError> {
    Ok(json(answer_body::of_text(caller, text)?))
}

/// Answers a request whose path is below [`PREFIX`].
pub(crate) async fn answer(app: &App, path: &str, request: &HttpRequest<'_>) -> Response {
    perform(app, path, request).await.unwrap_or_else(|error| {
        access_log::note_error(&error);
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, json(annex_protocol::http_json::failure(&error).into())).into_response()
    })
}

/// Notes the operation of a request that does not reach the handler.
pub(crate) fn note_operation(method: &HttpMethod, path: &str) {
    let segments = segments(path);
    let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    if let Some(route) = route(method, &segments) {
        route.note();
    }
}

async fn perform(app: &App, path: &str, request: &HttpRequest<'_>) -> Result<Response, A2aError> {
    let caller = request.caller;
    let version = sent_version(request.headers, request.uri);
    if is_version(&version, VERSION) {
        let path = format!("{PREFIX}{path}");
        return Err(A2aError::PathOfOtherVersion { path, of: v0_3::VERSION, requested: version.into_owned() });
    }
    let call = read_call(caller.identity.clone(), (request.headers, request.uri))?;
    access_log::speaks(v0_3::VERSION);
    let segments = segments(path);
    let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    let no_route = || A2aError::MethodNotFound { method: format!("{} /v1/{path}", request.method) };
    let route = route(request.method, &segments).ok_or_else(no_route)?;
    route.note();
    // A request of 0.3 has no field for a tenant, so every request is for the agent of the config itself.
    let operations = Operations::new(app.tenants(), request.headers);
    match operations.call(caller, call, operation(request, &route)?).await {
        Ok(reply) => write(app, caller, reply),
        // A client of 0.3 requests the extended card even if the agent has none, and then gets the public card.
        Err(_) if route == Route::ExtendedAgentCard => card(app, caller, None, &[]),
        Err(error) => Err(refusal(&route, request, error)),
    }
}

fn route<'a>(method: &HttpMethod, segments: &[&'a str]) -> Option<Route<'a>> {
    Some(match (method, segments) {
        (&HttpMethod::POST, ["message:send"]) => Route::SendMessage,
        (&HttpMethod::POST, ["message:stream"]) => Route::SendStreamingMessage,
        (&HttpMethod::GET, ["card"]) => Route::ExtendedAgentCard,
        (&HttpMethod::GET | &HttpMethod::POST, ["tasks", id]) => match id.rsplit_once(':') {
            Some((id, "subscribe")) => Route::SubscribeToTask(id),
            Some((id, "cancel")) if method == HttpMethod::POST => Route::CancelTask(id),
            _ if method == HttpMethod::GET => Route::GetTask(id),
            _ => return None,
        },
        (&HttpMethod::POST, ["extensions", extension, method @ ..]) if !method.is_empty() => {
            Route::ExtensionMethod(extension, method.join("/"))
        }
        (&HttpMethod::POST, ["tasks", task, "pushNotificationConfigs"]) => Route::CreatePushConfig(task),
        (&HttpMethod::GET, ["tasks", task, "pushNotificationConfigs"]) => Route::ListPushConfigs(task),
        (&HttpMethod::GET, ["tasks", task, "pushNotificationConfigs", id]) => Route::GetPushConfig(task, id),
        (&HttpMethod::DELETE, ["tasks", task, "pushNotificationConfigs", id]) => Route::DeletePushConfig(task, id),
        _ => return None,
    })
}

/// Reads the operation from the route, the body and the query of a request.
fn operation(request: &HttpRequest<'_>, route: &Route<'_>) -> Result<Operation, A2aError> {
    let message = || v0_3::rest::send_message(&rest::read_body(request)?);
    let tenant = None;
    Ok(match *route {
        Route::SendMessage => Operation::SendMessage(message()?),
        Route::SendStreamingMessage => Operation::SendStreamingMessage(message()?),
        Route::GetTask(id) => {
            let history_length = request::history_length(query_history_length(request.uri)?);
            Operation::GetTask(GetTaskRequest { tenant, id: id.into(), history_length })
        }
        Route::ListTasks => return Err(no_list_tasks()),
        Route::CancelTask(id) => Operation::CancelTask(CancelTaskRequest { id: id.into(), ..Default::default() }),
        Route::SubscribeToTask(id) => Operation::SubscribeToTurn(SubscribeToTaskRequest { tenant, id: id.into() }),
        Route::CreatePushConfig(task) => {
            let sent = rest::read_body(request)?;
            Operation::CreatePushConfig(v0_3::rest::create_push_config(task.into(), &sent)?)
        }
        Route::ListPushConfigs(task) => Operation::ListPushConfigs(ListTaskPushNotificationConfigsRequest {
            task_id: task.into(),
            ..Default::default()
        }),
        Route::GetPushConfig(task, id) => {
            let (task_id, id) = (task.into(), id.to_owned());
            Operation::GetPushConfig(GetTaskPushNotificationConfigRequest { tenant, task_id, id })
        }
        Route::DeletePushConfig(task, id) => {
            let (task_id, id) = (task.into(), id.to_owned());
            Operation::DeletePushConfig(DeleteTaskPushNotificationConfigRequest { tenant, task_id, id })
        }
        Route::ExtendedAgentCard => Operation::GetExtendedAgentCard(GetExtendedAgentCardRequest::default()),
        Route::ExtensionMethod(extension, ref method) => rest::method_call(request, None, (extension, method.clone()))?,
    })
}

/// Replaces the names of fields in an error by the names that these fields have in 0.3.
fn refusal(route: &Route<'_>, request: &HttpRequest<'_>, error: A2aError) -> A2aError {
    match route {
        Route::SendMessage | Route::SendStreamingMessage => v0_3::rest::refusal_of_message(error),
        Route::CreatePushConfig(_) => match rest::read_body(request) {
            Ok(sent) => v0_3::rest::refusal_of_push_config(error, &sent),
            Err(_) => error,
        },
        _ => error,
    }
}

/// Writes the result as a response.
fn write(app: &App, caller: &Caller, reply: Reply) -> Result<Response, A2aError> {
    let Reply { result, active, place } = reply;
    let response = match result {
        OperationResult::Sent(sent) => {
            let event = |event: &StreamResponse| encode(&v0_3::rest::Event::from(event));
            body(caller, sent_event(sent, event)?)?
        }
        OperationResult::Events(events) => rest_events(caller, place, events),
        OperationResult::Task(task) => body(caller, encode(&v0_3::rest::Task::from(&task.into_task()?))?)?,
        OperationResult::Tasks(_) => return Err(no_list_tasks()),
        OperationResult::CanceledTask(task) => body(caller, encode(&v0_3::rest::Task::from(&task))?)?,
        OperationResult::PushConfig(config) => {
            body(caller, encode(&v0_3::rest::TaskPushNotificationConfig::from(&config))?)?
        }
        OperationResult::PushConfigs(configs) => {
            body(caller, encode(&v0_3::rest::ListTaskPushNotificationConfigsResponse::from(&configs))?)?
        }
        OperationResult::NoPushConfig => body(caller, "{}".to_owned())?,
        OperationResult::ExtendedAgentCard(extended) => card(app, caller, Some(&extended), &active)?,
        OperationResult::Method(result) => rest::method_result((caller, place), result)?,
    };
    Ok(echo(response, &active))
}

/// Answers with the extended card in the form of 0.3. If no extended card has this form, answers with the public card.
/// `active` are the extensions that took part in the read.
fn card(
    app: &App,
    caller: &Caller,
    extended: Option<&AgentCard>,
    active: &[ExtensionUri],
) -> Result<Response, A2aError> {
    let Some(extended) = extended.and_then(v0_3::AgentCard::of) else {
        return body(caller, app.installer().publisher().current().card_v0_3.clone());
    };
    let mut response = body(caller, encode(&extended)?)?;
    rest::limit_caches(&mut response, active);
    Ok(response)
}

fn rest_events(caller: &Caller, place: Option<StreamPlace>, events: EventStream) -> Response {
    let answer = sse::respond(events, |event| match event {
        Ok(event) => encode(&v0_3::rest::Event::from(event.event())).unwrap_or_default(),
        Err(error) => annex_protocol::http_json::failure(error),
    });
    answer_body::stream(caller, place, answer)
}

fn query_history_length(uri: &Uri) -> Result<Option<i32>, A2aError> {
    let Query(pairs): Query<Vec<(String, String)>> =
        Query::try_from_uri(uri).map_err(|error| A2aError::invalid_params(error.to_string()))?;
    // ProtoJSON accepts both spellings of a field.
    let sent = pairs.iter().rev().find(|(name, _)| name == "historyLength" || name == "history_length");
    let parse =
        |text: &String| text.parse().map_err(|_| A2aError::invalid_field("historyLength", "is no whole number"));
    sent.map(|(_, text)| parse(text)).transpose()
}

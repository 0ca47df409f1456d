//! The HTTP+JSON binding (A2A 1.0 section 11): translates paths into operations and answers into bodies.
//!
//! Each path also exists behind `/{tenant}`. Answers have the media type of the request.

use std::borrow::Cow;

use annex_operations::answer::{EventStream, ShownTask, encode};
use annex_operations::methods::MethodResult;
use annex_operations::request_handler::RequestHandler;
use annex_operations::service_parameters::ServiceParameters;
use annex_protocol::jsonrpc::params;
use annex_protocol::service::VERSION;
use annex_protocol::{
    A2aError, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, ExtensionUri, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, Json, JsonObject, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig, http_json,
};
use axum::body::Body;
use axum::extract::Query;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use crate::access_log;
use crate::bindings::answer_body;
use crate::bindings::service_headers::{check_content_type, echo, retry_after};
use crate::bindings::sse;
use crate::connections::caller::Caller;
use crate::connections::streams::StreamPlace;
use crate::tenants::{self, AskedTenants, Tenants};

/// The `Cache-Control` of an answer that only the caller may keep.
pub(crate) const PRIVATE: HeaderValue = HeaderValue::from_static("private, max-age=60");

/// The operation that a path and a method ask for.
#[derive(Debug, PartialEq, Eq)]
enum Operation<'a> {
    SendMessage,
    SendStreamingMessage,
    GetTask(&'a str),
    ListTasks,
    CancelTask(&'a str),
    SubscribeToTask(&'a str),
    PushConfig(PushConfigOperation<'a>),
    ExtendedAgentCard,
    /// A method of the extension with this name.
    Method(&'a str, String),
}

/// The same about push notification configs, by the ids of a task and of a config.
#[derive(Debug, PartialEq, Eq)]
enum PushConfigOperation<'a> {
    Create(&'a str),
    List(&'a str),
    Get(&'a str, &'a str),
    Delete(&'a str, &'a str),
}

impl Operation<'_> {
    /// The name that A2A gives it; that of a method of an extension is its own.
    fn name(&self) -> &str {
        match self {
            Self::SendMessage => "SendMessage",
            Self::SendStreamingMessage => "SendStreamingMessage",
            Self::GetTask(_) => "GetTask",
            Self::ListTasks => "ListTasks",
            Self::CancelTask(_) => "CancelTask",
            Self::SubscribeToTask(_) => "SubscribeToTask",
            Self::PushConfig(PushConfigOperation::Create(_)) => "CreateTaskPushNotificationConfig",
            Self::PushConfig(PushConfigOperation::List(_)) => "ListTaskPushNotificationConfigs",
            Self::PushConfig(PushConfigOperation::Get(..)) => "GetTaskPushNotificationConfig",
            Self::PushConfig(PushConfigOperation::Delete(..)) => "DeleteTaskPushNotificationConfig",
            Self::ExtendedAgentCard => "GetExtendedAgentCard",
            Self::Method(_, name) => name,
        }
    }
}

/// The reasons for which there is no operation.
#[derive(Debug, PartialEq, Eq)]
enum NoRoute {
    Path,
    /// The path exists for these methods.
    Method(&'static str),
}

/// One request to the binding.
pub(crate) struct HttpRequest<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) method: &'a Method,
    /// Below the binding's own path, without a leading slash, as it was sent.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) uri: &'a Uri,
    pub(crate) body: &'a [u8],
}

/// Answers one HTTP request whose body was read in full.
pub(crate) async fn answer(tenants: &Tenants, request: HttpRequest<'_>) -> Response {
    let segments = segments(request.path);
    let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    let response = match route(request.method, &segments) {
        Ok((tenant, operation)) => dispatch(&tenants.asked_with(request.headers), &request, tenant, operation).await,
        // The answer says so by its status.
        Err(NoRoute::Method(allowed)) => return method_not_allowed(allowed, request.path),
        Err(NoRoute::Path) => Err(A2aError::MethodNotFound { method: format!("{} /{}", request.method, request.path) }),
    };
    with_media_type(request.headers, response.unwrap_or_else(|error| failure(&error)))
}

/// The answer to a request that never reaches the handler: the server is not ready, or the body cannot be read.
pub(crate) fn refuse(headers: &HeaderMap, status: StatusCode, error: &A2aError) -> Response {
    let mut response = failure(error);
    *response.status_mut() = status;
    with_media_type(headers, response)
}

/// The segments of a path, each decoded by itself: an encoded slash is a part of an id.
pub(crate) fn segments(path: &str) -> Vec<Cow<'_, str>> {
    // Bytes that are no UTF-8 make an id that nobody has given.
    path.split('/').map(|segment| percent_decode_str(segment).decode_utf8_lossy()).collect()
}

fn route<'a>(method: &Method, segments: &[&'a str]) -> Result<(Option<&'a str>, Operation<'a>), NoRoute> {
    // The path without a tenant comes first. No tenant has the name of a first segment (`config/tenant.rs`).
    match operation(method, segments) {
        Err(NoRoute::Path) => match segments.split_first() {
            Some((tenant, rest)) if !tenant.is_empty() => Ok((Some(*tenant), operation(method, rest)?)),
            _ => Err(NoRoute::Path),
        },
        found => found.map(|operation| (None, operation)),
    }
}

fn operation<'a>(method: &Method, segments: &[&'a str]) -> Result<Operation<'a>, NoRoute> {
    let (allowed, operation) = match segments {
        ["message:send"] => ("POST", Operation::SendMessage),
        ["message:stream"] => ("POST", Operation::SendStreamingMessage),
        ["tasks"] => ("GET", Operation::ListTasks),
        ["extendedAgentCard"] => ("GET", Operation::ExtendedAgentCard),
        // An id may have colons itself, so only the last one can begin a verb.
        ["tasks", id] => match id.rsplit_once(':') {
            Some((id, "cancel")) => ("POST", Operation::CancelTask(id)),
            // The proto file says GET, the text of the specification POST.
            Some((id, "subscribe")) => ("GET, POST", Operation::SubscribeToTask(id)),
            _ => ("GET", Operation::GetTask(id)),
        },
        ["tasks", task, "pushNotificationConfigs"] if method == Method::POST => {
            ("POST", Operation::PushConfig(PushConfigOperation::Create(task)))
        }
        ["tasks", task, "pushNotificationConfigs"] => {
            ("GET, POST", Operation::PushConfig(PushConfigOperation::List(task)))
        }
        ["tasks", task, "pushNotificationConfigs", id] if method == Method::DELETE => {
            ("DELETE", Operation::PushConfig(PushConfigOperation::Delete(task, id)))
        }
        ["tasks", task, "pushNotificationConfigs", id] => {
            ("GET, DELETE", Operation::PushConfig(PushConfigOperation::Get(task, id)))
        }
        ["extensions", extension, method @ ..] if !method.is_empty() => {
            ("POST", Operation::Method(extension, method.join("/")))
        }
        _ => return Err(NoRoute::Path),
    };
    let is_allowed = allowed.split(", ").any(|name| name == method.as_str());
    if is_allowed { Ok(operation) } else { Err(NoRoute::Method(allowed)) }
}

async fn dispatch(
    tenants: &AskedTenants<'_>,
    request: &HttpRequest<'_>,
    tenant: Option<&str>,
    operation: Operation<'_>,
) -> Result<Response, A2aError> {
    access_log::asks_for_named(operation.name());
    let call = ServiceParameters::of(request.caller.identity.clone(), request.headers, request.uri)?;
    access_log::speaks(VERSION);
    let caller = request.caller;
    match operation {
        Operation::SendMessage => {
            let message = message(request, tenant)?;
            let (handler, call) = tenants.serving(call, message.tenant.as_deref()).await?;
            let sent = handler.send_message(&call, message).await?;
            Ok(echo(json(caller, sent.value.json()?)?, &sent.active))
        }
        Operation::SendStreamingMessage => {
            // The place comes first: a client that gets no stream must not have begun a turn.
            let place = caller.open_stream()?;
            let message = message(request, tenant)?;
            let (handler, call) = tenants.serving(call, message.tenant.as_deref()).await?;
            let streamed = handler.send_streaming_message(&call, message).await?;
            Ok(echo(stream(caller, place, streamed.value), &streamed.active))
        }
        Operation::GetTask(id) => {
            let read: GetTaskRequest = from_query(request, tenant, &[("id", id)])?;
            let (handler, call) = tenants.serving(call, read.tenant.as_deref()).await?;
            found(caller, &handler.get_task(&call, &read).await?)
        }
        Operation::ListTasks => {
            let list: ListTasksRequest = from_query(request, tenant, &[])?;
            let (handler, call) = tenants.serving(call, list.tenant.as_deref()).await?;
            json(caller, encode(&handler.list_tasks(&call, &list).await?)?)
        }
        Operation::CancelTask(id) => {
            let mut cancel: CancelTaskRequest = params(with(&read_body(request)?, "id", id)?.get())?;
            place(&mut cancel.tenant, tenant)?;
            let (handler, call) = tenants.serving(call, cancel.tenant.as_deref()).await?;
            json(caller, encode(&handler.cancel_task(&call, &cancel).await?)?)
        }
        Operation::SubscribeToTask(id) => {
            // The path has all that this operation needs, so the body of a POST is not looked at.
            let subscribe: SubscribeToTaskRequest = from_query(request, tenant, &[("id", id)])?;
            let place = caller.open_stream()?;
            let (handler, call) = tenants.serving(call, subscribe.tenant.as_deref()).await?;
            Ok(stream(caller, place, handler.subscribe_to_task(&call, &subscribe).await?))
        }
        Operation::PushConfig(operation) => push_config(tenants, call, request, tenant, operation).await,
        Operation::Method(extension, method) => {
            let params = read_body(request)?;
            // The path names the tenant, so all parameters in the body are the extension's.
            let (handler, call) = tenants.serving(call, tenant).await?;
            let (response, active) = call_method(&handler, &call, (extension, &method), (caller, &params)).await?;
            Ok(echo(response, &active))
        }
        Operation::ExtendedAgentCard => {
            let card: GetExtendedAgentCardRequest = from_query(request, tenant, &[])?;
            let (handler, _) = tenants.serving(call, card.tenant.as_deref()).await?;
            extended_card(&handler, caller)
        }
    }
}

/// The operations on push notification configs.
async fn push_config(
    tenants: &AskedTenants<'_>,
    call: ServiceParameters,
    request: &HttpRequest<'_>,
    tenant: Option<&str>,
    operation: PushConfigOperation<'_>,
) -> Result<Response, A2aError> {
    let caller = request.caller;
    match operation {
        PushConfigOperation::Create(task) => {
            let body = with(&read_body(request)?, "taskId", task)?;
            let mut config = params::<TaskPushNotificationConfig>(body.get())?.of_client();
            place(&mut config.tenant, tenant)?;
            let (handler, call) = tenants.serving(call, config.tenant.as_deref()).await?;
            json(caller, encode(&handler.create_push_config(&call, config).await?)?)
        }
        PushConfigOperation::List(task) => {
            let list: ListTaskPushNotificationConfigsRequest = from_query(request, tenant, &[("taskId", task)])?;
            let (handler, call) = tenants.serving(call, list.tenant.as_deref()).await?;
            json(caller, encode(&handler.list_push_configs(&call, &list).await?)?)
        }
        PushConfigOperation::Get(task, id) => {
            let get: GetTaskPushNotificationConfigRequest =
                from_query(request, tenant, &[("taskId", task), ("id", id)])?;
            let (handler, call) = tenants.serving(call, get.tenant.as_deref()).await?;
            json(caller, encode(&handler.get_push_config(&call, &get).await?)?)
        }
        PushConfigOperation::Delete(task, id) => {
            let delete: DeleteTaskPushNotificationConfigRequest =
                from_query(request, tenant, &[("taskId", task), ("id", id)])?;
            let (handler, call) = tenants.serving(call, delete.tenant.as_deref()).await?;
            handler.delete_push_config(&call, &delete).await?;
            // The operation returns `google.protobuf.Empty`, which ProtoJSON writes as an empty object.
            json(caller, "{}".to_owned())
        }
    }
}

/// A task may be large, so there must be room before it is copied.
fn found(caller: &Caller, task: &ShownTask) -> Result<Response, A2aError> {
    let text = task.json()?;
    caller.check_room(text.len())?;
    json(caller, text.into_owned())
}

fn extended_card(handler: &RequestHandler, caller: &Caller) -> Result<Response, A2aError> {
    let mut response = json(caller, encode(&*handler.get_extended_agent_card()?)?)?;
    // This card may say more than the public one, so no shared cache may keep it (A2A 1.0 section 8.6).
    response.headers_mut().insert(header::CACHE_CONTROL, PRIVATE);
    Ok(response)
}

/// Calls a method of the extension with a name. Returns what it answers, and what was active.
pub(crate) async fn call_method(
    handler: &RequestHandler,
    call: &ServiceParameters,
    (extension, method): (&str, &str),
    (caller, params): (&Caller, &Json),
) -> Result<(Response, Vec<ExtensionUri>), A2aError> {
    let answered = handler.call_method(call, (Some(extension), method), params).await?;
    Ok((method_result(caller, answered.value)?, answered.active))
}

fn method_result(caller: &Caller, result: MethodResult) -> Result<Response, A2aError> {
    match result {
        MethodResult::Value(value) => json(caller, value.get().to_owned()),
        MethodResult::Results(results) => {
            // Only the answer tells whether the method streams, so its place is taken after the call.
            let place = caller.open_stream()?;
            let answer = sse::respond(results, |result| match result {
                Ok(value) => value.get().to_owned(),
                Err(error) => http_json::failure(error),
            });
            Ok(answer_body::stream(caller, place, answer))
        }
    }
}

fn message(request: &HttpRequest<'_>, tenant: Option<&str>) -> Result<SendMessageRequest, A2aError> {
    let mut message = params::<SendMessageRequest>(read_body(request)?.get())?.of_client();
    place(&mut message.tenant, tenant)?;
    Ok(message)
}

/// The tenant of the path; a body may repeat it, not contradict it.
fn place(field: &mut Option<String>, tenant: Option<&str>) -> Result<(), A2aError> {
    let Some(tenant) = tenant else { return Ok(()) };
    match field.as_deref().filter(|named| !named.is_empty()) {
        Some(named) if named != tenant => Err(tenants::other_than_in_path()),
        _ => {
            *field = Some(tenant.to_owned());
            Ok(())
        }
    }
}

pub(crate) fn read_body(request: &HttpRequest<'_>) -> Result<Json, A2aError> {
    // A request without a body needs no content type, such as a CancelTask.
    if !request.body.is_empty() {
        check_content_type(request.headers, &["application/json", http_json::MEDIA_TYPE])?;
    }
    http_json::body(request.body)
}

/// The id of the path counts, whatever the body says.
fn with(body: &Json, name: &str, id: &str) -> Result<Json, A2aError> {
    let mut object: JsonObject = params(body.get())?;
    object.insert(name.to_owned(), Json::string(id));
    object.to_json().map_err(|error| A2aError::Parse { reason: error.to_string() })
}

fn from_query<T: DeserializeOwned>(
    request: &HttpRequest<'_>,
    tenant: Option<&str>,
    path: &[(&str, &str)],
) -> Result<T, A2aError> {
    let Query(pairs): Query<Vec<(String, String)>> =
        Query::try_from_uri(request.uri).map_err(|error| A2aError::invalid_params(error.to_string()))?;
    let mut object = http_json::query(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    // The path is put in last, so that a query cannot name another id or tenant.
    for (name, value) in path.iter().copied().chain(tenant.map(|tenant| ("tenant", tenant))) {
        object.insert(name.to_owned(), Json::string(value));
    }
    params(object.to_json().map_err(|error| A2aError::Parse { reason: error.to_string() })?.get())
}

fn json(caller: &Caller, body: String) -> Result<Response, A2aError> {
    Ok(answer_body::of_text(caller, body)?.into_response())
}

fn stream(caller: &Caller, place: StreamPlace, events: EventStream) -> Response {
    let answer = sse::respond_numbered(events, |event| match event {
        Ok(event) => event.json().to_string(),
        Err(error) => http_json::failure(error),
    });
    answer_body::stream(caller, place, answer)
}

fn failure(error: &A2aError) -> Response {
    access_log::note_error(error);
    let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    retry_after((status, Body::from(http_json::failure(error))).into_response(), error)
}

fn method_not_allowed(allowed: &'static str, path: &str) -> Response {
    // RFC 9110 section 15.5.6 demands `Allow` with this status.
    let allow = [(header::ALLOW, HeaderValue::from_static(allowed))];
    (StatusCode::METHOD_NOT_ALLOWED, allow, format!("/{path} takes {allowed}\n")).into_response()
}

fn with_media_type(request: &HeaderMap, mut response: Response) -> Response {
    // A stream has its own.
    response.headers_mut().entry(header::CONTENT_TYPE).or_insert_with(|| media_type(request));
    response
}

/// `application/json` when that is what the client sends, or all that it asks for.
fn media_type(headers: &HeaderMap) -> HeaderValue {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let sent = text(header::CONTENT_TYPE);
    let accepted = text(header::ACCEPT);
    // A2A 1.0.0 has this media type and 1.0.1 has `application/a2a+json`. A client gets the one that it knows.
    let plain = "application/json";
    let is_plain = if sent.is_empty() {
        accepted.contains(plain) && !accepted.contains(http_json::MEDIA_TYPE)
    } else {
        sent.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(plain)
    };
    HeaderValue::from_static(if is_plain { plain } else { http_json::MEDIA_TYPE })
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::{NoRoute, Operation, PushConfigOperation, segments};

    /// The route of a path, compared while its segments are there.
    fn check(method: &Method, path: &str, expected: &Result<(Option<&str>, Operation<'_>), NoRoute>) {
        let segments = segments(path);
        let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
        assert_eq!(&super::route(method, &segments), expected, "{path}");
    }

    #[test]
    fn a_path_is_an_operation_with_and_without_a_tenant() {
        let get = |path, expected| check(&Method::GET, path, &Ok(expected));
        let post = |path, expected| check(&Method::POST, path, &Ok(expected));
        post("message:send", (None, Operation::SendMessage));
        post("acme/message:stream", (Some("acme"), Operation::SendStreamingMessage));
        get("tasks", (None, Operation::ListTasks));
        get("acme/tasks", (Some("acme"), Operation::ListTasks));
        get("tasks/a:b", (None, Operation::GetTask("a:b")));
        get("acme/tasks/t", (Some("acme"), Operation::GetTask("t")));
        post("tasks/a:b:cancel", (None, Operation::CancelTask("a:b")));
        post("extensions/history/tasks/search", (None, Operation::Method("history", "tasks/search".into())));
        for method in [Method::GET, Method::POST] {
            check(&method, "tasks/t:subscribe", &Ok((None, Operation::SubscribeToTask("t"))));
        }
    }

    #[test]
    fn an_id_may_have_any_character_that_is_encoded_in_its_path() {
        let get = |path, expected| check(&Method::GET, path, &Ok((None, expected)));
        get("tasks/a%2Fb%20%25", Operation::GetTask("a/b %"));
        let config = |task, id| Operation::PushConfig(PushConfigOperation::Get(task, id));
        get("tasks/t/pushNotificationConfigs/a%2Fb", config("t", "a/b"));
        get("tasks/a%2fb/pushNotificationConfigs/%C3%A9%3A", config("a/b", "é:"));
        check(&Method::POST, "tasks/a%2Fb:cancel", &Ok((None, Operation::CancelTask("a/b"))));
        check(&Method::POST, "extensions/x%2Fy/m", &Ok((None, Operation::Method("x/y", "m".into()))));
    }

    #[test]
    fn what_is_no_operation_says_which_methods_there_are() {
        check(&Method::GET, "message:send", &Err(NoRoute::Method("POST")));
        check(&Method::DELETE, "acme/tasks/t", &Err(NoRoute::Method("GET")));
        for path in ["", "message", "a/b/tasks", "/tasks", "message:send/x", "extensions/history"] {
            check(&Method::POST, path, &Err(NoRoute::Path));
        }
    }
}

//! The HTTP+JSON binding (A2A 1.0 section 11): translates paths into operations, and results into bodies.
//!
//! Each path also exists with the prefix `/{tenant}`. An answer has the media type that the client uses.

use annex_operations::answer::{EventStream, encode};
use annex_operations::methods::MethodResult;
use annex_operations::operation::{MethodRequest, Operation, OperationResult};
use annex_operations::service_parameters::ServiceParameters;
use annex_protocol::jsonrpc::params;
use annex_protocol::service::VERSION;
use annex_protocol::{
    A2aError, CancelTaskRequest, ExtensionUri, Json, JsonObject, SendMessageRequest, TaskPushNotificationConfig,
    http_json,
};
use axum::body::Body;
use axum::extract::Query;
use axum::http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use crate::access_log;
use crate::bindings::answer_body;
use crate::bindings::rest::route::{NoRoute, Route, route, segments};
use crate::bindings::service_headers::{check_content_type, echo, retry_after};
use crate::bindings::sse;
use crate::connections::caller::Caller;
use crate::connections::streams::StreamPlace;
use crate::operations::{self, Operations, Reply};
use crate::tenants::Tenants;

pub(crate) mod route;

/// The `Cache-Control` of an answer that only the caller's own cache may keep.
const PRIVATE: HeaderValue = HeaderValue::from_static("private, max-age=60");
/// The `Cache-Control` of an answer that is for one request alone.
const FOR_ONE_REQUEST: HeaderValue = HeaderValue::from_static("private, no-store");
/// The header fields by which clients of 1.0 and of 0.3 name extensions.
const NAMING_EXTENSIONS: HeaderValue = HeaderValue::from_static("A2A-Extensions, X-A2A-Extensions");

/// One request to the binding.
pub(crate) struct HttpRequest<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) method: &'a HttpMethod,
    /// The path below the binding's own path, without a leading slash and still percent-encoded.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) uri: &'a Uri,
    pub(crate) body: &'a [u8],
}

/// Answers a request whose complete body was read.
pub(crate) async fn answer(tenants: &Tenants, request: HttpRequest<'_>) -> Response {
    let segments = segments(request.path);
    let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    let response = match route(request.method, &segments) {
        Ok((tenant, route)) => perform(tenants, &request, tenant, route).await,
        // A wrong method is answered with status 405 and without an A2A error.
        Err(NoRoute::Method(allowed)) => return method_not_allowed(allowed, request.path),
        Err(NoRoute::Path) => Err(A2aError::MethodNotFound { method: format!("{} /{}", request.method, request.path) }),
    };
    with_media_type(request.headers, response.unwrap_or_else(|error| failure(&error)))
}

/// Notes the operation of a request that does not reach the handler.
pub(crate) fn note_operation(method: &HttpMethod, path: &str) {
    let segments = segments(path);
    let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    if let Ok((_, route)) = route(method, &segments) {
        route.note();
    }
}

/// Answers a request that does not reach the handler, because the server is not ready or the body cannot be read.
pub(crate) fn refuse(headers: &HeaderMap, status: StatusCode, error: &A2aError) -> Response {
    let mut response = failure(error);
    *response.status_mut() = status;
    with_media_type(headers, response)
}

async fn perform(
    tenants: &Tenants,
    request: &HttpRequest<'_>,
    tenant: Option<&str>,
    route: Route<'_>,
) -> Result<Response, A2aError> {
    route.note();
    let caller = request.caller;
    let call = ServiceParameters::of(caller.identity.clone(), request.headers, request.uri)?;
    access_log::speaks(VERSION);
    let operation = operation(request, tenant, route)?;
    write(caller, Operations::new(tenants, request.headers).call(caller, call, operation).await?)
}

/// Reads the operation from the route, the body and the query of a request.
fn operation(request: &HttpRequest<'_>, tenant: Option<&str>, route: Route<'_>) -> Result<Operation, A2aError> {
    Ok(match route {
        Route::SendMessage => Operation::SendMessage(message(request, tenant)?),
        Route::SendStreamingMessage => Operation::SendStreamingMessage(message(request, tenant)?),
        Route::GetTask(id) => Operation::GetTask(from_query(request, tenant, &[("id", id)])?),
        Route::ListTasks => Operation::ListTasks(from_query(request, tenant, &[])?),
        Route::CancelTask(id) => {
            let mut cancel: CancelTaskRequest = params(with(&read_body(request)?, "id", id)?.get())?;
            place(&mut cancel.tenant, tenant)?;
            Operation::CancelTask(cancel)
        }
        // The path has all parameters of this operation, so the body of a POST is ignored.
        Route::SubscribeToTask(id) => Operation::SubscribeToTask(from_query(request, tenant, &[("id", id)])?),
        Route::CreatePushConfig(task) => {
            let body = with(&read_body(request)?, "taskId", task)?;
            let mut config = params::<TaskPushNotificationConfig>(body.get())?.of_client();
            place(&mut config.tenant, tenant)?;
            Operation::CreatePushConfig(config)
        }
        Route::ListPushConfigs(task) => Operation::ListPushConfigs(from_query(request, tenant, &[("taskId", task)])?),
        Route::GetPushConfig(task, id) => {
            Operation::GetPushConfig(from_query(request, tenant, &[("taskId", task), ("id", id)])?)
        }
        Route::DeletePushConfig(task, id) => {
            Operation::DeletePushConfig(from_query(request, tenant, &[("taskId", task), ("id", id)])?)
        }
        Route::ExtendedAgentCard => Operation::GetExtendedAgentCard(from_query(request, tenant, &[])?),
        Route::ExtensionMethod(extension, method) => {
            // The path names the tenant, so all parameters in the body belong to the extension.
            method_call(request, tenant, (extension, method))?
        }
    })
}

/// Makes the operation that calls a method of an extension. The request's body has the parameters of the method.
pub(crate) fn method_call(
    request: &HttpRequest<'_>,
    tenant: Option<&str>,
    (extension, method): (&str, String),
) -> Result<Operation, A2aError> {
    let (tenant, extension) = (tenant.map(str::to_owned), Some(extension.to_owned()));
    Ok(Operation::CallMethod(MethodRequest { tenant, extension, method, params: read_body(request)? }))
}

/// Writes the result as a response.
fn write(caller: &Caller, reply: Reply) -> Result<Response, A2aError> {
    let Reply { result, active, place } = reply;
    let response = match result {
        OperationResult::Sent(sent) => json(caller, sent.json()?)?,
        OperationResult::Events(events) => stream(caller, place, events),
        OperationResult::Task(task) => {
            let text = task.json()?;
            // A task may be large, so memory is reserved before the copy.
            caller.check_room(text.len())?;
            json(caller, text.into_owned())?
        }
        OperationResult::Tasks(tasks) => json(caller, encode(&tasks)?)?,
        OperationResult::CanceledTask(task) => json(caller, encode(&task)?)?,
        OperationResult::PushConfig(config) => json(caller, encode(&config)?)?,
        OperationResult::PushConfigs(configs) => json(caller, encode(&configs)?)?,
        // The operation returns `google.protobuf.Empty`, which is `{}` in ProtoJSON.
        OperationResult::NoPushConfig => json(caller, "{}".to_owned())?,
        OperationResult::ExtendedAgentCard(card) => {
            let mut response = json(caller, encode(&*card)?)?;
            limit_caches(&mut response, &active);
            response
        }
        OperationResult::Method(result) => method_result((caller, place), result)?,
    };
    Ok(echo(response, &active))
}

/// Adds the header fields for caches to an answer with the extended card. The card may have private details, so no shared
/// cache may keep it (A2A 1.0 section 8.6). If extensions took part in the read, no cache may keep it.
pub(crate) fn limit_caches(response: &mut Response, active: &[ExtensionUri]) {
    let caching = if active.is_empty() { PRIVATE } else { FOR_ONE_REQUEST };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, caching);
    headers.append(header::VARY, NAMING_EXTENSIONS);
}

/// Writes the result of an extension's method as a response.
pub(crate) fn method_result(
    (caller, place): (&Caller, Option<StreamPlace>),
    result: MethodResult,
) -> Result<Response, A2aError> {
    match result {
        MethodResult::Value(value) => json(caller, value.get().to_owned()),
        MethodResult::Results(results) => {
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

/// Sets `field` to the tenant in the path. Fails if `field` already names another tenant. Without a tenant in the path,
/// `field` is unchanged.
fn place(field: &mut Option<String>, tenant: Option<&str>) -> Result<(), A2aError> {
    let Some(tenant) = tenant else { return Ok(()) };
    match field.as_deref().filter(|named| !named.is_empty()) {
        Some(named) if named != tenant => Err(operations::other_than_in_path()),
        _ => {
            *field = Some(tenant.to_owned());
            Ok(())
        }
    }
}

pub(crate) fn read_body(request: &HttpRequest<'_>) -> Result<Json, A2aError> {
    // A request without a body, such as CancelTask, needs no content type.
    if !request.body.is_empty() {
        check_content_type(request.headers, &["application/json", http_json::MEDIA_TYPE])?;
    }
    http_json::body(request.body)
}

/// Replaces the field `name` of the body with the id from the path.
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
    // The fields of the path are inserted last, so that a query cannot override the id or the tenant.
    for (name, value) in path.iter().copied().chain(tenant.map(|tenant| ("tenant", tenant))) {
        object.insert(name.to_owned(), Json::string(value));
    }
    params(object.to_json().map_err(|error| A2aError::Parse { reason: error.to_string() })?.get())
}

fn json(caller: &Caller, body: String) -> Result<Response, A2aError> {
    Ok(answer_body::of_text(caller, body)?.into_response())
}

fn stream(caller: &Caller, place: Option<StreamPlace>, events: EventStream) -> Response {
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
    // RFC 9110 section 15.5.6 requires `Allow` with this status.
    let allow = [(header::ALLOW, HeaderValue::from_static(allowed))];
    (StatusCode::METHOD_NOT_ALLOWED, allow, format!("/{path} takes {allowed}\n")).into_response()
}

fn with_media_type(request: &HeaderMap, mut response: Response) -> Response {
    // A stream already has its own content type.
    response.headers_mut().entry(header::CONTENT_TYPE).or_insert_with(|| media_type(request));
    response
}

/// The media type of the answer: `application/json` if the request has this content type, or if it has no content type
/// and accepts only this type. Otherwise `application/a2a+json`.
fn media_type(headers: &HeaderMap) -> HeaderValue {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let sent = text(header::CONTENT_TYPE);
    let accepted = text(header::ACCEPT);
    // `application/json` is the media type of A2A 1.0.0, `application/a2a+json` that of 1.0.1. A client gets the one
    // that it uses.
    let plain = "application/json";
    let is_plain = if sent.is_empty() {
        accepted.contains(plain) && !accepted.contains(http_json::MEDIA_TYPE)
    } else {
        sent.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(plain)
    };
    HeaderValue::from_static(if is_plain { plain } else { http_json::MEDIA_TYPE })
}

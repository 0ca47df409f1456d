//! The HTTP+JSON binding (specification section 11).

use annex_protocol::{Json, JsonObject, Method as A2aMethod, http_json};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method};
use reqwest::Url;
use serde::Deserialize;

use super::answer;
use super::raw_answer::{Form, RawAnswer, ReadFailure, ResultPlace};
use super::wire::{Answers, Transport, WireCall, active};
use crate::http::{self as transport, EVENT_STREAM, Endpoint, Http, Response};
use crate::remote_error::HttpError;
use crate::{Answer, ClientError, Operation};

const BINDING: &str = "HTTP+JSON";
/// The accepted media types. Agents of A2A 1.0.0 answer with `application/json`.
const ACCEPTED: &str = "application/a2a+json, application/json";

/// The form of a response that may be a success or an error.
pub(super) const FORM: Form = Form { read: failure, place: ResultPlace::Whole };
/// The form of a response that can only be a success.
const SUCCESS: Form = Form { read: result, place: ResultPlace::Whole };

pub(super) struct HttpJson {
    endpoint: Endpoint,
}

/// The body of an error response.
#[derive(Deserialize)]
pub(super) struct Failure {
    pub(super) error: HttpError,
}

impl HttpJson {
    pub(super) fn new(http: Http, url: Url) -> Self {
        Self { endpoint: Endpoint::new(http, url) }
    }

    async fn request(&self, call: WireCall, accept: &'static str) -> Result<Response, ClientError> {
        let mut params = call.members(BINDING)?;
        let WireCall { operation, mut headers, .. } = call;
        let (method, template) = route(&operation);
        let mut url = below(&self.endpoint.url, &template, &mut params)?;
        let sends_body = method == Method::POST;
        // Without parameters no `?` is to stand at the end of the URL.
        if !sends_body && !params.is_empty() {
            url.query_pairs_mut().extend_pairs(params.iter().map(|(name, value)| (name, query_text(value))));
        }
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let mut body = String::new();
        if sends_body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(http_json::MEDIA_TYPE));
            body = params.to_json_string();
        }
        self.endpoint.send((method, &url), headers, body).await
    }
}

#[async_trait]
impl Transport for HttpJson {
    async fn call(&self, call: WireCall) -> Result<Answer<RawAnswer>, ClientError> {
        let response = self.request(call, ACCEPTED).await?;
        let active = active(response.headers());
        // The answer of an extension's method may have a member called `error`.
        let form = if response.status().is_success() { SUCCESS } else { FORM };
        Ok(Answer { value: answer::single(&self.endpoint.http, response, form).await?, active })
    }

    async fn open(&self, call: WireCall) -> Result<Answer<Answers>, ClientError> {
        let room = call.room.clone();
        let response = self.request(call, EVENT_STREAM).await?;
        let active = active(response.headers());
        if transport::is_event_stream(&response) {
            return Ok(Answer { value: answer::events(&self.endpoint.http, response, FORM, room), active });
        }
        // An agent without streams may answer at once, or with an error.
        let only = answer::single(&self.endpoint.http, response, FORM).await?.taken_apart()?;
        Ok(Answer { value: stream::iter([Ok(only)]).boxed(), active })
    }
}

/// The HTTP method of an operation, and the segments of its path. `{name}` in a segment stands for a parameter.
fn route(operation: &Operation) -> (Method, Vec<String>) {
    let operation = match operation {
        Operation::A2a(operation) => operation,
        Operation::Extension(method) => {
            let fixed = ["extensions".to_owned(), method.extension.clone()];
            return (Method::POST, fixed.into_iter().chain(method.name.split('/').map(str::to_owned)).collect());
        }
    };
    let (method, template) = match operation {
        A2aMethod::SendMessage => (Method::POST, "message:send"),
        A2aMethod::SendStreamingMessage => (Method::POST, "message:stream"),
        A2aMethod::GetTask => (Method::GET, "tasks/{id}"),
        A2aMethod::ListTasks => (Method::GET, "tasks"),
        A2aMethod::CancelTask => (Method::POST, "tasks/{id}:cancel"),
        // The proto file says GET, the text of the specification POST; servers take both.
        A2aMethod::SubscribeToTask => (Method::GET, "tasks/{id}:subscribe"),
        A2aMethod::CreateTaskPushNotificationConfig => (Method::POST, "tasks/{taskId}/pushNotificationConfigs"),
        A2aMethod::GetTaskPushNotificationConfig => (Method::GET, "tasks/{taskId}/pushNotificationConfigs/{id}"),
        A2aMethod::ListTaskPushNotificationConfigs => (Method::GET, "tasks/{taskId}/pushNotificationConfigs"),
        A2aMethod::DeleteTaskPushNotificationConfig => (Method::DELETE, "tasks/{taskId}/pushNotificationConfigs/{id}"),
        A2aMethod::GetExtendedAgentCard => (Method::GET, "extendedAgentCard"),
    };
    (method, template.split('/').map(str::to_owned).collect())
}

/// The URL of an operation: the interface's URL, the tenant, and the path of the operation. Parameters that are used in
/// the path are removed from `params`.
pub(super) fn below(interface: &Url, template: &[String], params: &mut JsonObject) -> Result<Url, ClientError> {
    let mut segments: Vec<String> = taken(params, "tenant").into_iter().collect();
    for segment in template {
        segments.push(filled(segment, params));
    }
    // The url crate drops `.` and `..` from a path, so such an id would lead to another operation.
    let is_name = |segment: &String| !matches!(segment.as_str(), "" | "." | "..");
    if let Some(segment) = segments.iter().find(|segment| !is_name(segment)) {
        let problem = format!("{segment:?} cannot be part of a path");
        return Err(ClientError::NotCarried { binding: BINDING, problem });
    }
    let mut url = interface.clone();
    let unusable = || ClientError::InterfaceUrl { interface: interface.to_string() };
    url.path_segments_mut().map_err(|()| unusable())?.pop_if_empty().extend(&segments);
    Ok(url)
}

fn filled(segment: &str, params: &mut JsonObject) -> String {
    let inside = segment.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    inside
        .map_or_else(|| segment.to_owned(), |(name, rest)| format!("{}{rest}", taken(params, name).unwrap_or_default()))
}

fn taken(params: &mut JsonObject, name: &str) -> Option<String> {
    params.remove(name).and_then(|value| value.to().ok())
}

/// The value of a query parameter: a string without its quotes, any other value as JSON.
fn query_text(value: &Json) -> String {
    value.to::<String>().unwrap_or_else(|_| value.get().to_owned())
}

/// Reads a result. An empty body, with which some operations answer, is read as `null`.
pub(super) fn result(text: &str) -> Result<Json, ReadFailure> {
    let text = if text.trim().is_empty() { "null" } else { text };
    Json::parse(text.to_owned()).map_err(|error| ReadFailure::Foreign(error.into()))
}

/// Reads a response that may be an error.
fn failure(text: &str) -> Result<Json, ReadFailure> {
    match serde_json::from_str::<Failure>(text) {
        Ok(Failure { error }) => Err(ReadFailure::Agent(error.into())),
        Err(_) => result(text),
    }
}

#[cfg(test)]
mod tests {
    use annex_protocol::{JsonObject, Method as A2aMethod};
    use reqwest::Url;

    use super::{below, query_text, route};
    use crate::{ExtensionMethod, Operation};

    fn path(operation: &Operation, params: &str) -> Result<(String, String), String> {
        let mut params = JsonObject::parse(params).unwrap();
        let interface = Url::parse("http://a.example/rest/").unwrap();
        let (method, template) = route(operation);
        let url = below(&interface, &template, &mut params).map_err(|error| error.to_string())?;
        Ok((format!("{method} {}", url.path()), params.to_json_string()))
    }

    #[test]
    fn ids_and_the_tenant_are_in_the_path_and_nowhere_else() {
        let check = |operation: Operation, params: &str, expected: &str, rest: &str| {
            assert_eq!(path(&operation, params).unwrap(), (expected.to_owned(), rest.to_owned()));
        };
        check(
            Operation::A2a(A2aMethod::SendMessage),
            r#"{"message":{}}"#,
            "POST /rest/message:send",
            r#"{"message":{}}"#,
        );
        check(
            Operation::A2a(A2aMethod::GetTask),
            r#"{"id":"a/b?c","historyLength":2}"#,
            "GET /rest/tasks/a%2Fb%3Fc",
            r#"{"historyLength":2}"#,
        );
        check(
            Operation::A2a(A2aMethod::CancelTask),
            r#"{"id":"t","tenant":"acme"}"#,
            "POST /rest/acme/tasks/t:cancel",
            "{}",
        );
        let push = Operation::A2a(A2aMethod::DeleteTaskPushNotificationConfig);
        check(push, r#"{"taskId":"t","id":"c"}"#, "DELETE /rest/tasks/t/pushNotificationConfigs/c", "{}");
        let method = ExtensionMethod { extension: "task-history".to_owned(), name: "tasks/search".to_owned() };
        check(
            Operation::Extension(method),
            r#"{"q":1}"#,
            "POST /rest/extensions/task-history/tasks/search",
            r#"{"q":1}"#,
        );
    }

    #[test]
    fn an_id_cannot_lead_to_another_path() {
        for id in ["..", ".", ""] {
            let error = path(&Operation::A2a(A2aMethod::GetTask), &format!(r#"{{"id":"{id}"}}"#)).unwrap_err();
            assert!(error.contains("part of a path"), "{error}");
        }
    }

    #[test]
    fn a_query_has_strings_without_quotes() {
        let params = JsonObject::parse(r#"{"a":"x y","b":true,"c":7}"#).unwrap();
        assert_eq!(params.iter().map(|(_, value)| query_text(value)).collect::<Vec<_>>(), ["x y", "true", "7"]);
    }
}

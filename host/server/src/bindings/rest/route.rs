//! The paths of the HTTP+JSON binding (A2A 1.0 section 11.3).

use std::borrow::Cow;

use annex_protocol::Method;
use axum::http::Method as HttpMethod;
use percent_encoding::percent_decode_str;

use crate::access_log;

/// The operation of a path, with the ids in the path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    SendMessage,
    SendStreamingMessage,
    GetTask(&'a str),
    ListTasks,
    CancelTask(&'a str),
    SubscribeToTask(&'a str),
    /// The task id.
    CreatePushConfig(&'a str),
    /// The task id.
    ListPushConfigs(&'a str),
    /// The task id and the config id.
    GetPushConfig(&'a str, &'a str),
    /// The task id and the config id.
    DeletePushConfig(&'a str, &'a str),
    ExtendedAgentCard,
    /// The extension's name and the method's name.
    ExtensionMethod(&'a str, String),
}

impl Route<'_> {
    /// The A2A method of the route. `None` for a method of an extension.
    fn method(&self) -> Option<Method> {
        Some(match self {
            Self::SendMessage => Method::SendMessage,
            Self::SendStreamingMessage => Method::SendStreamingMessage,
            Self::GetTask(_) => Method::GetTask,
            Self::ListTasks => Method::ListTasks,
            Self::CancelTask(_) => Method::CancelTask,
            Self::SubscribeToTask(_) => Method::SubscribeToTask,
            Self::CreatePushConfig(_) => Method::CreateTaskPushNotificationConfig,
            Self::ListPushConfigs(_) => Method::ListTaskPushNotificationConfigs,
            Self::GetPushConfig(..) => Method::GetTaskPushNotificationConfig,
            Self::DeletePushConfig(..) => Method::DeleteTaskPushNotificationConfig,
            Self::ExtendedAgentCard => Method::GetExtendedAgentCard,
            Self::ExtensionMethod(..) => return None,
        })
    }

    /// Notes the A2A method in the access log. A method of an extension is noted by the handler.
    pub(crate) fn note(&self) {
        if let Some(method) = self.method() {
            access_log::asks_for(method.name());
        }
    }
}

/// Why a request has no route.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRoute {
    /// No operation has this path.
    Path,
    /// The path exists only for these HTTP methods.
    Method(&'static str),
}

/// The decoded segments of a path. Each segment is decoded after the split, so an encoded slash is part of an id.
pub(crate) fn segments(path: &str) -> Vec<Cow<'_, str>> {
    // Bytes that are not UTF-8 become replacement characters, and no such id exists.
    path.split('/').map(|segment| percent_decode_str(segment).decode_utf8_lossy()).collect()
}

/// The tenant in the path, and the route.
pub(super) fn route<'a>(method: &HttpMethod, segments: &[&'a str]) -> Result<(Option<&'a str>, Route<'a>), NoRoute> {
    // Routes without a tenant are tried first. Config checks that no tenant has the name of a first segment
    // (`config/tenant.rs`).
    match route_without_tenant(method, segments) {
        Err(NoRoute::Path) => match segments.split_first() {
            Some((tenant, rest)) if !tenant.is_empty() => Ok((Some(*tenant), route_without_tenant(method, rest)?)),
            _ => Err(NoRoute::Path),
        },
        found => found.map(|route| (None, route)),
    }
}

fn route_without_tenant<'a>(method: &HttpMethod, segments: &[&'a str]) -> Result<Route<'a>, NoRoute> {
    let (allowed, route) = match segments {
        ["message:send"] => ("POST", Route::SendMessage),
        ["message:stream"] => ("POST", Route::SendStreamingMessage),
        ["tasks"] => ("GET", Route::ListTasks),
        ["extendedAgentCard"] => ("GET", Route::ExtendedAgentCard),
        // An id may contain colons, so only the last colon can begin a verb.
        ["tasks", id] => match id.rsplit_once(':') {
            Some((id, "cancel")) => ("POST", Route::CancelTask(id)),
            // The proto file says GET, and the text of the specification says POST.
            Some((id, "subscribe")) => ("GET, POST", Route::SubscribeToTask(id)),
            _ => ("GET", Route::GetTask(id)),
        },
        ["tasks", task, "pushNotificationConfigs"] if method == HttpMethod::POST => {
            ("POST", Route::CreatePushConfig(task))
        }
        ["tasks", task, "pushNotificationConfigs"] => ("GET, POST", Route::ListPushConfigs(task)),
        ["tasks", task, "pushNotificationConfigs", id] if method == HttpMethod::DELETE => {
            ("DELETE", Route::DeletePushConfig(task, id))
        }
        ["tasks", task, "pushNotificationConfigs", id] => ("GET, DELETE", Route::GetPushConfig(task, id)),
        ["extensions", extension, method @ ..] if !method.is_empty() => {
            ("POST", Route::ExtensionMethod(extension, method.join("/")))
        }
        _ => return Err(NoRoute::Path),
    };
    let is_allowed = allowed.split(", ").any(|name| name == method.as_str());
    if is_allowed { Ok(route) } else { Err(NoRoute::Method(allowed)) }
}

#[cfg(test)]
mod tests {
    use axum::http::Method as HttpMethod;

    use super::{NoRoute, Route, segments};

    /// Compares the route of a path here, while the segments that the route borrows still exist.
    fn check(method: &HttpMethod, path: &str, expected: &Result<(Option<&str>, Route<'_>), NoRoute>) {
        let segments = segments(path);
        let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
        assert_eq!(&super::route(method, &segments), expected, "{path}");
    }

    #[test]
    fn a_path_is_an_operation_with_and_without_a_tenant() {
        let get = |path, expected| check(&HttpMethod::GET, path, &Ok(expected));
        let post = |path, expected| check(&HttpMethod::POST, path, &Ok(expected));
        post("message:send", (None, Route::SendMessage));
        post("acme/message:stream", (Some("acme"), Route::SendStreamingMessage));
        get("tasks", (None, Route::ListTasks));
        get("acme/tasks", (Some("acme"), Route::ListTasks));
        get("tasks/a:b", (None, Route::GetTask("a:b")));
        get("acme/tasks/t", (Some("acme"), Route::GetTask("t")));
        post("tasks/a:b:cancel", (None, Route::CancelTask("a:b")));
        post("extensions/history/tasks/search", (None, Route::ExtensionMethod("history", "tasks/search".into())));
        for method in [HttpMethod::GET, HttpMethod::POST] {
            check(&method, "tasks/t:subscribe", &Ok((None, Route::SubscribeToTask("t"))));
        }
    }

    #[test]
    fn an_id_may_have_any_character_that_is_encoded_in_its_path() {
        let get = |path, expected| check(&HttpMethod::GET, path, &Ok((None, expected)));
        get("tasks/a%2Fb%20%25", Route::GetTask("a/b %"));
        let config = |task, id| Route::GetPushConfig(task, id);
        get("tasks/t/pushNotificationConfigs/a%2Fb", config("t", "a/b"));
        get("tasks/a%2fb/pushNotificationConfigs/%C3%A9%3A", config("a/b", "é:"));
        check(&HttpMethod::POST, "tasks/a%2Fb:cancel", &Ok((None, Route::CancelTask("a/b"))));
        check(&HttpMethod::POST, "extensions/x%2Fy/m", &Ok((None, Route::ExtensionMethod("x/y", "m".into()))));
    }

    #[test]
    fn what_is_no_operation_says_which_methods_there_are() {
        check(&HttpMethod::GET, "message:send", &Err(NoRoute::Method("POST")));
        check(&HttpMethod::DELETE, "acme/tasks/t", &Err(NoRoute::Method("GET")));
        for path in ["", "message", "a/b/tasks", "/tasks", "message:send/x", "extensions/history"] {
            check(&HttpMethod::POST, path, &Err(NoRoute::Path));
        }
    }
}

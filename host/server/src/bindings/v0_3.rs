//! A2A 0.3, for clients that have not moved to 1.0: the same operations under the old names and shapes.
//!
//! This module is a layer in front of the bindings of 1.0, which do not know about 0.3. The JSON-RPC methods of both
//! versions share one path, because no method has the same name in both versions. HTTP+JSON has its own paths for 0.3. gRPC
//! has its own service for 0.3, which `annex-grpc` translates to the operations of `bindings/grpc.rs`.

use annex_operations::answer::Sent;
use annex_operations::service_parameters::{Identity, ServiceParameters, sent_version};
use annex_protocol::service::{A2A_EXTENSIONS, VERSION, is_version, parse_extensions};
use annex_protocol::v0_3::{self, X_A2A_EXTENSIONS};
use annex_protocol::{A2aError, ExtensionUri, Method, StreamResponse};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::bindings::service_headers::echo_as;

pub(crate) mod http_json;
pub(crate) mod json_rpc;

/// The versions that a server with this module supports.
const SUPPORTED: &[&str] = &[v0_3::VERSION, VERSION];

/// The service parameters of a 0.3 request. A request without a version counts as a 0.3 request (A2A 1.0 section
/// 3.6.2).
fn read_call(identity: Identity, (headers, uri): (&HeaderMap, &Uri)) -> Result<ServiceParameters, A2aError> {
    service_parameters(identity, &sent_version(headers, uri), requested_extensions(headers))
}

/// The extensions that a request of 0.3 names in its header. 0.3 names the header with `X-`. The name of 1.0 is accepted as
/// well.
pub(crate) fn requested_extensions(headers: &HeaderMap) -> Vec<ExtensionUri> {
    let lines = [X_A2A_EXTENSIONS, A2A_EXTENSIONS].into_iter().flat_map(|name| headers.get_all(name));
    parse_extensions(lines.filter_map(|line| line.to_str().ok()))
}

/// The service parameters of a 0.3 request with this version, which may be empty, and with these extensions.
pub(crate) fn service_parameters(
    identity: Identity,
    version: &str,
    requested: Vec<ExtensionUri>,
) -> Result<ServiceParameters, A2aError> {
    if !version.is_empty() && !is_version(version, v0_3::VERSION) {
        return Err(A2aError::VersionNotSupported { requested: version.to_owned(), supported: SUPPORTED });
    }
    let presence = identity.presence();
    let Identity { owner, claims, token, key_header } = identity;
    Ok(ServiceParameters {
        presence,
        owner,
        claims,
        token,
        key_header,
        requested,
        // `Operations::call` adds the headers. The default streams the task first, as clients of 0.3
        // expect.
        ..ServiceParameters::default()
    })
}

fn echo(response: Response, active: &[ExtensionUri]) -> Response {
    echo_as(X_A2A_EXTENSIONS, response, active)
}

fn sent_event(sent: Sent, encode: impl Fn(&StreamResponse) -> Result<String, A2aError>) -> Result<String, A2aError> {
    encode(&match sent {
        Sent::Message(message) => StreamResponse::Message(*message),
        Sent::Task(task) => StreamResponse::Task(task.into_task()?),
    })
}

/// The error for ListTasks, which 0.3 does not have.
fn no_list_tasks() -> A2aError {
    A2aError::MethodNotFound { method: Method::ListTasks.name().to_owned() }
}

fn json(body: Body) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

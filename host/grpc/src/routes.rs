//! The HTTP routes of the binding.

use std::sync::Arc;

use annex_protocol::{A2aError, Method};
use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Request};
use axum::response::{IntoResponse, Response};
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::Builder;

use crate::Operations;
use crate::extension_service::ExtensionAdapter;
use crate::health::HealthOf;
use crate::pb::a2a_service_server::{A2aServiceServer, SERVICE_NAME};
use crate::pb::extension::extension_service_server::ExtensionServiceServer;
use crate::pb::v0_3::a2a_service_server as older;
use crate::pb::{FILE_DESCRIPTOR_SET, FILE_DESCRIPTOR_SET_V0_3};
use crate::service::A2aAdapter;
use crate::service_v0_3::OlderAdapter;
use crate::status;

/// The longest request to health and reflection, in bytes. Such requests contain only names.
const MAX_SMALL_MESSAGE_BYTES: usize = 4096;

/// The limits of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest encoded request message, in bytes. A longer one is refused with OUT_OF_RANGE before it is decoded.
    pub max_message_bytes: usize,
}

/// The routes of the A2A service of 1.0, of the methods of extensions, of health, and of both versions of reflection. They
/// work over HTTP/2 with or without TLS.
///
/// The router has no fallback, so that it can be merged into a router that has one. That fallback should answer gRPC
/// calls with [`unknown_service`].
pub fn routes(operations: Arc<impl Operations>, limits: Limits) -> Router {
    services(operations, limits, &CURRENT)
}

/// The routes of [`routes`], and those of the A2A service of 0.3.
pub fn routes_of_both_versions(operations: Arc<impl Operations>, limits: Limits) -> Router {
    let older = older::A2aServiceServer::new(OlderAdapter { operations: operations.clone() })
        .max_decoding_message_size(limits.max_message_bytes);
    with_service(services(operations, limits, &BOTH), older)
}

/// What health and reflection know of the A2A services.
struct ServiceDescription {
    names: &'static [&'static str],
    descriptors: &'static [&'static [u8]],
}

const CURRENT: ServiceDescription = ServiceDescription { names: &[SERVICE_NAME], descriptors: &[FILE_DESCRIPTOR_SET] };
const BOTH: ServiceDescription = ServiceDescription {
    names: &[SERVICE_NAME, older::SERVICE_NAME],
    descriptors: &[FILE_DESCRIPTOR_SET, FILE_DESCRIPTOR_SET_V0_3],
};

fn services(operations: Arc<impl Operations>, limits: Limits, described: &ServiceDescription) -> Router {
    let health = HealthOf { operations: operations.clone(), services: described.names };
    let health = HealthServer::new(health).max_decoding_message_size(MAX_SMALL_MESSAGE_BYTES);
    let extensions = ExtensionServiceServer::new(ExtensionAdapter { operations: operations.clone() })
        .max_decoding_message_size(limits.max_message_bytes);
    let a2a = A2aServiceServer::new(A2aAdapter { operations }).max_decoding_message_size(limits.max_message_bytes);
    let mut router = with_service(with_service(with_service(Router::new(), a2a), extensions), health);
    // The descriptors are part of the program; they are read or the program is broken, and a test would say so.
    if let Ok(v1) = reflection(described).build_v1() {
        router = with_service(router, v1.max_decoding_message_size(MAX_SMALL_MESSAGE_BYTES));
    }
    // Tools may still ask by the older name of the service.
    if let Ok(v1alpha) = reflection(described).build_v1alpha() {
        router = with_service(router, v1alpha.max_decoding_message_size(MAX_SMALL_MESSAGE_BYTES));
    }
    router
}

/// The media type of calls. A suffix or parameters may follow.
const GRPC: &[u8] = b"application/grpc";

/// Tells whether a request is a gRPC call, by its content type.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    // Media types have no case.
    content_type
        .split_at_checked(GRPC.len())
        .is_some_and(|(kind, rest)| kind.eq_ignore_ascii_case(GRPC) && matches!(rest, [] | [b'+' | b';', ..]))
}

/// The beginning of the paths of the A2A service of 0.3.
const OLDER_PATH: &str = "/a2a.v1.A2AService/";

/// Tells whether a path belongs to an A2A service or to methods of extensions. Calls to these paths can be refused
/// before their message is read. Health and reflection have other paths.
pub fn is_operation(path: &str) -> bool {
    let services = ["/lf.a2a.v1.A2AService/", OLDER_PATH, "/annex.extension.v1.ExtensionService/"];
    services.iter().any(|service| path.starts_with(service))
}

/// The operation of A2A that a path calls. `None` for a method of an extension and for an unknown path.
pub fn operation(path: &str) -> Option<Method> {
    let (_, rpc) = path.rsplit_once('/')?;
    // Three rpcs of 0.3 have other names than their operations.
    match rpc {
        "TaskSubscription" if path.starts_with(OLDER_PATH) => Some(Method::SubscribeToTask),
        "ListTaskPushNotificationConfig" if path.starts_with(OLDER_PATH) => {
            Some(Method::ListTaskPushNotificationConfigs)
        }
        "GetAgentCard" if path.starts_with(OLDER_PATH) => Some(Method::GetExtendedAgentCard),
        _ => Method::from_name(rpc),
    }
}

/// The response by which an outer layer refuses a call with `error`.
pub fn refuse(error: &A2aError) -> Response {
    status::of(error).into_http::<Body>().into_response()
}

/// Adds the details of A2A to a response by which tonic has refused a request: its message was too large, or its body
/// did not contain a whole message. Any other response is returned unchanged.
pub fn with_details(response: Response) -> Response {
    match Status::from_header_map(response.headers()) {
        Some(status) if status::is_too_large(&status) && status.details().is_empty() => {
            status::too_large(&status).into_http::<Body>().into_response()
        }
        Some(status) if status::is_without_message(&status) && status.details().is_empty() => {
            status::without_message(&status).into_http::<Body>().into_response()
        }
        _ => response,
    }
}

/// The error with which an outer layer ends the body of a request that it does not read further. The binding then
/// answers the call with `error`.
pub fn unread_body(error: &A2aError) -> axum::Error {
    axum::Error::new(status::of(error))
}

/// The UNIMPLEMENTED response, which gRPC requires for unknown paths.
pub async fn unknown_service() -> Response {
    Status::new(Code::Unimplemented, "no such service here").into_http::<Body>().into_response()
}

fn reflection(described: &ServiceDescription) -> Builder<'static> {
    let health = tonic_health::pb::FILE_DESCRIPTOR_SET;
    let builder = Builder::configure().register_encoded_file_descriptor_set(health);
    described.descriptors.iter().fold(builder, |builder, set| builder.register_encoded_file_descriptor_set(set))
}

fn with_service<S>(router: Router, service: S) -> Router
where
    S: Service<Request<Body>, Error = std::convert::Infallible> + NamedService + Clone + Send + Sync + 'static,
    S::Response: IntoResponse,
    S::Future: Send + 'static,
{
    // A path for each service and no fallback, because the HTTP server merges these routes with its own.
    router.route_service(&format!("/{}/{{*method}}", S::NAME), service)
}

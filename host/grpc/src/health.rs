//! The gRPC health service (`grpc.health.v1`).
//!
//! Only Check is implemented. Watch is an endless stream, which would keep connections open while the server drains. It
//! is answered with UNIMPLEMENTED, which clients understand as "not offered".

use std::sync::Arc;

use futures::stream::Empty;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::Operations;

/// Reports the health of each A2A service. Under the empty name, reports the health of the whole server.
pub(crate) struct HealthOf<O> {
    pub(crate) operations: Arc<O>,
    /// The names of the A2A services that are served.
    pub(crate) services: &'static [&'static str],
}

#[tonic::async_trait]
impl<O: Operations> Health for HealthOf<O> {
    type WatchStream = Empty<Result<HealthCheckResponse, Status>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let name = request.get_ref().service.as_str();
        if !name.is_empty() && !self.services.contains(&name) {
            return Err(Status::not_found("no such service here"));
        }
        // While the server drains, load balancers should send calls to other servers.
        let status = if self.operations.is_serving() { ServingStatus::Serving } else { ServingStatus::NotServing };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("call Check instead of Watch"))
    }
}

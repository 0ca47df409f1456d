//! The gRPC service for methods of extensions. It calls the [`Operations`].

use std::pin::Pin;
use std::sync::Arc;

use annex_protocol::{A2aError, Json};
use futures::{Stream, StreamExt, stream};
use tonic::{Request, Response, Status};

use crate::pb::extension::extension_service_server::ExtensionService;
use crate::pb::extension::{CallRequest, CallResponse};
use crate::{MethodReply, Operations, Reply, ServiceVersion, parameters, status};

pub(crate) struct ExtensionAdapter<O> {
    pub(crate) operations: Arc<O>,
}

type ResponseStream = Pin<Box<dyn Stream<Item = Result<CallResponse, Status>> + Send>>;

#[tonic::async_trait]
impl<O: Operations> ExtensionService for ExtensionAdapter<O> {
    type CallStreamingStream = ResponseStream;

    async fn call(&self, request: Request<CallRequest>) -> Result<Response<CallResponse>, Status> {
        let Reply { value, active } = self.answer(request).await?;
        match value {
            MethodReply::Value(value) => Ok(with_active(written(&value), &active)),
            // The stream is dropped unread: one answer cannot hold its results.
            MethodReply::Results(_) => {
                let reason = "the method streams its results; use CallStreaming".to_owned();
                Err(status::of(&A2aError::UnsupportedOperation { reason }))
            }
        }
    }

    async fn call_streaming(&self, request: Request<CallRequest>) -> Result<Response<ResponseStream>, Status> {
        let Reply { value, active } = self.answer(request).await?;
        // A method with one result may be called as a stream too, so a client need not know which kind it is.
        let results = match value {
            MethodReply::Value(value) => stream::iter([Ok(written(&value))]).boxed(),
            MethodReply::Results(results) => {
                let result = |result: Result<Json, A2aError>| {
                    result.map(|value| written(&value)).map_err(|error| status::of(&error))
                };
                results.map(result).boxed()
            }
        };
        Ok(with_active(results, &active))
    }
}

impl<O: Operations> ExtensionAdapter<O> {
    async fn answer(&self, request: Request<CallRequest>) -> Result<Reply<MethodReply>, Status> {
        let (metadata, context, CallRequest { method, params_json }) = request.into_parts();
        // proto3 has no other form for missing parameters.
        let params = if params_json.is_empty() { "{}".to_owned() } else { params_json };
        let params = Json::parse(params)
            .map_err(|error| status::of(&A2aError::invalid_field("params_json", format!("is not JSON: {error}"))))?;
        let parameters = parameters::read(ServiceVersion::V1_0, metadata, context);
        self.operations.call_method(parameters, method, params).await.map_err(|error| status::of(&error))
    }
}

fn written(value: &Json) -> CallResponse {
    CallResponse { result_json: value.get().to_owned() }
}

fn with_active<T>(message: T, active: &[annex_protocol::ExtensionUri]) -> Response<T> {
    let mut response = Response::new(message);
    parameters::write(ServiceVersion::V1_0, active, response.metadata_mut());
    response
}

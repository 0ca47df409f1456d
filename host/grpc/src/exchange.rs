//! Reads requests and writes responses of the A2A service, in both of its versions.

use std::pin::Pin;

use annex_protocol::{A2aError, StreamResponse};
use futures::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::convert::{FieldError, FromProto, IntoProto};
use crate::{CallParameters, EventStream, Reply, ServiceVersion, parameters, status};

pub(crate) type ResponseStream<P> = Pin<Box<dyn Stream<Item = Result<P, Status>> + Send>>;

pub(crate) fn read<P, T: FromProto<P>>(
    service: ServiceVersion,
    request: Request<P>,
    validate: fn(&T) -> Result<(), A2aError>,
) -> Result<(CallParameters, T), Status> {
    let (metadata, context, message) = request.into_parts();
    // The faults of a request go to the client under the JSON names of its fields, as on the other bindings.
    let invalid = |error: FieldError| A2aError::invalid_field(error.field, error.description);
    let checked = T::from_proto(message).map_err(invalid).and_then(|value| validate(&value).map(|()| value));
    let value = checked.map_err(|error| status::of_version(service, &error))?;
    // Version and extensions are not looked at here: all bindings leave that to the operations.
    Ok((parameters::read(service, metadata, context), value))
}

pub(crate) fn write<P, T: IntoProto<P>>(
    service: ServiceVersion,
    result: Result<Reply<T>, A2aError>,
) -> Result<Response<P>, Status> {
    let written = result.and_then(|reply| Ok((written(reply.value)?, reply.active)));
    let (message, active) = written.map_err(|error| status::of_version(service, &error))?;
    let mut response = Response::new(message);
    parameters::write(service, &active, response.metadata_mut());
    Ok(response)
}

pub(crate) fn write_events<P: Send + 'static>(
    service: ServiceVersion,
    result: Result<Reply<EventStream>, A2aError>,
) -> Result<Response<ResponseStream<P>>, Status>
where
    StreamResponse: IntoProto<P>,
{
    let Reply { value, active } = result.map_err(|error| status::of_version(service, &error))?;
    // An event that cannot be written ends the stream: a client that missed it would not know.
    let event = move |event: Result<StreamResponse, A2aError>| {
        event.and_then(written).map_err(|error| status::of_version(service, &error))
    };
    let mut response = Response::new(value.map(event).boxed());
    parameters::write(service, &active, response.metadata_mut());
    Ok(response)
}

/// Writes the agent's value. Fails if the value is invalid in A2A, or if protobuf cannot carry it.
fn written<P, T: IntoProto<P>>(value: T) -> Result<P, A2aError> {
    value.into_proto().map_err(|error| match error.to_string() {
        // If protobuf cannot carry the value, the value itself is valid, and the text names the bindings that carry it.
        // All other errors are faults of the agent.
        reason if error.is_not_carried => A2aError::UnsupportedOperation { reason },
        reason => A2aError::InvalidAgentResponse { reason },
    })
}

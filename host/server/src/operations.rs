//! The operations of A2A as the bindings call them: for a caller, on the agent of the tenant that the request names.

use std::sync::Arc;

use annex_operations::answer::Answer;
use annex_operations::fault;
use annex_operations::methods::MethodResult;
use annex_operations::operation::{MethodRequest, Operation, OperationResult};
use annex_operations::request_handler::RequestHandler;
use annex_operations::service_parameters::ServiceParameters;
use annex_protocol::{A2aError, ExtensionUri, Json, JsonObject};
use annex_telemetry::traces::{SpanContext, TRACEPARENT, TRACESTATE, parent_of};
use axum::http::HeaderMap;

use crate::connections::caller::Caller;
use crate::connections::streams::StreamPlace;
use crate::tenants::Tenants;

/// The operations for one request.
pub(crate) struct Operations<'a> {
    tenants: &'a Tenants,
    headers: &'a HeaderMap,
    /// The tenant that the path names. Set only for a request that can also name a tenant in a field.
    of_path: Option<&'a str>,
}

/// The result of an operation, for the binding to write.
pub(crate) struct Reply {
    pub(crate) result: OperationResult,
    /// The extensions that were active for the operation.
    pub(crate) active: Vec<ExtensionUri>,
    /// The stream's place in the caller's limit. The stream must hold the place until it ends. `None` unless the result
    /// is a stream.
    pub(crate) place: Option<StreamPlace>,
}

impl<'a> Operations<'a> {
    /// The operations for a request that has these header fields.
    pub(crate) fn new(tenants: &'a Tenants, headers: &'a HeaderMap) -> Self {
        Self { tenants, headers, of_path: None }
    }

    /// Sets the tenant that the request's path names. A field of the request may repeat the name.
    pub(crate) fn at_path(self, tenant: Option<&'a str>) -> Self {
        Self { of_path: tenant, ..self }
    }

    /// Performs the operation on the agent of the tenant that the request names.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] for the field `tenant`, [`A2aError::Unavailable`] while the tenant is not served,
    /// [`A2aError::QuotaExceeded`] if the tenant has used up its quota, [`A2aError::Overloaded`] if the caller has too
    /// many streams, and the errors of the operation.
    pub(crate) async fn call(
        &self,
        caller: &Caller,
        call: ServiceParameters,
        operation: Operation,
    ) -> Result<Reply, A2aError> {
        annex_telemetry::with(|request| {
            if let Some(trace) = request.trace() {
                trace.continues(|| parent_in_metadata(&operation));
            }
        });
        // The place is taken first: a client that gets no stream must not start a turn.
        let place = operation.streams().then(|| caller.open_stream()).transpose()?;
        let (handler, call) = self.serving(call, operation.tenant()).await?;
        let Answer { value: result, active } = handler.perform(&call, operation).await?;
        let place = match &result {
            // Only the result shows whether a method streams.
            OperationResult::Method(MethodResult::Results(_)) => Some(caller.open_stream()?),
            _ => place,
        };
        Ok(Reply { result, active, place })
    }

    /// Finds the handler of the tenant. Returns the handler, and `call` with this tenant set in its owner.
    async fn serving(
        &self,
        mut call: ServiceParameters,
        tenant: Option<&str>,
    ) -> Result<(Arc<RequestHandler>, ServiceParameters), A2aError> {
        // In protobuf an absent string is an empty one, so an empty name is none.
        let named = tenant.filter(|name| !name.is_empty());
        if let (Some(named), Some(of_path)) = (named, self.of_path)
            && named != of_path
        {
            return Err(other_than_in_path());
        }
        let tenant = named.or(self.of_path);
        let handler = self.tenants.handler(tenant, &call.owner.principal).await?;
        if let Some(tenant) = tenant {
            tenant.clone_into(&mut call.owner.tenant);
        }
        handler.admit(&call.owner.principal)?;
        let headers = handler.visible_headers(self.headers, call.key_header.as_ref());
        Ok((handler, call.with_headers(headers)))
    }

    /// Makes the operation that calls a method of an extension. Used by bindings in which a client names the tenant
    /// among the parameters. If the path names the tenant, or if the server has no tenants, all parameters belong to
    /// the extension.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] for a tenant that is not a string.
    pub(crate) fn method(&self, method: &str, params: Json) -> Result<Operation, A2aError> {
        let (tenant, params) = match self.of_path.is_none() && self.tenants.has_others() {
            true => tenant_in(params)?,
            false => (None, params),
        };
        Ok(Operation::CallMethod(MethodRequest { tenant, extension: None, method: method.to_owned(), params }))
    }
}

/// The context of the caller's trace in the metadata of a message, or of its request. Used if the header of the request
/// has none.
fn parent_in_metadata(operation: &Operation) -> Option<SpanContext> {
    let (Operation::SendMessage(sent) | Operation::SendStreamingMessage(sent)) = operation else { return None };
    let text = |metadata: &JsonObject, key: &str| metadata.get(key).and_then(|value| value.to::<String>().ok());
    let parent = |metadata: &JsonObject| {
        let parent = text(metadata, TRACEPARENT)?;
        parent_of(&parent, text(metadata, TRACESTATE).as_deref())
    };
    parent(&sent.message.metadata).or_else(|| parent(&sent.metadata))
}

/// Takes the tenant out of the parameters. Returns the tenant and the remaining parameters.
fn tenant_in(params: Json) -> Result<(Option<String>, Json), A2aError> {
    // Parameters that are not an object are refused later, where the method is called.
    let Ok(mut object) = JsonObject::parse(params.get()) else { return Ok((None, params)) };
    let Some(tenant) = object.remove("tenant") else { return Ok((None, params)) };
    let tenant = tenant.to::<String>().map_err(|_| A2aError::invalid_field("tenant", "is not a string"))?;
    Ok((Some(tenant), object.to_json().map_err(|error| fault::internal(&error))?))
}

/// The error for a request that names one tenant in its path and another tenant in a field.
pub(crate) fn other_than_in_path() -> A2aError {
    A2aError::invalid_field("tenant", "is not the tenant of the path")
}

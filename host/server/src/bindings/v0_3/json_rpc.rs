//! The JSON-RPC binding of 0.3.

use annex_operations::answer::{EventStream, encode};
use annex_operations::operation::{MethodRequest, Operation, OperationResult};
use annex_operations::service_parameters::{ServiceParameters, sent_version};
use annex_protocol::jsonrpc::{self, Request, RequestId};
use annex_protocol::service::{VERSION, is_version};
use annex_protocol::v0_3::{self, Method, request};
use annex_protocol::{A2aError, GetExtendedAgentCardRequest, Json, StreamResponse};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;

use super::{echo, json, no_list_tasks, read_call, sent_event};
use crate::access_log;
use crate::bindings::answer_body;
use crate::bindings::jsonrpc as json_rpc_binding;
use crate::bindings::service_headers::retry_after;
use crate::bindings::sse;
use crate::connections::caller::Caller;
use crate::connections::streams::StreamPlace;
use crate::operations::{Operations, Reply};

/// Answers a JSON-RPC request of 0.3. Returns `None` for a request that the binding of 1.0 answers.
///
/// A request with a 0.3 method counts as a 0.3 request, unless it sets version 1.0. A request with a method that A2A
/// does not define may call a method of an extension. Such a request counts as a 0.3 request, unless it sets another
/// version.
pub(crate) async fn answer(
    operations: &Operations<'_>,
    caller: &Caller,
    (headers, uri): (&HeaderMap, &Uri),
    request: &Request<'_>,
) -> Option<Response> {
    let method = Method::from_name(&request.method);
    // A 0.3 method with version 1.0 goes to the binding of 1.0, which answers that the method does not exist.
    let is_of_1_0 = match method {
        Some(_) => is_version(&sent_version(headers, uri), VERSION),
        None => annex_protocol::Method::from_name(&request.method).is_some(),
    };
    let call = read_call(caller.identity.clone(), (headers, uri));
    // A call of an extension's method with another version goes to the binding of 1.0, which serves it or lists the
    // supported versions.
    if is_of_1_0 || (method.is_none() && call.is_err()) {
        return None;
    }
    access_log::speaks(v0_3::VERSION);
    if let Some(method) = method {
        access_log::asks_for(method.of_1_0().name());
    }
    let answer = match call {
        Ok(call) => perform(operations, caller, call, method, request).await,
        Err(error) => Err(error),
    };
    Some(answer.unwrap_or_else(|error| {
        access_log::note_error(&error);
        let failure = v0_3::failure(&request.id, &error);
        // The client of a stream reads only events. It would not see the error in another form.
        let streams = method.is_some_and(Method::streams);
        let mut response = if streams { sse::respond_once(&failure) } else { json(failure.into()) };
        // As in 1.0, for the proxies on the way.
        if let A2aError::QuotaExceeded { .. } = error {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        retry_after(response, &error)
    }))
}

/// Performs a request. `method` is `None` for a method that A2A does not define, which may be a method of an extension.
async fn perform(
    operations: &Operations<'_>,
    caller: &Caller,
    call: ServiceParameters,
    method: Option<Method>,
    request: &Request<'_>,
) -> Result<Response, A2aError> {
    let params = request.params_json()?;
    let operation = match method {
        Some(method) => operation(method, &params)?,
        // 0.3 has no field for a tenant, so all parameters belong to the extension.
        None => {
            let method = request.method.clone().into_owned();
            Operation::CallMethod(MethodRequest { tenant: None, extension: None, method, params })
        }
    };
    let reply = operations.call(caller, call, operation).await;
    write(caller, &request.id, reply.map_err(|error| refusal(method, error))?)
}

/// Reads the operation from a method and its parameters.
fn operation(method: Method, sent: &Json) -> Result<Operation, A2aError> {
    Ok(match method {
        Method::SendMessage => Operation::SendMessage(request::send_message(sent)?),
        Method::SendStreamingMessage => Operation::SendStreamingMessage(request::send_message(sent)?),
        Method::GetTask => Operation::GetTask(request::get_task(sent)?),
        Method::CancelTask => Operation::CancelTask(request::cancel_task(sent)?),
        Method::SubscribeToTask => Operation::SubscribeToTurn(request::subscribe_to_task(sent)?),
        Method::CreateTaskPushNotificationConfig => Operation::CreatePushConfig(request::create_push_config(sent)?),
        Method::GetTaskPushNotificationConfig => match request::get_push_config(sent)? {
            get if get.id.is_empty() => Operation::GetFirstPushConfig(get),
            get => Operation::GetPushConfig(get),
        },
        Method::ListTaskPushNotificationConfigs => Operation::ListPushConfigs(request::list_push_configs(sent)?),
        Method::DeleteTaskPushNotificationConfig => Operation::DeletePushConfig(request::delete_push_config(sent)?),
        Method::GetExtendedAgentCard => Operation::GetExtendedAgentCard(GetExtendedAgentCardRequest::default()),
    })
}

/// Replaces the names of fields in an error by the names that these fields have in 0.3.
fn refusal(method: Option<Method>, error: A2aError) -> A2aError {
    match method {
        Some(Method::SendMessage | Method::SendStreamingMessage) => request::refusal_of_message(error),
        Some(Method::CreateTaskPushNotificationConfig) => request::refusal_of_push_config(error),
        _ => error,
    }
}

/// Writes the result as a response.
fn write(caller: &Caller, id: &RequestId, reply: Reply) -> Result<Response, A2aError> {
    let Reply { result, active, place } = reply;
    let success = |result: &str| json_rpc_binding::success(caller, id, result);
    let response = match result {
        OperationResult::Sent(sent) => success(&sent_event(sent, encode_event)?)?,
        OperationResult::Events(events) => stream(caller, place, id.clone(), events),
        OperationResult::Task(task) => success(&encode(&v0_3::Task::from(&task.into_task()?))?)?,
        OperationResult::CanceledTask(task) => success(&encode(&v0_3::Task::from(&task))?)?,
        OperationResult::Tasks(_) => return Err(no_list_tasks()),
        OperationResult::PushConfig(config) => success(&encode(&v0_3::TaskPushNotificationConfig::from(&config))?)?,
        OperationResult::PushConfigs(configs) => success(&encode(&v0_3::push_configs(&configs))?)?,
        OperationResult::NoPushConfig => success("null")?,
        OperationResult::ExtendedAgentCard(card) => {
            let card = v0_3::AgentCard::of(&card).ok_or(A2aError::ExtendedAgentCardNotConfigured)?;
            success(&encode(&card)?)?
        }
        OperationResult::Method(result) => json_rpc_binding::method_result((caller, place), id, result, v0_3::failure)?,
    };
    Ok(echo(response, &active))
}

fn stream(caller: &Caller, place: Option<StreamPlace>, id: RequestId, events: EventStream) -> Response {
    let answer = sse::respond(events, move |event| match event {
        Ok(event) => jsonrpc::success_raw(&id, &encode_event(event.event()).unwrap_or_default()),
        Err(error) => v0_3::failure(&id, error),
    });
    answer_body::stream(caller, place, answer)
}

fn encode_event(event: &StreamResponse) -> Result<String, A2aError> {
    encode(&v0_3::Event::from(event))
}

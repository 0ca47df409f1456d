//! The remote agent, with a method for each operation (specification section 3.1).

use std::sync::Arc;

use annex_protocol::{
    A2aError, AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, Json, JsonObject, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, Method, SendMessageRequest,
    SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
};
use futures::{StreamExt, TryStreamExt, stream};
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::binding::{self, SupportedInterface};
use crate::card::AgentCardDocument;
use crate::config::ClientConfig;
use crate::http::Http;
use crate::transport::{self, Answers, Transport, WireCall};
use crate::{Answer, Binding, ClientError, EventStream, ExtensionMethod, Operation, ResultStream, ServiceParameters};

mod exchange;
mod params;

use exchange::{CallContext, Exchange};
use params::{MethodParams, Params};

/// A remote agent: its card, and the interface on the card that this client uses.
///
/// Each operation takes the service parameters of one call and a request. A request of A2A carries the `tenant` of the
/// interface; a `tenant` that the caller sets is discarded. Requests are validated before they are sent. An operation
/// fails with the agent's error, with a transport error, with a breach of the protocol, or with an interceptor's
/// refusal; see [`ClientError`].
pub struct Agent {
    binding: Binding,
    url: String,
    tenant: Option<String>,
    transport: Box<dyn Transport>,
    around: Arc<CallContext>,
}

impl Agent {
    pub(crate) fn new(
        document: Arc<AgentCardDocument>,
        http: &Http,
        config: &ClientConfig,
    ) -> Result<Self, ClientError> {
        // Without allowed hosts, any interface may be used. `Exchange::headers` then decides whether it gets header
        // fields.
        let may_use = |spoken: &SupportedInterface<'_>| {
            let url = transport::interface_url(spoken.binding, &spoken.interface.url, &document.url);
            config.allowed_hosts.is_none() || url.is_ok_and(|url| config.trusts(&url, &document.url))
        };
        let spoken = binding::choose(&document.card, &config.bindings, may_use).map_err(|error| {
            // The card has a suitable interface, but at a host that is not allowed.
            binding::choose(&document.card, &config.bindings, |_| true)
                .map_or(error, |spoken| not_allowed(&spoken, &document))
        })?;
        let binding = spoken.binding;
        let interface = spoken.interface;
        let url = transport::interface_url(binding, &interface.url, &document.url)?;
        let tenant = interface.tenant.clone();
        let shown = url.to_string();
        let transport = transport::open(&spoken, url.clone(), http)?;
        let takes_fields = config.trusts(&url, &document.url);
        let interceptors = config.interceptors.clone();
        let around = Arc::new(CallContext { document, interface: url, takes_fields, interceptors });
        Ok(Self { binding, url: shown, tenant, transport, around })
    }

    /// The agent's description of itself.
    pub fn card(&self) -> &AgentCard {
        &self.around.document.card
    }

    /// The card as it was received.
    pub fn document(&self) -> &Arc<AgentCardDocument> {
        &self.around.document
    }

    /// The URL of the interface in use.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The protocol binding of the interface in use.
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// SendMessage. Returns the agent's message, or the task once the task has ended or waits for input. With
    /// `return_immediately` in the request, the agent may return the task before that.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists.
    pub async fn send_message(
        &self,
        parameters: ServiceParameters,
        mut request: SendMessageRequest,
    ) -> Result<Answer<SendMessageResponse>, ClientError> {
        let mut exchange = Exchange::new(&self.around, Operation::A2a(Method::SendMessage), parameters);
        exchange.begin(Some(&mut request.message), Some(&mut request.metadata)).await?;
        // The message is checked after the interceptors, because they may change it.
        valid(request.validate())?;
        let answer = self.transport.call(self.wire(&mut exchange, request)?).await?;
        let event = answer.value.decode_event()?;
        let event = event.ok_or_else(|| answer.value.misshapen("one of `task`, `message` is required"))?;
        exchange.end(&answer.active, Some(&event)).await?;
        let value = match event {
            StreamResponse::Task(task) => SendMessageResponse::Task(task),
            StreamResponse::Message(message) => SendMessageResponse::Message(message),
            StreamResponse::StatusUpdate(_) | StreamResponse::ArtifactUpdate(_) => {
                // SendMessage has one answer; updates are for streams (section 3.1.1).
                return Err(answer.value.misshapen("neither a task nor a message"));
            }
        };
        Ok(Answer { value, active: answer.active })
    }

    /// SendStreamingMessage. Returns a stream whose events arrive while the agent works. The agent's card says whether it
    /// supports streaming.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists. An event of the stream can fail for the same reasons.
    pub async fn send_streaming_message(
        &self,
        parameters: ServiceParameters,
        mut request: SendMessageRequest,
    ) -> Result<Answer<EventStream>, ClientError> {
        let mut exchange = Exchange::new(&self.around, Operation::A2a(Method::SendStreamingMessage), parameters);
        exchange.begin(Some(&mut request.message), Some(&mut request.metadata)).await?;
        valid(request.validate())?;
        let answer = self.transport.open(self.wire(&mut exchange, request)?).await?;
        Ok(exchange.follow(answer))
    }

    /// GetTask. Returns the task in its current state.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists.
    pub async fn get_task(
        &self,
        parameters: ServiceParameters,
        request: GetTaskRequest,
    ) -> Result<Answer<Task>, ClientError> {
        // Interceptors cannot change this request, so a wrong one is refused before they run.
        valid(request.validate())?;
        let mut exchange = Exchange::new(&self.around, Operation::A2a(Method::GetTask), parameters);
        exchange.begin(None, None).await?;
        self.read_task(exchange, request).await
    }

    /// ListTasks. Returns one page of tasks.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists.
    pub async fn list_tasks(
        &self,
        parameters: ServiceParameters,
        request: ListTasksRequest,
    ) -> Result<Answer<ListTasksResponse>, ClientError> {
        valid(request.validate())?;
        self.read(Operation::A2a(Method::ListTasks), parameters, request).await
    }

    /// CancelTask. Returns the task in its state after the request.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists.
    pub async fn cancel_task(
        &self,
        parameters: ServiceParameters,
        mut request: CancelTaskRequest,
    ) -> Result<Answer<Task>, ClientError> {
        valid(request.validate())?;
        let mut exchange = Exchange::new(&self.around, Operation::A2a(Method::CancelTask), parameters);
        exchange.begin(None, Some(&mut request.metadata)).await?;
        self.read_task(exchange, request).await
    }

    /// SubscribeToTask. Returns a stream. Its first event is the current task, and the task's changes follow until the task
    /// ends.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists. An event of the stream can fail for the same reasons.
    pub async fn subscribe_to_task(
        &self,
        parameters: ServiceParameters,
        request: SubscribeToTaskRequest,
    ) -> Result<Answer<EventStream>, ClientError> {
        valid(request.validate())?;
        let mut exchange = Exchange::new(&self.around, Operation::A2a(Method::SubscribeToTask), parameters);
        exchange.begin(None, None).await?;
        let answer = self.transport.open(self.wire(&mut exchange, request)?).await?;
        Ok(exchange.follow(answer))
    }

    /// CreateTaskPushNotificationConfig. Returns the config with its id.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists.
    pub async fn create_push_config(
        &self,
        parameters: ServiceParameters,
        config: TaskPushNotificationConfig,
    ) -> Result<Answer<TaskPushNotificationConfig>, ClientError> {
        valid(config.validate())?;
        self.read(Operation::A2a(Method::CreateTaskPushNotificationConfig), parameters, config).await
    }

    /// GetTaskPushNotificationConfig. Returns one push notification config of a task.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists.
    pub async fn get_push_config(
        &self,
        parameters: ServiceParameters,
        request: GetTaskPushNotificationConfigRequest,
    ) -> Result<Answer<TaskPushNotificationConfig>, ClientError> {
        valid(request.validate())?;
        self.read(Operation::A2a(Method::GetTaskPushNotificationConfig), parameters, request).await
    }

    /// ListTaskPushNotificationConfigs. Returns one page of a task's push notification configs.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists.
    pub async fn list_push_configs(
        &self,
        parameters: ServiceParameters,
        request: ListTaskPushNotificationConfigsRequest,
    ) -> Result<Answer<ListTaskPushNotificationConfigsResponse>, ClientError> {
        valid(request.validate())?;
        self.read(Operation::A2a(Method::ListTaskPushNotificationConfigs), parameters, request).await
    }

    /// DeleteTaskPushNotificationConfig. Deleting a config twice is not an error.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists.
    pub async fn delete_push_config(
        &self,
        parameters: ServiceParameters,
        request: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<Answer<()>, ClientError> {
        valid(request.validate())?;
        let operation = Operation::A2a(Method::DeleteTaskPushNotificationConfig);
        // Servers answer with nothing, `null` or an object. None of them carries information.
        let answer = self.read::<_, IgnoredAny>(operation, parameters, request).await?;
        Ok(Answer { value: (), active: answer.active })
    }

    /// GetExtendedAgentCard. Returns the card for authenticated callers. This [`Agent`] keeps using its own card.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists.
    pub async fn get_extended_agent_card(
        &self,
        parameters: ServiceParameters,
    ) -> Result<Answer<AgentCard>, ClientError> {
        self.read(Operation::A2a(Method::GetExtendedAgentCard), parameters, GetExtendedAgentCardRequest::default())
            .await
    }

    /// Calls a method of an extension: over JSON-RPC by its name, over HTTP+JSON with `POST …/extensions/{extension}/{name}`,
    /// over gRPC with Annex's service `annex.extension.v1.ExtensionService`. The extension defines the form of the answer.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists.
    pub async fn call_method(
        &self,
        parameters: ServiceParameters,
        method: ExtensionMethod,
        params: &JsonObject,
    ) -> Result<Answer<Json>, ClientError> {
        self.read(Operation::Extension(method), parameters, MethodParams(params)).await
    }

    /// Calls a streaming method of an extension. Interceptors see the call but not the results.
    ///
    /// # Errors
    /// [`ClientError`], for the reasons that [`Agent`] lists. A result of the stream can fail for the same reasons.
    pub async fn call_streaming_method(
        &self,
        parameters: ServiceParameters,
        method: ExtensionMethod,
        params: &JsonObject,
    ) -> Result<Answer<ResultStream>, ClientError> {
        let mut exchange = Exchange::new(&self.around, Operation::Extension(method), parameters);
        exchange.begin(None, None).await?;
        let answer = self.transport.open(self.wire(&mut exchange, MethodParams(params))?).await?;
        Ok(Answer { value: stream::try_unfold(answer.value, next_result).boxed(), active: answer.active })
    }

    /// Makes a call that is answered neither by a task nor by a message.
    async fn read<R: Params, T: DeserializeOwned>(
        &self,
        operation: Operation,
        parameters: ServiceParameters,
        request: R,
    ) -> Result<Answer<T>, ClientError> {
        let mut exchange = Exchange::new(&self.around, operation, parameters);
        exchange.begin(None, None).await?;
        let answer = self.transport.call(self.wire(&mut exchange, request)?).await?;
        let value = answer.value.decode()?;
        exchange.end(&answer.active, None).await?;
        Ok(Answer { value, active: answer.active })
    }

    async fn read_task<R: Params>(&self, mut exchange: Exchange, request: R) -> Result<Answer<Task>, ClientError> {
        let answer = self.transport.call(self.wire(&mut exchange, request)?).await?;
        let task: Task = answer.value.decode()?;
        // A copy, because interceptors see every answer in the form of an event.
        exchange.end(&answer.active, Some(&StreamResponse::Task(task.clone()))).await?;
        Ok(Answer { value: task, active: answer.active })
    }

    fn wire<R: Params>(&self, exchange: &mut Exchange, request: R) -> Result<WireCall, ClientError> {
        let params = request.into_json(self.tenant.as_deref());
        let params = params
            .map_err(|error| ClientError::NotCarried { binding: self.binding.name(), problem: error.to_string() })?;
        let room = exchange.room();
        Ok(WireCall { operation: exchange.operation.clone(), params, headers: exchange.headers()?, room })
    }
}

fn not_allowed(spoken: &SupportedInterface<'_>, document: &AgentCardDocument) -> ClientError {
    let interface = &spoken.interface.url;
    let url = match transport::interface_url(spoken.binding, interface, &document.url) {
        Ok(url) => url,
        Err(error) => return error,
    };
    let host = url.host_str().unwrap_or_default();
    let host = url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    ClientError::NotAllowed { card: document.url.to_string(), interface: interface.clone(), host }
}

/// Reads the next result of a stream; `None` at the end of the stream. A result that cannot be read ends the stream.
async fn next_result(mut answers: Answers) -> Result<Option<(Json, Answers)>, ClientError> {
    let Some(answer) = answers.try_next().await? else { return Ok(None) };
    Ok(Some((answer.decode()?, answers)))
}

fn valid(checked: Result<(), A2aError>) -> Result<(), ClientError> {
    checked.map_err(ClientError::InvalidRequest)
}

//! One turn at the upstream. The message is sent once, and its answer is followed to the end, even if connections
//! break.

use std::time::Duration;

use annex_agent::{AgentError, EventSender, TurnContext, TurnStart, UpstreamContext};
use annex_client::{Agent, Answer, ClientError, EventStream, ServiceParameters, StreamRoom};
use annex_protocol::{
    A2aError, CancelTaskRequest, GetTaskRequest, SendMessageRequest, StreamResponse, SubscribeToTaskRequest, TaskId,
};
use futures::{FutureExt, StreamExt};
use tokio::time::{sleep, timeout};

use crate::config::LostContext;
use crate::failure::{self, Deviation};
use crate::links::Link;
use crate::outgoing;
use crate::relay::{EVENTS_OF_FULL_SIZE, Relay};
use crate::upstream::Upstream;

/// The pauses before a message is sent again because no connection could be opened.
const SEND_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];
/// The first pause before a task is read again. Each further pause is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// A turn fails after this number of failed attempts in a row to read its task.
const ATTEMPTS: u32 = 5;
/// The longest time for which a message about a running task is held until its next piece arrives.
const LONGEST_HOLD: Duration = Duration::from_secs(2);

/// The limit on the bytes of a turn's streams, as a multiple of the limit on the bytes of the turn's events. Streams
/// need more bytes, because they also carry names, ids and escapes.
const STREAM_BYTES: usize = 2;
/// The maximum size of the keep-alive comments in all streams of a turn together, in bytes.
const COMMENT_BYTES: usize = 4 << 20;

/// The error text for the client if a process of this server stopped between sending the message and storing the
/// upstream's task.
const NOT_FOLLOWED: &str = "The server stopped while the task ran. It is unknown whether the agent behind it received the \
                            message; send it again.";

/// The upstream's answer to a message: one event, or a stream of events.
enum Reply {
    Whole(Box<StreamResponse>),
    Stream(EventStream),
}

/// The next event of a stream; `None` at its end.
type NextEvent = Result<Option<StreamResponse>, ClientError>;

/// The reason why no further events of a stream are read.
enum StreamEnd {
    /// The turn is over, or the stream has no more events.
    Well,
    /// The connection broke off, with this error.
    Broken(ClientError),
}

/// Runs one turn at the upstream.
pub(crate) struct Follower<'a> {
    upstream: &'a Upstream,
    turn: &'a TurnContext,
    remote: &'a UpstreamContext,
    /// The client for the card that was current when the turn began.
    agent: &'a Agent,
    /// The limit on the bytes that all streams of the turn may have together, including skipped events.
    room: StreamRoom,
}

impl<'a> Follower<'a> {
    pub(crate) fn new(
        upstream: &'a Upstream,
        (turn, remote): (&'a TurnContext, &'a UpstreamContext),
        agent: &'a Agent,
    ) -> Self {
        let answer = upstream.config.max_answer_bytes.saturating_mul(EVENTS_OF_FULL_SIZE);
        let room = StreamRoom::new(answer.saturating_mul(STREAM_BYTES).saturating_add(COMMENT_BYTES));
        Self { upstream, turn, remote, agent, room }
    }

    /// Runs the turn. If the turn begins with a message, sends the message and relays the answer. If the turn continues
    /// an existing task, only follows the task.
    pub(crate) async fn run(&self, events: EventSender) -> Result<(), AgentError> {
        match self.remote.begins_with {
            TurnStart::Message => {}
            TurnStart::LostTurn | TurnStart::WaitingTask => return self.go_on(events).await,
        }
        let noted = Link::load(self.remote, &self.turn.task_id).await.map_err(AgentError::internal)?;
        let mapping = &self.upstream.config.state;
        let mut request = outgoing::request(self.turn, self.remote, mapping, &noted).await?;
        let (sent, answer) = self.send(&mut request, noted.clone()).await?;
        // The caller gets the extensions that the upstream reports as active, not the requested ones.
        self.remote.set_active(&answer.active);
        let mut relay = Relay::new((self.turn, self.remote), &self.upstream.config, events, (noted, &sent));
        let followed = self.follow(answer.value, &mut relay).await;
        if let (Err(AgentError::Broken { .. }), Some(task)) = (&followed, relay.task()) {
            // The client has gone, so the task need not continue.
            cancel(self.upstream, self.remote, task).await;
        }
        followed
    }

    /// Follows an existing task without sending a message. Either another process sent the message and stopped, or the
    /// task waited for its client and has continued by itself.
    async fn go_on(&self, events: EventSender) -> Result<(), AgentError> {
        let noted = Link::of_task(self.remote, &self.turn.task_id).await.map_err(AgentError::internal)?;
        let waited = self.remote.begins_with == TurnStart::WaitingTask;
        // A lost message to a waiting task may not have arrived there.
        let noted = noted.filter(|noted| noted.task.is_some() && noted.waits == waited);
        let noted = noted.ok_or_else(|| {
            if waited {
                let reason = "the task no longer waits".to_owned();
                AgentError::Refused(A2aError::UnsupportedOperation { reason })
            } else {
                AgentError::Failed { message: NOT_FOLLOWED.to_owned() }
            }
        })?;
        // The task counts as known, like one that a message has just continued.
        let sent = Link { waits: true, ..noted.clone() };
        let mut relay = Relay::new((self.turn, self.remote), &self.upstream.config, events, (noted, &sent));
        let followed = self.recover(&mut relay).await;
        if let (Err(AgentError::Broken { .. }), Some(task)) = (&followed, relay.task()) {
            cancel(self.upstream, self.remote, task).await;
        }
        followed
    }

    /// Sends the message. If the upstream does not know the conversation and the config says `restart`, sends the
    /// message once more in a new conversation.
    async fn send(&self, request: &mut SendMessageRequest, link: Link) -> Result<(Link, Answer<Reply>), AgentError> {
        let error = match self.deliver(request).await {
            Ok(answer) => return Ok((link, answer)),
            Err(error) => error,
        };
        let restarts = self.upstream.config.on_lost_context == LostContext::Restart;
        if !restarts || !failure::is_lost_context(&error, &link) {
            return Err(failure::of_sending(error, &link));
        }
        tracing::info!("the upstream agent no longer knows a conversation; continuing as a new one");
        let link = Link::default();
        outgoing::place(request, &link);
        // An upstream that has lost the conversation does not know its tasks either.
        request.message.reference_task_ids.clear();
        let answer = self.deliver(request).await.map_err(|error| failure::of_sending(error, &link))?;
        Ok((link, answer))
    }

    /// Sends the message. Sends it again only if no connection could be opened, because without a connection the
    /// upstream cannot have received the message.
    async fn deliver(&self, request: &SendMessageRequest) -> Result<Answer<Reply>, ClientError> {
        let mut pauses = SEND_PAUSES.into_iter();
        loop {
            let delivered = self.deliver_once(request).await;
            match (&delivered, pauses.next()) {
                // No connection came about. After any other failure the upstream may have begun to work on the message.
                (Err(ClientError::Unreachable { .. }), Some(pause)) => sleep(pause).await,
                _ => {
                    self.judge(delivered.as_ref().err());
                    return delivered;
                }
            }
        }
    }

    async fn deliver_once(&self, request: &SendMessageRequest) -> Result<Answer<Reply>, ClientError> {
        let (agent, streams) = (self.agent, self.streams());
        self.in_time(self.call(|parameters| send_once(agent, streams, parameters, request.clone()))).await
    }

    async fn follow(&self, reply: Reply, relay: &mut Relay<'a>) -> Result<(), AgentError> {
        match reply {
            Reply::Whole(event) => {
                relay.take(*event).await?;
                relay.end().await?;
            }
            Reply::Stream(stream) => {
                if let StreamEnd::Broken(error) = self.read(stream, relay).await? {
                    let ids = annex_telemetry::ids();
                    let (tenant, context, task) = ids.all();
                    tracing::warn!(%error, tenant, context, task, "the stream of the upstream agent broke off; reading its task");
                }
            }
        }
        // An answer that ends no turn, such as a task that is still working, is followed by reading too.
        self.recover(relay).await
    }

    /// Relays the events of a stream. Returns when the stream or the turn ends.
    async fn read(&self, mut stream: EventStream, relay: &mut Relay<'a>) -> Result<StreamEnd, AgentError> {
        let mut is_first = true;
        while !relay.is_settled() {
            let next = self.next(&mut stream, relay).await?;
            if next.is_err() {
                relay.say_held().await?;
            }
            match next {
                // A stream begins with the current task, which may still have the waiting state that this message ends.
                Ok(Some(event)) if relay.taken() == 0 => relay.take_first(event).await?,
                // A resumed stream repeats the task.
                Ok(Some(StreamResponse::Task(task))) if is_first => relay.take_asked(task).await?,
                Ok(Some(event)) => relay.take(event).await?,
                Ok(None) => {
                    relay.end().await?;
                    break;
                }
                // The client measures the silence as well, and its limit may be reached first.
                Err(ClientError::TimedOut { .. }) if relay.may_be_over() => {
                    relay.end().await?;
                    break;
                }
                // The task may still be running, so `recover` reads it. Only if that fails does the call count as a
                // failure.
                Err(error @ ClientError::Broken { .. }) => return Ok(StreamEnd::Broken(error)),
                Err(error) => {
                    self.judge(Some(&error));
                    return Err(failure::of_transport(error));
                }
            }
            is_first = false;
        }
        if relay.is_settled() {
            leave(stream);
        }
        Ok(StreamEnd::Well)
    }

    /// Returns the next event of a stream; `None` at the end of the stream. If no byte arrives for too long, the client ends
    /// the stream with an error. Comments count as bytes.
    ///
    /// Some agents leave a stream open after their last message. A stream that has brought only messages therefore ends after
    /// `idle` without an event.
    async fn next(&self, stream: &mut EventStream, relay: &mut Relay<'a>) -> Result<NextEvent, AgentError> {
        if relay.is_holding() {
            // The client's own limit on the wait continues afterwards: the stream keeps what it has read.
            if let Ok(next) = timeout(LONGEST_HOLD, stream.next()).await {
                return Ok(next.transpose());
            }
            relay.say_held().await?;
        }
        let next = async { stream.next().await.transpose() };
        if !relay.may_be_over() {
            return Ok(next.await);
        }
        Ok(timeout(self.upstream.config.idle, next).await.unwrap_or(Ok(None)))
    }

    /// Reads the task repeatedly until the turn is over. Called if a stream ended before the turn did, or if the
    /// upstream has no streams.
    async fn recover(&self, relay: &mut Relay<'a>) -> Result<(), AgentError> {
        let mut attempts = 0;
        let mut pause = FIRST_PAUSE;
        while !relay.is_settled() {
            let task = relay.task().cloned().ok_or(Deviation::NoTask)?;
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
            let before = relay.relayed();
            match self.catch_up(&task, relay).await? {
                StreamEnd::Well => attempts = 0,
                StreamEnd::Broken(error) => {
                    attempts += 1;
                    if attempts >= ATTEMPTS {
                        self.judge(Some(&error));
                        return Err(failure::of_transport(error));
                    }
                }
            }
            // A task may be read again and again without news, because the upstream is working. The turn's limit ends
            // this.
            if relay.relayed() > before {
                (attempts, pause) = (0, FIRST_PAUSE);
            }
        }
        Ok(())
    }

    /// Reads the task, and then its further events if the upstream supports streams.
    async fn catch_up(&self, task: &TaskId, relay: &mut Relay<'a>) -> Result<StreamEnd, AgentError> {
        let agent = self.agent;
        let get = GetTaskRequest { id: task.clone(), ..GetTaskRequest::default() };
        match self.in_time(self.call(|parameters| agent.get_task(parameters, get.clone()))).await {
            Ok(answer) => relay.take_asked(answer.value).await?,
            // An A2A error is an answer: the upstream works, but does not show the task.
            Err(error) if error.agent().is_some() => return Err(failure::of_lost_task(error)),
            Err(error) => return Ok(StreamEnd::Broken(error)),
        }
        if relay.is_settled() || !self.streams() {
            return Ok(StreamEnd::Well);
        }
        let subscribe = SubscribeToTaskRequest { id: task.clone(), ..SubscribeToTaskRequest::default() };
        match self.in_time(self.call(|parameters| agent.subscribe_to_task(parameters, subscribe.clone()))).await {
            Ok(answer) => self.read(answer.value, relay).await,
            // The task may have ended in between, or the upstream has no subscriptions; then the task is read again.
            Err(error) if error.agent().is_some() => Ok(StreamEnd::Well),
            Err(error) => Ok(StreamEnd::Broken(error)),
        }
    }

    /// Waits for an answer, or for the head of a stream. Fails after the config's `idle`.
    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        timeout(self.upstream.config.idle, answer).await.unwrap_or_else(|_| Err(self.timed_out()))
    }

    fn timed_out(&self) -> ClientError {
        ClientError::TimedOut { url: self.agent.url().to_owned() }
    }

    /// Makes a call whose streams share the limit of the turn.
    async fn call<T, F>(&self, call: impl Fn(ServiceParameters) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        self.upstream.call(self.remote, |parameters| call(parameters.within(self.room.clone()))).await
    }

    fn streams(&self) -> bool {
        self.agent.card().capabilities.streaming == Some(true)
    }

    /// Reports the result of a call to the circuit breaker.
    fn judge(&self, error: Option<&ClientError>) {
        // Without a token nothing was sent, so the upstream may work or not.
        if error.is_some_and(failure::is_without_token) {
            return;
        }
        self.upstream.judge(error.is_some_and(failure::is_fault));
    }
}

/// Sends a message, and returns the whole answer or the stream of its events.
async fn send_once(
    agent: &Agent,
    streams: bool,
    parameters: ServiceParameters,
    request: SendMessageRequest,
) -> Result<Answer<Reply>, ClientError> {
    if streams {
        let Answer { value, active } = agent.send_streaming_message(parameters, request).await?;
        return Ok(Answer { value: Reply::Stream(value), active });
    }
    let Answer { value, active } = agent.send_message(parameters, request).await?;
    Ok(Answer { value: Reply::Whole(Box::new(value.into())), active })
}

/// Closes a stream after its last event. Most streams end right after that event. Such a stream is read to its end,
/// which frees its connection for the next turn.
fn leave(mut stream: EventStream) {
    if stream.next().now_or_never().is_some() {
        return;
    }
    tokio::spawn(async move {
        // The end of the stream, a superfluous event, or a timeout. Only after the end can the connection be reused.
        let _ = timeout(LEAVE_TIMEOUT, stream.next()).await;
    });
}

/// Asks the circuit breaker for permission to begin a turn. While the circuit is open, a message is refused before
/// anything is read or stored.
///
/// # Errors
/// The refusal, with the time until the next call may be tried.
pub(crate) fn admit(upstream: &Upstream, begins_with: TurnStart) -> Result<(), AgentError> {
    match begins_with {
        TurnStart::Message => upstream.breaker().enter().map_err(is_closed),
        // The task already continues at the upstream.
        TurnStart::LostTurn | TurnStart::WaitingTask => Ok(()),
    }
}

fn is_closed(wait: Duration) -> AgentError {
    let reason = "the agent behind this server has failed several times in a row".to_owned();
    // Rounded up, so that a client that waits this long does not come too early.
    let retry_seconds = Some(wait.as_secs().saturating_add(1));
    AgentError::Refused(A2aError::Unavailable { reason, retry_seconds })
}

/// Asks the upstream whether a task that waited for its client has continued by itself. False if the upstream does not
/// answer.
pub(crate) async fn has_gone_on(upstream: &Upstream, remote: &UpstreamContext, link: &Link) -> bool {
    let Some(task) = link.waiting_task().filter(|_| !upstream.breaker().is_open()) else { return false };
    let agent = upstream.agent();
    let request = GetTaskRequest { id: task.clone(), history_length: Some(0), ..GetTaskRequest::default() };
    match upstream.call(remote, |parameters| agent.get_task(parameters, request.clone())).await {
        Ok(answer) => link.has_gone_on(answer.value.status.state),
        // The next message to the task will reveal the fault, and its client then gets the error.
        Err(error) => {
            tracing::debug!(%error, "the upstream agent did not report whether a waiting task has continued");
            false
        }
    }
}

/// Cancels the task at the upstream, because no client waits for the task any more. The task may have ended already.
pub(crate) async fn cancel(upstream: &Upstream, remote: &UpstreamContext, task: &TaskId) {
    let agent = upstream.agent();
    let request = CancelTaskRequest { id: task.clone(), ..CancelTaskRequest::default() };
    let canceled = upstream.call(remote, |parameters| agent.cancel_task(parameters, request.clone()));
    match timeout(CANCEL_TIMEOUT, canceled).await {
        Ok(Ok(_)) => {}
        // The upstream refuses to cancel a task that has ended already, which is not an error.
        Ok(Err(error)) => tracing::debug!(%error, "the upstream agent did not cancel a task"),
        Err(_) => tracing::debug!("the upstream agent did not answer in time whether a task is canceled"),
    }
}

/// The longest time that a stream is read after its last event.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time that the upstream may take to cancel a task.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);

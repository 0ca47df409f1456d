//! The connection to the upstream: the calls, and the card, which is refreshed in the background.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use annex_agent::UpstreamContext;
use annex_auth::TokenSource;
use annex_client::{Agent, Client, ClientConfig, ClientError, ParameterError, ServiceParameters};
use annex_fairness::{current_tenant, of_same_tenant};
use annex_protocol::AgentCard;
use annex_telemetry::traces::{TRACEPARENT, TRACESTATE};
use http::{HeaderMap, HeaderName};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::breaker::Breaker;
use crate::config::{ConfigError, Fields, UpstreamConfig};

/// The first pause between two attempts to read the card. Each further pause is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The reason why the upstream agent could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The config cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The card of the agent cannot be read, or lists no interface that may be used.
    #[error("the upstream agent at {card} cannot be used")]
    Agent {
        /// The URL of the agent's card.
        card: String,
        /// The cause.
        #[source]
        source: ClientError,
    },
}

/// A connected upstream agent.
pub(crate) struct Upstream {
    pub(crate) config: UpstreamConfig,
    breaker: Breaker,
    /// True if the upstream answered the last call, or the last request for the card.
    answers: AtomicBool,
    fields: Fields,
    /// The source of access tokens. `None` if the upstream gets none.
    pub(crate) tokens: Option<Arc<TokenSource>>,
    client: Client,
    /// The client for the current card.
    agent: RwLock<Arc<Agent>>,
    card: watch::Sender<Arc<AgentCard>>,
}

impl Upstream {
    /// Reads the card, and retries for the configured time. Starts a background task that refreshes the card.
    pub(crate) async fn connect(config: UpstreamConfig) -> Result<Arc<Self>, ConnectError> {
        let fields = config.fields()?;
        let tokens = config.token_source()?;
        let failed = |source| ConnectError::Agent { card: config.card.clone(), source };
        let client = Client::new(client_config(&config)).map_err(failed)?;
        let agent = first_agent(&client, &config).await.map_err(failed)?;
        let card = watch::Sender::new(Arc::new(usable(agent.card())));
        let breaker = Breaker::new(config.pause);
        let tenant = tenant();
        let tenant = tenant.as_deref();
        tracing::info!(tenant, url = agent.url(), binding = %agent.binding(), "the upstream agent was found");
        let agent = RwLock::new(Arc::new(agent));
        let answers = AtomicBool::new(true);
        let upstream = Arc::new(Self { config, breaker, answers, fields, tokens, client, agent, card });
        // A weak reference, so that the background task does not keep an unused upstream alive.
        tokio::spawn(of_same_tenant(keep_fresh(Arc::downgrade(&upstream), upstream.config.refresh)));
        Ok(upstream)
    }

    /// The client for the current card.
    pub(crate) fn agent(&self) -> Arc<Agent> {
        // Cloned out of the lock: a call may take minutes, and must not delay a new card.
        Arc::clone(&self.agent.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The circuit breaker.
    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Reports the result of a call to the circuit breaker. `is_fault` is true if the upstream was at fault.
    pub(crate) fn judge(&self, is_fault: bool) {
        self.answers.store(!is_fault, Ordering::Relaxed);
        if is_fault { self.breaker.failed() } else { self.breaker.succeeded() }
    }

    /// True if the circuit is closed and the last call got an answer.
    pub(crate) fn is_reached(&self) -> bool {
        self.answers.load(Ordering::Relaxed) && !self.breaker.is_open()
    }

    /// A channel with the current card. The channel is updated when the card changes.
    pub(crate) fn card(&self) -> watch::Receiver<Arc<AgentCard>> {
        self.card.subscribe()
    }

    /// The header fields of a request without an access token: the server's credentials, the forwarded fields of the caller,
    /// and the extensions.
    pub(crate) fn parameters(&self, remote: &UpstreamContext) -> Result<ServiceParameters, ParameterError> {
        let mut parameters = ServiceParameters::default();
        if let Some((name, value)) = self.fields.own.clone() {
            parameters.set_field(name, value)?;
        }
        let empty = HeaderMap::new();
        let headers = remote.headers.as_deref().unwrap_or(&empty);
        let mut trace = HeaderMap::new();
        if let Some(fields) = annex_telemetry::trace_fields() {
            fields.insert_into(&mut trace);
        }
        for (name, value) in &trace {
            parameters.set_field(name.clone(), value.clone())?;
        }
        // The fields of this server's own span replace forwarded ones.
        let forwarded = self.fields.forwarded.iter().filter(|name| trace.is_empty() || !is_of_trace(name));
        for name in forwarded {
            if let Some(value) = headers.get(name) {
                parameters.set_field(name.clone(), value.clone())?;
            }
        }
        for uri in &remote.extensions {
            parameters.activate(uri.clone())?;
        }
        Ok(parameters)
    }

    /// Reads the card again. If the new card is faulty, the current card stays.
    async fn refresh(&self) -> Result<(), ClientError> {
        let document = self.client.card(&self.config.card).await?;
        // An unchanged card does not wake the watchers.
        if document.text == self.agent().document().text {
            return Ok(());
        }
        let agent = Arc::new(self.client.agent(&self.config.card).await?);
        let card = Arc::new(usable(agent.card()));
        *self.agent.write().unwrap_or_else(PoisonError::into_inner) = agent;
        tracing::info!(tenant = tenant().as_deref(), "the card of the upstream agent has changed");
        self.card.send_replace(card);
        Ok(())
    }
}

fn is_of_trace(name: &HeaderName) -> bool {
    [TRACEPARENT, TRACESTATE].contains(&name.as_str())
}

/// The card without extensions that no client can request. If the card required such an extension, this server would refuse
/// every message. Without the extension, the upstream decides whether to refuse the message.
fn usable(card: &AgentCard) -> AgentCard {
    let mut card = card.clone();
    card.capabilities.extensions.retain(|extension| {
        let can_be_asked_for = ServiceParameters::default().activate(extension.uri.clone());
        if let Err(error) = &can_be_asked_for {
            let (tenant, required) = (tenant(), extension.required);
            let tenant = tenant.as_deref();
            tracing::warn!(%error, tenant, required, "an extension on the card of the upstream agent is ignored");
        }
        can_be_asked_for.is_ok()
    });
    card
}

/// The tenant that the current work is for; `None` for the agent of the config. For log lines that are not part of a
/// request.
fn tenant() -> Option<Arc<str>> {
    Some(current_tenant()).filter(|tenant| !tenant.is_empty())
}

fn client_config(config: &UpstreamConfig) -> ClientConfig {
    ClientConfig {
        bindings: config.binding.into_iter().collect(),
        connect_timeout: config.connect,
        card_timeout: config.idle.min(Duration::from_secs(10)),
        // Measured in bytes: keep-alive bytes show that the upstream works. The turn's limit ends a stream without
        // events.
        silence: config.idle,
        max_bytes: config.max_answer_bytes,
        // The interface gets credentials, so it is at the card's origin or at a host that the operator has named.
        allowed_hosts: Some(config.allow_hosts.clone()),
        follow_redirects: false,
        screen: config.screen.clone(),
        ..ClientConfig::default()
    }
}

async fn first_agent(client: &Client, config: &UpstreamConfig) -> Result<Agent, ClientError> {
    let deadline = Instant::now() + config.start;
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match client.agent(&config.card).await {
            Ok(agent) => return Ok(agent),
            Err(error) => error,
        };
        let may_pass = may_pass(&error);
        if !may_pass || Instant::now() + pause > deadline {
            return Err(error);
        }
        tracing::warn!(%error, tenant = tenant().as_deref(), "the upstream agent cannot be reached yet; it is tried again");
        sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Tells whether the error may disappear after a while, because the upstream may still be starting.
fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::TimedOut { .. } | ClientError::Broken { .. } => true,
        ClientError::NotServed { .. } => true,
        ClientError::NoCard { status, .. } => status.is_server_error(),
        _ => false,
    }
}

/// Refreshes the card from time to time, until the upstream is dropped.
async fn keep_fresh(upstream: Weak<Upstream>, interval: Duration) {
    let mut was_refreshed = true;
    loop {
        sleep(interval).await;
        let Some(upstream) = upstream.upgrade() else { return };
        let refreshed = upstream.refresh().await;
        upstream.answers.store(refreshed.is_ok(), Ordering::Relaxed);
        match refreshed {
            Ok(()) => was_refreshed = true,
            Err(error) if was_refreshed => {
                was_refreshed = false;
                let error: &dyn std::error::Error = &error;
                tracing::warn!(
                    error,
                    tenant = tenant().as_deref(),
                    "the card of the upstream agent cannot be refreshed; keeping the last one"
                );
            }
            // Logged once: an upstream that is down for hours would fill the log.
            Err(_) => {}
        }
    }
}

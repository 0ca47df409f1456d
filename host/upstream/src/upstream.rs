//! The connection to the upstream: its card, kept up to date, and the calls to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use annex_agent::UpstreamContext;
use annex_client::{Agent, Client, ClientConfig, ClientError, ParameterError, ServiceParameters};
use annex_fairness::{current_tenant, of_same_tenant};
use annex_protocol::AgentCard;
use http::HeaderMap;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::breaker::Breaker;
use crate::config::{ConfigError, Fields, UpstreamConfig};

/// The first pause between two attempts to get the card; each one after it is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The reason that there is no upstream agent to begin with.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The config cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its card cannot be had, or names no interface that may be used.
    #[error("the upstream agent at {card} cannot be used")]
    Agent {
        /// The URL of its card.
        card: String,
        /// The cause.
        #[source]
        source: ClientError,
    },
}

/// An upstream agent.
pub(crate) struct Upstream {
    pub(crate) config: UpstreamConfig,
    breaker: Breaker,
    /// False when it did not answer what it was asked last: a message, or for its card.
    answers: AtomicBool,
    fields: Fields,
    client: Client,
    /// By the card as it is now.
    agent: RwLock<Arc<Agent>>,
    card: watch::Sender<Arc<AgentCard>>,
}

impl Upstream {
    /// Asks for the card until it comes or the time for it is over, and from then on from time to time.
    pub(crate) async fn connect(config: UpstreamConfig) -> Result<Arc<Self>, ConnectError> {
        // The process's TLS provider; whoever sends has installed it already or does so here.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let fields = config.fields()?;
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
        let upstream = Arc::new(Self { config, breaker, answers, fields, client, agent, card });
        // A weak reference, so that the task does not keep an upstream alive that nobody uses any more.
        tokio::spawn(of_same_tenant(keep_fresh(Arc::downgrade(&upstream), upstream.config.refresh)));
        Ok(upstream)
    }

    /// The agent by its present card.
    pub(crate) fn agent(&self) -> Arc<Agent> {
        // Cloned out of the lock: a call may take minutes, and a new card must not wait for it.
        Arc::clone(&self.agent.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The decision to call it at all.
    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Counts how a call ended.
    pub(crate) fn judge(&self, is_fault: bool) {
        self.answers.store(!is_fault, Ordering::Relaxed);
        if is_fault { self.breaker.failed() } else { self.breaker.succeeded() }
    }

    /// True if it answered what it was asked last, and is asked at all.
    pub(crate) fn is_reached(&self) -> bool {
        self.answers.load(Ordering::Relaxed) && !self.breaker.is_open()
    }

    /// The card, as it is and whenever it changes.
    pub(crate) fn card(&self) -> watch::Receiver<Arc<AgentCard>> {
        self.card.subscribe()
    }

    /// The parameters that travel beside a request: the credentials, the caller's fields that are let through, and the
    /// extensions.
    pub(crate) fn parameters(&self, remote: &UpstreamContext) -> Result<ServiceParameters, ParameterError> {
        let mut parameters = ServiceParameters::default();
        if let Some((name, value)) = self.fields.own.clone() {
            parameters.set_field(name, value)?;
        }
        let empty = HeaderMap::new();
        let headers = remote.headers.as_deref().unwrap_or(&empty);
        for name in &self.fields.forwarded {
            if let Some(value) = headers.get(name) {
                parameters.set_field(name.clone(), value.clone())?;
            }
        }
        for uri in &remote.extensions {
            parameters.activate(uri.clone())?;
        }
        Ok(parameters)
    }

    /// Asks for the card again. A new one that is faulty leaves the old one in force.
    async fn refresh(&self) -> Result<(), ClientError> {
        let document = self.client.card(&self.config.card).await?;
        // A card that has not changed wakes nobody who watches it.
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

/// The card without extensions that no client can ask for. Were a required one among them, every message would be refused;
/// the upstream itself decides what it does without.
fn usable(card: &AgentCard) -> AgentCard {
    let mut card = card.clone();
    card.capabilities.extensions.retain(|extension| {
        let can_be_asked_for = ServiceParameters::default().activate(extension.uri.clone());
        if let Err(error) = &can_be_asked_for {
            let (tenant, required) = (tenant(), extension.required);
            let tenant = tenant.as_deref();
            tracing::warn!(%error, tenant, required, "an extension on the card of the upstream agent is left out");
        }
        can_be_asked_for.is_ok()
    });
    card
}

/// The tenant for whom this is done, for the lines of the log that are about no request. The config's own agent has none.
fn tenant() -> Option<Arc<str>> {
    Some(current_tenant()).filter(|tenant| !tenant.is_empty())
}

fn client_config(config: &UpstreamConfig) -> ClientConfig {
    ClientConfig {
        bindings: config.binding.into_iter().collect(),
        connect_timeout: config.connect,
        card_timeout: config.idle.min(Duration::from_secs(10)),
        // By bytes: what keeps a connection alive says that the upstream works. The limit of the turn ends that.
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
        tracing::warn!(%error, tenant = tenant().as_deref(), "the upstream agent is not there yet; it is tried again");
        sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Tells whether waiting may help: the upstream is still starting.
fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::TimedOut { .. } | ClientError::Broken { .. } => true,
        ClientError::NotServed { .. } => true,
        ClientError::NoCard { status, .. } => status.is_server_error(),
        _ => false,
    }
}

/// Ends with the upstream.
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
                    "the card of the upstream agent cannot be refreshed; the last one stays in force"
                );
            }
            // Said once: an upstream that is away for hours would fill the log.
            Err(_) => {}
        }
    }
}

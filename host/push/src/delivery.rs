//! One event to one receiver: attempts, until one succeeds or another would be of no use.

use std::error::Error;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use annex_egress::{Refused, Screen, retry_after};
use annex_protocol::TaskPushNotificationConfig;
use reqwest::header::{CONTENT_TYPE, HeaderName};
use reqwest::{Client, StatusCode};
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::invalid::InvalidConfig;
use crate::notifier::{Event, NotifierConfig};
use crate::slots::Slots;
use crate::target::Target;

/// Names the task and the number of the event, so that a receiver knows one that comes again.
const EVENT_ID: HeaderName = HeaderName::from_static("annex-event-id");

pub(crate) struct Delivery {
    /// A reload of the config changes it.
    gate: RwLock<Arc<Gate>>,
    timeout: Duration,
    attempts: u32,
    backoff: Backoff,
    slots: Slots,
}

/// The rule for the addresses that may be called, and the client that keeps to it.
struct Gate {
    client: Client,
    screen: Screen,
}

impl Gate {
    fn new(screen: Screen, timeout: Duration) -> Result<Arc<Self>, reqwest::Error> {
        let client = Client::builder()
            .user_agent(Delivery::USER_AGENT)
            .timeout(timeout)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(Delivery::IDLE_CONNECTION);
        // The screen looks at each address that is connected to, and no redirect is followed: a name that was public at its
        // registration may lead into the network by now.
        Ok(Arc::new(Self { client: screen.guard(client).build()?, screen }))
    }
}

/// A rule for the addresses that may be called, which is not in force yet.
pub struct PreparedScreen(Arc<Gate>);

/// The reason that an event was given up.
#[derive(Debug)]
pub(crate) struct GivenUp {
    /// Scheme, host and port of the receiver; `None` when its URL was refused.
    pub(crate) origin: Option<String>,
    pub(crate) attempts: u32,
    pub(crate) failure: Failure,
}

/// The reason that an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the config may not be used")]
    Refused(#[source] InvalidConfig),
    #[error("the receiver answered {status}")]
    Status { status: StatusCode, retry_after: Option<Duration> },
    #[error("the receiver did not answer")]
    Transport(#[source] reqwest::Error),
}

impl Delivery {
    /// The bytes that are read of an answer, so that its connection can be used again; its content does not matter.
    const MAX_ANSWER: usize = 4 * 1024;
    const IDLE_CONNECTION: Duration = Duration::from_secs(15);
    const USER_AGENT: &str = concat!("annex/", env!("CARGO_PKG_VERSION"));

    pub(crate) fn new(config: &NotifierConfig) -> Result<Self, reqwest::Error> {
        // The whole process uses one provider; somebody else may have installed it already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self {
            gate: RwLock::new(Gate::new(config.screen.clone(), config.timeout)?),
            timeout: config.timeout,
            attempts: config.attempts,
            backoff: config.backoff,
            slots: Slots::new(config.max_concurrent, config.max_concurrent_per_host),
        })
    }

    /// Makes another rule for addresses.
    pub(crate) fn prepare_screen(&self, screen: Screen) -> Result<PreparedScreen, reqwest::Error> {
        Ok(PreparedScreen(Gate::new(screen, self.timeout)?))
    }

    /// Judges addresses by another rule from the next attempt on.
    pub(crate) fn set_screen(&self, prepared: PreparedScreen) {
        *self.gate.write().unwrap_or_else(PoisonError::into_inner) = prepared.0;
    }

    fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) async fn check(&self, config: &TaskPushNotificationConfig) -> Result<(), InvalidConfig> {
        let gate = self.gate();
        Target::of(config, &gate.screen)?;
        Ok(gate.screen.check(&config.url).await?)
    }

    pub(crate) async fn deliver(&self, config: &TaskPushNotificationConfig, event: &Event) -> Result<(), GivenUp> {
        // The config is checked again, whatever was found when it was registered.
        let mut attempts = 0;
        loop {
            // For each attempt: the rule may be another one by now.
            let gate = self.gate();
            let target = Target::of(config, &gate.screen).map_err(|refused| GivenUp {
                origin: None,
                attempts,
                failure: Failure::Refused(refused),
            })?;
            attempts += 1;
            let Err(failure) = self.attempt(&gate.client, &target, event).await else { return Ok(()) };
            if attempts >= self.attempts || !failure.is_transient() {
                return Err(GivenUp { origin: Some(target.origin()), attempts, failure });
            }
            sleep(self.backoff.delay(attempts, fastrand::f64(), failure.retry_after())).await;
        }
    }

    /// A slot is held for the attempt alone, not between attempts.
    async fn attempt(&self, client: &Client, target: &Target, event: &Event) -> Result<(), Failure> {
        let _slot = self.slots.acquire(target.url.authority()).await;
        let request = client.post(target.url.clone()).headers(target.headers.clone());
        let request = request.header(CONTENT_TYPE, event.media_type.clone());
        let request = event.id.iter().fold(request, |request, id| request.header(EVENT_ID, id));
        let request = request.body(event.body.clone());
        let mut answer = request.send().await.map_err(Failure::of_transport)?;
        let status = answer.status();
        let retry_after = retry_after(answer.headers(), SystemTime::now());
        // The connection is free for another event only when the answer was read. One with more ends the connection: the
        // status has decided already.
        annex_egress::beginning(&mut answer, Self::MAX_ANSWER).await;
        if status.is_success() { Ok(()) } else { Err(Failure::Status { status, retry_after }) }
    }
}

impl Failure {
    /// The screen refuses from within the client, at the bottom of its error.
    fn of_transport(error: reqwest::Error) -> Self {
        let refused = causes(&error).find_map(|cause| cause.downcast_ref::<Refused>()).cloned();
        refused.map_or_else(|| Self::Transport(error.without_url()), |refused| Self::Refused(refused.into()))
    }

    /// Tells whether the next attempt may end otherwise.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            // A name that does not resolve now may do so later. Any other refusal stays.
            Self::Refused(refused) => matches!(refused, InvalidConfig::Url(Refused::UnknownName { .. })),
            Self::Status { status, .. } => {
                status.is_server_error()
                    || matches!(
                        *status,
                        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
                    )
            }
            // A request that could not be built will not be built the next time either.
            Self::Transport(error) => !error.is_builder(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Refused(_) | Self::Transport(_) => None,
        }
    }

    /// The failure and its causes in one line. A receiver may have a say in some of them, so the line is bounded.
    pub(crate) fn line(&self) -> String {
        const MAX_CHARS: usize = 300;
        let texts: Vec<String> =
            std::iter::once(self.to_string()).chain(causes(self).map(ToString::to_string)).collect();
        texts.join(": ").chars().take(MAX_CHARS).collect()
    }
}

/// The causes below an error, from the top.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

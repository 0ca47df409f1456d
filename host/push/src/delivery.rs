//! Delivers one event to one receiver: retries until an attempt succeeds or the failure is permanent.

use std::error::Error;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use annex_egress::{Screen, UrlRefusal, retry_after};
use annex_protocol::TaskPushNotificationConfig;
use annex_telemetry::traces::{Span, SpanKind};
use reqwest::header::{CONTENT_TYPE, HeaderName};
use reqwest::{Client, StatusCode};
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::invalid::InvalidConfig;
use crate::notifier::{Event, NotifierConfig};
use crate::slots::Slots;
use crate::target::Target;

/// Header with the task id and the number of the event, so that a receiver recognises an event that is sent again.
const EVENT_ID: HeaderName = HeaderName::from_static("annex-event-id");

pub(crate) struct Delivery {
    /// The screen, and the HTTP client that applies it. A reload of the config replaces both.
    gate: RwLock<Arc<Gate>>,
    timeout: Duration,
    attempts: u32,
    backoff: Backoff,
    slots: Slots,
}

/// The screen for addresses and the HTTP client that applies it.
struct Gate {
    client: Client,
    screen: Screen,
}

impl Gate {
    fn new(screen: Screen, timeout: Duration) -> Result<Arc<Self>, reqwest::Error> {
        let client = annex_egress::client_builder(Vec::new())
            .user_agent(Delivery::USER_AGENT)
            .timeout(timeout)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(Delivery::IDLE_CONNECTION);
        // The screen checks the address of each connection, and redirects are not followed: a host name that was
        // public at registration may resolve to a private address by now.
        Ok(Arc::new(Self { client: screen.guard(client).build()?, screen }))
    }
}

/// A screen that is ready for [`Notifier::set_screen`](crate::Notifier::set_screen).
pub struct PreparedScreen(Arc<Gate>);

/// The reason why an event was given up.
#[derive(Debug)]
pub(crate) struct GivenUp {
    /// Scheme, host and port of the receiver; `None` if its URL was refused.
    pub(crate) origin: Option<String>,
    pub(crate) attempts: u32,
    pub(crate) failure: Failure,
}

/// The reason why an attempt failed.
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
    /// Maximum number of bytes that are read from an answer. The content is ignored. An answer that was read to its end
    /// leaves the connection open for the next event.
    const MAX_ANSWER: usize = 4 * 1024;
    const IDLE_CONNECTION: Duration = Duration::from_secs(15);
    const USER_AGENT: &str = concat!("annex/", env!("CARGO_PKG_VERSION"));

    pub(crate) fn new(config: &NotifierConfig) -> Result<Self, reqwest::Error> {
        Ok(Self {
            gate: RwLock::new(Gate::new(config.screen.clone(), config.timeout)?),
            timeout: config.timeout,
            attempts: config.attempts,
            backoff: config.backoff,
            slots: Slots::new(config.max_concurrent, config.max_concurrent_per_host),
        })
    }

    /// Builds the HTTP client for a new screen.
    pub(crate) fn prepare_screen(&self, screen: Screen) -> Result<PreparedScreen, reqwest::Error> {
        Ok(PreparedScreen(Gate::new(screen, self.timeout)?))
    }

    /// Replaces the screen. The next attempt uses the new screen.
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
        // The config was checked at registration and is checked again here.
        let mut attempts = 0;
        loop {
            // Read before each attempt, because the screen may have been replaced.
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

    /// Makes one attempt. Holds a slot during the attempt, so that no slot is held between attempts.
    async fn attempt(&self, client: &Client, target: &Target, event: &Event) -> Result<(), Failure> {
        let _slot = self.slots.acquire(target.url.authority()).await;
        let mut span = event.trace.span(SpanKind::Client, "push");
        let sent = self.post(client, target, event, &mut span).await;
        if let Err(failure) = &sent {
            span.fail(failure.kind());
        }
        sent
    }

    async fn post(&self, client: &Client, target: &Target, event: &Event, span: &mut Span) -> Result<(), Failure> {
        let mut fields = target.headers.clone();
        span.insert_into(&mut fields);
        span.set("http.request.method", "POST");
        span.set_text("server.address", target.url.host_str().unwrap_or_default());
        let request = client.post(target.url.clone()).headers(fields);
        let request = request.header(CONTENT_TYPE, event.media_type.clone());
        let request = event.id.iter().fold(request, |request, id| request.header(EVENT_ID, id));
        let request = request.body(event.body.clone());
        let mut answer = request.send().await.map_err(Failure::of_transport)?;
        let status = answer.status();
        span.set("http.response.status_code", i64::from(status.as_u16()));
        let retry_after = retry_after(answer.headers(), SystemTime::now());
        // The connection can be reused only after the answer was read. A longer answer closes the connection; only
        // the status matters.
        annex_egress::beginning(&mut answer, Self::MAX_ANSWER).await;
        if status.is_success() { Ok(()) } else { Err(Failure::Status { status, retry_after }) }
    }
}

impl Failure {
    /// Converts an error of the HTTP client. If the screen refused the address, its refusal is at the bottom of the
    /// error chain.
    fn of_transport(error: reqwest::Error) -> Self {
        let refused = causes(&error).find_map(|cause| cause.downcast_ref::<UrlRefusal>()).cloned();
        refused.map_or_else(|| Self::Transport(error.without_url()), |refused| Self::Refused(refused.into()))
    }

    /// The kind of the failure in one word.
    fn kind(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Status { .. } => "status",
            Self::Transport(_) => "transport",
        }
    }

    /// True if another attempt may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            // A name that does not resolve now may resolve later. Other refusals are permanent.
            Self::Refused(refused) => matches!(refused, InvalidConfig::Url(UrlRefusal::UnknownName { .. })),
            Self::Status { status, .. } => {
                status.is_server_error()
                    || matches!(
                        *status,
                        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
                    )
            }
            // A request that could not be built once cannot be built later.
            Self::Transport(error) => !error.is_builder(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Refused(_) | Self::Transport(_) => None,
        }
    }

    /// The failure and its causes in one line, at most 300 characters, because receivers can influence the text.
    pub(crate) fn line(&self) -> String {
        const MAX_CHARS: usize = 300;
        let texts: Vec<String> =
            std::iter::once(self.to_string()).chain(causes(self).map(ToString::to_string)).collect();
        texts.join(": ").chars().take(MAX_CHARS).collect()
    }
}

/// The causes of an error, outermost first.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

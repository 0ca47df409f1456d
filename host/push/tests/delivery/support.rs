//! Receivers for tests, and short functions to send events.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annex_egress::{Resolver, Screen, ScreenConfig};
use annex_protocol::TaskPushNotificationConfig;
use annex_push::{Backoff, Event, Notifier, NotifierConfig};
use async_trait::async_trait;
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

/// Timeout of steps that succeed quickly if they succeed at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An HTTP server that records its requests.
pub(crate) struct Receiver {
    pub(crate) port: u16,
    requests: mpsc::UnboundedReceiver<ReceivedRequest>,
}

pub(crate) struct ReceivedRequest {
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// An answer: status and headers.
pub(crate) type Reply = (u16, &'static [(&'static str, &'static str)]);

impl Receiver {
    /// Answers 200.
    pub(crate) async fn start() -> Self {
        Self::scripted([]).await
    }

    /// Gives these answers in order, then 200.
    pub(crate) async fn scripted(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::serve(replies.into_iter().collect(), Semaphore::MAX_PERMITS).await.0
    }

    /// Answers 200 to one request per permit of the semaphore.
    pub(crate) async fn gated() -> (Self, Arc<Semaphore>) {
        Self::serve(VecDeque::new(), 0).await
    }

    async fn serve(replies: VecDeque<Reply>, permits: usize) -> (Self, Arc<Semaphore>) {
        let (sender, requests) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(permits));
        let replies = Arc::new(Mutex::new(replies));
        let inner_gate = Arc::clone(&gate);
        let handler = async move |headers: HeaderMap, body: String| {
            sender.send(ReceivedRequest { headers, body }).ok();
            inner_gate.acquire().await.unwrap().forget();
            let (status, headers) = replies.lock().unwrap().pop_front().unwrap_or((200, &[]));
            let headers: HeaderMap =
                headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            (StatusCode::from_u16(status).unwrap(), headers, "noted")
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(axum::serve(listener, Router::new().fallback(handler)).into_future());
        (Self { port, requests }, gate)
    }

    pub(crate) fn config(&self, id: &str) -> Arc<TaskPushNotificationConfig> {
        config(id, &format!("http://127.0.0.1:{}/hook", self.port))
    }

    pub(crate) async fn next(&mut self) -> ReceivedRequest {
        tokio::time::timeout(PATIENCE, self.requests.recv()).await.expect("a request in time").unwrap()
    }

    pub(crate) async fn bodies(&mut self, count: usize) -> Vec<String> {
        let mut bodies = Vec::new();
        while bodies.len() < count {
            bodies.push(self.next().await.body);
        }
        bodies
    }

    /// Bodies that have arrived and were not read yet.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.requests.try_recv().ok()).map(|request| request.body).collect()
    }
}

/// Accepts connections and never answers.
pub(crate) struct DeadReceiver(std::net::TcpListener);

impl DeadReceiver {
    pub(crate) fn start() -> Self {
        Self(std::net::TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    pub(crate) fn config(&self, id: &str) -> Arc<TaskPushNotificationConfig> {
        config(id, &format!("http://127.0.0.1:{}/", self.port()))
    }

    /// True if a client has connected.
    pub(crate) fn was_called(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        self.0.accept().is_ok()
    }
}

/// A resolver that returns these results in order, and repeats the last one. An empty result means that the name is
/// unknown.
#[derive(Default)]
pub(crate) struct ScriptedNames(Mutex<VecDeque<Vec<IpAddr>>>);

impl ScriptedNames {
    pub(crate) fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        Arc::new(Self(Mutex::new(answers.iter().map(parse).collect())))
    }
}

#[async_trait]
impl Resolver for ScriptedNames {
    async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        answer.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

pub(crate) fn screen_allowing(allow: &[&str], names: Arc<dyn Resolver>) -> Screen {
    let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
    Screen::with_resolver(ScreenConfig { allow, https_only: false }, names)
}

/// Settings for tests: allow loopback, resolve no names, hardly wait between attempts, and give up after three
/// attempts.
pub(crate) fn quick() -> NotifierConfig {
    NotifierConfig {
        backoff: Backoff { base: Duration::from_millis(1), max: Duration::from_millis(2) },
        attempts: 3,
        ..NotifierConfig::new(screen_allowing(&["127.0.0.0/8"], ScriptedNames::new(&[])))
    }
}

pub(crate) fn notifier() -> Notifier {
    Notifier::new(&quick()).unwrap()
}

pub(crate) fn config(id: &str, url: &str) -> Arc<TaskPushNotificationConfig> {
    Arc::new(TaskPushNotificationConfig { id: Some(id.to_owned()), url: url.to_owned(), ..Default::default() })
}

pub(crate) fn update(text: &str) -> Event {
    Event::update(text.into())
}

pub(crate) fn last(text: &str) -> Event {
    Event::last(text.into())
}

pub(crate) fn send(notifier: &Notifier, config: &Arc<TaskPushNotificationConfig>, event: &Event) {
    notifier.send(&"task".into(), std::slice::from_ref(config), event);
}

/// Waits until all sent events are delivered, given up or dropped.
pub(crate) async fn settled(notifier: &Notifier) {
    let settle = async {
        while notifier.queues() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, settle).await.expect("all events settle in time");
}

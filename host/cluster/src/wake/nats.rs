//! Core subjects of NATS: where more is told than every process can read from PostgreSQL. Nothing is stored there.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, ServerAddr, Subscriber};
use futures::StreamExt;
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, timeout};

use super::hints::{Heard, Readers, WakeError};
use super::outbox::Outbox;
use super::shared::SharedWake;

/// The subject of all processes.
const SUBJECT: &str = "annex.wake";
/// The longest wait for a connection, and for this process's own greeting.
const PATIENCE: Duration = Duration::from_secs(5);

impl SharedWake {
    /// Hears and tells from now on. `urls` has one or several, with commas between them: `nats://user:password@host:port`,
    /// or `tls://` with the certificate authorities of the machine.
    ///
    /// # Errors
    /// When one is no URL, none of them is reached, or the subject `annex.wake` is forbidden.
    pub async fn over_nats(urls: &str) -> Result<Self, WakeError> {
        let outbox = Arc::new(Outbox::new());
        let readers = Readers::new();
        let servers = urls.split(',').map(|url| url.trim().parse());
        let servers: Vec<ServerAddr> = servers.collect::<io::Result<_>>().map_err(failed)?;
        let mut options = options(&outbox, &readers);
        if let Some((user, password)) = servers.iter().find_map(|server| server.username().zip(server.password())) {
            options = options.user_and_password(decoded(user), decoded(password));
        }
        let servers = servers.into_iter().map(without_credentials).collect::<io::Result<Vec<_>>>().map_err(failed)?;
        let connecting = timeout(PATIENCE, options.connect(servers)).await;
        let client = connecting.map_err(failed)?.map_err(failed)?;
        let mut subscriber = client.subscribe(SUBJECT).await.map_err(failed)?;
        greet(&client, &mut subscriber, &outbox).await?;
        let hearing = hear_for_ever(subscriber, Arc::clone(&outbox), readers.clone());
        let telling = tell_for_ever(client, Arc::clone(&outbox));
        Ok(Self::new(outbox, readers, hearing, telling))
    }
}

/// The client connects again by itself, with pauses of a few seconds at most.
fn options(outbox: &Arc<Outbox>, readers: &Readers) -> ConnectOptions {
    let outbox = Arc::clone(outbox);
    let readers = readers.clone();
    ConnectOptions::new().name("annex").connection_timeout(PATIENCE).event_callback(move |event| {
        match event {
            Event::Connected | Event::SlowConsumer(_) => {
                // Nobody knows what was told meanwhile.
                outbox.is_joined();
                readers.hear(Heard::Lost);
            }
            Event::Disconnected => {
                tracing::warn!("NATS is lost; other processes are looked after each second meanwhile");
            }
            other => tracing::warn!(event = %other, "NATS"),
        }
        async {}
    })
}

/// Tells, and waits to hear it.
async fn greet(client: &Client, subscriber: &mut Subscriber, outbox: &Outbox) -> Result<(), WakeError> {
    let greeting = outbox.greeting();
    let heard = async {
        client.publish(SUBJECT, greeting.clone().into()).await.map_err(failed)?;
        client.flush().await.map_err(failed)?;
        while let Some(message) = subscriber.next().await {
            if message.payload == greeting.as_bytes() {
                return Ok(());
            }
        }
        Err(WakeError::Forbidden { subject: SUBJECT })
    };
    timeout(PATIENCE, heard).await.unwrap_or(Err(WakeError::Forbidden { subject: SUBJECT }))
}

async fn hear_for_ever(mut subscriber: Subscriber, outbox: Arc<Outbox>, readers: Readers) {
    while let Some(message) = subscriber.next().await {
        let text = String::from_utf8_lossy(&message.payload);
        if let Some(hints) = outbox.read(&text).filter(|hints| !hints.is_empty()) {
            readers.hear(Heard::Hints(hints.into()));
        }
    }
}

/// It costs little where nobody else is there, so that is not asked.
async fn tell_for_ever(client: Client, outbox: Arc<Outbox>) {
    let mut last = Instant::now();
    loop {
        for text in outbox.batch(last).await {
            if let Err(error) = client.publish(SUBJECT, text.into()).await {
                tracing::debug!(%error, "other processes cannot be told of changes");
            }
        }
        last = Instant::now();
    }
}

/// The client writes the URLs of its servers to the log.
fn without_credentials(server: ServerAddr) -> io::Result<ServerAddr> {
    let mut url = server.into_inner();
    // A URL that cannot have them has none.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    ServerAddr::from_url(url)
}

/// As it was before it became a part of a URL.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn failed(error: impl Error + Send + Sync + 'static) -> WakeError {
    WakeError::Nats(Box::new(error))
}

//! Wake-ups over a core subject of NATS, for more hints than every process can read from PostgreSQL. NATS stores no hint.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, ServerAddr, Subscriber};
use futures::StreamExt;
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, timeout};

use super::hints::{Notice, Readers, WakeError};
use super::outbox::Outbox;
use super::shared::SharedWake;

/// The subject of all processes.
const SUBJECT: &str = "annex.wake";
/// The longest wait for a connection or the greeting of this process.
const PATIENCE: Duration = Duration::from_secs(5);

impl SharedWake {
    /// Sends and receives hints from now on. `urls` is one URL, or several with commas between them:
    /// `nats://user:password@host:port`, or `tls://` with the certificate authorities of the machine.
    ///
    /// # Errors
    /// When a URL is invalid, no server answers, or the subject `annex.wake` is forbidden.
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
        let receiving = receive_for_ever(subscriber, Arc::clone(&outbox), readers.clone());
        let sending = send_for_ever(client, Arc::clone(&outbox));
        Ok(Self::new(outbox, readers, receiving, sending))
    }
}

/// The client connects again by itself, with pauses of a few seconds at most.
fn options(outbox: &Arc<Outbox>, readers: &Readers) -> ConnectOptions {
    let outbox = Arc::clone(outbox);
    let readers = readers.clone();
    ConnectOptions::new().name("annex").connection_timeout(PATIENCE).event_callback(move |event| {
        match event {
            Event::Connected | Event::SlowConsumer(_) => {
                // Hints of the time without a connection are lost.
                outbox.is_joined();
                readers.send(Notice::Lost);
            }
            Event::Disconnected => {
                tracing::warn!("NATS is lost; tasks of other processes are polled each second until it is back");
            }
            other => tracing::warn!(event = %other, "NATS"),
        }
        async {}
    })
}

/// Publishes the greeting and waits until the subscriber receives it.
async fn greet(client: &Client, subscriber: &mut Subscriber, outbox: &Outbox) -> Result<(), WakeError> {
    let greeting = outbox.greeting();
    let greeting_arrives = async {
        client.publish(SUBJECT, greeting.clone().into()).await.map_err(failed)?;
        client.flush().await.map_err(failed)?;
        while let Some(message) = subscriber.next().await {
            if message.payload == greeting.as_bytes() {
                return Ok(());
            }
        }
        Err(WakeError::Forbidden { subject: SUBJECT })
    };
    timeout(PATIENCE, greeting_arrives).await.unwrap_or(Err(WakeError::Forbidden { subject: SUBJECT }))
}

async fn receive_for_ever(mut subscriber: Subscriber, outbox: Arc<Outbox>, readers: Readers) {
    while let Some(message) = subscriber.next().await {
        let text = String::from_utf8_lossy(&message.payload);
        if let Some(hints) = outbox.read(&text).filter(|hints| !hints.is_empty()) {
            readers.send(Notice::Hints(hints.into()));
        }
    }
}

/// Sends hints also where no other process exists: this costs little, so nothing asks for other processes.
async fn send_for_ever(client: Client, outbox: Arc<Outbox>) {
    let mut last = Instant::now();
    loop {
        for text in outbox.batch(last).await {
            if let Err(error) = client.publish(SUBJECT, text.into()).await {
                tracing::debug!(%error, "hints cannot be sent");
            }
        }
        last = Instant::now();
    }
}

/// The client writes the URLs of its servers to the log.
fn without_credentials(server: ServerAddr) -> io::Result<ServerAddr> {
    let mut url = server.into_inner();
    // Setting fails only for a URL that can have no credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    ServerAddr::from_url(url)
}

/// The text without the percent-encoding of URLs.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn failed(error: impl Error + Send + Sync + 'static) -> WakeError {
    WakeError::Nats(Box::new(error))
}

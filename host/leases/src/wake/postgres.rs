//! Wake-ups over LISTEN and NOTIFY.
//!
//! NOTIFY never runs in the transaction that stores an event. The commit would otherwise take a lock that all other commits
//! wait for. One connection listens, and another connection notifies. No request waits for these connections.

use std::sync::Arc;
use std::time::Duration;

use annex_database::{Database, PostgresConnections, PostgresDatabase, Value};
use futures::future::BoxFuture;
use sqlx::Executor;
use sqlx::postgres::PgListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::hints::{Hints, Notice, Readers, Wake, WakeError};
use super::outbox::Outbox;
use crate::living_replicas;

/// The name of the channel that all processes on a database use.
const CHANNEL: &str = "annex_wake";
/// The longest wait for a connection, a statement, or the greeting of this process.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause after a failure to listen or to notify.
const RETRY: Duration = Duration::from_secs(1);
/// The time without a notification after which a statement checks the listening connection.
const SILENCE: Duration = Duration::from_secs(15);

/// Notifies the other processes. Returns no row if this process is alone.
const TELL: &str = concat!(
    "
    SELECT pg_notify('annex_wake', $1)
    WHERE (SELECT count(*) FROM ",
    living_replicas!(),
    " AS living) > 1"
);

const GREET: &str = "SELECT pg_notify('annex_wake', $1)";

/// Wake-ups over a PostgreSQL database: an outbox, readers, and two tokio tasks, one that sends and one that receives.
#[derive(Debug)]
pub struct PostgresWake {
    outbox: Arc<Outbox>,
    readers: Readers,
    /// The tokio tasks that receive and send hints. Both end when this value is dropped.
    work: [JoinHandle<()>; 2],
}

impl PostgresWake {
    /// Starts to send and receive hints over further connections to `direct`, which must not go through a pooler that shares
    /// connections. `tasks` is the database that requests use. Fails unless a notification that is sent over `tasks` arrives at
    /// `direct`.
    ///
    /// # Errors
    /// When no notification arrives within five seconds.
    pub fn open<'a>(
        tasks: &'a PostgresConnections,
        direct: &'a PostgresConnections,
    ) -> BoxFuture<'a, Result<Self, WakeError>> {
        Box::pin(async move {
            let late = |_| sqlx::Error::PoolTimedOut;
            let listening = timeout(PATIENCE, direct.listen(CHANNEL)).await;
            let mut listener = listening.map_err(late).flatten().map_err(WakeError::Connect)?;
            let outbox = Arc::new(Outbox::new());
            // Other processes receive the greeting too, and send their hints from then on.
            greet(&mut listener, &tasks.beside(1, PATIENCE), &outbox).await?;
            let readers = Readers::new();
            let receiving = receive_for_ever(listener, direct.clone(), Arc::clone(&outbox), readers.clone());
            let sending = send_for_ever(direct.beside(1, PATIENCE), Arc::clone(&outbox));
            Ok(Self { outbox, readers, work: [tokio::spawn(receiving), tokio::spawn(sending)] })
        })
    }
}

impl Wake for PostgresWake {
    fn tell(&self, id: &str, seq: u64) {
        self.outbox.put(id, seq);
    }

    fn hints(&self) -> Hints {
        self.readers.hints()
    }
}

impl Drop for PostgresWake {
    fn drop(&mut self) {
        for work in &self.work {
            work.abort();
        }
    }
}

/// Sends the greeting over a connection of `tasks`, and waits until `listener` receives it.
async fn greet(listener: &mut PgListener, tasks: &PostgresDatabase, outbox: &Outbox) -> Result<(), WakeError> {
    let greeting = outbox.greeting();
    let greeting_arrives = async {
        tasks.change(GREET, &[Value::Text(&greeting)]).await.map_err(WakeError::Notify)?;
        loop {
            match listener.try_recv().await.map_err(WakeError::Connect)? {
                Some(notification) if notification.payload() == greeting => return Ok(()),
                Some(_) => {}
                None => return Err(WakeError::Deaf),
            }
        }
    };
    let arrived = timeout(PATIENCE, greeting_arrives).await.unwrap_or(Err(WakeError::Deaf));
    tasks.close().await;
    arrived
}

async fn receive_for_ever(
    mut listener: PgListener,
    direct: PostgresConnections,
    outbox: Arc<Outbox>,
    readers: Readers,
) {
    loop {
        receive(&mut listener, &outbox, &readers).await;
        tracing::warn!(
            "the connection that listens to other processes is lost; their tasks are polled each second until it is back"
        );
        listener = loop {
            match timeout(PATIENCE, direct.listen(CHANNEL)).await {
                Ok(Ok(listener)) => break listener,
                Ok(Err(error)) => tracing::debug!(%error, "the connection that listens to other processes fails"),
                Err(_) => {}
            }
            sleep(RETRY).await;
        };
        tracing::info!("the connection that listens to other processes is back");
        // Hints of the time without a connection are lost.
        outbox.is_joined();
        readers.send(Notice::Lost);
    }
}

/// Receives hints until the connection is lost.
async fn receive(listener: &mut PgListener, outbox: &Outbox, readers: &Readers) {
    loop {
        match timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => {
                let Some(hints) = outbox.read(notification.payload()) else { continue };
                outbox.is_joined();
                if !hints.is_empty() {
                    readers.send(Notice::Hints(hints.into()));
                }
            }
            Ok(Ok(None) | Err(_)) => return,
            // A network that drops all packets also looks like silence.
            Err(_) => match timeout(PATIENCE, listener.execute("SELECT 1")).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return,
            },
        }
    }
}

async fn send_for_ever(database: PostgresDatabase, outbox: Arc<Outbox>) {
    let mut last = Instant::now();
    let mut is_well = true;
    loop {
        for text in outbox.batch(last).await {
            let told = timeout(PATIENCE, database.change(TELL, &[Value::Text(&text)])).await;
            match told.map_err(|_| sqlx::Error::PoolTimedOut).flatten() {
                Ok(rows) if rows.is_empty() => {
                    is_well = true;
                    outbox.wait_for_company().await;
                    break;
                }
                Ok(_) => is_well = true,
                Err(error) => {
                    if is_well {
                        tracing::warn!(%error, "hints cannot be sent; other processes poll the database");
                    }
                    is_well = false;
                    sleep(RETRY).await;
                    break;
                }
            }
        }
        last = Instant::now();
    }
}

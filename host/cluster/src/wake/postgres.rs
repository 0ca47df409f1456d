//! LISTEN and NOTIFY.
//!
//! Never in the transaction of what is told: its commit would take a lock that all other commits wait for. One connection
//! hears, another one tells, and no request waits for either.

use std::sync::Arc;
use std::time::Duration;

use annex_database::{Database, PostgresConnections, PostgresDatabase, Value};
use sqlx::Executor;
use sqlx::postgres::PgListener;
use tokio::time::{Instant, sleep, timeout};

use super::hints::{Heard, Readers, WakeError};
use super::outbox::Outbox;
use super::shared::SharedWake;

/// The channel of all processes on a database.
const CHANNEL: &str = "annex_wake";
/// The longest wait for a connection, for a statement, and for this process's own greeting.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time until it is tried again to hear, or to tell.
const RETRY: Duration = Duration::from_secs(1);
/// After so long without a word the connection that hears is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(15);

/// Tells nothing, and returns no row, where no other process is there to hear. The table is that of the leases.
const TELL: &str = "
    SELECT pg_notify('annex_wake', $1)
    WHERE (SELECT count(*) FROM replica WHERE lease_until > clock_timestamp()) > 1";

const GREET: &str = "SELECT pg_notify('annex_wake', $1)";

impl SharedWake {
    /// Hears and tells from now on, over connections of its own to `direct`. `tasks` is the database as requests reach it:
    /// what is notified there has to be heard.
    ///
    /// # Errors
    /// When it is not.
    pub async fn over_postgres(tasks: &PostgresConnections, direct: &PostgresConnections) -> Result<Self, WakeError> {
        let late = |_| sqlx::Error::PoolTimedOut;
        let listening = timeout(PATIENCE, direct.listen(CHANNEL)).await;
        let mut listener = listening.map_err(late).flatten().map_err(WakeError::Connect)?;
        let outbox = Arc::new(Outbox::new());
        // Others hear it too, and know that there is somebody to tell.
        greet(&mut listener, &tasks.beside(1, PATIENCE), &outbox).await?;
        let readers = Readers::new();
        let hearing = hear_for_ever(listener, direct.clone(), Arc::clone(&outbox), readers.clone());
        let telling = tell_for_ever(direct.beside(1, PATIENCE), Arc::clone(&outbox));
        Ok(Self::new(outbox, readers, hearing, telling))
    }
}

/// Notifies over one connection and waits for the other one to hear it.
async fn greet(listener: &mut PgListener, tasks: &PostgresDatabase, outbox: &Outbox) -> Result<(), WakeError> {
    let greeting = outbox.greeting();
    let heard = async {
        tasks.change(GREET, &[Value::Text(&greeting)]).await.map_err(WakeError::Notify)?;
        loop {
            match listener.try_recv().await.map_err(WakeError::Connect)? {
                Some(notification) if notification.payload() == greeting => return Ok(()),
                Some(_) => {}
                None => return Err(WakeError::Deaf),
            }
        }
    };
    let heard = timeout(PATIENCE, heard).await.unwrap_or(Err(WakeError::Deaf));
    tasks.close().await;
    heard
}

async fn hear_for_ever(mut listener: PgListener, direct: PostgresConnections, outbox: Arc<Outbox>, readers: Readers) {
    loop {
        hear(&mut listener, &outbox, &readers).await;
        tracing::warn!(
            "the connection that hears of other processes is lost; they are looked after each second meanwhile"
        );
        listener = loop {
            match timeout(PATIENCE, direct.listen(CHANNEL)).await {
                Ok(Ok(listener)) => break listener,
                Ok(Err(error)) => tracing::debug!(%error, "other processes are not heard"),
                Err(_) => {}
            }
            sleep(RETRY).await;
        };
        tracing::info!("other processes are heard again");
        // Nobody knows what was told meanwhile.
        outbox.is_joined();
        readers.hear(Heard::Lost);
    }
}

/// Returns when the connection is lost.
async fn hear(listener: &mut PgListener, outbox: &Outbox, readers: &Readers) {
    loop {
        match timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => {
                let Some(hints) = outbox.read(notification.payload()) else { continue };
                outbox.is_joined();
                if !hints.is_empty() {
                    readers.hear(Heard::Hints(hints.into()));
                }
            }
            Ok(Ok(None) | Err(_)) => return,
            // A network that swallows everything looks like this, too.
            Err(_) => match timeout(PATIENCE, listener.execute("SELECT 1")).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return,
            },
        }
    }
}

async fn tell_for_ever(database: PostgresDatabase, outbox: Arc<Outbox>) {
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
                        tracing::warn!(%error, "other processes cannot be told of changes and look by themselves");
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

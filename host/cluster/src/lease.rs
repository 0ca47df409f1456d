//! This process among others that work on one database.
//!
//! Each start is a replica of its own, a row with a lease. Tasks and messages name the replica that works on them, and only
//! the work of one whose lease is over is anybody else's. The clock is that of the database: those of the machines are never
//! compared. A process whose lease is not renewed ends it by its own clock a second before the database does, and is another
//! replica once the database answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use annex_database::{Database, PostgresDatabase, Value};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};

use crate::statements::{
    BEGIN_LEASE, DESCRIBE, END_LEASE, END_NAMED_LEASE, FORGET_REPLICAS, LIST, NAMED_LEASE, RENEW_LEASE,
};
use crate::{Description, ListedReplica, Replica};

/// The length of a lease, as in the statements.
const LEASE: Duration = Duration::from_secs(5);
/// The time without a renewal after which a process takes its lease for over, by its own clock, before others may.
const SELF_STOP: Duration = Duration::from_secs(4);
/// The time between two renewals: two of them may fail.
const RENEWAL: Duration = Duration::from_millis(1_250);
/// The time from one that has failed to the next.
const RENEW_AGAIN: Duration = Duration::from_millis(200);
/// The longest wait for one, so that the next is made in time.
const PATIENCE: Duration = Duration::from_secs(1);
/// A second one where the first hangs.
const CONNECTIONS: u32 = 2;

/// The lease of this process, renewed until it is dropped.
#[derive(Debug)]
pub struct Lease {
    held: Arc<Held>,
    /// The work that renews it, and the work that ends it where that fails.
    keepers: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Held {
    database: PostgresDatabase,
    name: Option<String>,
    standing: Mutex<LeaseStanding>,
    /// The replica that this process is about to be, while it is not known whether the database has it: one that it has is the
    /// same when it is tried again.
    next: Mutex<Option<Replica>>,
    /// Told when the process has become another replica.
    began: Notify,
    said: Mutex<Said>,
}

/// What the process says of itself.
#[derive(Debug, Default)]
struct Said {
    description: Option<Description>,
    /// The replica whose row has it.
    written_for: Option<Replica>,
}

#[derive(Debug)]
struct LeaseStanding {
    replica: Replica,
    /// The time when the last renewal that succeeded was asked for: the lease lasts a little longer than from then on.
    renewed: Instant,
    /// Since when there was no moment without a lease.
    unbroken_since: Instant,
}

impl Lease {
    /// Begins a lease and renews it from now on, over connections that nobody else uses. A replica of the same name is the
    /// one that this process takes the place of, so its lease ends.
    ///
    /// # Errors
    /// When the database fails, or has no table of replicas.
    pub async fn begin(database: &PostgresDatabase, name: Option<&str>) -> sqlx::Result<Self> {
        let database = database.beside(CONNECTIONS, PATIENCE);
        let now = Instant::now();
        // That of a process that starts counts as unbroken: it has kept no other waiting.
        let unbroken_since = now.checked_sub(LEASE).unwrap_or(now);
        let standing = LeaseStanding { replica: Replica::new(), renewed: now, unbroken_since };
        let own_name = name.map(ToOwned::to_owned);
        let standing = Mutex::new(standing);
        let held = Held {
            database,
            name: own_name,
            standing,
            next: Mutex::default(),
            began: Notify::new(),
            said: Mutex::default(),
        };
        if let Some(name) = name {
            held.database.change(END_NAMED_LEASE, &[Value::Text(name)]).await?;
        }
        held.insert(&held.replica(), name).await?;
        let held = Arc::new(held);
        let mut keepers = JoinSet::new();
        keepers.spawn(renew_for_ever(Arc::clone(&held)));
        keepers.spawn(stop_in_time(Arc::clone(&held)));
        Ok(Self { held, keepers: Mutex::new(keepers) })
    }

    /// The replica that this process is now.
    #[must_use]
    pub fn replica(&self) -> Replica {
        self.held.replica()
    }

    /// True while the process is this replica and nobody can take its lease for over: at this moment, also after a time in
    /// which the process stood still.
    #[must_use]
    pub fn holds(&self, replica: &Replica) -> bool {
        let standing = self.held.standing();
        standing.replica.id() == replica.id() && !replica.is_over() && standing.renewed.elapsed() < SELF_STOP
    }

    /// True if this process may judge the leases of others. After a time without a lease of its own it waits for as long
    /// as a lease takes: the database was away, and the others have to get to it first.
    #[must_use]
    pub fn may_judge(&self) -> bool {
        let standing = self.held.standing();
        !standing.replica.is_over() && standing.unbroken_since.elapsed() >= LEASE
    }

    /// Has other processes and operators see this of the process from now on. It is written with the next renewal of the lease.
    pub fn describe(&self, description: Description) {
        *self.held.said() = Said { description: Some(description), written_for: None };
    }

    /// The processes on the database, the oldest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn replicas(&self) -> sqlx::Result<Vec<ListedReplica>> {
        let rows = self.held.database.read(LIST, &[]).await?;
        rows.iter().map(ListedReplica::of_row).collect()
    }

    /// Forgets replicas that have not been heard of for an hour.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget_gone(&self) -> sqlx::Result<()> {
        self.held.database.change(FORGET_REPLICAS, &[]).await.map(drop)
    }

    /// Ends the lease. What this process still works on is for the others.
    pub async fn end(&self) {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        let replica = self.replica();
        replica.end();
        if let Err(error) = self.held.database.change(END_LEASE, &[Value::Text(replica.id())]).await {
            tracing::warn!(%error, "the lease of this process could not be ended and runs out by itself");
        }
        self.held.database.close().await;
    }
}

impl LeaseStanding {
    /// Notes a renewal that was asked for then. Returns false where the lease was over before it came.
    fn renew(&mut self, asked: Instant) -> bool {
        let is_over = self.replica.is_over();
        if !is_over {
            self.renewed = asked;
        }
        !is_over
    }
}

async fn renew_for_ever(held: Arc<Held>) {
    let mut renewals = interval(RENEWAL);
    renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_renewed = true;
    loop {
        renewals.tick().await;
        let renewed = match timeout(PATIENCE, held.renew()).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                held.tell_once(was_renewed, &error.to_string());
                false
            }
            Err(_) => {
                held.tell_once(was_renewed, "it does not answer");
                false
            }
        };
        if !renewed {
            renewals.reset_after(RENEW_AGAIN);
        }
        was_renewed = renewed;
    }
}

/// Ends the lease by the clock of this process, where the database does not renew it in time.
async fn stop_in_time(held: Arc<Held>) {
    loop {
        let due = held.standing().renewed + SELF_STOP;
        sleep_until(due.into()).await;
        if held.is_stopped() {
            held.began.notified().await;
        }
    }
}

impl Held {
    /// Ends the lease of this process if it has not been renewed for too long. Returns true if it is over.
    fn is_stopped(&self) -> bool {
        let standing = self.standing();
        if standing.renewed.elapsed() < SELF_STOP {
            return false;
        }
        standing.replica.end();
        tracing::warn!(
            replica = standing.replica.id(),
            "the lease of this process was not renewed for four seconds: its turns stop, and others take over its tasks"
        );
        true
    }

    async fn renew(&self) -> sqlx::Result<()> {
        let asked = Instant::now();
        let replica = self.replica();
        if !replica.is_over() && !self.database.change(RENEW_LEASE, &[Value::Text(replica.id())]).await?.is_empty() {
            // One that came too late is none: turns of this replica have been stopped.
            if self.standing().renew(asked) {
                self.write_description(&replica).await;
                return Ok(());
            }
        }
        self.begin_again(&replica).await
    }

    /// Writes what the process says of itself, unless the row of the replica has it. That it fails is no harm: the next renewal
    /// writes it.
    async fn write_description(&self, replica: &Replica) {
        let description = {
            let said = self.said();
            let is_written = said.written_for.as_ref().is_some_and(|written| written.id() == replica.id());
            said.description.clone().filter(|_| !is_written)
        };
        let Some(description) = description else { return };
        let Description { version, address, phase } = &description;
        let values = [Value::Text(replica.id()), Value::Text(version), Value::Text(address), Value::Text(phase)];
        if self.database.change(DESCRIBE, &values).await.is_ok() {
            let mut said = self.said();
            // It may say something else by now.
            if said.description.as_ref() == Some(&description) {
                said.written_for = Some(replica.clone());
            }
        }
    }

    /// The lease is over, by a start under the same name or because it was not renewed in time, so this process is another
    /// replica from now on, and what the former one worked on is anybody's. Its name stays with whoever has it now: two
    /// processes of one name would end each other's leases by turns.
    async fn begin_again(&self, ended: &Replica) -> sqlx::Result<()> {
        ended.end();
        self.database.change(END_LEASE, &[Value::Text(ended.id())]).await?;
        let replica = self.next().get_or_insert_with(Replica::new).clone();
        let mut name = self.name.as_deref();
        if let Some(taken) = name
            && !self.database.read(NAMED_LEASE, &[Value::Text(taken), Value::Text(replica.id())]).await?.is_empty()
        {
            name = None;
            tracing::error!(
                replica = taken,
                "another process has started under replica.name and has failed what this one worked on; this one goes on \
                 without a name: give each process a name of its own"
            );
        }
        let now = Instant::now();
        self.insert(&replica, name).await?;
        *self.next() = None;
        tracing::warn!(
            ended = ended.id(),
            began = replica.id(),
            "the lease of this process was ended, and it has begun another"
        );
        *self.standing() = LeaseStanding { replica, renewed: now, unbroken_since: now };
        self.began.notify_one();
        Ok(())
    }

    async fn insert(&self, replica: &Replica, name: Option<&str>) -> sqlx::Result<()> {
        self.database.change(BEGIN_LEASE, &[Value::Text(replica.id()), Value::MaybeText(name)]).await.map(drop)
    }

    fn replica(&self) -> Replica {
        self.standing().replica.clone()
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> MutexGuard<'_, Option<Replica>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self) -> MutexGuard<'_, LeaseStanding> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each renewal that fails after another one has failed is left out of the log.
    fn tell_once(&self, is_first: bool, reason: &str) {
        if is_first {
            tracing::warn!(reason, "the database does not renew the lease of this process");
        }
    }
}

//! The lease of this process.
//!
//! Each start of a process is a replica with a row of its own. Each task and each claimed message names the replica
//! that works on it. Another process may take over only the work of a replica whose lease ended.
//!
//! Two clocks take part. The clock of the database decides whether a lease is valid, so clocks of machines are never
//! compared. The clock of tokio decides when this process renews its lease and when it stops. A process that cannot
//! renew its lease ends the lease by its own clock, a second before the lease ends in the database. When the database
//! answers again, the process becomes another replica. Tests set both clocks: a schema of the test database replaces
//! `clock_timestamp()`, and the clock of tokio is paused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_database::{Database, OpenError, PostgresConnections, PostgresDatabase, Value};
use futures::future::{BoxFuture, LocalBoxFuture};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::statements::{
    BEGIN_LEASE, DESCRIBE, END_LEASE, END_NAMED_LEASE, FORGET_PLACES, FORGET_REPLICAS, LIST, NAMED_LEASE, RENEW_LEASE,
};
use crate::{Description, ListedReplica, MIGRATIONS, Replica, distance};

/// The length of a lease, as in the statements.
const LEASE: Duration = Duration::from_secs(5);
/// The time after the last renewal at which a process ends its lease itself. Other processes take over a second later.
const SELF_STOP: Duration = Duration::from_secs(4);
/// The time between two renewals. Two renewals may fail before the process ends its lease.
const RENEWAL: Duration = Duration::from_millis(1_250);
/// The pause between a failed renewal and the next attempt.
const RENEW_AGAIN: Duration = Duration::from_millis(200);
/// The longest time of one attempt to renew. After an attempt that takes this long, another attempt can still renew the lease
/// in time.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number of connections for a lease. The second connection is used if the first connection hangs.
const CONNECTIONS: u32 = 2;

/// The lease of this process. It is renewed in the background until this value is dropped.
#[derive(Debug)]
pub struct Lease {
    keeper: Arc<LeaseKeeper>,
    /// The background work: renews the lease, and ends the lease if the renewals fail.
    work: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct LeaseKeeper {
    database: PostgresDatabase,
    name: Option<String>,
    standing: Mutex<LeaseStanding>,
    /// The replica that this process is about to become. Set until the database answers that the lease has begun. Each attempt
    /// to begin the lease uses this id, so the database never has two replicas of this process.
    next: Mutex<Option<Replica>>,
    /// Notified when the process becomes another replica.
    began: Notify,
    announcement: Mutex<Announcement>,
}

/// The description of this process, and the replica whose row contains the description.
#[derive(Debug, Default)]
struct Announcement {
    description: Option<Description>,
    written_for: Option<Replica>,
}

#[derive(Debug)]
struct LeaseStanding {
    replica: Replica,
    /// The time at which this process requested the last successful renewal. The database renewed the lease after this time, so
    /// the lease lasts at least five seconds from this time on.
    renewed: Instant,
    /// The time since which this process has had a lease without a break.
    unbroken_since: Instant,
}

impl Lease {
    /// Creates missing tables, begins a lease, and renews the lease over connections of its own. This process takes the place
    /// of an earlier replica with the same name, whose lease ends.
    ///
    /// # Errors
    /// The errors of [`PostgresDatabase::open`]. Also fails when the database is too far away to renew a lease in time.
    pub fn open<'a>(
        connections: &'a PostgresConnections,
        name: Option<&'a str>,
    ) -> LocalBoxFuture<'a, Result<Self, OpenError>> {
        Box::pin(async move {
            distance::check(connections).await?;
            PostgresDatabase::open(connections, MIGRATIONS).await?;
            let keeper = LeaseKeeper::new(connections.beside(CONNECTIONS, PATIENCE), name);
            if let Some(name) = name {
                keeper.database.change(END_NAMED_LEASE, &[Value::Text(name)]).await?;
            }
            keeper.insert(&keeper.replica(), name).await?;
            let keeper = Arc::new(keeper);
            let mut work = JoinSet::new();
            work.spawn(renew_for_ever(Arc::clone(&keeper)));
            work.spawn(stop_in_time(Arc::clone(&keeper)));
            Ok(Self { keeper, work: Mutex::new(work) })
        })
    }

    /// The replica that this process is now.
    #[must_use]
    pub fn replica(&self) -> Replica {
        self.keeper.replica()
    }

    /// True while this process is `replica` and no other process may take over its work. The answer is correct even if this
    /// process was suspended just before the call.
    #[must_use]
    pub fn holds(&self, replica: &Replica) -> bool {
        let standing = self.keeper.standing();
        standing.replica.id() == replica.id() && !replica.is_over() && standing.renewed.elapsed() < SELF_STOP
    }

    /// True if this process may take over the work of replicas whose leases ended. A process that was without a lease
    /// first waits for the length of a lease. If the database was unreachable, the other processes were without leases
    /// too. They get this time to begin leases again.
    #[must_use]
    pub fn may_judge(&self) -> bool {
        let standing = self.keeper.standing();
        !standing.replica.is_over() && standing.unbroken_since.elapsed() >= LEASE
    }

    /// Describes this process to other processes and to operators. The next renewal writes the description.
    pub fn describe(&self, description: Description) {
        *self.keeper.announcement() = Announcement { description: Some(description), written_for: None };
    }

    /// The replicas in the database, the oldest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn replicas(&self) -> sqlx::Result<Vec<ListedReplica>> {
        let rows = self.keeper.database.read(LIST, &[]).await?;
        rows.iter().map(ListedReplica::of_row).collect()
    }

    /// Deletes replicas whose leases ended more than an hour ago. Also deletes the turn places of all replicas without a valid
    /// lease.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget_gone(&self) -> sqlx::Result<()> {
        self.keeper.database.change(FORGET_REPLICAS, &[]).await?;
        self.keeper.database.change(FORGET_PLACES, &[]).await.map(drop)
    }

    /// Ends the lease. Other processes may then take over the work of this process.
    pub fn end(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.work.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
            let replica = self.replica();
            replica.end();
            if let Err(error) = self.keeper.database.change(END_LEASE, &[Value::Text(replica.id())]).await {
                tracing::warn!(%error, "the lease of this process could not be ended and runs out by itself");
            }
            self.keeper.database.close().await;
        })
    }
}

async fn renew_for_ever(keeper: Arc<LeaseKeeper>) {
    let mut renewals = interval(RENEWAL);
    renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_renewed = true;
    loop {
        renewals.tick().await;
        let failure = match timeout(PATIENCE, keeper.renew()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it does not answer".to_owned()),
        };
        if let Some(reason) = &failure {
            renewals.reset_after(RENEW_AGAIN);
            // One line for a row of failures.
            if was_renewed {
                tracing::warn!(reason, "the database does not renew the lease of this process");
            }
        }
        was_renewed = failure.is_none();
    }
}

/// Ends the lease by the clock of this process if the renewals fail.
async fn stop_in_time(keeper: Arc<LeaseKeeper>) {
    loop {
        let due = keeper.standing().renewed + SELF_STOP;
        sleep_until(due).await;
        if keeper.is_stopped() {
            keeper.began.notified().await;
        }
    }
}

impl LeaseKeeper {
    fn new(database: PostgresDatabase, name: Option<&str>) -> Self {
        let now = Instant::now();
        // A process that starts has kept no other process waiting, so its time without a break counts as long enough.
        let unbroken_since = now.checked_sub(LEASE).unwrap_or(now);
        Self {
            database,
            name: name.map(ToOwned::to_owned),
            standing: Mutex::new(LeaseStanding { replica: Replica::new(), renewed: now, unbroken_since }),
            next: Mutex::default(),
            began: Notify::new(),
            announcement: Mutex::default(),
        }
    }

    /// Ends the lease if the last renewal is too long ago. Returns true if the lease has ended.
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
            // An answer after the end of the lease does not count: the turns of this replica stopped.
            if self.standing().renew(asked) {
                self.write_description(&replica).await;
                return Ok(());
            }
        }
        self.begin_again(&replica).await
    }

    /// Writes the description of this process to the row of the replica, unless the row has the description. After a failure,
    /// the next renewal tries again.
    async fn write_description(&self, replica: &Replica) {
        let description = {
            let announcement = self.announcement();
            let is_written = announcement.written_for.as_ref().is_some_and(|written| written.id() == replica.id());
            announcement.description.clone().filter(|_| !is_written)
        };
        let Some(description) = description else { return };
        let Description { version, address, phase } = &description;
        let values = [Value::Text(replica.id()), Value::Text(version), Value::Text(address), Value::Text(phase)];
        if self.database.change(DESCRIBE, &values).await.is_ok() {
            let mut announcement = self.announcement();
            // The process may have another description by now.
            if announcement.description.as_ref() == Some(&description) {
                announcement.written_for = Some(replica.clone());
            }
        }
    }

    /// Makes this process another replica. Called when a renewal came too late, or when another process started under
    /// the same name as this one. Other processes may take over the work of the former replica. The process that
    /// started later keeps the name: two processes with one name would end each other's leases again and again.
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

    fn announcement(&self) -> MutexGuard<'_, Announcement> {
        self.announcement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> MutexGuard<'_, Option<Replica>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self) -> MutexGuard<'_, LeaseStanding> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseStanding {
    /// Records a renewal that was requested at `asked`. Returns false if the lease ended before the answer came.
    fn renew(&mut self, asked: Instant) -> bool {
        let is_over = self.replica.is_over();
        if !is_over {
            self.renewed = asked;
        }
        !is_over
    }
}

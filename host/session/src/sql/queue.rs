//! The queue of turns of a session, which all processes on one database share.
//!
//! The row of the session holds the queue. The turns of a process that has ended stay in the row. A turn behind such a
//! turn removes it once the lease of its replica has ended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use annex_database::{Database, Row, Value, from_sql, may_pass};
use annex_fairness::of_same_tenant;
use annex_leases::Replica;
use annex_protocol::Timestamp;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::values::named;
use super::{queue_statements, read, session, session_values, statements};
use crate::SessionError;
use crate::event_log::EventFilter;
use crate::place::{Joined, TurnPlace};
use crate::session::SessionKey;

/// The time until a turn that waits looks for the first time.
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// The longest time between two polls.
const LAST_LOOK: Duration = Duration::from_millis(500);
/// The time until a turn that could not leave tries again.
const LEAVE_AGAIN: Duration = Duration::from_millis(500);
/// The times after which a turn leaves once more whose joining failed: the database may have it later.
const DOUBTS: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(20), Duration::from_secs(200)];
/// The age at which queue rows of ended processes are deleted.
const LEFT_BEHIND: Duration = Duration::from_secs(60 * 60);

/// Tells which replica this process is now.
pub(super) type OwnReplica = Arc<dyn Fn() -> Replica + Send + Sync>;

/// The queues of the sessions in one database.
pub(super) struct Queue<D> {
    database: Arc<D>,
    replica: OwnReplica,
}

/// Where a turn stands in the queue.
enum Standing {
    First,
    /// Behind one whose replica has its lease.
    Behind,
    BehindOneThatIsGone,
    Nowhere,
}

impl<D> fmt::Debug for Queue<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl<D: Database> Queue<D> {
    pub(super) fn new(database: Arc<D>, replica: OwnReplica) -> Self {
        Self { database, replica }
    }

    /// A place for a turn that comes now.
    pub(super) fn place(&self) -> TurnPlace {
        TurnPlace::new((self.replica)())
    }

    /// Joins the queue and reads the session, in one statement.
    pub(super) async fn join(
        &self,
        key: &SessionKey,
        place: &TurnPlace,
        filter: EventFilter,
    ) -> Result<Joined, SessionError> {
        let database = Arc::clone(&self.database);
        let key = key.clone();
        let own = place.clone();
        to_its_end(place, async move { join(database.as_ref(), &key, &own, filter).await }).await
    }

    /// Joins the end of the queue, where the turn cannot run yet.
    pub(super) async fn line_up(&self, key: &SessionKey, place: &TurnPlace) -> Result<(), SessionError> {
        let database = Arc::clone(&self.database);
        let key = key.clone();
        let own = place.clone();
        to_its_end(place, async move {
            let [tenant, app, user, context] = named(&key);
            let now = Value::Int(Timestamp::now().as_millis());
            let values = [tenant, app, user, context, now, Value::Text(own.member()), Value::Text(own.replica().id())];
            let rows = enter(database.as_ref(), &own, (queue_statements::LINE_UP, &values)).await?;
            rows.first().map(drop).ok_or_else(|| fenced(&key))
        })
        .await
    }

    /// Waits until the turn is the first one. `hint` makes it look at once.
    pub(super) async fn wait(&self, key: &SessionKey, place: &TurnPlace, hint: &Notify) -> Result<(), SessionError> {
        let mut next_look = FIRST_LOOK;
        loop {
            // Nobody has to give a hint.
            let _ = timeout(next_look, hint.notified()).await;
            let standing = match self.standing(key, place).await {
                // The turn keeps its place while the database is away for a moment.
                Err(SessionError::Database(error)) if may_pass(&error) && !place.replica().is_over() => continue,
                standing => standing?,
            };
            match standing {
                Standing::First => return Ok(()),
                Standing::Behind => next_look = LAST_LOOK.min(next_look.mul_f32(1.5)),
                Standing::BehindOneThatIsGone => {
                    let [tenant, app, user, context] = named(key);
                    let values = [tenant, app, user, context, Value::Text(place.replica().id())];
                    self.database.change(queue_statements::REMOVE_GONE, &values).await?;
                    next_look = FIRST_LOOK;
                }
                // The session was deleted, or somebody has found the lease of this replica to be over. Then it is refused.
                Standing::Nowhere => {
                    if let Joined::Runs(_) = self.join(key, place, EventFilter::NONE).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The turn that runs goes in front of those of its process that stand before it, and is the first one then. They have come
    /// while it began a new session, or late. Returns false where it is not the first, or its session is not as it was.
    pub(super) async fn goes_in_front(&self, key: &SessionKey, place: &TurnPlace, revision: u64) -> bool {
        if place.replica().is_over() {
            return false;
        }
        // One that is out of the queue stays out: others may have deleted the session and made it again.
        let is_in = !matches!(self.standing(key, place).await, Ok(Standing::Nowhere) | Err(_));
        (is_in || revision == 0)
            && matches!(
                self.join(key, place, EventFilter::NONE).await,
                Ok(Joined::Runs(session)) if session.revision == revision
            )
    }

    async fn standing(&self, key: &SessionKey, place: &TurnPlace) -> Result<Standing, SessionError> {
        let [tenant, app, user, context] = named(key);
        let values = [tenant, app, user, context, Value::Text(place.member())];
        let rows = self.database.read(queue_statements::SELECT_PLACE, &values).await?;
        let Some(row) = rows.first() else { return Ok(Standing::Nowhere) };
        Ok(match (row.int(0)?, row.int(1)?) {
            (1, _) => Standing::First,
            (0, _) => Standing::Nowhere,
            (_, 0) => Standing::BehindOneThatIsGone,
            _ => Standing::Behind,
        })
    }

    /// Removes the turn from the queue, and retries through any outage of the database. If this replica has lost its
    /// lease, the other processes remove the turn.
    pub(super) async fn leave(&self, key: &SessionKey, place: &TurnPlace) {
        let _joined = place.lock().await;
        while let Err(error) = leave(self.database.as_ref(), key, place).await {
            let is_closed = matches!(error, sqlx::Error::PoolClosed);
            if is_closed || (self.replica)().id() != place.replica().id() {
                return;
            }
            tracing::debug!(%error, "a turn cannot leave its queue yet");
            sleep(LEAVE_AGAIN).await;
        }
        place.set_in(false);
        if place.is_doubtful() {
            let database = Arc::clone(&self.database);
            tokio::spawn(of_same_tenant(leave_for_good(database, key.clone(), place.clone())));
        }
    }

    /// Deletes the queue rows that ended processes have left behind.
    pub(super) async fn sweep(&self) -> Result<(), SessionError> {
        let left_behind = i64::try_from(LEFT_BEHIND.as_millis()).unwrap_or(i64::MAX);
        let before = Timestamp::now().as_millis().saturating_sub(left_behind);
        self.database.change(queue_statements::FORGET_QUEUES, &[Value::Int(before)]).await?;
        Ok(())
    }
}

/// Runs `joins` to its end, even if the caller is dropped, because the turn must not leave before it has joined.
async fn to_its_end<T: Send + 'static>(
    place: &TurnPlace,
    joins: impl Future<Output = Result<T, SessionError>> + Send + 'static,
) -> Result<T, SessionError> {
    let joining = place.lock().await;
    // Before the task has begun: from here on it may be in the queue.
    place.set_in(true);
    let joined = tokio::spawn(of_same_tenant(async move {
        let joined = joins.await;
        drop(joining);
        joined
    }));
    joined.await.map_err(|_| sqlx::Error::WorkerCrashed)?
}

/// Runs a statement with which a turn joins.
async fn enter<D: Database>(
    database: &D,
    place: &TurnPlace,
    (sql, values): (&'static str, &[Value<'_>]),
) -> Result<Vec<D::Row>, SessionError> {
    Ok(database.change(sql, values).await.inspect_err(|_| place.doubt())?)
}

fn fenced(key: &SessionKey) -> SessionError {
    SessionError::Fenced { context: key.context.clone() }
}

async fn join<D: Database>(
    database: &D,
    key: &SessionKey,
    place: &TurnPlace,
    filter: EventFilter,
) -> Result<Joined, SessionError> {
    let mut values = session_values(key, filter);
    let now = Value::Int(Timestamp::now().as_millis());
    values.extend([now, Value::Text(place.member()), Value::Text(place.replica().id())]);
    let join = match filter.max_bytes {
        Some(_) => statements::JOIN_SESSION_WITHIN,
        None => statements::JOIN_SESSION,
    };
    let rows = enter(database, place, (join, &values)).await?;
    let Some(joined) = rows.iter().find(|row| row.int(0).is_ok_and(|kind| kind == statements::JOINED_ROW)) else {
        return Err(fenced(key));
    };
    if joined.text(1)? != place.member() {
        return Ok(Joined::Waits);
    }
    let revision = from_sql::<u64>(joined.int(3)?);
    let mut found = session(key.clone(), &rows)?;
    if found.revision != revision {
        // The last turn left in the meantime, and the rows are of before. From now on nobody else appends.
        found = read(database, key, filter).await?;
    }
    Ok(Joined::Runs(Box::new(found)))
}

async fn leave<D: Database>(database: &D, key: &SessionKey, place: &TurnPlace) -> sqlx::Result<()> {
    let [tenant, app, user, context] = named(key);
    let values = [tenant, app, user, context, Value::Text(place.member())];
    let left = database.change(queue_statements::LEAVE, &values).await?;
    let Some(row) = left.first() else { return Ok(()) };
    if (row.int(0)?, row.int(1)?) == (0, 0) {
        // The turn was refused before it began the session.
        database.change(queue_statements::FORGET_QUEUE, &named(key)).await?;
    }
    Ok(())
}

/// Leaves again: the statement with which the turn joined was under way when its connection broke.
async fn leave_for_good<D: Database>(database: Arc<D>, key: SessionKey, place: TurnPlace) {
    for doubt in DOUBTS {
        sleep(doubt).await;
        if let Err(error) = leave(database.as_ref(), &key, &place).await {
            tracing::debug!(%error, "a turn cannot leave its queue for good yet");
        }
    }
}

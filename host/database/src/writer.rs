//! Groups changes of a store into transactions. If the database has one writer, changes that arrive while this writer
//! is busy are queued and stored in one transaction, which costs little more than one change.
//!
//! Most changes are a fixed list of statements. The statements of many changes go to the database in one round trip, assuming
//! that each statement changes the expected number of rows. If a statement changes another number of rows, the transaction is
//! rolled back and all changes are applied step by step. If a step fails too, each change is applied in its own transaction. If
//! the database has many writers, a change is one statement where possible.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_telemetry::enter_store;
use tokio::sync::oneshot;

use crate::{Database, Sql, Step, may_pass, outlast};

/// A change to store.
pub trait Change: Send + Sync + 'static {
    /// Result for the caller of [`Writer::store`].
    type Answer: Send + 'static;
    /// Why the change cannot be stored.
    type Error: From<sqlx::Error> + Send + 'static;

    /// The change as a fixed list of statements, with the answer if each statement changes the expected number of
    /// rows. `None` for a change that needs decisions in between.
    fn steps(&self) -> Option<(Vec<Step<'_>>, Self::Answer)>;

    /// Applies the change in a transaction, step by step. A refused change must not have changed anything.
    fn apply<D: Database>(
        &self,
        transaction: &mut D::Transaction,
    ) -> impl Future<Output = Result<Self::Answer, Self::Error>> + Send;

    /// The database error, after which the transaction cannot continue. `None` if the change was refused.
    fn failure(error: &Self::Error) -> Option<&sqlx::Error>;

    /// Called after an attempt whose failure leaves open whether the change was stored. The next attempt can then recognise
    /// its own rows.
    fn doubt(&self) {}
}

/// Stores changes of one kind in a database.
pub struct Writer<D, C: Change> {
    database: Arc<D>,
    queue: Arc<Queue<C>>,
}

type ChangeResult<C> = Result<<C as Change>::Answer, <C as Change>::Error>;

/// Changes that wait for the writer.
struct Queue<C: Change>(Mutex<WaitingChanges<C>>);

struct WaitingChanges<C: Change> {
    changes: Vec<(C, oneshot::Sender<ChangeResult<C>>)>,
    /// True while a tokio task serves the queue, or is about to.
    is_served: bool,
}

impl<D, C: Change> fmt::Debug for Writer<D, C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The changes hold client data, which must not be logged.
        formatter.debug_struct("Writer").field("waiting", &self.queue.lock().changes.len()).finish_non_exhaustive()
    }
}

impl<D: Database, C: Change> Writer<D, C> {
    /// Creates a writer for this database.
    pub fn new(database: Arc<D>) -> Self {
        let waiting = WaitingChanges { changes: Vec::new(), is_served: false };
        Self { database, queue: Arc::new(Queue(Mutex::new(waiting))) }
    }

    /// Stores the change, together with others in the queue where that is cheaper.
    ///
    /// # Errors
    /// The change is refused, or the database fails.
    pub async fn store(&self, change: C) -> Result<C::Answer, C::Error> {
        if !D::HAS_ONE_WRITER {
            return store_alone(self.database.as_ref(), &change, Way::Trips).await;
        }
        let (answer, answered) = oneshot::channel();
        if self.queue.add(change, answer) {
            // In a task of its own: if this caller is dropped, the changes of others must still be stored.
            tokio::spawn(serve(Arc::clone(&self.database), Arc::clone(&self.queue)));
        }
        let _stage = enter_store(D::SYSTEM, "write");
        answered.await.unwrap_or_else(|_| Err(sqlx::Error::WorkerCrashed.into()))
    }
}

impl<D: Database, C: Change> Writer<D, C> {
    /// Stores the change like [`store`](Self::store), and retries while a database with several writers is unreachable. Returns
    /// `None` if `over` resolves first.
    pub async fn store_until(&self, change: C, over: impl Future<Output = ()>) -> Option<ChangeResult<C>> {
        if D::HAS_ONE_WRITER {
            return Some(self.store(change).await);
        }
        let passes = |error: &C::Error| {
            change.doubt();
            C::failure(error).is_some_and(may_pass)
        };
        outlast(over, passes, || store_alone(self.database.as_ref(), &change, Way::Trips)).await
    }
}

impl<C: Change> Queue<C> {
    fn lock(&self) -> MutexGuard<'_, WaitingChanges<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change. Returns true if the caller must start serving the queue.
    fn add(&self, change: C, answer: oneshot::Sender<ChangeResult<C>>) -> bool {
        let mut waiting = self.lock();
        waiting.changes.push((change, answer));
        !mem::replace(&mut waiting.is_served, true)
    }

    /// Takes all queued changes. If there are none, the queue counts as not served from now on.
    fn take(&self) -> Vec<(C, oneshot::Sender<ChangeResult<C>>)> {
        let mut waiting = self.lock();
        waiting.is_served = !waiting.changes.is_empty();
        mem::take(&mut waiting.changes)
    }
}

async fn serve<D: Database, C: Change>(database: Arc<D>, queue: Arc<Queue<C>>) {
    loop {
        // Other tasks that are about to add changes run first, so that their changes join this transaction.
        tokio::task::yield_now().await;
        let taken = queue.take();
        if taken.is_empty() {
            return;
        }
        let (changes, answers): (Vec<C>, Vec<_>) = taken.into_iter().unzip();
        for (result, answer) in store_together(database.as_ref(), &changes).await.into_iter().zip(answers) {
            // Sending fails if the caller was dropped.
            let _ = answer.send(result);
        }
    }
}

async fn store_together<D: Database, C: Change>(database: &D, changes: &[C]) -> Vec<ChangeResult<C>> {
    for way in [Way::Trips, Way::Steps] {
        let (results, trips) = arranged(changes, way);
        if let [steps] = trips.as_slice()
            && results.iter().all(Option::is_some)
        {
            match database.execute_alone(steps).await {
                Ok(true) => return results.into_iter().flatten().map(Ok).collect(),
                // It may be stored although its answer is lost.
                Err(_) => changes.iter().for_each(Change::doubt),
                Ok(false) => {}
            }
            continue;
        }
        let begun = match database.begin_with(trips.first().map_or(&[], Vec::as_slice)).await {
            Ok(begun) => begun,
            // The writer cannot be acquired, so all changes fail.
            Err(error) => return changes.iter().map(|_| Err(repeated(&error).into())).collect(),
        };
        match in_one_transaction::<D, C>(begun, &trips, results, changes).await {
            Ok(Some(results)) => return results,
            // A single change that was applied step by step has no other way left.
            Err(error) if way == Way::Steps && changes.len() == 1 => return vec![Err(error)],
            Ok(None) | Err(_) => {}
        }
    }
    // One of the changes cannot be stored: apply each in its own transaction.
    let mut results = Vec::with_capacity(changes.len());
    for change in changes {
        results.push(store_alone(database, change, Way::Steps).await);
    }
    results
}

/// Copies the error for another change that failed for the same reason.
fn repeated(error: &sqlx::Error) -> sqlx::Error {
    sqlx::Error::Protocol(error.to_string())
}

/// The way in which a change is applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The fixed lists of statements of several changes go to the database together. Changes without such a list are
    /// applied step by step.
    Trips,
    /// Each change is applied by itself, step by step.
    Steps,
}

/// Groups the steps of the changes into round trips. Also returns the answer that each change will have. The answer is `None`
/// for a change that must be applied step by step.
fn arranged<C: Change>(changes: &[C], way: Way) -> (Vec<Option<C::Answer>>, Vec<Vec<Step<'_>>>) {
    let mut common = Vec::new();
    let mut answers = Vec::with_capacity(changes.len());
    for change in changes {
        let steps = if way == Way::Trips { change.steps() } else { None };
        answers.push(steps.map(|(steps, answer)| {
            common.push(steps);
            answer
        }));
    }
    (answers, trips(common))
}

/// Applies all changes and commits. Returns `None`, with nothing stored, if a statement changed an unexpected number
/// of rows.
async fn in_one_transaction<D: Database, C: Change>(
    (mut transaction, changed): (D::Transaction, sqlx::Result<Vec<u64>>),
    trips: &[Vec<Step<'_>>],
    answers: Vec<Option<C::Answer>>,
    changes: &[C],
) -> Result<Option<Vec<ChangeResult<C>>>, C::Error> {
    let mut changed = changed?;
    for (place, steps) in trips.iter().enumerate() {
        // The first round trip was sent with `BEGIN`.
        if place > 0 {
            changed = D::execute_all(&mut transaction, steps).await?;
        }
        if !steps.iter().map(|step| step.changes).eq(changed.iter().copied()) {
            return Ok(None);
        }
    }
    let mut all = Vec::with_capacity(changes.len());
    for (answer, change) in answers.into_iter().zip(changes) {
        all.push(match answer {
            Some(answer) => Ok(answer),
            None => match change.apply::<D>(&mut transaction).await {
                Err(error) if C::failure(&error).is_some() => return Err(error),
                result => result,
            },
        });
    }
    D::commit(transaction).await?;
    Ok(Some(all))
}

/// Maximum number of changes in one round trip. The database caches one prepared statement per number of changes.
const TRIP: usize = 16;

/// Groups the steps of changes into round trips.
fn trips(changes: Vec<Vec<Step<'_>>>) -> Vec<Vec<Step<'_>>> {
    let mut kinds: BTreeMap<Vec<(usize, usize)>, Vec<Vec<Step<'_>>>> = BTreeMap::new();
    for steps in changes {
        kinds.entry(steps.iter().map(Step::shape).collect()).or_default().push(steps);
    }
    let mut trips = Vec::new();
    for mut kind in kinds.into_values() {
        while !kind.is_empty() {
            trips.push(together(kind.drain(..TRIP.min(kind.len()))));
        }
    }
    trips
}

/// Merges changes of one kind: all first steps, then all second steps and so on. Insertions into one table become one
/// statement.
fn together<'a>(changes: impl Iterator<Item = Vec<Step<'a>>>) -> Vec<Step<'a>> {
    let mut changes: Vec<_> = changes.map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let mut steps = changes.iter_mut().filter_map(Iterator::next);
        let Some(mut first) = steps.next() else { return all };
        match first.sql {
            Sql::Whole(_) => {
                all.push(first);
                all.extend(steps);
            }
            Sql::Rows(_) => {
                for step in steps {
                    first.values.extend(step.values);
                    first.changes += step.changes;
                }
                all.push(first);
            }
        }
    }
}

async fn store_alone<D: Database, C: Change>(database: &D, change: &C, way: Way) -> ChangeResult<C> {
    if let Some((steps, answer)) = change.steps().filter(|_| way == Way::Trips) {
        match database.execute_alone(&steps).await {
            Ok(true) => return Ok(answer),
            Ok(false) => {}
            Err(_) => change.doubt(),
        }
    }
    // Applied step by step, the change returns why it is refused.
    let mut transaction = database.begin().await?;
    let answer = change.apply::<D>(&mut transaction).await?;
    D::commit(transaction).await?;
    Ok(answer)
}

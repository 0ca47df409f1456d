//! Changes of a store. Where a database has one writer, those that come while it is busy wait together and go in one
//! transaction, which costs little more than one of them alone.
//!
//! Most changes are made of statements that need no decision in between. Those of many changes go to the database in one
//! trip, in the hope that each changes the rows that it is to change. Where one does not, all is rolled back, and all
//! changes are made step by step; where that fails, each for itself. Where a database has many writers, a change is one
//! statement if it can be.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_telemetry::{Stage, enter};
use tokio::sync::oneshot;

use crate::{Database, Sql, Step, may_pass, outlast};

/// A change of a store, ready to be stored.
pub trait Change: Send + Sync + 'static {
    /// The answer to whoever wants the change.
    type Answer: Send + 'static;
    /// The reason why it cannot be stored.
    type Error: From<sqlx::Error> + Send + 'static;

    /// The change as statements that need no decision in between, and what whoever wants it is told once each of them
    /// has changed as many rows as it is to. `None` for a change that is less common.
    fn steps(&self) -> Option<(Vec<Step<'_>>, Self::Answer)>;

    /// Makes the change in a transaction, step by step. A change that is refused must have changed nothing.
    fn apply<D: Database>(
        &self,
        transaction: &mut D::Transaction,
    ) -> impl Future<Output = Result<Self::Answer, Self::Error>> + Send;

    /// The failure of the database, after which a transaction cannot go on; `None` for a change that was refused.
    fn failure(error: &Self::Error) -> Option<&sqlx::Error>;

    /// An attempt has failed, and nobody knows what was stored of it. For a change that the next attempt recognises as stored.
    fn doubt(&self) {}
}

/// Stores changes of one kind in a database.
pub struct Writer<D, C: Change> {
    database: Arc<D>,
    queue: Arc<Queue<C>>,
}

type Stored<C> = Result<<C as Change>::Answer, <C as Change>::Error>;

/// Changes that wait for the writer.
struct Queue<C: Change>(Mutex<Waiting<C>>);

struct Waiting<C: Change> {
    changes: Vec<(C, oneshot::Sender<Stored<C>>)>,
    /// True while somebody takes what is added.
    is_served: bool,
}

impl<D, C: Change> fmt::Debug for Writer<D, C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What clients sent is not for logs.
        formatter.debug_struct("Writer").field("waiting", &self.queue.lock().changes.len()).finish_non_exhaustive()
    }
}

impl<D: Database, C: Change> Writer<D, C> {
    /// A writer to this database.
    pub fn new(database: Arc<D>) -> Self {
        let waiting = Waiting { changes: Vec::new(), is_served: false };
        Self { database, queue: Arc::new(Queue(Mutex::new(waiting))) }
    }

    /// Stores the change, with others that wait where that is cheaper.
    ///
    /// # Errors
    /// When the change is refused or the database fails.
    pub async fn store(&self, change: C) -> Result<C::Answer, C::Error> {
        if !D::HAS_ONE_WRITER {
            return store_alone(self.database.as_ref(), &change, Way::Trips).await;
        }
        let (answer, answered) = oneshot::channel();
        if self.queue.add(change, answer) {
            // In a task of its own: a caller that goes away must not take the changes of others with it.
            tokio::spawn(serve(Arc::clone(&self.database), Arc::clone(&self.queue)));
        }
        let _stage = enter(Stage::Store);
        answered.await.unwrap_or_else(|_| Err(sqlx::Error::WorkerCrashed.into()))
    }
}

impl<D: Database, C: Change> Writer<D, C> {
    /// The same with a change that may be tried again: while a database with several writers is away, until `over` resolves.
    /// `None` then.
    pub async fn store_until(&self, change: C, over: impl Future<Output = ()>) -> Option<Stored<C>> {
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
    fn lock(&self) -> MutexGuard<'_, Waiting<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change. Returns true if the caller has to start serving the queue.
    fn add(&self, change: C, answer: oneshot::Sender<Stored<C>>) -> bool {
        let mut waiting = self.lock();
        waiting.changes.push((change, answer));
        !mem::replace(&mut waiting.is_served, true)
    }

    /// Takes all that wait. If none waits, the queue is no longer served.
    fn take(&self) -> Vec<(C, oneshot::Sender<Stored<C>>)> {
        let mut waiting = self.lock();
        waiting.is_served = !waiting.changes.is_empty();
        mem::take(&mut waiting.changes)
    }
}

async fn serve<D: Database, C: Change>(database: Arc<D>, queue: Arc<Queue<C>>) {
    loop {
        // Whoever else is about to change something does so first, and comes along.
        tokio::task::yield_now().await;
        let taken = queue.take();
        if taken.is_empty() {
            return;
        }
        let (changes, answers): (Vec<C>, Vec<_>) = taken.into_iter().unzip();
        for (result, answer) in store_together(database.as_ref(), &changes).await.into_iter().zip(answers) {
            // Whoever has gone away needs no answer.
            let _ = answer.send(result);
        }
    }
}

async fn store_together<D: Database, C: Change>(database: &D, changes: &[C]) -> Vec<Stored<C>> {
    for way in [Way::Trips, Way::Steps] {
        let (results, trips) = arranged(changes, way);
        let begun = match database.begin_with(trips.first().map_or(&[], Vec::as_slice)).await {
            Ok(begun) => begun,
            // The writer is not to be had, for none of them.
            Err(error) => return changes.iter().map(|_| Err(repeated(&error).into())).collect(),
        };
        match in_one_transaction::<D, C>(begun, &trips, results, changes).await {
            Ok(Some(results)) => return results,
            // It was alone already, so there is no other way left.
            Err(error) if way == Way::Steps && changes.len() == 1 => return vec![Err(error)],
            Ok(None) | Err(_) => {}
        }
    }
    // One of them is what cannot be stored: each for itself.
    let mut results = Vec::with_capacity(changes.len());
    for change in changes {
        results.push(store_alone(database, change, Way::Steps).await);
    }
    results
}

/// A copy of the error, for another change that it keeps from being stored.
fn repeated(error: &sqlx::Error) -> sqlx::Error {
    sqlx::Error::Protocol(error.to_string())
}

/// The way in which a change is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Together with others of its kind, if it is a common one.
    Trips,
    /// Step by step.
    Steps,
}

/// The answers to the changes that go in trips, and these trips. `None` for a change that is made step by step.
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

/// `None` when a change has to be made step by step. Nothing is stored then.
async fn in_one_transaction<D: Database, C: Change>(
    (mut transaction, changed): (D::Transaction, sqlx::Result<Vec<u64>>),
    trips: &[Vec<Step<'_>>],
    answers: Vec<Option<C::Answer>>,
    changes: &[C],
) -> Result<Option<Vec<Stored<C>>>, C::Error> {
    let mut changed = changed?;
    for (place, steps) in trips.iter().enumerate() {
        // The first one came with the beginning.
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

/// The most changes that go in one trip: a database keeps the statements of a trip by their text, one for each number.
const TRIP: usize = 16;

/// The steps of each trip.
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

/// The steps of changes of one kind: all first ones, all second ones and so on, and rows for one table in one.
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

async fn store_alone<D: Database, C: Change>(database: &D, change: &C, way: Way) -> Stored<C> {
    if let Some((steps, answer)) = change.steps().filter(|_| way == Way::Trips) {
        match database.execute_alone(&steps).await {
            Ok(true) => return Ok(answer),
            Ok(false) => {}
            Err(_) => change.doubt(),
        }
    }
    // Made step by step, the change says why it is refused.
    let mut transaction = database.begin().await?;
    let answer = change.apply::<D>(&mut transaction).await?;
    D::commit(transaction).await?;
    Ok(answer)
}

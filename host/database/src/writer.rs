//! Changes of a store. Where a database has one writer, those that come while it is busy wait together and go in one
//! transaction, which costs little more than one of them alone.

use std::fmt;
use std::future::Future;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::Database;

/// A change of a store, ready to be stored.
pub trait Change: Send + Sync + 'static {
    /// What whoever wants the change is told.
    type Answer: Send + 'static;
    /// Why it cannot be stored.
    type Error: From<sqlx::Error> + Send + 'static;

    /// Makes the change in a transaction. A change that is refused must have changed nothing.
    fn apply<D: Database>(
        &self,
        transaction: &mut D::Transaction,
    ) -> impl Future<Output = Result<Self::Answer, Self::Error>> + Send;

    /// Whether the change was refused, so that the transaction can go on. After other errors it cannot.
    fn is_refusal(error: &Self::Error) -> bool;
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
    /// Whether somebody takes what is added.
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
            return store_alone(self.database.as_ref(), &change).await;
        }
        let (answer, answered) = oneshot::channel();
        if self.queue.add(change, answer) {
            // In a task of its own: a caller that goes away must not take the changes of others with it.
            tokio::spawn(serve(Arc::clone(&self.database), Arc::clone(&self.queue)));
        }
        answered.await.unwrap_or_else(|_| Err(sqlx::Error::WorkerCrashed.into()))
    }
}

impl<C: Change> Queue<C> {
    fn lock(&self) -> MutexGuard<'_, Waiting<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the caller has to see to it that the queue is served.
    fn add(&self, change: C, answer: oneshot::Sender<Stored<C>>) -> bool {
        let mut waiting = self.lock();
        waiting.changes.push((change, answer));
        !mem::replace(&mut waiting.is_served, true)
    }

    /// All that wait; none ends the service.
    fn take(&self) -> Vec<(C, oneshot::Sender<Stored<C>>)> {
        let mut waiting = self.lock();
        waiting.is_served = !waiting.changes.is_empty();
        mem::take(&mut waiting.changes)
    }
}

async fn serve<D: Database, C: Change>(database: Arc<D>, queue: Arc<Queue<C>>) {
    loop {
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
    let transaction = match database.begin().await {
        Ok(transaction) => transaction,
        // The writer is not to be had, for none of them.
        Err(error) => {
            let same = |_| Err(sqlx::Error::Protocol(error.to_string()).into());
            return changes.iter().map(same).collect();
        }
    };
    match in_one_transaction::<D, C>(transaction, changes).await {
        Ok(results) => results,
        Err(error) if changes.len() == 1 => vec![Err(error)],
        // One of them is what cannot be stored: each for itself.
        Err(_) => {
            let mut results = Vec::with_capacity(changes.len());
            for change in changes {
                results.push(store_alone(database, change).await);
            }
            results
        }
    }
}

async fn in_one_transaction<D: Database, C: Change>(
    mut transaction: D::Transaction,
    changes: &[C],
) -> Result<Vec<Stored<C>>, C::Error> {
    let mut results = Vec::with_capacity(changes.len());
    for change in changes {
        results.push(match change.apply::<D>(&mut transaction).await {
            Err(error) if !C::is_refusal(&error) => return Err(error),
            result => result,
        });
    }
    D::commit(transaction).await?;
    Ok(results)
}

async fn store_alone<D: Database, C: Change>(database: &D, change: &C) -> Stored<C> {
    let mut transaction = database.begin().await?;
    let answer = change.apply::<D>(&mut transaction).await?;
    D::commit(transaction).await?;
    Ok(answer)
}

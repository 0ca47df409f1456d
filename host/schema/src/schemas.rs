//! A cache of the validators of one untrusted party. Each schema is compiled once and found by its text. The memory of
//! the cache is limited, and the work runs on worker threads.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use annex_fairness::{FairPlaces, Place};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use crate::budget::ValidatorBudget;
use crate::schema::{Attempt, Schema, Violation};

/// Maximum number of validators in one cache, regardless of their size.
const MAX_SCHEMAS: usize = 64;
/// Maximum size of the validators in one cache, in bytes.
const MAX_KEPT: usize = 8 << 20;

/// Maximum wait for a worker.
const WORKER_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a validation has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The schema or the instance is unusable, with the reason.
    #[error("{0}")]
    Unusable(String),
    /// The time limit was exceeded, and the work was abandoned.
    #[error("it takes too long to validate")]
    OutOfTime,
    /// No worker was free for a second.
    #[error("too much is being validated at the moment; try again later")]
    Busy,
}

/// The worker threads of a process, shared by all caches. Waiting tenants are served round robin.
#[derive(Clone, Debug)]
pub struct Workers {
    places: FairPlaces,
    tenant: Arc<str>,
}

impl Workers {
    /// Allows `count` concurrent validations or compilations.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { places: FairPlaces::new(count.max(1)), tenant: Arc::default() }
    }

    /// Returns the same worker threads, on which the caller's work now counts as work of `tenant`.
    #[must_use]
    pub fn of_tenant(&self, tenant: &Arc<str>) -> Self {
        Self { places: self.places.clone(), tenant: Arc::clone(tenant) }
    }

    async fn take(&self) -> Result<Place, SchemaError> {
        timeout(WORKER_TIMEOUT, self.places.take(&self.tenant)).await.map_err(|_| SchemaError::Busy)
    }
}

impl Default for Workers {
    /// One worker per core, and at least two, so that one party cannot block all others.
    fn default() -> Self {
        Self::new(std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2)))
    }
}

/// A cache of validators, by the text of their schema. Schemas and instances need not be trusted: the cost of each is
/// bounded before the work begins.
pub struct Schemas {
    kept: Mutex<Vec<(String, Arc<Schema>)>>,
    budget: Arc<ValidatorBudget>,
    workers: Workers,
    /// Allows one piece of work at a time, so that the untrusted party uses at most one worker.
    place: Arc<Semaphore>,
    /// Allows one piece of work with pinned schemas at a time. It is separate from `place`, because the JSON that is
    /// checked with pinned schemas comes from other parties.
    pinned_place: Arc<Semaphore>,
}

impl Schemas {
    /// Creates an empty cache. The bytes of cached validators count in `budget`.
    #[must_use]
    pub fn new(budget: &Arc<ValidatorBudget>, workers: Workers) -> Self {
        let place = || Arc::new(Semaphore::new(1));
        let kept = Mutex::default();
        let budget = budget.part(MAX_KEPT);
        Self { kept, budget, workers, place: place(), pinned_place: place() }
    }

    /// Validates an instance and returns the violations, up to a limit. Small work runs at once on this thread. Other
    /// work runs on a worker for at most `allowed`, and is abandoned after that time. An abandoned worker ends within a
    /// second. The time of finished work is added to `spent`.
    ///
    /// # Errors
    /// The schema or the instance is unusable, the work took too long, or no worker was free.
    pub async fn validate(
        &self,
        schema: &str,
        instance: &str,
        allowed: Duration,
        spent: &mut Duration,
    ) -> Result<Vec<Violation>, SchemaError> {
        let schema = self.compile(schema, allowed, spent).await?;
        self.validate_with(&schema, instance, allowed.saturating_sub(*spent), spent).await
    }

    /// Like [`validate`](Self::validate), but with a schema that is already compiled.
    ///
    /// # Errors
    /// The instance is unusable, the work took too long, or no worker was free.
    pub async fn validate_with(
        &self,
        schema: &Arc<Schema>,
        instance: &str,
        allowed: Duration,
        spent: &mut Duration,
    ) -> Result<Vec<Violation>, SchemaError> {
        // Up to two milliseconds of work run on this thread. More would delay other requests on the thread.
        match schema.attempt(instance) {
            Attempt::Done(violations) => violations,
            Attempt::TooMuch => {
                let schema = Arc::clone(schema);
                let instance = instance.to_owned();
                let place = if schema.is_pinned() { &self.pinned_place } else { &self.place };
                self.work(take(place).await?, allowed, spent, move || schema.validate(&instance)).await?
            }
        }
        .map_err(SchemaError::Unusable)
    }

    /// Returns the cached validator of a schema, or compiles one on a worker.
    ///
    /// # Errors
    /// The schema is unusable, compiling took too long, or no worker was free.
    pub async fn compile(
        &self,
        schema: &str,
        allowed: Duration,
        spent: &mut Duration,
    ) -> Result<Arc<Schema>, SchemaError> {
        if let Some(schema) = self.find(schema) {
            return Ok(schema);
        }
        let place = take(&self.place).await?;
        // Another turn may have compiled the schema while this one waited.
        if let Some(schema) = self.find(schema) {
            return Ok(schema);
        }
        let compiled = self.compile_new(place, schema, allowed, spent).await?;
        Ok(self.keep(schema, compiled))
    }

    /// Compiles a validator that lives for as long as the caller holds it. The validator's bytes count in `budget`, and
    /// not in the budget of this cache. So the validators in the cache cannot use up the memory for pinned validators.
    ///
    /// # Errors
    /// The schema is unusable, compiling took too long, no worker was free, or the budget is exhausted.
    pub async fn pin(
        &self,
        schema: &str,
        budget: &Arc<ValidatorBudget>,
        allowed: Duration,
        spent: &mut Duration,
    ) -> Result<Arc<Schema>, SchemaError> {
        let place = take(&self.place).await?;
        let compiled = self.compile_new(place, schema, allowed, spent).await?;
        let weight = compiled.weight();
        let no_room = || {
            SchemaError::Unusable(format!("its {weight} bytes do not fit into the memory that is left for validators"))
        };
        Ok(Arc::new(compiled.pin(budget.reserve(weight).ok_or_else(no_room)?)))
    }

    async fn compile_new(
        &self,
        place: OwnedSemaphorePermit,
        text: &str,
        allowed: Duration,
        spent: &mut Duration,
    ) -> Result<Schema, SchemaError> {
        let text = text.to_owned();
        let compiled = self.work(place, allowed, spent, move || Schema::compile(&text)).await?;
        compiled.map_err(SchemaError::Unusable)
    }

    /// Bytes of cached validators.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.budget.used()
    }

    async fn work<T: Send + 'static>(
        &self,
        place: OwnedSemaphorePermit,
        allowed: Duration,
        spent: &mut Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, SchemaError> {
        // The caller has taken the stranger's own place before, so that work that waits for that place holds no
        // worker.
        let worker = self.workers.take().await?;
        let (begins, has_begun) = oneshot::channel();
        let working = tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            // Sending fails if the caller has given up.
            let _ = begins.send(());
            let done = work();
            // Freed by the thread, not by the caller: abandoned work continues to run.
            drop((worker, place));
            (done, began.elapsed())
        });
        // The time until the thread starts is not charged to the work.
        if timeout(WORKER_TIMEOUT, has_begun).await.is_err() {
            return Err(SchemaError::Busy);
        }
        match timeout(allowed, working).await {
            Ok(Ok((done, took))) => {
                *spent += took;
                Ok(done)
            }
            Ok(Err(error)) => Err(SchemaError::Unusable(format!("the validator failed: {error}"))),
            Err(_) => Err(SchemaError::OutOfTime),
        }
    }

    fn find(&self, text: &str) -> Option<Arc<Schema>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(known, _)| known == text).map(|(_, schema)| Arc::clone(schema))
    }

    /// Caches a validator. Evicts the oldest validators if there is no room. If there is still no room, the validator
    /// is returned without being cached.
    fn keep(&self, text: &str, schema: Schema) -> Arc<Schema> {
        let weight = schema.weight().saturating_add(text.len());
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // Two turns may have compiled the same schema. Only one copy is cached.
        if let Some((_, known)) = kept.iter().find(|(known, _)| known == text) {
            return Arc::clone(known);
        }
        loop {
            let reserved = if kept.len() < MAX_SCHEMAS { self.budget.reserve(weight) } else { None };
            if let Some(reserved) = reserved {
                let schema = Arc::new(schema.keep(reserved));
                kept.push((text.to_owned(), Arc::clone(&schema)));
                return schema;
            }
            if kept.is_empty() {
                return Arc::new(schema);
            }
            // Only validators of this stranger are evicted, even if the shared budget is exhausted.
            kept.remove(0);
        }
    }
}

async fn take(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, SchemaError> {
    let place = timeout(WORKER_TIMEOUT, Arc::clone(places).acquire_owned()).await;
    place.ok().and_then(Result::ok).ok_or(SchemaError::Busy)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SchemaError, Schemas, ValidatorBudget, Workers};

    #[tokio::test(start_paused = true)]
    async fn work_that_finds_no_worker_is_refused_after_a_while_and_no_later_work_is() {
        let workers = Workers::new(1);
        let schemas = Schemas::new(&ValidatorBudget::new(1 << 20), workers.clone());
        let (schema, allowed, mut spent) = (r#"{"type": "string"}"#, Duration::from_secs(10), Duration::ZERO);
        let taken = workers.take().await.expect("it is free");
        let refused = schemas.validate(schema, "1", allowed, &mut spent).await;
        assert_eq!(refused.expect_err("nobody is free"), SchemaError::Busy);
        assert_eq!(spent, Duration::ZERO, "waiting is not the guest's work");
        drop(taken);
        let violations = schemas.validate(schema, "1", allowed, &mut spent).await.expect("somebody is free");
        assert_eq!(violations.len(), 1);
        assert!(spent > Duration::ZERO, "what a worker did is charged");
    }
}

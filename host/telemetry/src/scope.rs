//! The request of the current tokio task.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use crate::request::Request;
use crate::stages::{Stage, StageGuard};

tokio::task_local! {
    static CURRENT: Arc<Request>;
}

/// Runs a future for a request. Tasks that the future spawns belong to no request, unless they are wrapped in
/// [`of_same_request`].
pub fn of_request<F: Future>(request: Arc<Request>, done: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(request, done)
}

/// Runs a future for the current request. Wrap a spawned task in this if the task works for the request. If there is no
/// current request, a new request begins that is not logged.
pub fn of_same_request<F: Future>(done: F) -> impl Future<Output = F::Output> {
    of_request(current().unwrap_or_else(|| Request::begin(false)), done)
}

/// Calls `tell` with the current request, if there is one.
pub fn with(tell: impl FnOnce(&Request)) {
    // Fails if there is no current request.
    let _ = CURRENT.try_with(|request| tell(request));
}

/// Runs a synchronous function for a request.
pub fn in_request<T>(request: &Arc<Request>, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(Arc::clone(request), work)
}

fn current() -> Option<Arc<Request>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Enters a stage of the current request, until the guard is dropped. If the request is not logged, this costs almost
/// nothing.
pub fn enter(stage: Stage) -> StageGuard {
    logged().map_or_else(|| StageGuard::nowhere(stage), |request| StageGuard::new(Some(request), stage, Instant::now()))
}

/// Enters a stage as [`enter`] does. `at` is the current time, which the caller already knows.
pub fn enter_at(stage: Stage, at: Instant) -> StageGuard {
    StageGuard::new(logged(), stage, at)
}

fn logged() -> Option<Arc<Request>> {
    CURRENT.try_with(|request| request.is_logged().then(|| Arc::clone(request))).ok().flatten()
}

/// The ids of the current request, for a log line: tenant, conversation and task.
pub struct Ids(Option<Arc<Request>>);

/// Returns the ids of the current request.
#[must_use]
pub fn ids() -> Ids {
    Ids(current())
}

impl Ids {
    /// The tenant; `None` for the config's own agent.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.of(|request| request.tenant.get())
    }

    /// The id of the conversation.
    #[must_use]
    pub fn context(&self) -> Option<&str> {
        self.of(|request| request.context.get())
    }

    /// The id of the task.
    #[must_use]
    pub fn task(&self) -> Option<&str> {
        self.of(|request| request.task.get())
    }

    /// The tenant, the id of the conversation, and the id of the task.
    #[must_use]
    pub fn all(&self) -> (Option<&str>, Option<&str>, Option<&str>) {
        (self.tenant(), self.context(), self.task())
    }

    fn of(&self, id: impl FnOnce(&Request) -> Option<&Arc<str>>) -> Option<&str> {
        self.0.as_deref().and_then(id).map(|id| &**id)
    }
}

#[cfg(test)]
mod tests {
    use super::{enter, ids, of_request, of_same_request, with};
    use crate::request::Request;
    use crate::stages::Stage;

    #[tokio::test]
    async fn facts_about_a_request_are_shared_by_its_tasks() {
        let request = Request::begin(true);
        let known = of_request(request, async {
            with(|request| request.is_about(Some("c".into()), Some("t".into())));
            let same = tokio::spawn(of_same_request(async { ids().context().map(str::to_owned) }));
            let other = tokio::spawn(async { ids().context().map(str::to_owned) });
            (same.await.expect("no panic"), other.await.expect("no panic"))
        });
        assert_eq!(known.await, (Some("c".to_owned()), None));
        assert_eq!(ids().task(), None);
    }

    #[tokio::test]
    async fn the_stages_of_a_request_are_measured_where_a_line_is_wanted() {
        for (is_logged, is_measured) in [(true, true), (false, false)] {
            let request = Request::begin(is_logged);
            let worked = of_request(request.clone(), async {
                let stage = enter(Stage::Store);
                let began = std::time::Instant::now();
                while began.elapsed().as_micros() < 10 {}
                drop(stage);
            });
            worked.await;
            let (all, spent) = request.spent();
            assert_eq!(!spent.store.is_zero(), is_measured);
            assert!(spent.store <= all);
        }
    }
}

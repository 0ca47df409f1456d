//! The request that a tokio task works on.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use crate::request::Request;
use crate::stages::{Entered, Stage};

tokio::task_local! {
    static CURRENT: Arc<Request>;
}

/// Works on a request. What it begins in tasks of their own is for none, unless it is [`of_same_request`].
pub fn of_request<F: Future>(request: Arc<Request>, done: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(request, done)
}

/// Works on the request that this is done for, also in a task of its own. Where there is none, one begins of which no line is
/// wanted.
pub fn of_same_request<F: Future>(done: F) -> impl Future<Output = F::Output> {
    of_request(current().unwrap_or_else(|| Request::begin(false)), done)
}

/// Tells something of the request that this is done for, if there is one.
pub fn with(tell: impl FnOnce(&Request)) {
    // Outside of any request there is nobody to tell.
    let _ = CURRENT.try_with(|request| tell(request));
}

/// Does something that waits for nothing for a request.
pub fn in_request<T>(request: &Arc<Request>, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(Arc::clone(request), work)
}

fn current() -> Option<Arc<Request>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Enters a stage of the request that this is done for. Costs next to nothing where no line is wanted.
pub fn enter(stage: Stage) -> Entered {
    logged().map_or_else(|| Entered::nowhere(stage), |request| Entered::new(Some(request), stage, Instant::now()))
}

/// [`enter`], for whoever has looked at the clock already.
pub fn enter_at(stage: Stage, at: Instant) -> Entered {
    Entered::new(logged(), stage, at)
}

fn logged() -> Option<Arc<Request>> {
    CURRENT.try_with(|request| request.is_logged().then(|| Arc::clone(request))).ok().flatten()
}

/// The tenant, the conversation and the task that a line of the log is about, as far as they are known.
pub struct Ids(Option<Arc<Request>>);

/// The ids of the request that this is done for.
#[must_use]
pub fn ids() -> Ids {
    Ids(current())
}

impl Ids {
    /// The tenant; none for the config's own agent.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.of(|request| request.tenant.get())
    }

    /// The conversation.
    #[must_use]
    pub fn context(&self) -> Option<&str> {
        self.of(|request| request.context.get())
    }

    /// The task.
    #[must_use]
    pub fn task(&self) -> Option<&str> {
        self.of(|request| request.task.get())
    }

    /// Tenant, conversation and task.
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
    async fn what_is_told_of_a_request_is_known_in_the_tasks_that_work_on_it() {
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

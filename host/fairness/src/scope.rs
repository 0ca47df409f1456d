//! The tenant for whom something is done, known wherever it takes a place.

use std::future::Future;
use std::sync::Arc;

use tokio::task::JoinHandle;

tokio::task_local! {
    static TENANT: Arc<str>;
}

/// Does something for a tenant. What it begins in tasks of their own is for nobody, unless
/// [`spawn_for_tenant`] begins them.
pub fn of_tenant<F: Future>(tenant: Arc<str>, done: F) -> impl Future<Output = F::Output> {
    TENANT.scope(tenant, done)
}

/// Does something in a task of its own, for the tenant for whom this is done.
pub fn spawn_for_tenant<F>(done: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(of_tenant(current_tenant(), done))
}

/// The tenant for whom this is done; empty for the process itself, and where there are no tenants.
#[must_use]
pub fn current_tenant() -> Arc<str> {
    TENANT.try_with(Arc::clone).unwrap_or_default()
}

//! The tenant for whom something is done, known wherever it takes a place.

use std::future::Future;
use std::sync::Arc;

tokio::task_local! {
    static TENANT: Arc<str>;
}

/// Does something for a tenant. What it begins in tasks of their own is for nobody, unless they are
/// [`of_same_tenant`].
pub fn of_tenant<F: Future>(tenant: Arc<str>, done: F) -> impl Future<Output = F::Output> {
    TENANT.scope(tenant, done)
}

/// Does something for the tenant for whom this is done, also in a task of its own.
pub fn of_same_tenant<F: Future>(done: F) -> impl Future<Output = F::Output> {
    of_tenant(current_tenant(), done)
}

/// The tenant for whom this is done; empty for the process itself, and where there are no tenants.
#[must_use]
pub fn current_tenant() -> Arc<str> {
    TENANT.try_with(Arc::clone).unwrap_or_default()
}

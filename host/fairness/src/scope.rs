//! The tenant for whom something is done, known wherever it takes a place.

use std::future::Future;
use std::sync::Arc;

tokio::task_local! {
    static TENANT: Arc<str>;
}

/// Does something for a tenant. What it begins in tasks of their own is for nobody, unless that is said there too.
pub fn of_tenant<F: Future>(tenant: Arc<str>, done: F) -> impl Future<Output = F::Output> {
    TENANT.scope(tenant, done)
}

/// The tenant for whom this is done; empty for the process itself, and where there are no tenants.
#[must_use]
pub fn current_tenant() -> Arc<str> {
    TENANT.try_with(Arc::clone).unwrap_or_default()
}

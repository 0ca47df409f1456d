//! The tenant that the current task works for. The task takes places on behalf of this tenant.

use std::future::Future;
use std::sync::Arc;

tokio::task_local! {
    static TENANT: Arc<str>;
}

/// Runs a future for a tenant. Tasks that the future spawns belong to no tenant, unless they are wrapped in
/// [`of_same_tenant`].
pub fn of_tenant<F: Future>(tenant: Arc<str>, done: F) -> impl Future<Output = F::Output> {
    TENANT.scope(tenant, done)
}

/// Runs a future for the current tenant. Wrap a spawned task in this if the task works for the tenant.
pub fn of_same_tenant<F: Future>(done: F) -> impl Future<Output = F::Output> {
    of_tenant(current_tenant(), done)
}

/// The tenant that the current task works for. Empty for work of the process itself, and if there are no tenants.
#[must_use]
pub fn current_tenant() -> Arc<str> {
    TENANT.try_with(Arc::clone).unwrap_or_default()
}

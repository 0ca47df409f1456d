//! The tenant of the current task, which takes places on the tenant's behalf.

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

/// Runs a future for the current tenant. Use this to spawn a task that stays with the tenant.
pub fn of_same_tenant<F: Future>(done: F) -> impl Future<Output = F::Output> {
    of_tenant(current_tenant(), done)
}

/// The current tenant. Empty for work of the process itself and if there are no tenants.
#[must_use]
pub fn current_tenant() -> Arc<str> {
    TENANT.try_with(Arc::clone).unwrap_or_default()
}

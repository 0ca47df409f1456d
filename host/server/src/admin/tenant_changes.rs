//! The changes of tenants that run now. Changes of one tenant's text run one after the other, each with the release of pulled
//! components at its end.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use annex_telemetry::fault;
use annex_tenants::{TenantStoreError, TenantStores};
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

/// Held while the text of a tenant is changed, and while pulled components are taken from the tenant.
type ChangeLock = tokio::sync::Mutex<()>;

/// The locks of the tenants that are being changed. Without them, the end of one change would take components that another
/// change of the tenant has just pulled.
#[derive(Default)]
pub(super) struct TenantChanges(Mutex<HashMap<String, Weak<ChangeLock>>>);

/// A change of a tenant. Its end takes pulled components that the stored text of the tenant does not name from the tenant:
/// also when the text is refused, and when the client hangs up.
pub(super) struct RunningChange {
    stores: TenantStores,
    tenant: String,
    lock: Arc<ChangeLock>,
    /// `None` for a change that waits for no other.
    guard: Option<OwnedMutexGuard<()>>,
}

impl TenantChanges {
    /// Begins a change of a tenant's text, after the changes of the text that run now.
    pub(super) async fn of_text(&self, stores: &TenantStores, tenant: &str) -> RunningChange {
        let lock = self.lock_of(tenant);
        let guard = Some(Arc::clone(&lock).lock_owned().await);
        RunningChange { stores: stores.clone(), tenant: tenant.to_owned(), lock, guard }
    }

    /// Begins a change that pulls nothing: another state of a tenant, or its removal. It waits for no other change.
    pub(super) fn of_state(&self, stores: &TenantStores, tenant: &str) -> RunningChange {
        RunningChange { stores: stores.clone(), tenant: tenant.to_owned(), lock: self.lock_of(tenant), guard: None }
    }

    fn lock_of(&self, tenant: &str) -> Arc<ChangeLock> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(tenant).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::<ChangeLock>::default();
        locks.insert(tenant.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

impl Drop for RunningChange {
    fn drop(&mut self) {
        let (stores, tenant) = (self.stores.clone(), mem::take(&mut self.tenant));
        let (lock, guard) = (Arc::clone(&self.lock), self.guard.take());
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let guard = match guard {
                Some(guard) => guard,
                None => lock.lock_owned().await,
            };
            // If it fails, the next change of the tenant tries again.
            release(&stores, &tenant).await.unwrap_or_else(|error| fault::log(&error));
            drop(guard);
        });
    }
}

async fn release(stores: &TenantStores, tenant: &str) -> Result<(), TenantStoreError> {
    let stored = stores.tenants.find(tenant).await?;
    let text = stored.map(|stored| stored.config).unwrap_or_default();
    stores.components.release_pulled(tenant, &text).await
}

#[cfg(test)]
mod tests {
    use annex_tenants::{PulledComponent, TenantStores, UploadBounds};
    use futures::FutureExt as _;
    use tokio::task::yield_now;

    use super::TenantChanges;

    #[tokio::test]
    async fn a_change_of_a_text_waits_for_the_release_after_the_change_before() {
        let (changes, stores) = (TenantChanges::default(), TenantStores::in_memory());
        let first = changes.of_text(&stores, "hooli").await;
        let parts = PulledComponent { manifest: Vec::new(), component: Vec::new(), signatures: Vec::new() };
        let bounds = UploadBounds { count: 1, bytes: 1 };
        stores.components.put_pulled("hooli", "sha256:1", &parts, bounds).await.expect("it is stored");
        assert!(changes.of_text(&stores, "hooli").now_or_never().is_none(), "the first change runs");
        assert!(changes.of_text(&stores, "other").now_or_never().is_some(), "another tenant waits for nobody");
        drop(changes.of_state(&stores, "hooli"));
        for _ in 0..100 {
            yield_now().await;
        }
        let pulled = stores.components.find_pulled("sha256:1").await.expect("an answer");
        assert!(pulled.is_some(), "a change that waits for nobody takes nothing from the one that runs");
        drop(first);
        let _second = changes.of_text(&stores, "hooli").await;
        assert_eq!(stores.components.find_pulled("sha256:1").await.expect("an answer"), None);
        assert_eq!(changes.0.lock().expect("the locks").len(), 1, "locks that nobody holds are forgotten");
    }
}

//! Limits concurrent requests in total and per host.
//!
//! Without the limit per host, a host that never answers would eventually hold all slots. Waiting tenants are served
//! round robin.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use annex_fairness::{FairPlaces, Place, current_tenant};

pub(crate) struct Slots {
    all: FairPlaces,
    per_host: usize,
    hosts: Mutex<HashMap<String, Weak<FairPlaces>>>,
}

/// Permission to make one request. Dropping it frees the slot.
pub(crate) struct Slot {
    _of_all: Place,
    _of_host: Place,
    /// Keeps the host's places alive while one of them is taken or awaited, so that other requests find them in the
    /// map.
    _host: Arc<FairPlaces>,
}

impl Slots {
    pub(crate) fn new(all: usize, per_host: usize) -> Self {
        Self { all: FairPlaces::new(all.max(1)), per_host: per_host.max(1), hosts: Mutex::default() }
    }

    /// Waits for a slot. `host` includes the port.
    pub(crate) async fn acquire(&self, host: &str) -> Slot {
        let tenant = current_tenant();
        // The slot of the host is taken first: a request that waits for it holds no slot of the total.
        let host = self.host(host);
        let of_host = host.take(&tenant).await;
        Slot { _of_all: self.all.take(&tenant).await, _of_host: of_host, _host: host }
    }

    fn host(&self, host: &str) -> Arc<FairPlaces> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = hosts.get(host).and_then(Weak::upgrade) {
            return places;
        }
        // Removes unused hosts before the map would grow.
        if hosts.len() == hosts.capacity() {
            hosts.retain(|_, places| places.strong_count() > 0);
        }
        let places = Arc::new(FairPlaces::new(self.per_host));
        hosts.insert(host.to_owned(), Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use annex_fairness::of_tenant;
    use futures::FutureExt;

    use super::Slots;

    #[test]
    fn a_tenant_with_many_slow_receivers_holds_up_another_by_one_of_them() {
        let slots = Slots::new(1, 1);
        let [loud, quiet] = ["loud", "quiet"].map(Arc::<str>::from);
        for hosts in [["a", "b", "c", "d"], ["same", "same", "same", "same"]] {
            let take = |tenant: &Arc<str>, host| of_tenant(Arc::clone(tenant), slots.acquire(host));
            let first = take(&loud, hosts[0]).now_or_never().expect("a free one");
            let mut second = pin!(take(&loud, hosts[1]));
            let mut third = pin!(take(&loud, hosts[2]));
            assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
            let mut other = pin!(take(&quiet, hosts[3]));
            assert!(other.as_mut().now_or_never().is_none());
            drop(first);
            let second = second.as_mut().now_or_never();
            drop(second.expect("it came first"));
            assert!(other.as_mut().now_or_never().is_some(), "it came last, and is another tenant's");
        }
    }
}

//! The observer of an extension.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::TurnObserver;

/// The observer of an extension, if there is one. Without an observer, turns only read a flag.
#[derive(Default)]
pub(crate) struct ObserverSlot {
    is_set: AtomicBool,
    observer: Mutex<Option<Arc<dyn TurnObserver>>>,
}

impl ObserverSlot {
    /// Sets the observer. Returns false if there is one already.
    pub(crate) fn set(&self, observer: Arc<dyn TurnObserver>) -> bool {
        let mut slot = self.lock();
        if slot.is_some() {
            return false;
        }
        *slot = Some(observer);
        self.is_set.store(true, Ordering::Relaxed);
        true
    }

    pub(crate) fn clear(&self) {
        self.is_set.store(false, Ordering::Relaxed);
        *self.lock() = None;
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn TurnObserver>> {
        // Relaxed: a turn that begins during a change may be recorded or not.
        if self.is_set.load(Ordering::Relaxed) { self.lock().clone() } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn TurnObserver>>> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

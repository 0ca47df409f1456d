//! Compiled code in use, by digest. Code is read-only, so all installations and tenants of a process share it.
//! Linkers, limits, grants and instances belong to each installation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use wasmtime::component::Component;

use crate::digest::Digest;
use crate::load::inspect::Inspection;
use crate::load::keep_functions::KeepFunctions;

/// The compiled code of a component. While an installation holds the code, other loads of the component share it.
pub(crate) struct Code {
    pub(crate) component: Component,
    pub(crate) inspection: Inspection,
    /// Number of added functions, in code for kept instances.
    pub(crate) functions: Option<KeepFunctions>,
}

/// The code for one digest. The cell is locked while the code is compiled, so that concurrent loads wait for the code.
pub(crate) type CodeCell = tokio::sync::Mutex<Weak<Code>>;

/// The code in use, by its digest. All of the code comes from one compiler, which has one engine, so the digest
/// identifies the code.
pub(crate) struct SharedCode(Mutex<CodeCells>);

struct CodeCells {
    of: HashMap<Digest, Arc<CodeCell>>,
    /// Number of entries at which unused entries are removed.
    most: usize,
}

/// Smallest number of entries at which unused entries are removed.
const LEAST_CLEANUP: usize = 64;

impl Default for SharedCode {
    fn default() -> Self {
        Self(Mutex::new(CodeCells { of: HashMap::new(), most: LEAST_CLEANUP }))
    }
}

impl SharedCode {
    pub(crate) fn place(&self, digest: Digest) -> Arc<CodeCell> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.of.len() >= places.most {
            places.of.retain(|_, place| is_needed(place));
            // Twice the remaining entries, so that the clean-up costs constant time per load on average.
            places.most = places.of.len().saturating_mul(2).max(LEAST_CLEANUP);
        }
        Arc::clone(places.of.entry(digest).or_default())
    }
}

/// True if the code is in use or being compiled.
fn is_needed(place: &Arc<CodeCell>) -> bool {
    Arc::strong_count(place) > 1 || place.try_lock().is_ok_and(|code| code.strong_count() > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{LEAST_CLEANUP, SharedCode};
    use crate::digest::Digest;

    #[tokio::test]
    async fn entries_of_unused_code_are_removed() {
        let shared = SharedCode::default();
        let kept = shared.place(Digest::of(b"kept"));
        for number in 0..10 * LEAST_CLEANUP {
            drop(shared.place(Digest::of(&number.to_le_bytes())));
        }
        assert!(shared.0.lock().expect("no panic").of.len() <= LEAST_CLEANUP);
        assert!(Arc::ptr_eq(&kept, &shared.place(Digest::of(b"kept"))), "somebody makes its code");
    }
}

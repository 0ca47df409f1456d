//! Compiled code that is in use, by the digest of what was compiled and how. A process has it once, however many installations and
//! tenants have the component: code is only ever read. Linkers, limits, grants and instances are each installation's own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use wasmtime::component::Component;

use crate::digest::Digest;
use crate::load::inspect::Inspection;
use crate::load::keep_functions::KeepFunctions;

/// Compiled code, which others find for as long as somebody holds it.
pub(crate) struct Code {
    pub(crate) component: Component,
    pub(crate) inspection: Inspection,
    /// The functions by which instances are kept, in code that was made for that.
    pub(crate) functions: Option<KeepFunctions>,
}

/// The code of one digest. It is locked while the code is made, so that whoever comes meanwhile waits for it.
pub(crate) type Place = tokio::sync::Mutex<Weak<Code>>;

/// The code that one compiler has made. All of it is for one engine, so that a digest says all that it depends on.
pub(crate) struct SharedCode(Mutex<Places>);

struct Places {
    of: HashMap<Digest, Arc<Place>>,
    /// With so many of them, those are looked for that nobody needs.
    most: usize,
}

/// The fewest places that are worth a look.
const FEW: usize = 64;

impl Default for SharedCode {
    fn default() -> Self {
        Self(Mutex::new(Places { of: HashMap::new(), most: FEW }))
    }
}

impl SharedCode {
    pub(crate) fn place(&self, digest: Digest) -> Arc<Place> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.of.len() >= places.most {
            places.of.retain(|_, place| is_needed(place));
            // Twice as many as are left, so that a look costs each load a constant time.
            places.most = places.of.len().saturating_mul(2).max(FEW);
        }
        Arc::clone(places.of.entry(digest).or_default())
    }
}

/// True if the code of the place is in use, or somebody is about to make it.
fn is_needed(place: &Arc<Place>) -> bool {
    Arc::strong_count(place) > 1 || place.try_lock().is_ok_and(|code| code.strong_count() > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{FEW, SharedCode};
    use crate::digest::Digest;

    #[tokio::test]
    async fn places_of_code_that_nobody_has_any_more_go() {
        let shared = SharedCode::default();
        let kept = shared.place(Digest::of(b"kept"));
        for number in 0..10 * FEW {
            drop(shared.place(Digest::of(&number.to_le_bytes())));
        }
        assert!(shared.0.lock().expect("no panic").of.len() <= FEW);
        assert!(Arc::ptr_eq(&kept, &shared.place(Digest::of(b"kept"))), "somebody makes its code");
    }
}

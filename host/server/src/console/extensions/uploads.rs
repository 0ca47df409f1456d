//! Components that operators have uploaded and not installed yet. No code of these components has run.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_runtime::{Inspection, MAX_COMPONENT_BYTES};
use tokio::time::Instant;

/// The maximum number of waiting uploads, and their maximum size together in bytes. The oldest upload makes room.
const MAX_UPLOADS: usize = 8;
const MAX_BYTES: usize = 2 * MAX_COMPONENT_BYTES;
/// The time after which an upload is dropped.
const MAX_AGE: Duration = Duration::from_secs(15 * 60);

/// A component that waits for its approval.
pub(super) struct Upload {
    /// The name of the token that uploaded the component.
    pub(super) by: Arc<str>,
    pub(super) component: Vec<u8>,
    pub(super) inspection: Inspection,
    /// `None` for the file of an operator.
    pub(super) locked: Option<LockedReference>,
    pub(super) at: Instant,
}

/// The reference of a component, and its signers in `annex.lock`.
pub(super) struct LockedReference {
    pub(super) reference: String,
    pub(super) signers: Vec<String>,
}

/// The waiting uploads of all operators.
#[derive(Default)]
pub(super) struct Uploads(Mutex<VecDeque<Arc<Upload>>>);

impl Uploads {
    /// Adds an upload. It replaces the operator's earlier upload of the same component.
    pub(super) fn add(&self, upload: Upload) {
        let mut waiting = self.waiting();
        waiting.retain(|other| !(other.by == upload.by && other.inspection.digest == upload.inspection.digest));
        waiting.push_back(Arc::new(upload));
        while waiting.len() > MAX_UPLOADS || size(&waiting) > MAX_BYTES {
            waiting.pop_front();
        }
    }

    /// The operator's upload with this digest.
    pub(super) fn find(&self, by: &str, digest: &str) -> Option<Arc<Upload>> {
        let waiting = self.waiting();
        let is_it = |upload: &&Arc<Upload>| &*upload.by == by && upload.inspection.digest.to_string() == digest;
        waiting.iter().find(is_it).cloned()
    }

    /// Drops the operator's upload with this digest.
    pub(super) fn remove(&self, by: &str, digest: &str) {
        self.waiting().retain(|upload| !(&*upload.by == by && upload.inspection.digest.to_string() == digest));
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Arc<Upload>>> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|upload| upload.at.elapsed() < MAX_AGE);
        waiting
    }
}

fn size(waiting: &VecDeque<Arc<Upload>>) -> usize {
    waiting.iter().map(|upload| upload.component.len()).sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use annex_runtime::{Digest, Inspection, MAX_COMPONENT_BYTES};
    use tokio::time::Instant;

    use super::{MAX_AGE, MAX_UPLOADS, Upload, Uploads};

    fn upload(by: &str, component: Vec<u8>) -> Upload {
        let inspection = Inspection {
            digest: Digest::of(&component),
            size: component.len(),
            contract: String::new(),
            hooks: Vec::new(),
            imports: Vec::new(),
            manifest: None,
        };
        Upload { by: by.into(), component, inspection, locked: None, at: Instant::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn uploads_are_bounded_in_number_size_and_time_and_belong_to_one_operator() {
        let uploads = Uploads::default();
        let digest = |component: &[u8]| Digest::of(component).to_string();
        for number in 0..=MAX_UPLOADS {
            uploads.add(upload("ada", number.to_string().into_bytes()));
        }
        assert!(uploads.find("ada", &digest(b"0")).is_none(), "the oldest one makes room");
        assert!(uploads.find("ada", &digest(b"1")).is_some());
        assert!(uploads.find("bob", &digest(b"1")).is_none(), "the upload is of another operator");
        let large = |byte| vec![byte; MAX_COMPONENT_BYTES];
        for byte in 0..3 {
            uploads.add(upload("ada", large(byte)));
        }
        assert_eq!([0, 1, 2].map(|byte| uploads.find("ada", &digest(&large(byte))).is_some()), [false, true, true]);
        tokio::time::advance(MAX_AGE + Duration::from_secs(1)).await;
        assert!(uploads.find("ada", &digest(&large(2))).is_none());
    }
}

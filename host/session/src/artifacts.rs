//! The artifacts of one session in memory, the latest version of each.

use annex_protocol::Parts;

use crate::event::parts_size;
use crate::limits::Limits;
use crate::service::StoredArtifact;

/// The artifacts of a session, in the order of their last write.
#[derive(Debug, Default)]
pub(crate) struct Artifacts {
    entries: Vec<Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    name: String,
    artifact: StoredArtifact,
    bytes: usize,
}

impl Artifacts {
    /// The size of all artifacts, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, name: &str) -> Option<&StoredArtifact> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| &entry.artifact)
    }

    /// Writes a new version, for which the oldest make room.
    pub(crate) fn put(&mut self, name: String, parts: Parts, limits: &Limits) {
        let previous = self.entries.iter().position(|entry| entry.name == name).map(|index| self.take(index));
        // A name that had made room begins at version 1 again: nothing of it is kept.
        let version = previous.map_or(1, |previous| previous.artifact.version + 1);
        let bytes = parts_size(&parts);
        self.entries.push(Entry { name, artifact: StoredArtifact { version, parts }, bytes });
        self.bytes += bytes;
        // The new version stays, whatever the limits: one that is too large alone was refused before.
        while self.entries.len() > limits.artifacts.max(1) || self.bytes > limits.artifact_bytes.max(bytes) {
            self.take(0);
        }
    }

    fn take(&mut self, index: usize) -> Entry {
        let entry = self.entries.remove(index);
        self.bytes -= entry.bytes;
        entry
    }
}

//! The artifacts that a turn has relayed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

use annex_agent::readable;
use annex_protocol::{Artifact, ArtifactId, Part, PartContent};

use crate::links::Link;

/// The maximum number of digests of artifacts that are stored for later turns. Older artifacts would be relayed again.
const MAX_DIGESTS: usize = 1_000;

/// The pieces of an artifact that were relayed so far.
pub(super) struct RelayedArtifact {
    pub(super) id: ArtifactId,
    /// The digest of the artifact's contents. If the artifact in a snapshot has another digest, its contents were replaced.
    digest: DefaultHasher,
    pub(super) text: String,
}

impl RelayedArtifact {
    /// Creates the record of a whole artifact. The record has no text, because the text is not in the session yet.
    pub(super) fn of(artifact: &Artifact) -> Self {
        let id = artifact.artifact_id.clone();
        let mut relayed = Self { id, digest: DefaultHasher::new(), text: String::new() };
        relayed.add(&artifact.parts);
        relayed
    }

    pub(super) fn add(&mut self, parts: &[Part]) {
        for part in parts {
            // A text and a URL of the same letters are not the same part.
            mem::discriminant(&part.content).hash(&mut self.digest);
            part.media_type.hash(&mut self.digest);
            part.filename.hash(&mut self.digest);
            match &part.content {
                PartContent::Text(text) | PartContent::Raw(text) | PartContent::Url(text) => {
                    text.hash(&mut self.digest)
                }
                PartContent::Data(json) => json.get().hash(&mut self.digest),
            }
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.digest.finish() == other.digest.finish()
    }

    /// The digest of the artifact's id and the digest of its contents. Another build of Annex may compute other digests. An
    /// artifact that was relayed by an older build may then be relayed once more.
    fn digests(&self) -> (u64, u64) {
        let mut id = DefaultHasher::new();
        self.id.as_str().hash(&mut id);
        (id.finish(), self.digest.finish())
    }
}

/// The artifacts that a turn has relayed.
#[derive(Default)]
pub(super) struct Artifacts {
    relayed: Vec<RelayedArtifact>,
    /// Digests of artifacts that earlier turns relayed, oldest first.
    earlier: Vec<(u64, u64)>,
    /// The number of artifacts without an id so far, in this turn and in earlier turns.
    unnamed: usize,
    /// The number of artifacts without an id in earlier turns.
    unnamed_before: usize,
}

impl Artifacts {
    /// Creates the record at the beginning of a turn. The link `earlier` lists the artifacts that earlier turns relayed.
    pub(super) fn after(earlier: &Link) -> Self {
        let Link { unnamed, artifacts, .. } = earlier;
        Self { earlier: artifacts.clone(), unnamed: *unnamed, unnamed_before: *unnamed, ..Self::default() }
    }

    /// The number of artifacts without an id so far, in this turn and in earlier turns.
    pub(super) fn unnamed(&self) -> usize {
        self.unnamed
    }

    /// The digests of the task's relayed artifacts. Artifacts of earlier turns come first. If there are more than
    /// [`MAX_DIGESTS`], the oldest are dropped.
    pub(super) fn digests(&self) -> Vec<(u64, u64)> {
        let now: Vec<(u64, u64)> = self.relayed.iter().map(RelayedArtifact::digests).collect();
        let is_replaced = |id: u64| now.iter().any(|(other, _)| *other == id);
        let before = self.earlier.iter().copied().filter(|(id, _)| !is_replaced(*id));
        let mut all: Vec<(u64, u64)> = before.chain(now.iter().copied()).collect();
        all.drain(..all.len().saturating_sub(MAX_DIGESTS));
        all
    }

    /// True if an earlier turn relayed the same artifact with the same contents, and this turn has relayed no piece of
    /// this artifact.
    pub(super) fn is_earlier(&self, artifact: &Artifact) -> bool {
        // Most turns have no artifacts of earlier turns, and compute no digest.
        !self.earlier.is_empty()
            && !self.knows(&artifact.artifact_id)
            && self.earlier.contains(&RelayedArtifact::of(artifact).digests())
    }

    pub(super) fn len(&self) -> usize {
        self.relayed.len()
    }

    /// True if this turn relayed the artifact with the same contents.
    pub(super) fn has(&self, shown: &RelayedArtifact) -> bool {
        self.relayed.iter().any(|relayed| relayed.is_same(shown))
    }

    /// The texts of the artifacts of this turn, in order.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.relayed.iter().map(|relayed| relayed.text.as_str()).filter(|text| !text.is_empty())
    }

    /// Records the artifact as relayed, without its text.
    pub(super) fn mark(&mut self, artifact: &Artifact) {
        self.relayed.retain(|relayed| relayed.id != artifact.artifact_id);
        self.relayed.push(RelayedArtifact::of(artifact));
    }

    /// Gives an id to each artifact without an id in a whole task. The ids follow from the order of the artifacts, and are the
    /// same as in the events of a stream.
    pub(super) fn name_all(&mut self, artifacts: &mut [Artifact]) {
        let mut number = 0;
        for artifact in artifacts.iter_mut().filter(|artifact| artifact.artifact_id.is_empty()) {
            number += 1;
            artifact.artifact_id = made_id(number);
        }
        self.unnamed = self.unnamed.max(number);
    }

    /// Gives an id to the artifact of an event if it has none. An appended piece without an id belongs to the last artifact
    /// that came without an id.
    pub(super) fn name(&mut self, artifact: &mut Artifact, append: bool) {
        if artifact.artifact_id.is_empty() {
            if !append || self.unnamed == self.unnamed_before {
                self.unnamed += 1;
            }
            artifact.artifact_id = made_id(self.unnamed);
        }
    }

    /// True if this turn has relayed a piece of the artifact.
    fn knows(&self, id: &ArtifactId) -> bool {
        self.relayed.iter().any(|relayed| relayed.id == *id)
    }

    /// Records an artifact, or a piece of an artifact, as relayed. The text is stored for the session's history, unless the
    /// texts of all artifacts together would exceed `max_bytes`.
    pub(super) fn add(&mut self, artifact: &Artifact, append: bool, max_bytes: usize) {
        let id = &artifact.artifact_id;
        // Without `append` it is the first chunk, or an artifact that takes the place of one with the same id.
        if !append {
            self.relayed.retain(|relayed| relayed.id != *id);
        }
        let kept: usize = self.relayed.iter().map(|relayed| relayed.text.len()).sum();
        let text = readable(&artifact.parts);
        let text = if kept + text.len() > max_bytes { String::new() } else { text };
        match self.relayed.iter_mut().find(|relayed| relayed.id == *id) {
            Some(relayed) => {
                relayed.add(&artifact.parts);
                relayed.text.push_str(&text);
            }
            None => self.relayed.push(RelayedArtifact { text, ..RelayedArtifact::of(artifact) }),
        }
    }
}

fn made_id(number: usize) -> ArtifactId {
    format!("unnamed-{number}").into()
}

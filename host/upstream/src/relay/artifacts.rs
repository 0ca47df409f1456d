//! The artifacts of a turn that were sent on.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

use annex_agent::readable;
use annex_protocol::{Artifact, ArtifactId, Part, PartContent};

use crate::links::Link;

/// Artifacts of earlier turns that are told apart from new ones.
const MAX_DIGESTS: usize = 1_000;

/// The parts of one artifact that were sent on.
pub(super) struct Relayed {
    pub(super) id: ArtifactId,
    /// The digest of their contents, by which a snapshot tells a replaced artifact from one that was sent on.
    digest: DefaultHasher,
    pub(super) text: String,
}

impl Relayed {
    /// The artifact without its text, which is not the conversation's yet.
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

    /// The digests of its id and of its contents. If another build makes other digests, an artifact is sent on once more.
    fn digests(&self) -> (u64, u64) {
        let mut id = DefaultHasher::new();
        self.id.as_str().hash(&mut id);
        (id.finish(), self.digest.finish())
    }
}

/// The artifacts of a turn that were sent on.
#[derive(Default)]
pub(super) struct Artifacts {
    relayed: Vec<Relayed>,
    /// Digests of those that earlier turns have sent on, oldest first.
    earlier: Vec<(u64, u64)>,
    /// The number of those that came without an id, in earlier turns too.
    unnamed: usize,
    /// The number of those in earlier turns.
    unnamed_before: usize,
}

impl Artifacts {
    /// The artifacts of a turn whose task has these from earlier turns.
    pub(super) fn after(earlier: &Link) -> Self {
        let Link { unnamed, artifacts, .. } = earlier;
        Self { earlier: artifacts.clone(), unnamed: *unnamed, unnamed_before: *unnamed, ..Self::default() }
    }

    /// The number of those that came without an id, in earlier turns too.
    pub(super) fn unnamed(&self) -> usize {
        self.unnamed
    }

    /// Digests of all that the task has here.
    pub(super) fn digests(&self) -> Vec<(u64, u64)> {
        let now: Vec<(u64, u64)> = self.relayed.iter().map(Relayed::digests).collect();
        let is_replaced = |id: u64| now.iter().any(|(other, _)| *other == id);
        let before = self.earlier.iter().copied().filter(|(id, _)| !is_replaced(*id));
        let mut all: Vec<(u64, u64)> = before.chain(now.iter().copied()).collect();
        all.drain(..all.len().saturating_sub(MAX_DIGESTS));
        all
    }

    /// True if an earlier turn has sent on the artifact as it is, and this turn nothing of it.
    pub(super) fn is_earlier(&self, artifact: &Artifact) -> bool {
        // Most turns have none from before, and make no digest.
        !self.earlier.is_empty()
            && !self.knows(&artifact.artifact_id)
            && self.earlier.contains(&Relayed::of(artifact).digests())
    }

    pub(super) fn len(&self) -> usize {
        self.relayed.len()
    }

    /// True if the artifact, as it is, was sent on.
    pub(super) fn has(&self, shown: &Relayed) -> bool {
        self.relayed.iter().any(|relayed| relayed.is_same(shown))
    }

    /// The texts of all, in order.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.relayed.iter().map(|relayed| relayed.text.as_str()).filter(|text| !text.is_empty())
    }

    /// The artifact counts as sent on, without its text.
    pub(super) fn mark(&mut self, artifact: &Artifact) {
        self.relayed.retain(|relayed| relayed.id != artifact.artifact_id);
        self.relayed.push(Relayed::of(artifact));
    }

    /// Gives the artifacts of a task that have no id the ids that they have as events of a stream: by their order.
    pub(super) fn name_all(&mut self, artifacts: &mut [Artifact]) {
        let mut number = 0;
        for artifact in artifacts.iter_mut().filter(|artifact| artifact.artifact_id.is_empty()) {
            number += 1;
            artifact.artifact_id = made_id(number);
        }
        self.unnamed = self.unnamed.max(number);
    }

    /// Gives the artifact of an event an id if it has none. A piece without one belongs to the last such artifact of the turn.
    pub(super) fn name(&mut self, artifact: &mut Artifact, append: bool) {
        if artifact.artifact_id.is_empty() {
            if !append || self.unnamed == self.unnamed_before {
                self.unnamed += 1;
            }
            artifact.artifact_id = made_id(self.unnamed);
        }
    }

    /// True if a piece of it was sent on.
    fn knows(&self, id: &ArtifactId) -> bool {
        self.relayed.iter().any(|relayed| relayed.id == *id)
    }

    /// Takes note of an artifact, or a piece of one, that is sent on. Its text becomes the session's history as far as all
    /// texts together have at most so many bytes.
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
            None => self.relayed.push(Relayed { text, ..Relayed::of(artifact) }),
        }
    }
}

fn made_id(number: usize) -> ArtifactId {
    format!("unnamed-{number}").into()
}

//! The replaced versions that can be rolled back to, and the last changes.

use std::collections::{HashMap, VecDeque};

use annex_protocol::{ExtensionUri, Timestamp};

use super::version::Version;

/// The maximum number of changes that are remembered, over all extensions.
const MAX_CHANGES: usize = 200;

/// Why the installed set changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A source now has another extension or version.
    Loaded,
    /// An operator removed the extension.
    Removed,
    /// An operator rolled the extension back.
    RolledBack,
    /// An operator promoted a shadow.
    Promoted,
}

/// The change of one extension.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) at: Timestamp,
    /// The number of the first edition with the change.
    pub(crate) edition: u64,
    /// `installed`, `replaced`, `rolled-back`, `promoted` or `removed`.
    pub(crate) what: &'static str,
    pub(crate) uri: ExtensionUri,
    /// The number of the version that was installed before the change. `None` if the change added the extension.
    pub(crate) from: Option<u64>,
    /// The number of the version that the change installed. `None` if the change removed the extension.
    pub(crate) to: Option<u64>,
}

/// Replaced versions and the last changes.
pub(crate) struct History {
    keep: usize,
    /// The replaced versions of each URI, the last replaced one first.
    replaced: HashMap<ExtensionUri, VecDeque<Version>>,
    /// The last changes, the oldest first.
    changes: VecDeque<Change>,
}

impl History {
    /// A history without changes. `keep` is the number of replaced versions to keep for each installed extension.
    pub(crate) fn new(keep: usize) -> Self {
        Self { keep, replaced: HashMap::new(), changes: VecDeque::new() }
    }

    pub(crate) fn keep(&self) -> usize {
        self.keep
    }

    /// The replaced version with this number. If `number` is `None`, the version that was replaced last.
    pub(crate) fn kept(&self, uri: &ExtensionUri, number: Option<u64>) -> Option<Version> {
        self.replaced(uri).find(|version| number.is_none_or(|number| version.number == number)).cloned()
    }

    pub(crate) fn replaced(&self, uri: &ExtensionUri) -> impl Iterator<Item = &Version> {
        self.replaced.get(uri).into_iter().flatten()
    }

    pub(crate) fn changes(&self, uri: &ExtensionUri) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.uri == *uri)
    }

    /// Records the change from `old` to `new`. Versions of extensions that are no longer installed are dropped.
    pub(crate) fn record(&mut self, edition: u64, action: Action, old: Vec<Version>, new: &[Version]) {
        let by_uri = |versions: &[Version], uri: &ExtensionUri| {
            versions.iter().find(|version| version.uri() == uri).map(|version| version.number)
        };
        for version in new {
            match by_uri(&old, version.uri()) {
                None => self.push(edition, "installed", version, None, Some(version.number)),
                Some(before) if before != version.number => {
                    let what = match action {
                        Action::RolledBack => "rolled-back",
                        Action::Promoted => "promoted",
                        Action::Loaded | Action::Removed => "replaced",
                    };
                    self.push(edition, what, version, Some(before), Some(version.number));
                }
                Some(_) => {}
            }
        }
        for version in old {
            match by_uri(new, version.uri()) {
                None => self.push(edition, "removed", &version, Some(version.number), None),
                Some(after) if after != version.number => self.keep_version(version, after),
                Some(_) => {}
            }
        }
        self.replaced.retain(|uri, _| by_uri(new, uri).is_some());
    }

    fn keep_version(&mut self, version: Version, after: u64) {
        let kept = self.replaced.entry(version.uri().clone()).or_default();
        // After a rollback the version `after` is installed, so it is not in the list of replaced versions any more.
        kept.retain(|kept| kept.number != after && kept.number != version.number);
        kept.push_front(version);
        // Each kept version holds its compiled code in memory, so their number is bounded.
        kept.truncate(self.keep);
    }

    fn push(&mut self, edition: u64, what: &'static str, version: &Version, from: Option<u64>, to: Option<u64>) {
        let uri = version.uri();
        let digest = version.extension.digest();
        tracing::info!(extension = %uri, %digest, edition, from, to, "{what}");
        self.changes.push_back(Change { at: Timestamp::now(), edition, what, uri: uri.clone(), from, to });
        if self.changes.len() > MAX_CHANGES {
            self.changes.pop_front();
        }
    }
}

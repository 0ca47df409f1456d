//! The state of an installer for the admin API and the metrics.

use std::sync::atomic::Ordering;

use annex_protocol::ExtensionUri;
use annex_runtime::Installed;

use super::history::Change;
use super::loader::Failure;
use super::version::Version;
use super::{InstallError, Installer};

impl Installer {
    /// The extensions that are installed now.
    #[must_use]
    pub fn installed(&self) -> Installed {
        self.publisher.current().extensions.installed.clone()
    }

    /// The number of loaded components of this installer, and the number of refused components.
    pub(crate) fn loads(&self) -> (u64, u64) {
        (self.loader.loaded.load(Ordering::Relaxed), self.loader.refused.load(Ordering::Relaxed))
    }

    /// The installed versions, in order.
    pub(crate) fn versions(&self) -> Vec<Version> {
        self.lock().versions.clone()
    }

    /// Finds the installed extension with the URI `id`, or the installed extension whose component has the digest `id`.
    /// The prefix `sha256:` of a digest is optional.
    pub(crate) fn find(&self, id: &str) -> Result<Version, InstallError> {
        let hex = id.strip_prefix("sha256:").unwrap_or(id);
        let matches = |version: &&Version| version.uri().as_str() == id || version.extension.digest().hex() == hex;
        let state = self.lock();
        let mut found = state.versions.iter().filter(matches);
        match (found.next(), found.next()) {
            (Some(version), None) => Ok(version.clone()),
            (Some(_), Some(_)) => Err(InstallError::Ambiguous { id: id.to_owned() }),
            (None, _) => Err(InstallError::NotInstalled { id: id.to_owned() }),
        }
    }

    /// The replaced versions that can be rolled back to, the last replaced one first.
    pub(crate) fn kept(&self, uri: &ExtensionUri) -> Vec<Version> {
        self.lock().history.replaced(uri).cloned().collect()
    }

    /// The last changes of the extension, the oldest first.
    pub(crate) fn changes(&self, uri: &ExtensionUri) -> Vec<Change> {
        self.lock().history.changes(uri).cloned().collect()
    }

    /// True if the version is installed by an operator's decision although its source names another version.
    pub(crate) fn overrules(&self, version: &Version) -> bool {
        let digest = version.extension.digest();
        self.lock().overruled.iter().any(|decision| {
            let is_instead = decision.instead.as_ref().is_some_and(|instead| instead.number == version.number);
            // A rollback to the version that the source now names overrules nothing.
            is_instead && !version.is_of(&decision.origin, &decision.settings, digest)
        })
    }

    /// The sources that could not be installed, with the reasons.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.lock().failures.clone()
    }
}

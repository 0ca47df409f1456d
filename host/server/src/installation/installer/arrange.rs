//! Puts the installed extensions in order:
//!
//! - first the extensions of the config, in the order of the config
//! - then the extensions of the managed folder, by dependency and name
//! - then the extensions that were added over the admin API
//!
//! A new component in the folder that does not fit is not installed and does not affect the other extensions.

use annex_protocol::ExtensionUri;
use annex_runtime::{Installed, LoadError};

use super::error::InstallError;
use super::version::{Origin, Version};

/// A loaded component of the folder.
pub(super) struct Candidate {
    pub(super) version: Version,
    /// The version that is installed from the same file now.
    pub(super) fallback: Option<Version>,
    /// True if the component is not installed yet.
    pub(super) is_new: bool,
}

impl Candidate {
    /// A candidate that is already installed.
    pub(super) fn unchanged(version: Version) -> Self {
        Self { version, fallback: None, is_new: false }
    }
}

/// The versions in their order, and the refused versions with the reasons.
pub(super) struct Arrangement {
    pub(super) versions: Vec<Version>,
    pub(super) installed: Installed,
    pub(super) refused: Vec<(Version, LoadError)>,
}

/// Puts all versions in order. If a new component of the folder does not fit, the version that is already installed
/// from the same file is used instead.
///
/// # Errors
/// When the versions do not fit together even without the new components.
pub(super) fn arrange(
    config: &[Version],
    mut folder: Vec<Candidate>,
    added: &[Version],
) -> Result<Arrangement, InstallError> {
    let first = Installed::new(config.iter().map(|version| version.extension.clone()));
    let first = first.map_err(|source| InstallError::Set { places: places(config, &source), source })?;
    // Sorted by name, so that the order does not depend on the file system.
    folder.sort_by(|a, b| a.version.origin.name().cmp(b.version.origin.name()));
    let mut refused = Vec::new();
    // Each round removes one new component. Its replacement is not new, so the loop ends.
    loop {
        // Each round starts with the config's extensions, because a refusal leaves a half-filled set.
        let (origin, error) = match place(first.clone(), config, &folder, added) {
            Ok((versions, installed)) => return Ok(Arrangement { versions, installed, refused }),
            Err(refusal) => refusal,
        };
        let at_fault = folder.iter().position(|candidate| candidate.is_new && candidate.version.origin == origin);
        // An unchanged component may be refused because of a new one, so a new one is removed.
        let at_fault = at_fault.or_else(|| folder.iter().position(|candidate| candidate.is_new));
        let Some(at_fault) = at_fault else {
            return Err(InstallError::Set { places: places(config, &error), source: error });
        };
        let candidate = folder.remove(at_fault);
        refused.push((candidate.version, error));
        if let Some(fallback) = candidate.fallback {
            folder.insert(at_fault, Candidate::unchanged(fallback));
        }
    }
}

/// The positions of the conflicting extensions in the config, followed by a colon. Empty if none of these extensions is
/// in the config.
fn places(config: &[Version], refusal: &LoadError) -> String {
    let uris: Vec<&ExtensionUri> = match refusal {
        LoadError::SharedKey { uri, other, .. }
        | LoadError::SharedMethod { uri, other, .. }
        | LoadError::SharedPath { uri, other, .. } => vec![uri, other],
        LoadError::Duplicate { uri }
        | LoadError::CardEntries { uri, .. }
        | LoadError::Dependency { uri, .. }
        | LoadError::SkippedDependency { uri, .. } => vec![uri],
        LoadError::Cycle { uris } => uris.iter().collect(),
        _ => Vec::new(),
    };
    let of_refusal = config.iter().filter(|version| uris.contains(&version.uri()));
    let places: Vec<String> = of_refusal.filter_map(|version| version.origin.place(&["component"])).collect();
    if places.is_empty() { String::new() } else { format!("{}: ", places.join(" and ")) }
}

type Refusal = (Origin, LoadError);

fn place(
    mut installed: Installed,
    config: &[Version],
    folder: &[Candidate],
    added: &[Version],
) -> Result<(Vec<Version>, Installed), Refusal> {
    let mut versions = config.to_vec();
    let mut waiting: Vec<&Candidate> = folder.iter().collect();
    // New URIs are checked first. Otherwise an installed component that comes later by name would be refused for its
    // own URI.
    check_new_uris(&waiting, config, added)?;
    // A component is added, in order of names, once all its dependencies are present.
    while let Some(next) = waiting.iter().position(|candidate| lacks(&installed, &candidate.version).is_none()) {
        let version = &waiting.remove(next).version;
        push(&mut installed, &mut versions, version)?;
    }
    if let Some(candidate) = waiting.first() {
        return Err(unplaced(&installed, &candidate.version, &waiting));
    }
    for version in added {
        push(&mut installed, &mut versions, version)?;
    }
    Ok((versions, installed))
}

fn push(installed: &mut Installed, versions: &mut Vec<Version>, version: &Version) -> Result<(), Refusal> {
    installed.push(version.extension.clone()).map_err(|error| (version.origin.clone(), error))?;
    versions.push(version.clone());
    Ok(())
}

/// Refuses a new component that has the URI of an installed component.
fn check_new_uris(folder: &[&Candidate], config: &[Version], added: &[Version]) -> Result<(), Refusal> {
    let (new, old): (Vec<&Candidate>, Vec<&Candidate>) = folder.iter().partition(|candidate| candidate.is_new);
    let taken = |uri: &ExtensionUri| {
        let old = old.iter().map(|candidate| &candidate.version);
        old.chain(config).chain(added).any(|version| version.uri() == uri)
    };
    match new.into_iter().find(|candidate| taken(candidate.version.uri())) {
        Some(candidate) => {
            let uri = candidate.version.uri().clone();
            Err((candidate.version.origin.clone(), LoadError::Duplicate { uri }))
        }
        None => Ok(()),
    }
}

/// Returns the reason why none of the waiting components can be added.
fn unplaced(installed: &Installed, first: &Version, waiting: &[&Candidate]) -> Refusal {
    let extensions: Vec<_> = waiting.iter().map(|candidate| candidate.version.extension.clone()).collect();
    if let Some(uris) = Installed::cycle(&extensions) {
        let in_ring = waiting.iter().find(|candidate| uris.contains(candidate.version.uri()));
        let origin = in_ring.map_or(&first.origin, |candidate| &candidate.version.origin);
        return (origin.clone(), LoadError::Cycle { uris });
    }
    // Some depend on other waiting components. The cause is one with a dependency that does not exist at all.
    let is_waiting = |uri: &ExtensionUri| extensions.iter().any(|extension| extension.uri() == uri);
    let cause = waiting.iter().map(|candidate| &candidate.version).find_map(|version| {
        let needs = version.extension.descriptor().depends_on.iter();
        let missing = needs.clone().find(|needs| installed.get(needs).is_none() && !is_waiting(needs))?;
        Some((version, missing.clone()))
    });
    let (version, needs) = cause.unwrap_or_else(|| (first, first.uri().clone()));
    (version.origin.clone(), LoadError::Dependency { uri: version.uri().clone(), needs })
}

fn lacks<'a>(installed: &Installed, version: &'a Version) -> Option<&'a ExtensionUri> {
    installed.lacks(&version.extension)
}

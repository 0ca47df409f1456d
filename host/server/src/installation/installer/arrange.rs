//! The order of what is installed: the config's list, then the managed folder by dependencies and by name, then what
//! was added. A component in the folder that does not fit costs nobody else a place.

use annex_protocol::ExtensionUri;
use annex_runtime::{Installed, LoadError};

use super::error::InstallError;
use super::version::{Origin, Version};

/// A component of the folder that is loaded.
pub(super) struct Candidate {
    pub(super) version: Version,
    /// The version that is installed from the same file.
    pub(super) fallback: Option<Version>,
    /// True if it is not installed yet.
    pub(super) is_new: bool,
}

impl Candidate {
    /// A version that is installed already.
    pub(super) fn unchanged(version: Version) -> Self {
        Self { version, fallback: None, is_new: false }
    }
}

/// All versions in their order, and why others were left out.
pub(super) struct Arranged {
    pub(super) versions: Vec<Version>,
    pub(super) installed: Installed,
    pub(super) refused: Vec<(Version, LoadError)>,
}

/// Puts all in order. New components of the folder that do not fit give way to what was installed in their place.
///
/// # Errors
/// When the rest does not fit together.
pub(super) fn arrange(
    config: &[Version],
    mut folder: Vec<Candidate>,
    added: &[Version],
) -> Result<Arranged, InstallError> {
    let first = Installed::new(config.iter().map(|version| version.extension.clone()));
    let first = first.map_err(|source| InstallError::Set { places: places(config, &source), source })?;
    // By name, so that the order does not depend on the file system.
    folder.sort_by(|a, b| a.version.origin.name().cmp(b.version.origin.name()));
    let mut refused = Vec::new();
    // Each round takes one new component out, and what comes in its place is not new, so this ends.
    loop {
        // Each round begins with the config's list alone, because a refusal leaves a set half filled.
        let (origin, error) = match place(first.clone(), config, &folder, added) {
            Ok((versions, installed)) => return Ok(Arranged { versions, installed, refused }),
            Err(refusal) => refusal,
        };
        let at_fault = folder.iter().position(|candidate| candidate.is_new && candidate.version.origin == origin);
        // A component that was fine may be in the way of a new one.
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

/// Where those extensions of the config stand that do not fit, with a colon behind.
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
    // Looked at first: where an installed component comes later by name, it would be the one that is refused.
    check_new_uris(&waiting, config, added)?;
    // Each comes by name as soon as all that it depends on is there.
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

/// Refuses a new component that takes the URI of one that is installed.
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

/// The reason for which there is no place for any that still wait.
fn unplaced(installed: &Installed, first: &Version, waiting: &[&Candidate]) -> Refusal {
    let extensions: Vec<_> = waiting.iter().map(|candidate| candidate.version.extension.clone()).collect();
    if let Some(uris) = Installed::cycle(&extensions) {
        let in_ring = waiting.iter().find(|candidate| uris.contains(candidate.version.uri()));
        let origin = in_ring.map_or(&first.origin, |candidate| &candidate.version.origin);
        return (origin.clone(), LoadError::Cycle { uris });
    }
    // Some lean on others that wait; the cause is one that leans on nothing here.
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

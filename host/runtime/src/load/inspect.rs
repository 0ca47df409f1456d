//! What a component exports and imports. Nothing here reads a component: the names come from the process that compiles.

use serde::{Deserialize, Serialize};

use crate::bindings;
use crate::confinement::grants::{GrantNeeded, Grants};
use crate::digest::Digest;
use crate::error::LoadError;
use crate::hook::Hook;

/// The largest component file that this host reads: 32 MiB.
pub const MAX_COMPONENT_BYTES: usize = 32 << 20;

/// The custom section with what the project of a component says of itself, as JSON.
pub const MANIFEST_SECTION: &str = "annex:manifest";

/// The facts that a component's type tells about it.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// SHA-256 of the file.
    pub digest: Digest,
    /// Bytes of the file.
    pub size: usize,
    /// The version of `annex:extension` that it was built for.
    pub contract: String,
    /// The hooks that it exports.
    pub hooks: Vec<Hook>,
    /// Its imports.
    pub imports: Vec<Import>,
    /// The description that its project gives of itself. Nothing checks it: the imports are the proof of what it needs.
    pub manifest: Option<ManifestSection>,
}

/// The facts about a component that nobody loads.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// What its type tells.
    pub inspection: Inspection,
    /// Why its instances cannot be kept between turns; `None` if they can.
    pub unkeepable: Option<String>,
}

/// The description that the project of a component gives of itself, before any code of the component runs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ManifestSection {
    /// The project's name.
    pub name: String,
    /// The project's version.
    pub version: String,
    /// The grants that the project is tried with, by their keys in a config.
    #[serde(default)]
    pub grants: Vec<String>,
}

/// One imported interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// `package:name/interface@version`.
    pub name: String,
    /// The grant that the host asks for it.
    pub access: Access,
}

/// The access that an import takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Always linked.
    Free,
    /// Linked when granted.
    Needs(GrantNeeded),
    /// This host has no such interface.
    Unknown,
}

impl Inspection {
    /// The facts about the component with this digest and so many bytes.
    ///
    /// # Errors
    /// When it is no extension of a supported contract.
    pub(crate) fn of(digest: Digest, size: usize, outline: Outline) -> Result<Self, LoadError> {
        let Outline { imports, exports, manifest } = outline;
        // The process that has read them may be in the hands of the component.
        imports.iter().chain(&exports).try_for_each(|name| check_name(name))?;
        let (contract, hooks) = hooks(&exports)?;
        let imports = imports.into_iter().map(Import::of).collect();
        Ok(Self { digest, size, contract, hooks, imports, manifest })
    }

    /// Checks every import against the operator's grants.
    pub(crate) fn check_grants(&self, grants: &Grants) -> Result<(), LoadError> {
        for import in &self.imports {
            match import.access {
                Access::Needs(grant) if !grants.allow(grant) => {
                    return Err(LoadError::NotGranted { needs: format!("the import {}", import.name), grant });
                }
                Access::Unknown => return Err(LoadError::UnknownImport { name: import.name.clone() }),
                Access::Free | Access::Needs(_) => {}
            }
        }
        Ok(())
    }
}

impl Import {
    pub(crate) fn of(name: String) -> Self {
        let access = match GrantNeeded::of_import(split_version(&name).0) {
            None => Access::Unknown,
            Some(None) => Access::Free,
            Some(Some(grant)) => Access::Needs(grant),
        };
        Self { name, access }
    }
}

/// The names on the outside of a component, and its manifest. The process that compiles reads them; the rest of the host is
/// told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outline {
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
    pub(crate) manifest: Option<ManifestSection>,
}

/// Names are shown before anything has validated them, so they must not look like more than a name.
pub(crate) fn check_name(name: &str) -> Result<(), LoadError> {
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Ok(());
    }
    Err(LoadError::NotAComponent { reason: format!("{name:?} is no name of an import or export") })
}

fn hooks(exports: &[String]) -> Result<(String, Vec<Hook>), LoadError> {
    let mut contract = None;
    let mut hooks = Vec::new();
    for export in exports {
        let (interface, version) = split_version(export);
        // A component may export interfaces of other packages for other hosts.
        let Some((bindings::PACKAGE, name)) = interface.split_once('/') else { continue };
        if !bindings::is_supported(version) {
            return Err(LoadError::Contract { found: version.to_owned(), supported: bindings::SUPPORTED });
        }
        hooks.push(Hook::from_name(name).ok_or_else(|| LoadError::UnknownHook { name: export.clone() })?);
        contract = Some(version.to_owned());
    }
    hooks.sort_unstable();
    match contract {
        Some(contract) if hooks.contains(&Hook::Descriptor) => Ok((contract, hooks)),
        _ => Err(LoadError::NoDescriptor),
    }
}

pub(crate) fn split_version(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

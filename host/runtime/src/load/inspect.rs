//! Exports, imports and grants of a component. The compiling process parses the component; this module evaluates its
//! names.

use annex_manifest::ManifestSection;
use serde::{Deserialize, Serialize};

use crate::bindings;
use crate::confinement::grants::{GrantNeeded, Grants};
use crate::digest::Digest;
use crate::error::LoadError;
use crate::hook::Hook;
use crate::load::manifest;

/// Maximum size of a component file, in bytes.
pub const MAX_COMPONENT_BYTES: usize = 32 << 20;

/// Facts about a component that are known without running it.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// SHA-256 of the file.
    pub digest: Digest,
    /// Size of the file in bytes.
    pub size: usize,
    /// Version of `annex:extension` that the component is built for.
    pub contract: String,
    /// Exported hooks.
    pub hooks: Vec<Hook>,
    /// Imported interfaces.
    pub imports: Vec<Import>,
    /// The project's manifest. Its grants are only verified by [`check_manifest`](Self::check_manifest).
    pub manifest: Option<ManifestSection>,
}

/// The result of inspecting a component without loading it.
#[derive(Clone, Debug)]
pub struct InspectionResult {
    /// Facts about the component.
    pub inspection: Inspection,
    /// Why instances cannot be kept between turns; `None` if they can.
    pub unkeepable: Option<String>,
}

/// An imported interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// `package:name/interface@version`.
    pub name: String,
    /// The grant that the import needs.
    pub access: Access,
}

/// The grant that an import needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The import needs no grant and is always linked.
    Free,
    /// The component needs this grant.
    Needs(GrantNeeded),
    /// The host does not offer this interface.
    Unknown,
}

impl Inspection {
    /// Evaluates the outline of the component with this digest and size.
    ///
    /// # Errors
    /// The component is not an extension of a supported contract.
    pub(crate) fn of(digest: Digest, size: usize, outline: Outline) -> Result<Self, LoadError> {
        let Outline { imports, exports, manifest } = outline;
        // A malicious component may control the process that has read these names.
        imports.iter().chain(&exports).try_for_each(|name| check_name(name))?;
        manifest.iter().try_for_each(ManifestSection::check_bounds)?;
        let (contract, hooks) = hooks(&exports)?;
        let imports = imports.into_iter().map(Import::of).collect();
        Ok(Self { digest, size, contract, hooks, imports, manifest })
    }

    /// The grants that the imports and the hooks need, sorted by name, each once. The descriptor may name further grants,
    /// which are known only after the component has run.
    #[must_use]
    pub fn needs(&self) -> Vec<GrantNeeded> {
        let of_imports = self.imports.iter().filter_map(|import| match import.access {
            Access::Needs(grant) => Some(grant),
            Access::Free | Access::Unknown => None,
        });
        let of_hooks = self.hooks.iter().filter_map(|hook| hook.grant());
        let mut needs: Vec<GrantNeeded> = of_imports.chain(of_hooks).collect();
        needs.sort_unstable_by_key(|grant| grant.name());
        needs.dedup();
        needs
    }

    /// The grants of [`needs`](Self::needs), and those for which the manifest has a reason, sorted by name, each once. An
    /// operator who adds a component by reference accepts these grants.
    #[must_use]
    pub fn declared_needs(&self) -> Vec<GrantNeeded> {
        let mut needs = self.needs();
        if let Some(manifest) = &self.manifest {
            needs.extend(GrantNeeded::ALL.into_iter().filter(|grant| manifest.reason(grant.name()).is_some()));
        }
        needs.sort_unstable_by_key(|grant| grant.name());
        needs.dedup();
        needs
    }

    /// Checks that the operator has accepted the declared needs. `accepted` has the names of grants.
    pub(crate) fn check_accepted(&self, accepted: &[String]) -> Result<(), LoadError> {
        let is_new = |grant: &GrantNeeded| !accepted.iter().any(|name| name == grant.name());
        let further: Vec<&str> = self.declared_needs().into_iter().filter(is_new).map(GrantNeeded::name).collect();
        if further.is_empty() { Ok(()) } else { Err(LoadError::NotAccepted { grants: further.join(",") }) }
    }

    /// Checks that the manifest names each grant that the imports and hooks need, and no other grant. Grants without an
    /// import and a hook, such as `rewrite-message`, may be named: whether the component needs them is known only after it
    /// has run. A component without a manifest is accepted.
    ///
    /// # Errors
    /// [`LoadError::Manifest`], with the difference.
    pub fn check_manifest(&self) -> Result<(), LoadError> {
        self.manifest.as_ref().map_or(Ok(()), |manifest| manifest::check_needs(manifest, &self.needs()))
    }

    /// Checks every import and every hook against the operator's grants.
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
        let mut needed = self.hooks.iter().filter_map(|hook| Some((hook, hook.grant()?)));
        match needed.find(|(_, grant)| !grants.allow(*grant)) {
            Some((hook, grant)) => Err(LoadError::NotGranted { needs: format!("the hook {hook}"), grant }),
            None => Ok(()),
        }
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

/// The names of a component's imports and exports, and its manifest. The compiling process reads them and sends them
/// to the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outline {
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
    pub(crate) manifest: Option<ManifestSection>,
}

/// Refuses names with unusual characters. Names are displayed before they are validated, so they must not pass for
/// other text.
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
    if hooks.contains(&Hook::Card) && hooks.contains(&Hook::LiveCard) {
        return Err(LoadError::TwoCards);
    }
    match contract {
        Some(contract) if hooks.contains(&Hook::Descriptor) => Ok((contract, hooks)),
        _ => Err(LoadError::NoDescriptor),
    }
}

pub(crate) fn split_version(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

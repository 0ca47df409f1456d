//! Reads what a component exports and imports, without compiling or running it.

use serde::{Deserialize, Serialize};
use wasmparser::{Encoding, Parser, Payload};

use crate::bindings;
use crate::confinement::grants::{GrantNeeded, Grants};
use crate::digest::Digest;
use crate::error::LoadError;
use crate::hook::Hook;
use crate::load::structure::at_most;

/// The largest component file that this host reads: 32 MiB.
pub const MAX_COMPONENT_BYTES: usize = 32 << 20;

/// Imports, and exports, of a component.
const MAX_NAMES: u64 = 1_000;
/// The custom section with what the project of a component says of itself, as JSON.
pub const MANIFEST_SECTION: &str = "annex:manifest";
/// Bytes of that section that are looked at; a larger one is none.
const MAX_MANIFEST: usize = 16 << 10;
/// The first bytes of every WebAssembly file.
const MAGIC: &[u8] = b"\0asm";

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
    /// Inspects the bytes of a component file.
    ///
    /// # Errors
    /// When it is too large, no component, or no extension of a supported contract.
    pub fn of(bytes: &[u8]) -> Result<Self, LoadError> {
        if bytes.len() > MAX_COMPONENT_BYTES {
            return Err(LoadError::TooLarge { size: bytes.len(), limit: MAX_COMPONENT_BYTES });
        }
        let Outline { imports, exports, manifest } = outline(bytes)?;
        let (contract, hooks) = hooks(&exports)?;
        let imports = imports.into_iter().map(Import::of).collect();
        Ok(Self { digest: Digest::of(bytes), size: bytes.len(), contract, hooks, imports, manifest })
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

/// The parts of a component itself, not those of components inside it.
struct Outline {
    imports: Vec<String>,
    exports: Vec<String>,
    manifest: Option<ManifestSection>,
}

fn outline(bytes: &[u8]) -> Result<Outline, LoadError> {
    if !bytes.starts_with(MAGIC) {
        return Err(LoadError::NotAComponent { reason: "the file does not begin as WebAssembly does".to_owned() });
    }
    let mut imports = Vec::new();
    let mut exports = Vec::new();
    let mut manifest = None;
    let mut depth = 0_usize;
    let mut imported = 0_u64;
    let mut exported = 0_u64;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                let reason = "it is a core module; link it with wasm-component-ld or wrap it into a component";
                return Err(LoadError::NotAComponent { reason: reason.to_owned() });
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                imported += u64::from(section.count());
                at_most("imports", imported, MAX_NAMES)?;
                // The number is checked first, so that names beyond the limit are not even read.
                for import in section {
                    imports.push(plain(import?.name.name)?);
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                exported += u64::from(section.count());
                at_most("exports", exported, MAX_NAMES)?;
                for export in section {
                    exports.push(plain(export?.name.name)?);
                }
            }
            Payload::CustomSection(section) if depth == 0 && section.name() == MANIFEST_SECTION => {
                let data = Some(section.data()).filter(|data| data.len() <= MAX_MANIFEST);
                // A section that is none of ours is left alone, as every other custom section is.
                manifest = data.and_then(|data| serde_json::from_slice(data).ok());
            }
            _ => {}
        }
    }
    Ok(Outline { imports, exports, manifest })
}

/// Names are shown before anything has validated them, so they must not look like more than a name.
fn plain(name: &str) -> Result<String, LoadError> {
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Ok(name.to_owned());
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

//! Reads the outline of a component: names of imports and exports, and its manifest.

use annex_manifest::{MANIFEST_SECTION, ManifestSection};
use wasmparser::{Encoding, Parser, Payload};

use super::structure::at_most;
use crate::error::LoadError;
use crate::load::inspect::{Outline, check_name};

/// Maximum number of imports of a component. Its exports have the same limit.
const MAX_NAMES: u64 = 1_000;
/// Maximum size of the names of all imports and exports, in bytes.
const MAX_NAME_BYTES: u64 = 256 << 10;
/// The first bytes of every WebAssembly file.
const MAGIC: &[u8] = b"\0asm";

/// The outline of the outer component.
pub(super) fn of(bytes: &[u8]) -> Result<Outline, LoadError> {
    if !bytes.starts_with(MAGIC) {
        return Err(LoadError::NotAComponent { reason: "the file does not begin as WebAssembly does".to_owned() });
    }
    let mut outline = Outline::default();
    let mut names = Names::default();
    let mut depth = 0_usize;
    let mut has_manifest = false;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                let reason = "it is a core module; link it with wasm-component-ld or wrap it into a component";
                return Err(LoadError::NotAComponent { reason: reason.to_owned() });
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                // The count is checked first, so that names beyond the limit are not read.
                names.imported += u64::from(section.count());
                at_most("imports", names.imported, MAX_NAMES)?;
                for import in section {
                    outline.imports.push(names.checked(import?.name.name)?);
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                names.exported += u64::from(section.count());
                at_most("exports", names.exported, MAX_NAMES)?;
                for export in section {
                    outline.exports.push(names.checked(export?.name.name)?);
                }
            }
            Payload::CustomSection(section) if depth == 0 && section.name() == MANIFEST_SECTION => {
                // Readers that take the first one and readers that take the last one must see the same.
                if has_manifest {
                    let reason = "there are two such sections, and a component has at most one";
                    return Err(LoadError::Manifest { reason: reason.to_owned() });
                }
                has_manifest = true;
                outline.manifest = ManifestSection::parse(section.data())?;
            }
            _ => {}
        }
    }
    Ok(outline)
}

/// Counts of the names read so far.
#[derive(Default)]
struct Names {
    imported: u64,
    exported: u64,
    bytes: u64,
}

impl Names {
    fn checked(&mut self, name: &str) -> Result<String, LoadError> {
        self.bytes = self.bytes.saturating_add(name.len() as u64);
        at_most("bytes in the names of imports and exports", self.bytes, MAX_NAME_BYTES)?;
        check_name(name)?;
        Ok(name.to_owned())
    }
}

//! Limits the nesting of types. Parsers and compilers recurse for each nested type, so a few kilobytes could overflow
//! the stack. This reader does not recurse.

use wasmparser::{
    BinaryReader, ComponentType, ComponentTypeDeclaration, ComponentTypeSectionReader, InstanceTypeDeclaration,
};

use super::at_most;
use crate::error::LoadError;

/// Most levels of nested component and instance types. Toolchains use three.
const MAX_TYPE_DEPTH: u64 = 50;

/// First byte of a component type, and of an instance type.
const COMPONENT: u8 = 0x41;
const INSTANCE: u8 = 0x42;
/// First byte of a declaration that defines a type.
const TYPE: u8 = 0x01;

/// A nested type that has been read in part.
struct Open {
    kind: u8,
    /// Number of declarations of the type that have not been read.
    left: u32,
}

/// Checks the types in one section of the component `bytes`.
pub(super) fn check(section: &ComponentTypeSectionReader<'_>, bytes: &[u8]) -> Result<(), LoadError> {
    let content = bytes.get(section.range()).unwrap_or_default();
    let mut reader = BinaryReader::new(content, section.range().start);
    for _ in 0..reader.read_var_u32()? {
        check_type(&mut reader)?;
    }
    Ok(())
}

/// Reads a type including its nested types.
fn check_type(reader: &mut BinaryReader<'_>) -> Result<(), LoadError> {
    let mut open: Vec<Open> = begin(reader)?.into_iter().collect();
    while let Some(innermost) = open.last_mut() {
        let Some(left) = innermost.left.checked_sub(1) else {
            open.pop();
            continue;
        };
        innermost.left = left;
        if next_byte(reader)? == TYPE {
            reader.read_u8()?;
            open.extend(begin(reader)?);
            at_most("levels of types in types", open.len() as u64, MAX_TYPE_DEPTH)?;
        } else if innermost.kind == COMPONENT {
            reader.read::<ComponentTypeDeclaration<'_>>()?;
        } else {
            reader.read::<InstanceTypeDeclaration<'_>>()?;
        }
    }
    Ok(())
}

/// Begins a type with nested types, or reads any other type completely.
fn begin(reader: &mut BinaryReader<'_>) -> Result<Option<Open>, LoadError> {
    let kind = next_byte(reader)?;
    if kind != COMPONENT && kind != INSTANCE {
        reader.read::<ComponentType<'_>>()?;
        return Ok(None);
    }
    reader.read_u8()?;
    Ok(Some(Open { kind, left: reader.read_var_u32()? }))
}

fn next_byte(reader: &BinaryReader<'_>) -> Result<u8, LoadError> {
    Ok(reader.clone().read_u8()?)
}

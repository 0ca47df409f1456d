//! Converts the output of a build to a component.

use std::ops::Range;

use annex_manifest::MANIFEST_SECTION;
use anyhow::{Context, Result, bail};
use wasm_encoder::{ComponentSection as _, RawSection};
use wasmparser::{Encoding, Parser, Payload};
use wit_bindgen_core::wit_parser::{Resolve, WorldId};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

use super::{adapter, segments};
use crate::error::ProjectError;
use crate::manifest::Project;

/// The name of the world in a project's `wit/`.
const WORLD: &str = "extension";
/// The custom section in which bindings store the world of a core module.
const WORLD_SECTION: &str = "component-type";

/// Parses the project's world with its dependencies.
pub(super) fn world(project: &Project) -> Result<(Resolve, WorldId), String> {
    let parsed = || -> Result<(Resolve, WorldId)> {
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(project.folder.join("wit"))?;
        let world = resolve.select_world(&[package], Some(WORLD))?;
        Ok((resolve, world))
    };
    parsed().map_err(|error| format!("{error:#}"))
}

/// Returns the component of a build, with `manifest` as the content of its manifest section. If the output `made` is a
/// core module, the module is converted to a component. A manifest section of the output is replaced.
pub(super) fn of(project: &Project, made: &[u8], manifest: &[u8]) -> Result<Vec<u8>, ProjectError> {
    let of = || -> Result<Vec<u8>> {
        let mut component = if is_component(made)? { without_manifest(made)? } else { componentize(project, made)? };
        annex_manifest::append_section(&mut component, manifest);
        Ok(component)
    };
    let output = project.manifest.build.output.clone();
    of().map_err(|error| ProjectError::Componentize { output, reason: format!("{error:#}") })
}

fn is_component(bytes: &[u8]) -> Result<bool> {
    match Parser::new(0).parse_all(bytes).next() {
        Some(Ok(Payload::Version { encoding, .. })) => Ok(encoding == Encoding::Component),
        Some(Err(error)) => Err(error).context("it is no WebAssembly"),
        _ => bail!("it is empty"),
    }
}

/// The component without manifest sections. The bytes of a component without such a section stay as they are.
fn without_manifest(component: &[u8]) -> Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut has_manifest = false;
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload?;
        match &payload {
            Payload::Version { range, .. } if depth == 0 => kept.extend_from_slice(part(component, range)?),
            Payload::CustomSection(section) if depth == 0 && section.name() == MANIFEST_SECTION => {
                has_manifest = true;
                continue;
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0
            && let Some((id, range)) = payload.as_section()
        {
            RawSection { id, data: part(component, &range)? }.append_to_component(&mut kept);
        }
        if matches!(payload, Payload::ModuleSection { .. } | Payload::ComponentSection { .. }) {
            depth += 1;
        }
    }
    Ok(if has_manifest { kept } else { component.to_vec() })
}

fn part<'a>(bytes: &'a [u8], range: &Range<u64>) -> Result<&'a [u8]> {
    let range = usize::try_from(range.start)?..usize::try_from(range.end)?;
    bytes.get(range).context("a section ends beyond the file")
}

fn componentize(project: &Project, module: &[u8]) -> Result<Vec<u8>> {
    // A host bounds the number of data segments, and Go's compiler makes tens of thousands.
    let mut module = segments::join(module)?;
    let Facts { names_its_world, is_for_preview_1 } = facts(&module)?;
    let mut encoder = ComponentEncoder::default();
    encoder.validate(true);
    if !names_its_world || is_for_preview_1 {
        let (resolve, world) = world(project).map_err(anyhow::Error::msg)?;
        if !names_its_world {
            embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)?;
        }
        if is_for_preview_1 {
            let imports = resolve.worlds.get(world).into_iter().flat_map(|world| world.imports.keys());
            let imports: Vec<String> = imports.map(|key| resolve.name_world_key(key)).collect();
            // The module comes first, because the adapter is chosen by its imports.
            encoder
                .module(&module)?
                .adapter(adapter::PREVIEW1, adapter::for_imports(imports.iter().map(String::as_str)))?;
            return encoder.encode();
        }
    }
    encoder.module(&module)?.encode()
}

struct Facts {
    names_its_world: bool,
    is_for_preview_1: bool,
}

fn facts(module: &[u8]) -> Result<Facts> {
    let mut facts = Facts { names_its_world: false, is_for_preview_1: false };
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::CustomSection(section) if section.name().starts_with(WORLD_SECTION) => {
                facts.names_its_world = true
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    facts.is_for_preview_1 |= import?.module == adapter::PREVIEW1;
                }
            }
            _ => {}
        }
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::{Range, part, without_manifest};

    #[test]
    fn a_manifest_section_is_removed_and_all_else_stays() {
        let plain =
            wat::parse_str("(component (core module (@custom \"annex:manifest\" \"inner\")))").expect("a component");
        let mut twice = plain.clone();
        for content in [b"{}".as_slice(), b"[]"] {
            annex_manifest::append_section(&mut twice, content);
        }
        assert_ne!(twice, plain);
        for component in [&plain, &twice] {
            assert_eq!(&without_manifest(component).expect("a component"), &plain);
        }
        without_manifest(&plain[..plain.len() - 1]).expect_err("it is cut off");
        part(&plain, &Range { start: 0, end: u64::MAX }).expect_err("it is no part");
    }
}

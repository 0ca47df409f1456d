//! Converts the output of a build to a component.

use annex_runtime::MANIFEST_SECTION;
use anyhow::{Context, Result, bail};
use wasm_encoder::{ComponentSection, CustomSection};
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
/// core module, the module is converted to a component.
pub(super) fn of(project: &Project, made: &[u8], manifest: &[u8]) -> Result<Vec<u8>, ProjectError> {
    let of = || -> Result<Vec<u8>> {
        let mut component = if is_component(made)? { made.to_vec() } else { componentize(project, made)? };
        let section = CustomSection { name: MANIFEST_SECTION.into(), data: manifest.into() };
        section.append_to_component(&mut component);
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

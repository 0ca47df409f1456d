//! What extensions in C and Go need besides their compilers:
//!
//! ```text
//! annex-languages c WIT-FOLDER WORLD
//! annex-languages go WIT-FOLDER WORLD GO-MODULE
//! annex-languages component WIT-FOLDER WORLD CORE-MODULE OUTPUT-FILE
//! ```
//!
//! Bindings go to the folder `generated`, which is emptied first.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use heck::ToUpperCamelCase;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as PREVIEW1, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as ADAPTER,
};
use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::{Resolve, WorldId, WorldItem};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

const OUTPUT: &str = "generated";

fn main() -> Result<()> {
    let arguments = std::env::args().skip(1).collect::<Vec<_>>();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["c", wit, world] => c(wit, world),
        ["go", wit, world, module] => go(wit, world, module),
        ["component", wit, world, module, output] => component(wit, world, module, output),
        _ => bail!("c WIT WORLD, go WIT WORLD GO-MODULE, or component WIT WORLD MODULE OUTPUT"),
    }
}

fn parse(wit: &str, world: &str) -> Result<(Resolve, WorldId)> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(wit)?;
    let world = resolve.select_world(&[package], Some(world))?;
    Ok((resolve, world))
}

fn c(wit: &str, world: &str) -> Result<()> {
    let (mut resolve, world) = parse(wit, world)?;
    let mut files = Files::default();
    wit_bindgen_c::Opts::default().build().generate(&mut resolve, world, &mut files)?;
    write(&files)
}

/// The bindings want each interface in a package of its own; these hand on to the one package of the author, in the root
/// folder of the module.
fn go(wit: &str, world: &str, module: &str) -> Result<()> {
    let (mut resolve, world) = parse(wit, world)?;
    let mut files = Files::default();
    let options = wit_bindgen_go::Opts { pkg_name: Some(format!("{module}/{OUTPUT}")), ..Default::default() };
    options.build().generate(&mut resolve, world, &mut files)?;
    let main = format!("package main\n\nimport _ \"{module}/{OUTPUT}/exports/wit_exports\"\n\nfunc main() {{}}\n");
    files.push("main.go", main.as_bytes());
    for export in resolve.worlds[world].exports.values() {
        let WorldItem::Interface { id, .. } = export else { continue };
        let interface = &resolve.interfaces[*id];
        let package = format!("export_annex_extension_{}", interface.name.as_deref().unwrap_or_default());
        let functions = interface.functions.keys().map(|name| name.to_upper_camel_case());
        let lines = functions.map(|name| format!("var {name} = extension.{name}\n")).collect::<String>();
        let file = format!("package {package}\n\nimport extension \"{module}\"\n\n{lines}");
        files.push(&format!("exports/{package}/hooks.go"), file.as_bytes());
    }
    write(&files)
}

fn write(files: &Files) -> Result<()> {
    match fs::remove_dir_all(OUTPUT) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).context(OUTPUT),
        _ => {}
    }
    for (name, contents) in files.iter() {
        let path = Path::new(OUTPUT).join(name);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(path, contents)?;
    }
    Ok(())
}

/// Go's standard library imports WASI preview 1. The adapter of wasmtime makes imports of WASI 0.2 of them.
fn component(wit: &str, world: &str, module: &str, output: &str) -> Result<()> {
    let (resolve, world) = parse(wit, world)?;
    let mut module = fs::read(module)?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)?;
    let component = ComponentEncoder::default().module(&module)?.adapter(PREVIEW1, ADAPTER)?.validate(true).encode()?;
    Ok(fs::write(output, component)?)
}

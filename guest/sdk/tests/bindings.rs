//! Generates `src/bindings/*.rs` from `wit/`, and fails if the files differ.
//!
//! `UPDATE_BINDINGS=1 cargo test -p annex-sdk --test bindings` rewrites the files. They are checked in so that authors
//! compile neither a WIT parser nor a proc macro.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, Result, anyhow, ensure};
use wit_bindgen_core::wit_parser::{PackageId, Resolve};
use wit_bindgen_core::{Files, WorldGenerator as _};
use wit_bindgen_rust::{Opts, WithOption};

/// One world per hook, so that a component can combine any of them. `wit-component` merges the type sections of the
/// worlds that an author's crate really exports.
const WORLDS: &str = "
    package annex:sdk;
    world capabilities { include annex:extension/capabilities@0.1.0; import annex:extension/types@0.1.0; }
    world descriptor { export annex:extension/descriptor@0.1.0; }
    world card { export annex:extension/card@0.1.0; }
    world live-card { export annex:extension/live-card@0.1.0; }
    world activation { export annex:extension/activation@0.1.0; }
    world state { export annex:extension/state@0.1.0; }
    world response { export annex:extension/response@0.1.0; }
    world reads { export annex:extension/reads@0.1.0; }
    world extended-card { export annex:extension/extended-card@0.1.0; }
    world message { export annex:extension/message@0.1.0; }
    world transition { export annex:extension/transition@0.1.0; }
    world reply { export annex:extension/reply@0.1.0; }
    world steering { export annex:extension/steering@0.1.0; }
    world output { export annex:extension/output@0.1.0; }
    world method { export annex:extension/method@0.1.0; }
    world client { export annex:extension/client@0.1.0; }
";

const WORLD_NAMES: [&str; 16] = [
    "capabilities",
    "descriptor",
    "card",
    "live-card",
    "activation",
    "message",
    "state",
    "transition",
    "reply",
    "steering",
    "output",
    "response",
    "reads",
    "extended-card",
    "method",
    "client",
];

const HEADER: &str = "\
// Written by guest/sdk/tests/bindings.rs from wit/; do not edit.
// UPDATE_BINDINGS=1 cargo test -p annex-sdk --test bindings
";

#[test]
fn the_bindings_are_what_the_contract_generates() -> Result<()> {
    for world in WORLD_NAMES {
        let generated = generate(world).with_context(|| format!("generate the bindings of {world}"))?;
        let path = crate_folder().join(format!("src/bindings/{}.rs", module(world)));
        if env::var_os("UPDATE_BINDINGS").is_some() {
            fs::write(&path, &generated)?;
        }
        let checked_in = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        assert!(checked_in == generated, "{} is out of date: run with UPDATE_BINDINGS=1", path.display());
    }
    Ok(())
}

/// The name of a world as Rust writes it.
fn module(world: &str) -> String {
    world.replace('-', "_")
}

fn generate(world: &str) -> Result<String> {
    let (mut resolve, package) = contract()?;
    let world_id = resolve.select_world(&[package], Some(world))?;
    let mut files = Files::default();
    options(world).build().generate(&mut resolve, world_id, &mut files)?;
    let (_, source) = files.iter().next().ok_or_else(|| anyhow!("nothing was generated"))?;
    Ok(format!("{HEADER}{}", std::str::from_utf8(source)?))
}

fn contract() -> Result<(Resolve, PackageId)> {
    let mut resolve = Resolve::default();
    resolve.push_dir(crate_folder().join("../../wit/annex-extension@0.1.0"))?;
    let package = resolve.push_source("worlds.wit", WORLDS)?;
    Ok((resolve, package))
}

fn options(world: &str) -> Opts {
    let mut options = Opts {
        format: true,
        generate_all: true,
        additional_derive_attributes: vec!["PartialEq".to_owned()],
        ..Opts::default()
    };
    if world == "capabilities" {
        // Types that only hooks use are generated here too, once for all hooks.
        options.generate_unused_types = true;
    } else {
        options.with = vec![(
            "annex:extension/types@0.1.0".to_owned(),
            WithOption::Path("crate::bindings::capabilities::annex::extension::types".to_owned()),
        )];
        // With a public macro the section that names the export is emitted in the crate that exports, not in the SDK.
        options.pub_export_macro = true;
        options.export_macro_name = Some(format!("export_{}", module(world)));
    }
    options
}

fn crate_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

#[test]
fn the_example_on_the_page_of_the_crate_is_the_one_of_the_repository() -> Result<()> {
    let page = fs::read_to_string(crate_folder().join("README.md"))?;
    let example = fs::read_to_string(crate_folder().join("../../examples/hello-extension/src/lib.rs"))?;
    ensure!(
        page.contains(&format!("```rust\n{example}```\n")),
        "copy examples/hello-extension/src/lib.rs into README.md"
    );
    Ok(())
}

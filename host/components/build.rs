//! Builds the guests for WebAssembly with a nested cargo, so that `cargo run` and `cargo test` need no second step.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use annex_manifest::{FILE, Manifest};
use anyhow::{Context as _, Result, bail, ensure};

/// The target without WASI. Components for this target import only the functions that their own code calls.
const BARE: &str = "wasm32-unknown-unknown";
/// The target whose standard library imports WASI.
const WASI: &str = "wasm32-wasip2";
const TARGETS: [&str; 2] = [BARE, WASI];
const PROFILE: &str = "guest";

/// The flag for a stack of 128 KiB instead of 1 MiB. The stack is at the start of a guest's memory, and all memory
/// before the guest's data must be prepared anew for each instance. 128 KiB suffice for serde_json's limit of 128
/// levels.
const STACK_SIZE: &str = "-Clink-arg=-zstack-size=131072";

/// Environment variables of the outer build that must not affect the guests. They hold flags for another target,
/// clippy's wrapper, or settings for coverage.
const NOT_INHERITED: [&str; 11] = [
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_TARGET_DIR",
    "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS",
    "CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "RUSTFLAGS",
];

struct Guest {
    package: &'static str,
    /// The name of the component's file without `.wasm`.
    name: &'static str,
    target: &'static str,
    /// True if the component is copied next to the `annex` executable.
    shipped: bool,
}

const GUESTS: [Guest; 27] = [
    Guest { package: "annex-state-injection", name: "state-injection", target: BARE, shipped: true },
    Guest { package: "annex-timestamp", name: "timestamp", target: BARE, shipped: true },
    Guest { package: "annex-compliance-badge", name: "compliance-badge", target: BARE, shipped: true },
    Guest { package: "annex-strict-parts", name: "strict-parts", target: BARE, shipped: true },
    Guest { package: "annex-payment-cards", name: "payment-cards", target: BARE, shipped: true },
    Guest { package: "annex-traceability", name: "traceability", target: BARE, shipped: true },
    Guest { package: "annex-secure-passport", name: "secure-passport", target: BARE, shipped: true },
    Guest { package: "annex-generating-image", name: "generating-image", target: BARE, shipped: true },
    Guest { package: "annex-agent-gateway-protocol", name: "agent-gateway-protocol", target: BARE, shipped: true },
    Guest { package: "annex-task-history", name: "task-history", target: BARE, shipped: true },
    Guest { package: "annex-in-task-authorization", name: "in-task-authorization", target: BARE, shipped: true },
    Guest { package: "annex-session-sharing", name: "session-sharing", target: BARE, shipped: true },
    Guest { package: "annex-ap2", name: "ap2", target: BARE, shipped: true },
    Guest { package: "annex-x402", name: "x402", target: BARE, shipped: true },
    Guest { package: "annex-a2ui", name: "a2ui", target: BARE, shipped: true },
    Guest { package: "annex-approval", name: "approval", target: BARE, shipped: true },
    Guest { package: "annex-agentstack", name: "agentstack", target: BARE, shipped: true },
    Guest { package: "annex-agentstack-trajectory", name: "agentstack-trajectory", target: BARE, shipped: true },
    Guest { package: "annex-agentstack-oauth", name: "agentstack-oauth", target: BARE, shipped: true },
    Guest { package: "annex-adk-integration", name: "adk-integration", target: BARE, shipped: true },
    Guest { package: "annex-test-extension", name: "test-extension", target: BARE, shipped: false },
    Guest { package: "annex-test-steering", name: "test-steering", target: BARE, shipped: false },
    Guest { package: "annex-test-capabilities", name: "test-capabilities", target: WASI, shipped: false },
    Guest { package: "hello-extension", name: "hello-extension", target: BARE, shipped: false },
    Guest { package: "redact-extension", name: "redact-extension", target: BARE, shipped: false },
    Guest { package: "cache-extension", name: "cache-extension", target: BARE, shipped: false },
    Guest { package: "acme-extension", name: "acme-extension", target: BARE, shipped: false },
];

/// The folders of the guests that are not in `guest/`, by the names of their components.
const EXAMPLES: [(&str, &str); 4] = [
    ("hello-extension", "examples/hello-extension"),
    ("redact-extension", "examples/authors/redact/rust"),
    ("cache-extension", "examples/authors/cache/rust"),
    ("acme-extension", "examples/authors/acme/rust"),
];

fn main() -> Result<()> {
    // Where it is now: a checkout that was moved keeps the build script of its former place.
    let manifest_dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").context("CARGO_MANIFEST_DIR is not set")?);
    let workspace = manifest_dir.join("../..").canonicalize().context("find the workspace")?;
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    // OUT_DIR is `<target>/<profile>/build/annex-components-<hash>/out`.
    let profile_dir = out_dir.ancestors().nth(3).context("OUT_DIR is too short")?;
    let guests_dir = out_dir.ancestors().nth(4).context("OUT_DIR is too short")?.join("guests");

    watch(&workspace)?;
    for target in TARGETS {
        install(target)?;
        build(target, &workspace, &guests_dir)?;
    }
    for guest in &GUESTS {
        let file = format!("{}.wasm", guest.package.replace('-', "_"));
        let component = guests_dir.join(guest.target).join(PROFILE).join(file);
        let component = with_manifest(&component, &guest.folder(&workspace))?;
        place(&component, &out_dir, guest.name)?;
        if guest.shipped {
            place(&component, &profile_dir.join("components"), guest.name)?;
        }
    }
    // For the build script of the command.
    let shipped: Vec<&str> = GUESTS.iter().filter(|guest| guest.shipped).map(|guest| guest.name).collect();
    tell(&format!("metadata=folder={}", out_dir.display()));
    tell(&format!("metadata=shipped={}", shipped.join(",")));
    Ok(())
}

/// Tells cargo which files the components are built from, so that a change starts this script again.
fn watch(workspace: &Path) -> Result<()> {
    let mut crates: Vec<PathBuf> = EXAMPLES.iter().map(|(_, folder)| workspace.join(folder)).collect();
    for entry in fs::read_dir(workspace.join("guest")).context("read guest/")? {
        let path = entry?.path();
        // A path that is not there would start this script on every build, and a page has no `src`.
        if path.is_dir() {
            crates.push(path);
        }
    }
    let shared = ["Cargo.toml", "Cargo.lock", ".cargo/config.toml", "wit"].map(|name| workspace.join(name));
    let own = crates.iter().flat_map(|folder| [folder.join("src"), folder.join("Cargo.toml")]);
    let projects = crates.iter().flat_map(|folder| [folder.join(FILE), folder.join("parameters.json")]);
    for path in shared.into_iter().chain(own).chain(projects.filter(|path| path.exists())) {
        tell(&format!("rerun-if-changed={}", path.display()));
    }
    tell("rerun-if-changed=build.rs");
    Ok(())
}

/// Installs the target in the Rust toolchain if it is missing.
fn install(target: &str) -> Result<()> {
    let output = Command::new(tool("RUSTC", "rustc"))
        .args(["--print", "target-libdir", "--target", target])
        .output()
        .context("run rustc")?;
    ensure!(output.status.success(), "rustc does not know {target}: {}", String::from_utf8_lossy(&output.stderr));
    if Path::new(String::from_utf8(output.stdout)?.trim_end()).is_dir() {
        return Ok(());
    }
    tell(&format!("warning=adding the Rust target {target}: rustup target add {target}"));
    let status = Command::new("rustup").args(["target", "add", target]).status().with_context(|| {
        format!("the extensions need the Rust target {target}, and there is no rustup to add it: install it by hand")
    })?;
    ensure!(status.success(), "`rustup target add {target}` failed");
    Ok(())
}

/// Builds the guests for a target, in a separate target folder. The outer cargo holds the lock of the usual target folder.
fn build(target: &str, workspace: &Path, guests_dir: &Path) -> Result<()> {
    let mut cargo = Command::new(tool("CARGO", "cargo"));
    cargo.current_dir(workspace).args(["build", "--locked", "--profile", PROFILE, "--target", target, "--target-dir"]);
    cargo.arg(guests_dir);
    for guest in GUESTS.iter().filter(|guest| guest.target == target) {
        cargo.args(["--package", guest.package]);
    }
    for name in NOT_INHERITED {
        cargo.env_remove(name);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", STACK_SIZE);
    let output = cargo.output().context("run the nested cargo")?;
    if !output.status.success() {
        bail!("the extensions do not build:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Reads a component, and adds the manifest of its project as `annex build` does. Guests for tests have no manifest.
fn with_manifest(component: &Path, project: &Path) -> Result<Vec<u8>> {
    let mut bytes = fs::read(component).with_context(|| format!("read {}", component.display()))?;
    let file = project.join(FILE);
    if !file.exists() {
        return Ok(bytes);
    }
    let wrong = || format!("the manifest {}", file.display());
    let manifest = Manifest::parse(&fs::read_to_string(&file).with_context(wrong)?).with_context(wrong)?;
    let schema = manifest.parameters.as_ref().map(|parameters| fs::read_to_string(project.join(&parameters.schema)));
    let section = manifest.section(schema.transpose().with_context(wrong)?).with_context(wrong)?;
    annex_manifest::append_section(&mut bytes, &section.to_section().with_context(wrong)?);
    Ok(bytes)
}

/// Writes a component unless the destination already has the same bytes. An `annex` that watches the destination then
/// sees no change.
fn place(component: &[u8], folder: &Path, name: &str) -> Result<()> {
    let destination = folder.join(name).with_extension("wasm");
    if fs::read(&destination).is_ok_and(|present| present == component) {
        return Ok(());
    }
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    fs::write(&destination, component).with_context(|| format!("write {}", destination.display()))
}

impl Guest {
    /// The folder of the guest's crate.
    fn folder(&self, workspace: &Path) -> PathBuf {
        let example = EXAMPLES.iter().find(|(name, _)| *name == self.name);
        example.map_or_else(|| workspace.join("guest").join(self.name), |(_, folder)| workspace.join(folder))
    }
}

fn tool(variable: &str, default: &str) -> OsString {
    env::var_os(variable).unwrap_or_else(|| default.into())
}

fn tell(instruction: &str) {
    println!("cargo::{instruction}");
}

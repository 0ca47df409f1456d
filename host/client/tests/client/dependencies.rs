//! The crates that a program links with this one.

use std::env;
use std::process::Command;

/// The names of all crates that annex-client links with these features, according to cargo.
fn linked(features: &str) -> Vec<String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = ["tree", "--offline", "--locked", "--package", "annex-client", "--edges", "normal"];
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(tree)
        .args(["--no-default-features", "--features", features, "--prefix", "none", "--format", "{p}"])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names of packages");
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn a_program_that_only_calls_agents_links_no_wasmtime() {
    let is_engine = |name: &String| name.starts_with("wasmtime") || name == "annex-runtime";
    let plain = linked("");
    assert!(plain.iter().any(|name| name == "annex-protocol"), "{plain:?}");
    assert_eq!(plain.iter().find(|name| is_engine(name)), None);
    // With the feature there is one, so the names are the right ones.
    assert!(linked("components").iter().any(|name| name == "wasmtime"));
}

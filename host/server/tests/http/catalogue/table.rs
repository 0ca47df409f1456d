//! The table of extensions in `host/docs/extensions.md` must match the components' own descriptions.
//!
//! `UPDATE_TABLE=1 cargo test --workspace --test http catalogue` writes the table. Its times come from `cargo bench -p
//! annex-bench --bench catalogue`, which writes `examples/catalogue/times.json`. An extension without a measurement has
//! a dash.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

use annex_runtime::{Access, Extension, Hook, Runtime, RuntimeConfig};

use crate::catalogue::catalogue;

const BEGIN: &str = "<!-- catalogue: written by host/server/tests/http/catalogue/table.rs -->\n";
const END: &str = "<!-- end of catalogue -->";
const HEAD: &str =
    "| name | URI | what it does | hooks | grants | KiB | µs per turn |\n|---|---|---|---|---|---|---|\n";

/// Another compiler makes components of another size, a little.
const SIZE_TOLERANCE: f64 = 0.1;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

async fn row(runtime: &Runtime, (name, component): (&str, &Path), extension: &Extension, time: Option<&f64>) -> String {
    let inspected = runtime.inspect(fs::read(component).expect("a component")).await;
    let inspection = inspected.expect("an extension").inspection;
    let hooks: Vec<&str> =
        extension.hooks().iter().filter(|hook| **hook != Hook::Descriptor).map(|hook| hook.name()).collect();
    let needed = inspection.imports.iter().filter_map(|import| match import.access {
        Access::Needs(grant) => grant.to_string().split_once(' ').map(|(grant, _)| format!("`{grant}`")),
        Access::Free | Access::Unknown => None,
    });
    // What no import shows is what the example grants.
    let granted = extension.grants();
    let named = [
        ("agent-steps.steer", granted.steering),
        ("answer", granted.answer),
        ("forget-metadata", granted.forget_metadata),
        ("rewrite-answer", granted.rewrite_answer),
        ("rewrite-message", granted.rewrite_message),
        ("secrets", !granted.secrets.is_empty()),
    ];
    let named = named.into_iter().filter(|(_, is_granted)| *is_granted).map(|(grant, _)| format!("`{grant}`"));
    let grants: BTreeSet<String> = needed.chain(named).collect();
    let time = time.map_or_else(|| "–".to_owned(), |time| format!("{time:.0}"));
    let grants = if grants.is_empty() { "none".to_owned() } else { grants.into_iter().collect::<Vec<_>>().join(", ") };
    let (uri, does, hooks, size) =
        (extension.uri(), &extension.descriptor().description, hooks.join(", "), kib(extension));
    format!("| [`{name}`](../../guest/{name}/spec.md) | `{uri}` | {does} | {hooks} | {grants} | {size:.0} | {time} |\n")
}

fn kib(extension: &Extension) -> f64 {
    extension.size() as f64 / 1024.0
}

/// The rows of all that ships, in its order.
async fn rows() -> String {
    let server = catalogue().await;
    let installed = server.installer().installed();
    let times = fs::read_to_string(root("examples/catalogue/times.json")).expect("times");
    let times: BTreeMap<String, f64> = serde_json::from_str(&times).expect("numbers by name");
    let runtime = Runtime::new(&RuntimeConfig { instances: 1, ..RuntimeConfig::default() });
    let runtime = runtime.expect("the runtime starts");
    let mut rows = String::new();
    for (name, component) in annex_components::shipped() {
        let extension = installed.iter().find(|extension| extension.descriptor().name == name);
        let extension = extension.unwrap_or_else(|| panic!("the example installs no {name}"));
        rows += &row(&runtime, (name, component), extension, times.get(name)).await;
    }
    rows
}

/// The cells of a row, its size by itself.
fn cells(row: &str) -> (Vec<&str>, f64) {
    let mut cells: Vec<&str> = row.split(" | ").collect();
    let size = cells.remove(5);
    (cells, size.parse().expect("a size"))
}

fn check(written: &str, expected: &str) {
    let rewrite = "run UPDATE_TABLE=1 cargo test --workspace --test http catalogue";
    assert_eq!(written.lines().count(), expected.lines().count(), "the table of extensions is out of date: {rewrite}");
    for (written, expected) in written.lines().zip(expected.lines()).skip(2) {
        let ((written, written_size), (expected, size)) = (cells(written), cells(expected));
        assert_eq!(written, expected, "the table of extensions is out of date: {rewrite}");
        let difference = (written_size - size).abs();
        assert!(difference <= size * SIZE_TOLERANCE, "{expected:?} has {size} KiB, not {written_size}: {rewrite}");
    }
}

#[tokio::test]
async fn the_table_of_extensions_is_what_the_components_say() {
    let expected = format!("{HEAD}{}", rows().await);
    let path = root("host/docs/extensions.md");
    let page = fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("the table's beginning");
    let (written, after) = rest.split_once(END).expect("the table's end");
    if env::var_os("UPDATE_TABLE").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).expect("the page is written");
        return;
    }
    check(written, &expected);
}

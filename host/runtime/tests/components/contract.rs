//! The places in the sources that know versions of the contract.

use std::fs;
use std::path::{Path, PathBuf};

/// Collects the files in `folder`, recursively.
fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files_below(&path, files) } else { files.push(path) }
    }
}

/// A Rust source without comment lines and white space.
fn code(file: &Path) -> String {
    let source = fs::read_to_string(file).expect("a source in UTF-8");
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| line.split_whitespace()).collect()
}

#[test]
fn only_the_adapter_of_a_version_names_what_is_generated_from_its_wit() {
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR"));
    let adapters = runtime.join("src/bindings");
    let versions = fs::read_dir(&adapters).expect("a folder of adapters");
    let versions: Vec<String> = versions
        .map(|entry| entry.expect("an entry").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    assert!(versions.iter().any(|version| version == "v0_1"), "{versions:?}");
    let macros = ["bindgen!", "component::bindgen"].map(str::to_owned);
    let generated = ["bindings::annex", "bindings::exports", "bindings::wasi"].map(str::to_owned);
    let forbidden: Vec<String> = versions.into_iter().chain(macros).chain(generated).collect();

    let mut sources = Vec::new();
    for entry in fs::read_dir(runtime.parent().expect("a folder of crates")).expect("the folder of crates") {
        let folder = entry.expect("a crate").path().join("src");
        if folder.is_dir() {
            files_below(&folder, &mut sources);
        }
    }
    let is_outside = |file: &PathBuf| !file.starts_with(&adapters) && *file != adapters.with_extension("rs");
    let named: Vec<String> = sources
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs") && is_outside(file))
        .flat_map(|file| {
            let code = code(&file);
            let found = forbidden.iter().filter(move |word| code.contains(word.as_str()));
            found.map(move |word| format!("{} names {word}", file.display())).collect::<Vec<_>>()
        })
        .collect();
    assert!(named.is_empty(), "only files in host/runtime/src/bindings may:\n{}", named.join("\n"));
}

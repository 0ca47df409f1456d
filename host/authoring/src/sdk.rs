//! The SDK for Rust, in a form that works outside of the repository.

use std::path::Path;
use std::{fs, io};

use include_dir::{Dir, include_dir};
use toml::{Table, Value};

static SOURCES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../guest/sdk/src");
const MANIFEST: &str = include_str!("../../../guest/sdk/Cargo.toml");
const README: &str = include_str!("../../../guest/sdk/README.md");
/// The manifest of this workspace, from which the SDK's manifest inherits keys.
const WORKSPACE: &str = include_str!("../../../Cargo.toml");

/// Writes the crate `annex-sdk` into `folder`.
pub(crate) fn write(folder: &Path) -> io::Result<()> {
    let sources = folder.join("src");
    fs::create_dir_all(&sources)?;
    SOURCES.extract(&sources)?;
    fs::write(folder.join("README.md"), README)?;
    let manifest = manifest().ok_or_else(|| io::Error::other("the manifest of the SDK cannot be read"))?;
    fs::write(folder.join("Cargo.toml"), manifest)
}

/// The SDK's manifest, changed so that it works without the workspace. `None` if one of the two manifests cannot be
/// parsed or lacks a table that is needed.
fn manifest() -> Option<String> {
    let workspace: Table = toml::from_str(WORKSPACE).ok()?;
    let workspace = workspace.get("workspace")?.as_table()?;
    let mut manifest: Table = toml::from_str(MANIFEST).ok()?;
    // They are for work on the SDK itself.
    manifest.remove("dev-dependencies");
    manifest.remove("test");
    manifest.remove("lints");
    inherit(manifest.get_mut("package")?.as_table_mut()?, workspace.get("package")?.as_table()?);
    let dependencies = workspace.get("dependencies")?.as_table()?;
    inherit(manifest.get_mut("dependencies")?.as_table_mut()?, dependencies);
    for (_, target) in manifest.get_mut("target")?.as_table_mut()? {
        inherit(target.get_mut("dependencies")?.as_table_mut()?, dependencies);
    }
    Some(format!("# Of the Annex that made this project.\n\n{manifest}"))
}

/// Replaces each `workspace = true` by the value that the workspace's manifest has for the same key. A dependency also
/// keeps the features and options that it sets itself.
fn inherit(table: &mut Table, workspace: &Table) {
    for (name, value) in table {
        let Some(own) = value.as_table().filter(|own| own.get("workspace") == Some(&Value::Boolean(true))) else {
            continue;
        };
        let Some(given) = workspace.get(name) else { continue };
        let mut own = own.clone();
        own.remove("workspace");
        if own.is_empty() {
            *value = given.clone();
            continue;
        }
        let mut whole = match given {
            Value::Table(given) => given.clone(),
            version => Table::from_iter([("version".to_owned(), version.clone())]),
        };
        for (key, added) in own {
            match (whole.get_mut(&key), added) {
                // Features add up.
                (Some(Value::Array(there)), Value::Array(added)) => there.extend(added),
                (_, added) => drop(whole.insert(key, added)),
            }
        }
        *value = whole.into();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sdk_stands_by_itself() {
        let manifest = super::manifest().expect("a manifest");
        assert!(!manifest.contains("workspace"), "{manifest}");
        let manifest: toml::Table = toml::from_str(&manifest).expect("TOML");
        let bindgen = &manifest["dependencies"]["wit-bindgen"];
        let features: Vec<&str> =
            bindgen["features"].as_array().expect("a list").iter().flat_map(toml::Value::as_str).collect();
        assert_eq!(features, ["realloc", "bitflags"]);
        assert_eq!(bindgen["default-features"].as_bool(), Some(false));
    }
}

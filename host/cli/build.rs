//! Makes the components that ship a part of the program, and sets the commit for `--version` if the program is built in a clone
//! of the repository.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    // Without any such line cargo would look at all files of the package.
    println!("cargo::rerun-if-changed=build.rs");
    embed_components()?;
    set_commit();
    Ok(())
}

/// Writes the name and the content of each component that ships as an expression of Rust, for `src/shipped.rs`. The list is
/// empty without the feature `embedded-components`.
fn embed_components() -> io::Result<()> {
    let of_cargo = |name: &str| env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}")));
    let (out_dir, folder) = (of_cargo("OUT_DIR")?, of_cargo("DEP_ANNEX_COMPONENTS_FOLDER")?);
    let names = of_cargo("DEP_ANNEX_COMPONENTS_SHIPPED")?;
    let is_wanted = env::var_os("CARGO_FEATURE_EMBEDDED_COMPONENTS").is_some();
    let mut content = DefaultHasher::new();
    let mut list = String::new();
    for name in names.split(',').filter(|_| is_wanted) {
        let file = format!("{folder}/{name}.wasm");
        content.write(&fs::read(&file)?);
        list.push_str(&format!("({name:?}, include_bytes!({file:?})),\n"));
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rustc-env=ANNEX_SHIPPED_CONTENT={:016x}", content.finish());
    fs::write(Path::new(&out_dir).join("shipped.rs"), format!("&[{list}]"))
}

fn set_commit() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = manifest.join("../..");
    // A package from a registry has no repository there, and the one that its folder may lie in is somebody else's.
    if !root.join(".git").exists() {
        return;
    }
    let Some(commit) = git(&root, &["rev-parse", "--short=9", "HEAD"]) else { return };
    println!("cargo::rustc-env=ANNEX_COMMIT={commit}");
    // Each of them changes only with the commit. A file that is not there would run this script at each build.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&root, &["rev-parse", "--git-path", name]).map(|path| root.join(path));
        if let Some(path) = path.filter(|path| path.exists()) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

/// Runs git and returns its output of one line. `None` if git fails, prints nothing or is not installed.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}

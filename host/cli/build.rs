//! Sets the commit for `--version` if the program is built in a clone of the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    // Without any such line cargo would look at all files of the package.
    println!("cargo::rerun-if-changed=build.rs");
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
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

/// The line that git prints; `None` if git fails, prints nothing or is not installed.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}

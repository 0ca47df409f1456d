//! The components that ship, as a part of the program. `cargo install` installs the program without its folder of components.

use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;

use annex_files::Purpose;

use crate::output;

/// The name and the content of each component. Empty without the feature `embedded-components`.
const COMPONENTS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));
/// A number that changes with the content of the components.
const CONTENT: &str = env!("ANNEX_SHIPPED_CONTENT");

/// The permissions of a component's file.
const MODE: u32 = 0o600;

/// The folder below `cache` that has the components of the program. They are written there once. `None` if the program has no
/// components, or if they cannot be written.
pub(crate) fn folder(cache: &Path) -> Option<PathBuf> {
    COMPONENTS.first()?;
    let parent = cache.join("shipped");
    match unpacked(&parent) {
        Ok(folder) => Some(folder),
        Err(error) => {
            let parent = parent.display();
            output::note(&format!("the components that ship cannot be written to {parent}: {error}"));
            None
        }
    }
}

fn unpacked(parent: &Path) -> io::Result<PathBuf> {
    let folder = parent.join(CONTENT);
    if !folder.is_dir() {
        // Other processes see all components or none.
        let unfinished = parent.join(format!("{CONTENT}.{}", process::id()));
        DirBuilder::new().recursive(true).mode(0o700).create(&unfinished)?;
        for (name, component) in COMPONENTS {
            let file = unfinished.join(name).with_extension("wasm");
            annex_files::create(&file, MODE, true)?.write_all(component)?;
        }
        match fs::rename(&unfinished, &folder) {
            // Another process has written them in the meantime.
            Err(_) if folder.is_dir() => fs::remove_dir_all(&unfinished)?,
            renamed => renamed?,
        }
        output::note(&format!("wrote the components that ship to {}", folder.display()));
    }
    annex_files::check_folder(&folder.canonicalize()?, Purpose::Private)?;
    Ok(folder)
}

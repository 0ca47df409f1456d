//! The folders in which files are looked for.

use std::path::PathBuf;

/// The most files that are looked at for names of components that ship.
const MAX_SHIPPED: usize = 1_000;

/// The folders in which files are looked for.
#[derive(Clone, Debug)]
pub struct Locations {
    /// The folder of the config; relative paths start here.
    pub config: PathBuf,
    /// The components that ship with Annex, found by bare name.
    pub components: PathBuf,
    /// Compiled components, unless the config names a folder; `None` keeps nothing.
    pub cache: Option<PathBuf>,
}

impl Locations {
    /// The file of a component: a bare name is one that ships, anything else a path.
    #[must_use]
    pub fn component(&self, name: &str) -> PathBuf {
        if Self::ships(name) { self.components.join(name).with_extension("wasm") } else { self.config.join(name) }
    }

    /// What to write instead of the name of a component that is not there: names of components that ship.
    pub(crate) fn instead(&self, name: &str) -> String {
        if !Self::ships(name) {
            return String::new();
        }
        let shipped = self.shipped();
        if shipped.is_empty() {
            let folder = std::path::absolute(&self.components).unwrap_or_else(|_| self.components.clone());
            return format!(
                "; a name without `/` and `.` is a component that ships, and {} has none: it lies beside the executable",
                folder.display()
            );
        }
        let meant = annex_text::instead(name, &shipped, "these ship:");
        format!("; a name without `/` and `.` is a component that ships, in `components` beside the executable{meant}")
    }

    /// The names of the components that ship.
    #[must_use]
    pub fn shipped(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.components).into_iter().flatten().flatten().take(MAX_SHIPPED);
        let components = files.filter_map(|file| {
            let path = file.path();
            let is_component = path.extension().is_some_and(|extension| extension == "wasm");
            path.file_stem().filter(|_| is_component)?.to_str().map(str::to_owned)
        });
        let mut names: Vec<String> = components.collect();
        names.sort();
        names
    }

    /// True for a bare name, which is that of a component that ships.
    pub(crate) fn ships(name: &str) -> bool {
        !name.contains(['/', '.'])
    }
}

//! The folders of the config, the shipped components and the cache.

use std::path::PathBuf;

/// The maximum number of files that are read from the folder of shipped components to list their names.
const MAX_SHIPPED: usize = 1_000;

/// The folders of the config, the shipped components and the cache.
#[derive(Clone, Debug)]
pub struct Locations {
    /// The folder of the config. Relative paths in the config start there.
    pub config: PathBuf,
    /// The folder of the components that ship with Annex.
    pub components: PathBuf,
    /// The folder for compiled components if the config does not name one. If this is `None` too, there is no cache.
    pub cache: Option<PathBuf>,
}

impl Locations {
    /// The path of a component's file. A bare name such as `timestamp` stands for a shipped component. Any other name
    /// is a path.
    #[must_use]
    pub fn component(&self, name: &str) -> PathBuf {
        if Self::ships(name) { self.components.join(name).with_extension("wasm") } else { self.config.join(name) }
    }

    /// The folder of the components that were pulled from registries: `registry` beside the folder for compiled
    /// components. `None` if there is no cache.
    #[must_use]
    pub fn registry_cache(&self) -> Option<PathBuf> {
        self.cache.as_ref().map(|cache| cache.with_file_name("registry"))
    }

    /// A hint for the error about an unknown component: the names of the shipped components. Empty if `name` is a path.
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
        format!("; a name without `/` and `.` is a component that ships{meant}")
    }

    /// The names of the shipped components, sorted.
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

    /// True for a bare name, which stands for a shipped component.
    pub(crate) fn ships(name: &str) -> bool {
        !name.contains(['/', '.'])
    }
}

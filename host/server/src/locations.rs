//! The folders in which files are looked for.

use std::path::PathBuf;

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

    /// True for a bare name, which is that of a component that ships.
    pub(crate) fn ships(name: &str) -> bool {
        !name.contains(['/', '.'])
    }
}

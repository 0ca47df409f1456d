//! Files with the settings of one extension: the keys of an `[[extension]]` in a config, except `component`.

use std::path::Path;

use annex_authoring::{FILE, Project};
use annex_files::Purpose;
use annex_runtime::Installation;
use annex_server::ExtensionConfig;
use anyhow::{Context, anyhow};
use toml::Table;

/// The maximum size of a file with settings, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The settings of one extension: their TOML, and the installation that the host makes from it.
pub(crate) struct Settings {
    pub(crate) table: Table,
    pub(crate) installation: Installation,
}

/// Reads a file with settings; without a file, the settings are the defaults.
///
/// # Errors
/// When the file cannot be read, or has keys that an extension cannot have.
pub(crate) fn read(file: Option<&Path>) -> anyhow::Result<Settings> {
    let (text, folder) = match file {
        None => (String::new(), Path::new("")),
        Some(file) => {
            let text = annex_files::read_text(file, Purpose::Named, MAX_BYTES);
            let text = text.with_context(|| format!("cannot read {}", file.display()))?;
            // Paths in a file start at its folder, as they do in a config.
            (text, file.parent().unwrap_or(Path::new("")))
        }
    };
    let shown = file.map_or_else(|| "no settings".to_owned(), |file| file.display().to_string());
    let installation = ExtensionConfig::read_installation(&text, folder);
    let installation = installation.map_err(|reason| anyhow!("{shown}: {reason}"))?;
    let table = toml::from_str(&text).map_err(|error| anyhow!("{shown}: {error}"))?;
    Ok(Settings { table, installation })
}

/// Reads the settings in a project's manifest.
///
/// # Errors
/// When the manifest has keys that an extension cannot have.
pub(crate) fn of_project(project: &Project) -> anyhow::Result<Settings> {
    let installation = ExtensionConfig::read_installation(&project.settings(), &project.folder);
    let named = |reason: String| anyhow!("{}: settings: {reason}", project.folder.join(FILE).display());
    Ok(Settings { table: project.manifest.settings.clone(), installation: installation.map_err(named)? })
}

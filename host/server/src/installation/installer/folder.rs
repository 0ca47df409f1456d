//! The managed folder. Every `NAME.wasm` in it is installed, with the settings in `NAME.toml`.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use annex_files::Purpose;

use crate::config::ExtensionConfig;

/// The maximum size of a settings file, in bytes.
const MAX_SETTINGS_BYTES: usize = 1 << 20;
/// The maximum size of a file's name without its ending, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// The modes of created folders and files. These modes let only the server's user write, whatever the umask is: files
/// and folders that other users may write are refused when they are read.
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// The folder of `runtime.extensions_dir`.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// A component in the folder.
pub(super) struct FolderEntry {
    pub(super) name: String,
    pub(super) component: PathBuf,
    /// The settings, or the reason why they cannot be used.
    pub(super) settings: Result<ExtensionConfig, String>,
    /// True if a server may start without the extension. False if the settings require the extension, or if a mistake
    /// in the settings may stand for such a requirement.
    pub(super) is_optional: bool,
}

impl Folder {
    /// Opens the folder, and creates it if it does not exist. A folder that other users can write is refused, because
    /// every component in the folder is installed.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&path)?;
        annex_files::check_folder(&path, Purpose::Managed)?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lists the components in the folder, sorted by name. Skips files whose names begin with a dot, because such files
    /// are unfinished.
    pub(super) fn list(&self) -> io::Result<Vec<FolderEntry>> {
        // The mode may have changed since the folder was opened.
        annex_files::check_folder(&self.path, Purpose::Managed)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let file = entry?.file_name();
            let name = file.to_str().and_then(|name| name.strip_suffix(".wasm"));
            if let Some(name) = name.filter(|name| !name.starts_with('.') && !name.is_empty()) {
                let component = self.component(name);
                let text = self.settings_text(name);
                let broken_is_optional = text.as_deref().is_ok_and(ExtensionConfig::broken_settings_are_optional);
                let settings = text.and_then(|text| read_settings(name, &text));
                let is_optional = settings.as_ref().map_or(broken_is_optional, |settings| !settings.must_load());
                found.push(FolderEntry { name: name.to_owned(), component, settings, is_optional });
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Reads all settings files of the folder and returns their faults.
    pub(crate) fn broken_settings(&self) -> io::Result<Vec<String>> {
        Ok(self.list()?.into_iter().filter_map(|found| found.settings.err()).collect())
    }

    pub(super) fn component(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.wasm"))
    }

    fn settings_file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.toml"))
    }

    /// Reads the settings of a component. A component without a settings file has the settings of an empty file.
    pub(super) fn settings(&self, name: &str) -> Result<ExtensionConfig, String> {
        read_settings(name, &self.settings_text(name)?)
    }

    fn settings_text(&self, name: &str) -> Result<String, String> {
        match annex_files::read_text(&self.settings_file(name), Purpose::Managed, MAX_SETTINGS_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            text => text.map_err(|error| format!("cannot read {name}.toml: {error}")),
        }
    }

    /// Writes a component into the folder and replaces the component with the same name. If `settings` is `None`, the
    /// existing settings stay.
    pub(super) fn write(&self, name: &str, component: &[u8], settings: Option<&str>) -> io::Result<()> {
        let file = self.component(name);
        let settings_file = self.settings_file(name);
        // All writes that need disk space happen before anything is replaced.
        let component = self.aside(&file, component)?;
        if let Some(settings) = settings {
            // The settings are replaced first: the new component must not be read with the old settings.
            fs::rename(self.aside(&settings_file, settings.as_bytes())?, settings_file)?;
        }
        fs::rename(component, file)
    }

    /// Writes a temporary file, which the caller then renames to `file`. Thus no reader sees a partly written file.
    fn aside(&self, file: &Path, content: &[u8]) -> io::Result<PathBuf> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let aside = self.path.join(format!(".{name}.new"));
        // Removes the file of an attempt that was interrupted, or a symbolic link that an attacker has placed.
        match fs::remove_file(&aside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut writing = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&aside)?;
        writing.write_all(content)?;
        // The content is synced before the rename, so that a crash leaves no empty file.
        writing.sync_all()?;
        Ok(aside)
    }

    /// Deletes the component and its settings from the folder.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        // The component is deleted first, because settings alone install nothing.
        for file in [self.component(name), self.settings_file(name)] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn read_settings(name: &str, text: &str) -> Result<ExtensionConfig, String> {
    ExtensionConfig::from_settings(name, text).map_err(|reason| format!("{name}.toml: {reason}"))
}

/// True for a valid file name without special characters.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.starts_with('.') && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names_of_extensions_are_plain_names_of_files() {
        for name in ["a", "my-extension_2.1"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".hidden", "a/b", "..", "a b", "ä", &"x".repeat(101)] {
            assert!(!is_name(name), "{name}");
        }
    }
}

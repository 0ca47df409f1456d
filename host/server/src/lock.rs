//! `annex.lock`: the components that the references of a config stand for. The file is in the folder of the config.
//!
//! `annex lock` and `annex add` write the file. A server only reads it, so that a tag which moves changes nothing.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use annex_files::Purpose;
use annex_registry::{Digest, Reference};
use annex_text::line_within;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of the file.
pub const LOCK_FILE: &str = "annex.lock";

/// The version of the format that this program reads and writes.
const VERSION: u32 = 1;
/// The maximum size of the file in bytes.
const MAX_BYTES: usize = 4 << 20;
/// The maximum size of an error text in bytes.
const MAX_REASON: usize = 300;
const HEADER: &str = "# Written by `annex lock` and `annex add`. Commit this file.\n";

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// The components, each reference once.
    pub components: Vec<LockedComponent>,
}

/// A component that a reference stands for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LockedComponent {
    /// The reference in the config.
    #[serde(deserialize_with = "reference", serialize_with = "as_text")]
    pub reference: Reference,
    /// The digest of the manifest.
    pub manifest: Digest,
    /// The digest of the component.
    pub component: Digest,
    /// The size of the component in bytes.
    pub size: u64,
    /// The signers of `[trust]` that have signed the component: files of keys, and keyless identities. Empty if the policy
    /// needs no signature.
    pub signers: Vec<String>,
    /// The grants that the operator has accepted, by name.
    pub grants: Vec<String>,
}

/// The reasons why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The file has a mistake.
    #[error("{}:{line}: {reason}; mend it, or delete it and run: annex lock CONFIG", path.display())]
    Mistake {
        /// The file.
        path: PathBuf,
        /// The line of the mistake, from 1.
        line: usize,
        /// The mistake.
        reason: String,
    },
    /// The file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

/// The content of the file as TOML.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct LockDocument {
    #[serde(deserialize_with = "version")]
    version: u32,
    #[serde(default, rename = "component")]
    components: Vec<LockedComponent>,
}

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        VERSION => Ok(VERSION),
        other => Err(D::Error::custom(format!("version {other} is unknown, this program reads version {VERSION}"))),
    }
}

fn reference<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Reference, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn as_text<S: Serializer>(reference: &Reference, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(reference)
}

impl Lock {
    /// Reads the file in `folder`. `None` if there is no file.
    ///
    /// # Errors
    /// [`LockError`]
    pub fn read(folder: &Path) -> Result<Option<Self>, LockError> {
        let path = folder.join(LOCK_FILE);
        match annex_files::read_text(&path, Purpose::Named, MAX_BYTES) {
            Ok(text) => Self::parse(&path, &text).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(LockError::Read { path, source }),
        }
    }

    /// Writes the file in `folder`, sorted by reference. The file is replaced as a whole.
    ///
    /// # Errors
    /// [`LockError::Write`]
    pub fn write(&self, folder: &Path) -> Result<(), LockError> {
        let mut components = self.components.clone();
        components.sort_by(|one, other| one.reference.cmp(&other.reference));
        let path = folder.join(LOCK_FILE);
        let text = toml::to_string(&LockDocument { version: VERSION, components }).map_err(io::Error::other);
        let written = text.and_then(|text| annex_files::replace(&path, format!("{HEADER}{text}").as_bytes(), 0o644));
        written.map_err(|source| LockError::Write { path, source })
    }

    /// Finds the component that a reference stands for.
    #[must_use]
    pub fn find(&self, reference: &Reference) -> Option<&LockedComponent> {
        self.components.iter().find(|component| component.reference == *reference)
    }

    /// Adds a component. It replaces the component that has the same reference.
    pub fn put(&mut self, component: LockedComponent) {
        self.components.retain(|earlier| earlier.reference != component.reference);
        self.components.push(component);
    }

    fn parse(path: &Path, text: &str) -> Result<Self, LockError> {
        let mistake = |line, reason: &str| {
            let reason = line_within(reason.trim(), MAX_REASON);
            LockError::Mistake { path: path.to_owned(), line, reason }
        };
        let read = toml::from_str(text);
        let LockDocument { components, .. } = read.map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            mistake(before.matches('\n').count() + 1, error.message())
        })?;
        if let Some(twice) = repeated(&components) {
            let written = format!("\"{twice}\"");
            let line = text.lines().enumerate().filter(|(_, line)| line.contains(&written)).nth(1);
            return Err(mistake(line.map_or(1, |(number, _)| number + 1), &format!("{twice} is in the file twice")));
        }
        Ok(Self { components })
    }
}

/// Finds a reference that several components have.
fn repeated(components: &[LockedComponent]) -> Option<&Reference> {
    let mut references = BTreeSet::new();
    components.iter().map(|component| &component.reference).find(|reference| !references.insert(*reference))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use annex_registry::Digest;

    use super::{LOCK_FILE, Lock, LockedComponent};

    fn component(reference: &str) -> LockedComponent {
        LockedComponent {
            reference: reference.parse().expect("a reference"),
            manifest: Digest::of(reference.as_bytes()),
            component: Digest::of(b"component"),
            size: 9,
            signers: vec!["keys/acme.pub".to_owned()],
            grants: vec!["clock".to_owned(), "keyvalue".to_owned()],
        }
    }

    #[test]
    fn a_lock_is_read_as_it_was_written_and_sorted() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Lock::read(folder.path()).expect("no error").is_none(), "there is no file");
        let mut lock = Lock::default();
        lock.put(component("oci://registry.example/b:1"));
        lock.put(LockedComponent { size: 1, ..component("oci://registry.example/a:1") });
        lock.put(component("oci://registry.example/a:1"));
        lock.write(folder.path()).expect("it is written");
        let read = Lock::read(folder.path()).expect("it is read").expect("a file");
        let expected = ["oci://registry.example/a:1", "oci://registry.example/b:1"].map(component);
        assert_eq!(read.components, expected);
        assert_eq!(read.find(&expected[1].reference), Some(&expected[1]));
        assert_eq!(read.find(&"oci://registry.example/b:2".parse().expect("a reference")), None);
        let text = fs::read_to_string(folder.path().join(LOCK_FILE)).expect("a file");
        assert!(text.starts_with("# Written by `annex lock`"), "{text}");
    }

    #[test]
    fn a_mistake_in_a_lock_is_shown_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut lock = Lock::default();
        lock.put(component("oci://registry.example/a:1"));
        lock.write(folder.path()).expect("it is written");
        let path = folder.path().join(LOCK_FILE);
        let text = fs::read_to_string(&path).expect("a file");
        let again = text.split_once("\n\n").map(|(_, rest)| rest.to_owned()).expect("a component");
        for (changed, line, reason) in [
            (text.replace("version = 1", "version = 2"), 2, "version 2 is unknown"),
            (text.replace("version = 1", "version = 1\nversoin = 1"), 3, "versoin"),
            (text.replace("size = 9", "size = 9\nnote = \"x\""), 9, "note"),
            (text.replace("size = 9", "size = -9"), 8, ""),
            (text.replace("oci://", "oci://."), 5, "no reference"),
            (text.replace("manifest = \"sha256:", "manifest = \"sha512:"), 6, "sha256"),
            (format!("{text}\n{again}"), 13, "twice"),
        ] {
            fs::write(&path, &changed).expect("it is written");
            let error = Lock::read(folder.path()).expect_err(&changed).to_string();
            assert!(error.contains(&format!("{LOCK_FILE}:{line}: ")) && error.contains(reason), "{error}\n{changed}");
            assert!(error.contains("annex lock"), "{error}");
        }
        fs::write(&path, &text).expect("it is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("a mode");
        assert!(Lock::read(folder.path()).is_err(), "others could write it");
    }
}

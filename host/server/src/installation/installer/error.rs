//! The reasons for which a change of what is installed is refused. Nothing has changed then.

use std::path::PathBuf;

use annex_leases::editions::EditionsError;
use annex_runtime::{LoadError, Source};
use annex_telemetry::fault;

use super::version::Origin;
use crate::config::ConfigError;

/// The source name of failures of the config itself.
pub(super) const OF_CONFIG: &str = "config";
/// That of failures of the set as a whole.
pub(super) const OF_ALL: &str = "all extensions together";

/// The reasons for which a change of what is installed is refused. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The config was not read from a file, so it cannot be read again.
    #[error("the config was not read from a file")]
    NoFile,
    /// The config cannot be used.
    #[error("the config cannot be read again")]
    Config(#[source] ConfigError),
    /// A table of the config that was read again cannot be used.
    #[error("[{table}] cannot be used")]
    Table {
        /// Its name.
        table: &'static str,
        /// The reason.
        #[source]
        source: Source,
    },
    /// The managed folder cannot be used.
    #[error("runtime.extensions_dir: cannot use {}", path.display())]
    Folder {
        /// The folder or the file in it.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// A component file cannot be read.
    #[error("{}: cannot read {}", origin.at(&["component"]), path.display())]
    Read {
        /// Which extension.
        origin: Origin,
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// A setting of an extension is unusable.
    #[error("{}: {key}: {reason}", origin.at(&[key]))]
    Setting {
        /// Which extension.
        origin: Origin,
        /// The key.
        key: &'static str,
        /// The fault of the value.
        reason: String,
    },
    /// A component is refused.
    #[error("{} is refused", origin.at(&keys(source)))]
    Load {
        /// Which extension.
        origin: Origin,
        /// The reason.
        #[source]
        source: LoadError,
    },
    /// The extensions do not fit together.
    #[error("{places}the installed extensions do not fit together")]
    Set {
        /// Where those stand that do not fit, with a colon behind; empty for those that stand in no config.
        places: String,
        /// The reason.
        #[source]
        source: LoadError,
    },
    /// The cards cannot be made.
    #[error("the cards cannot be made")]
    Cards(#[source] Source),
    /// The name of an added extension is none.
    #[error("{name:?} is no name for an extension: letters, digits, `-`, `_` and `.`, at most 100 bytes")]
    Name {
        /// The name that was given.
        name: String,
    },
    /// Nothing like that is installed.
    #[error("no extension {id} is installed")]
    NotInstalled {
        /// The URI or digest that was asked for.
        id: String,
    },
    /// Several extensions have that component.
    #[error("several extensions have the component {id}; name the URI")]
    Ambiguous {
        /// The URI or digest that was asked for.
        id: String,
    },
    /// There is no such version to go back to.
    #[error("no such version of {uri} is kept (runtime.keep_versions = {keep})")]
    NoVersion {
        /// The extension.
        uri: String,
        /// The number of versions that are kept.
        keep: usize,
    },
    /// The extension has no shadow.
    #[error("{uri} has no shadow; it ends when another version comes in force")]
    NoShadow {
        /// The extension.
        uri: String,
    },
    /// The extension has a shadow or is recorded, and one of them is allowed at once.
    #[error("{uri} has a shadow already, or is recorded; drop the shadow first, or wait for the end of the recording")]
    Observed {
        /// The extension.
        uri: String,
    },
    /// The component of a shadow is another extension.
    #[error("the component is {found}, and a shadow of {uri} has to be {uri}")]
    OtherExtension {
        /// The extension in force.
        uri: String,
        /// The URI of the component.
        found: String,
    },
    /// The component of a shadow asks for more than the version in force has.
    #[error(
        "the component asks for more than the version of {uri} in force has ({what}), and a shadow has no more than that; \
         grant it to the version in force first, or install the component without --shadow"
    )]
    AsksForMore {
        /// The extension.
        uri: String,
        /// The thing that it asks for.
        what: String,
    },
    /// The processes cannot agree, because the database that they share fails.
    #[error("what all replicas have installed cannot be read or changed")]
    Editions(#[from] EditionsError),
    /// An edition that is kept for all processes is not understood here.
    #[error("the edition that all replicas share cannot be read: {reason}")]
    Unreadable {
        /// The fault.
        reason: String,
    },
    /// A component is not kept any more.
    #[error("the component {digest} is no longer kept for all replicas; add it again")]
    NotKept {
        /// Its digest.
        digest: String,
    },
    /// Another change is under way, or came in force while this one was made.
    #[error(
        "another replica changes the same extensions, or has just changed them; nothing has changed here: try again"
    )]
    Busy,
    /// A process cannot serve what is proposed.
    #[error("replica {replica} cannot serve it, so nothing has changed: {reason}")]
    Unable {
        /// Its name or id.
        replica: String,
        /// The reason.
        reason: String,
    },
    /// A process has not said whether it can serve what is proposed.
    #[error("no word of {replicas} within {seconds} seconds, so nothing has changed")]
    Silent {
        /// Their names or ids.
        replicas: String,
        /// The time that they had.
        seconds: u64,
    },
    /// The lease of this process was over in between.
    #[error("the lease of this replica was over meanwhile; look whether anything has changed, and try again")]
    LeaseOver,
    /// It is in force, and a process has not said that it serves it.
    #[error("edition {number} is in force, and there is no word yet that {replicas} serves it")]
    Behind {
        /// The edition.
        number: u64,
        /// Their names or ids.
        replicas: String,
    },
}

/// The keys of an extension that may be why it is refused, the likeliest first: parameters that the reason names.
fn keys(refusal: &LoadError) -> Vec<String> {
    let mut keys = Vec::new();
    if let LoadError::Parameters { pointer, .. } = refusal
        && !pointer.is_empty()
    {
        keys.push(format!("parameters{}", pointer.replace('/', ".")));
    }
    let text = fault::text(refusal);
    let names = text.split(['`', '\'', '"']).skip(1).step_by(2);
    keys.extend(names.map(|name| format!("parameters.{name}")));
    if matches!(refusal, LoadError::NotGranted { .. }) {
        keys.push("grants".to_owned());
    }
    keys.push("component".to_owned());
    keys
}

impl InstallError {
    /// The error and its causes without the lines of files that errors of TOML show.
    pub(crate) fn public_text(&self) -> String {
        match self {
            Self::Config(error) => format!("{self}: {}", error.lines().join("; ")),
            _ => fault::text(self),
        }
    }

    /// The name of the source that the failure belongs to.
    pub(super) fn source_name(&self) -> String {
        match self {
            Self::Read { origin, .. } | Self::Setting { origin, .. } | Self::Load { origin, .. } => origin.to_string(),
            Self::Folder { .. } => "runtime.extensions_dir".to_owned(),
            Self::Name { name } => name.clone(),
            Self::NoFile | Self::Config(_) | Self::Table { .. } => OF_CONFIG.to_owned(),
            Self::Set { .. }
            | Self::Cards(_)
            | Self::Editions(_)
            | Self::Unreadable { .. }
            | Self::NotKept { .. }
            | Self::Busy
            | Self::Unable { .. }
            | Self::Silent { .. }
            | Self::LeaseOver
            | Self::Behind { .. } => OF_ALL.to_owned(),
            Self::NotInstalled { id } | Self::Ambiguous { id } => id.clone(),
            Self::NoVersion { uri, .. }
            | Self::NoShadow { uri }
            | Self::Observed { uri }
            | Self::OtherExtension { uri, .. }
            | Self::AsksForMore { uri, .. } => uri.clone(),
        }
    }
}

//! The errors of a change of the installed extensions. A failed change leaves everything as it was.

use std::path::PathBuf;

use annex_leases::editions::EditionsError;
use annex_runtime::{Fault, LoadError, Source};
use annex_telemetry::fault;

use super::version::Origin;
use crate::config::ConfigError;
use crate::installation::denied::Denial;

/// The name of the source in a failure that concerns the whole config.
pub(super) const OF_CONFIG: &str = "config";
/// The name of the source in a failure that concerns all extensions together.
pub(super) const OF_ALL: &str = "all extensions together";

/// Why a change of the installed extensions failed. Unless the variant says otherwise, nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The config was not read from a file, so it cannot be reloaded.
    #[error("the config was not read from a file")]
    NoFile,
    /// The config file is invalid or cannot be read.
    #[error("the config cannot be read again")]
    Config(#[source] ConfigError),
    /// A table of the reloaded config cannot be applied.
    #[error("[{table}] cannot be used")]
    Table {
        /// The name of the table.
        table: &'static str,
        /// The reason.
        #[source]
        source: Source,
    },
    /// The managed folder cannot be used.
    #[error("runtime.extensions_dir: cannot use {}", path.display())]
    Folder {
        /// The folder, or the file in it.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// A component file cannot be read.
    #[error("{}: cannot read {}", origin.at(&["component"]), path.display())]
    Read {
        /// The source of the extension.
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
        /// The source of the extension.
        origin: Origin,
        /// The config key of the setting.
        key: &'static str,
        /// The reason why the value is unusable.
        reason: String,
    },
    /// A component is refused.
    #[error("{} is refused", origin.at(&keys(source)))]
    Load {
        /// The source of the extension.
        origin: Origin,
        /// The reason.
        #[source]
        source: LoadError,
    },
    /// The operator denies the component, so none of its code runs.
    #[error("{}: {denial}; use another component, or remove the digest from trust.deny_file", origin.at(&["component"]))]
    Denied {
        /// The source of the extension.
        origin: Origin,
        /// The digest that the deny list has.
        denial: Denial,
    },
    /// The operator has taken the version out of service.
    #[error("the version cannot be installed")]
    OutOfService(#[source] Fault),
    /// Several extensions are refused, each for a reason of its own.
    #[error("{} errors\n{}", .0.len(), .0.iter().map(Self::public_text).collect::<Vec<_>>().join("\n"))]
    Several(Vec<InstallError>),
    /// The extensions do not fit together.
    #[error("{places}the installed extensions do not fit together")]
    Set {
        /// The positions of the conflicting extensions in the config, followed by a colon. Empty if none of these
        /// extensions is in the config.
        places: String,
        /// The reason.
        #[source]
        source: LoadError,
    },
    /// The cards cannot be encoded or signed.
    #[error("the cards cannot be made")]
    Cards(#[source] Source),
    /// The name for an added extension is invalid.
    #[error("{name:?} is no name for an extension: letters, digits, `-`, `_` and `.`, at most 100 bytes")]
    Name {
        /// The name in the request.
        name: String,
    },
    /// No extension with this URI or digest is installed.
    #[error("no extension {id} is installed; name it by its URI or its digest, which `annex extension list` shows")]
    NotInstalled {
        /// The URI or digest in the request.
        id: String,
    },
    /// Several extensions have the component with this digest.
    #[error("several extensions have the component {id}; name the URI")]
    Ambiguous {
        /// The URI or digest in the request.
        id: String,
    },
    /// No kept version of the extension has the requested number.
    #[error("no such version of {uri} is kept (runtime.keep_versions = {keep})")]
    NoVersion {
        /// The URI of the extension.
        uri: String,
        /// The number of versions that are kept.
        keep: usize,
    },
    /// The extension has no shadow.
    #[error("{uri} has no shadow; it ends when another version comes in force")]
    NoShadow {
        /// The URI of the extension.
        uri: String,
    },
    /// The extension already has a shadow or is recorded. Only one observer at a time is allowed.
    #[error("{uri} has a shadow already, or is recorded; drop the shadow first, or wait for the end of the recording")]
    Observed {
        /// The URI of the extension.
        uri: String,
    },
    /// The component of a shadow has another URI than the extension that it shadows.
    #[error("the component is {found}, and a shadow of {uri} has to be {uri}")]
    OtherExtension {
        /// The URI of the installed extension.
        uri: String,
        /// The URI of the component.
        found: String,
    },
    /// The component of a shadow needs a grant that the installed version lacks.
    #[error(
        "the component asks for more than the version of {uri} in force has ({what}), and a shadow has no more than that; \
         grant it to the version in force first, or install the component without --shadow"
    )]
    AsksForMore {
        /// The URI of the extension.
        uri: String,
        /// The missing grant.
        what: String,
    },
    /// The editions cannot be read or changed, because the shared database has failed.
    #[error("the edition that all replicas share cannot be read or changed")]
    Editions(#[from] EditionsError),
    /// This version of Annex cannot read the stored edition.
    #[error("the edition that all replicas share cannot be read: {reason}")]
    Unreadable {
        /// The reason why the edition cannot be read.
        reason: String,
    },
    /// The database no longer has a component of the edition.
    #[error("the component {digest} is no longer kept for all replicas; add it again")]
    NotKept {
        /// The digest of the component.
        digest: String,
    },
    /// Another process is making a change, or has just made one.
    #[error(
        "another replica changes the same extensions, or has just changed them; nothing has changed here: try again"
    )]
    Busy,
    /// A process cannot serve the proposed edition.
    #[error("replica {replica} cannot serve it, so nothing has changed: {reason}")]
    Unable {
        /// The name or id of the process.
        replica: String,
        /// The reason that the process reported.
        reason: String,
    },
    /// Some processes did not report in time whether they can serve the proposed edition.
    #[error("no answer from {replicas} within {seconds} seconds, so nothing has changed")]
    Silent {
        /// The names or ids of the processes.
        replicas: String,
        /// The time limit in seconds.
        seconds: u64,
    },
    /// The lease of this process ended during the change, so the change may or may not have been made.
    #[error("the lease of this replica ended during the change; check whether anything has changed, and try again")]
    LeaseOver,
    /// The change was made, but some processes have not confirmed in time that they serve the new edition.
    #[error("edition {number} is in force, but {replicas} has not confirmed it yet")]
    Behind {
        /// The number of the edition.
        number: u64,
        /// The names or ids of the processes.
        replicas: String,
    },
}

/// Returns the config keys that may have caused the refusal of an extension, the likeliest first. Parameters that the
/// refusal names come before all other keys.
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
    /// Combines errors into one error. `Ok` if there are no errors.
    pub(super) fn unless_none(mut errors: Vec<Self>) -> Result<(), Self> {
        match (errors.pop(), errors.is_empty()) {
            (None, _) => Ok(()),
            (Some(only), true) => Err(only),
            (Some(last), false) => {
                errors.push(last);
                Err(Self::Several(errors))
            }
        }
    }

    /// Splits the error into one error for each source.
    pub(crate) fn into_each(self) -> Vec<Self> {
        match self {
            Self::Several(errors) => errors,
            only => vec![only],
        }
    }

    /// The error and its causes, without the excerpts of files that TOML errors contain.
    pub(crate) fn public_text(&self) -> String {
        match self {
            Self::Config(error) => format!("{self}: {}", error.lines().join("; ")),
            Self::Several(errors) => errors.iter().map(Self::public_text).collect::<Vec<_>>().join("; "),
            _ => fault::text(self),
        }
    }

    /// The name of the source that failed.
    pub(super) fn source_name(&self) -> String {
        match self {
            Self::Read { origin, .. }
            | Self::Setting { origin, .. }
            | Self::Load { origin, .. }
            | Self::Denied { origin, .. } => origin.to_string(),
            Self::Folder { .. } => "runtime.extensions_dir".to_owned(),
            Self::Name { name } => name.clone(),
            Self::NoFile | Self::Config(_) | Self::Table { .. } => OF_CONFIG.to_owned(),
            Self::Several(_)
            | Self::Set { .. }
            | Self::Cards(_)
            | Self::Editions(_)
            | Self::Unreadable { .. }
            | Self::NotKept { .. }
            | Self::Busy
            | Self::Unable { .. }
            | Self::Silent { .. }
            | Self::LeaseOver
            | Self::Behind { .. } => OF_ALL.to_owned(),
            Self::OutOfService(fault) => fault.uri().to_string(),
            Self::NotInstalled { id } | Self::Ambiguous { id } => id.clone(),
            Self::NoVersion { uri, .. }
            | Self::NoShadow { uri }
            | Self::Observed { uri }
            | Self::OtherExtension { uri, .. }
            | Self::AsksForMore { uri, .. } => uri.clone(),
        }
    }
}

//! Answers about installed extensions.
//!
//! Times are in RFC 3339, except where a field's name ends with a unit such as `_ms`. The type parameter `Grants` is
//! the type of the grants in an answer. A program that only shows grants can set `Grants` to a JSON value, and then can
//! also show unknown grants.

use serde::{Deserialize, Serialize};

use super::shadows::Shadow;
use crate::config::GrantsConfig;

/// All installed extensions of one agent. The extensions of the config come first, then the extensions of the managed
/// folder, then the extensions that were added over the API.
#[derive(Debug, Deserialize, Serialize)]
pub struct List<Text = String> {
    /// The number of the current edition. Every change of the installed extensions increases the number.
    pub edition: u64,
    /// The installed extensions.
    pub extensions: Vec<Summary<Text>>,
    /// The sources that could not be installed. The list of the config's own agent also has an entry for each tenant
    /// that is not served.
    pub failures: Vec<NotInstalled<Text>>,
    /// The names of the tenants. The extensions of a tenant are not in this list: each tenant has a separate list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<Text>,
}

/// One extension in a list.
#[derive(Debug, Deserialize, Serialize)]
pub struct Summary<Text = String> {
    /// The URI of the extension.
    pub uri: Text,
    /// The name that the component gives.
    #[serde(default)]
    pub name: Text,
    /// The version that the component gives.
    #[serde(default)]
    pub component_version: Text,
    /// The number of the version. A new component or new settings make a version with a new number.
    pub version: u64,
    /// The digest of the component.
    pub digest: Text,
    /// The size of the component in bytes.
    pub size: usize,
    /// True if requests without the extension are refused.
    pub required: bool,
    /// When the extension is active: `requested`, `metadata` or `always`.
    #[serde(default)]
    pub activate: Text,
    /// The callers that may use the extension. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Text>,
    /// The readers of tasks that see the extension's metadata: `all` or `active`.
    #[serde(default)]
    pub reads: Text,
    /// The source of the version.
    pub source: Source<Text>,
    /// The hooks that the component exports.
    #[serde(default)]
    pub hooks: Vec<Text>,
    /// The methods that the extension adds.
    #[serde(default)]
    pub methods: Vec<Text>,
    /// The time at which the version was loaded.
    pub loaded_at: Text,
    /// The number of replaced versions that can be rolled back to.
    pub kept: usize,
    /// The number of waiting tasks that are pinned to this version.
    pub pinned_tasks: usize,
    /// The effect of a failure of the extension on a request: `reject` or `skip`.
    #[serde(default)]
    pub on_failure: Text,
    /// The number of calls of the extension's hooks since the extension's URI was first installed, over all versions.
    pub calls: u64,
    /// The number of calls that refused the request. A refusal is a fault of the client.
    pub refused: u64,
    /// The number of calls that failed.
    pub failures: u64,
    /// The last failed call.
    pub last_failure: Option<FailedCall<Text>>,
    /// The calls by hook.
    pub timings: Vec<Timing<Text>>,
    /// The most linear memory that one instance has had, in bytes.
    #[serde(default)]
    pub memory_peak: usize,
    /// The health of this version.
    pub quarantine: Quarantine<Text>,
}

/// A failed call of a hook.
#[derive(Debug, Deserialize, Serialize)]
pub struct FailedCall<Text = String> {
    /// The time of the call.
    pub at: Text,
    /// The name of the hook.
    pub hook: Text,
    /// The kind of failure.
    pub outcome: Text,
    /// The reason in one line, without secrets.
    pub reason: Text,
}

/// The calls of one hook. Times are in milliseconds, and absent until the first call.
#[derive(Debug, Deserialize, Serialize)]
pub struct Timing<Text = String> {
    /// The name of the hook.
    pub hook: Text,
    /// The number of calls.
    pub calls: u64,
    /// The number of calls that refused the request.
    pub refused: u64,
    /// The number of calls that failed.
    pub failures: u64,
    /// The mean duration of all calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ms: Option<f64>,
    /// The duration within which 99 % of the calls have ended, as the bound of a bucket of the histogram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// The duration of the longest call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<f64>,
    /// The CPU time of all calls: of the guest and of the host for it, without waiting.
    #[serde(default)]
    pub cpu_ms: f64,
}

/// The health of a version: its failed turns, and its quarantine after too many failed turns.
#[derive(Debug, Deserialize, Serialize)]
pub struct Quarantine<Text = String> {
    /// The milliseconds until a quarantined version is tried again. Absent unless the version is quarantined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_trial_ms: Option<u64>,
    /// The number of failed turns since the last successful turn.
    pub failures_in_a_row: u32,
    /// The number of times that the version was quarantined.
    #[serde(default)]
    pub count: u64,
    /// The reason why the operator has taken the version out of service. Absent while the version is in service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Text>,
}

/// The source of a version, and how long the version stays installed.
#[derive(Debug, Deserialize, Serialize)]
pub struct Source<Text = String> {
    /// `config`, `folder` or `added`.
    pub kind: Text,
    /// The name of the extension in its source.
    pub name: Text,
    /// `restart` if a restart would install another version or none. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Text>,
}

/// A source that could not be installed.
#[derive(Debug, Deserialize, Serialize)]
pub struct NotInstalled<Text = String> {
    /// The source: a table of the config, or a file.
    pub source: Text,
    /// The reason why the source could not be installed.
    pub reason: Text,
    /// The time of the attempt to install the source.
    pub at: Text,
}

/// One extension in full.
#[derive(Debug, Deserialize, Serialize)]
#[serde(bound(deserialize = "Text: Deserialize<'de> + Default, Grants: Deserialize<'de> + Default"))]
pub struct Details<Text = String, Grants = GrantsConfig> {
    /// The fields of the extension's entry in [`List`].
    #[serde(flatten)]
    pub summary: Summary<Text>,
    /// The number of the current edition. Every change of the installed extensions increases the number.
    pub edition: u64,
    /// The description that the component gives.
    pub description: Text,
    /// The keys that the extension may write in metadata.
    #[serde(default)]
    pub metadata_keys: Vec<Text>,
    /// The extensions that must be active together with this extension.
    pub depends_on: Vec<Text>,
    /// The grants, as in `[extension.grants]` of a config.
    pub grants: Grants,
    /// The limits of the extension's calls.
    pub limits: Limits,
    /// The milliseconds that loading took.
    #[serde(default)]
    pub load_ms: f64,
    /// True if loading had to compile the component. False if its compiled code was in the cache.
    #[serde(default)]
    pub compiled: bool,
    /// The last declaration of the entry on the Agent Card. Absent without the hook `live-card`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_card: Option<CardDeclaration<Text>>,
    /// The shadow that runs beside this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadow<Text>>,
    /// Replaced versions that can be rolled back to, the latest first.
    pub kept_versions: Vec<ReplacedVersion<Text, Grants>>,
    /// The last changes of the extension, the oldest first.
    pub changes: Vec<VersionChange<Text>>,
}

/// The last declaration of an extension's entry on the Agent Card.
#[derive(Debug, Deserialize, Serialize)]
pub struct CardDeclaration<Text = String> {
    /// The time of the declaration.
    pub declared_at: Text,
    /// For how many seconds the extension says that the entry holds. 0: until the next load.
    pub seconds: u32,
    /// The time of the last call, if it failed. The entry has stayed as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Text>,
    /// Why the last call failed, in one line without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Text>,
}

/// The limits of an extension's calls, as in `[extension.limits]` of a config.
#[derive(Debug, Deserialize, Serialize)]
pub struct Limits {
    /// The maximum linear memory of an instance, in MiB.
    pub memory_mib: usize,
    /// The maximum number of elements of all tables of an instance together.
    pub table_elements: usize,
    /// The maximum CPU time per call, in milliseconds.
    pub cpu_ms: u64,
    /// The maximum CPU time per turn, in milliseconds.
    pub turn_cpu_ms: u64,
    /// The maximum wall-clock time per call, in milliseconds.
    pub wall_ms: u64,
    /// The maximum wall-clock time of all calls of a turn together, in milliseconds.
    pub turn_wall_ms: u64,
    /// The maximum number of host calls per turn.
    pub host_calls: u32,
    /// The maximum size of the arguments of one hook call, in bytes.
    pub input_bytes: usize,
    /// The maximum number of bytes that the guest may pass to the host in one call.
    pub output_bytes: usize,
    /// The maximum number of log lines per turn.
    pub log_lines: u32,
    /// The maximum size of all log lines of a turn together, in bytes.
    pub log_bytes: usize,
    /// The maximum number of turns that may use the extension at the same time.
    pub turns: u32,
}

/// A replaced version that can be rolled back to.
#[derive(Debug, Deserialize, Serialize)]
pub struct ReplacedVersion<Text = String, Grants = GrantsConfig> {
    /// The number of the version.
    pub version: u64,
    /// The digest of the component.
    pub digest: Text,
    /// The size of the component in bytes.
    #[serde(default)]
    pub size: usize,
    /// The grants, as in `[extension.grants]` of a config.
    #[serde(default)]
    pub grants: Grants,
    /// The time at which the version was loaded.
    pub loaded_at: Text,
    /// The number of waiting tasks that are pinned to this version.
    #[serde(default)]
    pub pinned_tasks: usize,
}

/// One change of the version that is installed for a URI.
#[derive(Debug, Deserialize, Serialize)]
pub struct VersionChange<Text = String> {
    /// The time of the change.
    pub at: Text,
    /// The edition that the change made.
    pub edition: u64,
    /// The kind of change: `installed`, `replaced`, `rolled-back`, `promoted` or `removed`.
    pub change: Text,
    /// The number of the version that was installed before the change. Absent if the change added the extension.
    pub from: Option<u64>,
    /// The number of the version that the change installed. Absent if the change removed the extension.
    pub to: Option<u64>,
}

/// The last lines of an extension's log.
#[derive(Debug, Deserialize, Serialize)]
pub struct Log<Text = String> {
    /// The URI of the extension.
    #[serde(default)]
    pub uri: Text,
    /// The lines, the oldest first.
    pub lines: Vec<LogLine<Text>>,
}

/// One line that an extension wrote.
#[derive(Debug, Deserialize, Serialize)]
pub struct LogLine<Text = String> {
    /// The time at which the extension wrote the line.
    pub at: Text,
    /// `trace`, `debug`, `info`, `warn` or `error`.
    pub level: Text,
    /// The context that the guest set for the line. Absent if it set none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Text>,
    /// The text of the line.
    pub message: Text,
    /// The hook that wrote the line.
    pub hook: Text,
    /// The task of the turn. Absent outside of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<Text>,
    /// The conversation of the turn. Absent outside of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_id: Option<Text>,
    /// The error id of the turn. If the extension failed in the turn, the client got this id.
    pub error_id: Text,
}

/// A removed extension.
#[derive(Debug, Deserialize, Serialize)]
pub struct RemovedExtension<Text = String> {
    /// The URI of the extension.
    pub removed: Text,
    /// The number of the removed version.
    #[serde(default)]
    pub version: u64,
    /// The digest of the removed component.
    #[serde(default)]
    pub digest: Text,
    /// The edition that the removal made.
    pub edition: u64,
    /// The event that installs the extension again, such as a reload or a restart. Absent if no event does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Text>,
}

/// The outcome of a reload of the config.
#[derive(Debug, Deserialize, Serialize)]
pub struct ReloadResult<Text = String> {
    /// True if the reload changed anything: extensions, tenants or settings.
    pub changed: bool,
    /// The current edition.
    pub edition: u64,
    /// True if the reload changed the installed extensions.
    pub extensions_changed: bool,
    /// The changed keys of the config that apply now. Keys of extensions are not listed.
    pub changed_keys: Vec<Text>,
    /// The changed keys of the config that apply only after a restart, each with the reason.
    pub needs_restart: Vec<Text>,
    /// The sources of extensions that could not be installed.
    pub failed: Vec<Text>,
}

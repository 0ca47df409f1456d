//! Answers about what is installed.
//!
//! Times are in RFC 3339 where a field has no unit in its name. `Grants` is the type of grants: a program that only shows
//! them can take any JSON, and then shows grants that it does not know.

use serde::{Deserialize, Serialize};

use super::shadows::Shadow;
use crate::config::GrantsConfig;

/// Everything that is installed, in order.
#[derive(Debug, Deserialize, Serialize)]
pub struct List<Text = String> {
    /// Counts changes of what is installed.
    pub edition: u64,
    /// The extensions in force.
    pub extensions: Vec<Summary<Text>>,
    /// The sources that could not be installed, and in the list without a tenant the tenants that are not served.
    pub failures: Vec<NotInstalled<Text>>,
    /// The names of the tenants, each with a list of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<Text>,
}

/// One extension in a list.
#[derive(Debug, Deserialize, Serialize)]
pub struct Summary<Text = String> {
    /// The extension.
    pub uri: Text,
    /// Its name.
    #[serde(default)]
    pub name: Text,
    /// The version that the component gives.
    #[serde(default)]
    pub component_version: Text,
    /// The number of the version; another number is another component or has other settings.
    pub version: u64,
    /// The digest of the component.
    pub digest: Text,
    /// The bytes of the component.
    pub size: usize,
    /// True when requests that it is not active for are refused.
    pub required: bool,
    /// What makes it active for a request: `requested`, `metadata` or `always`.
    #[serde(default)]
    pub activate: Text,
    /// The callers that it is for; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Text>,
    /// The source of the version.
    pub source: Source<Text>,
    /// The hooks that the component exports.
    #[serde(default)]
    pub hooks: Vec<Text>,
    /// The methods that it adds.
    #[serde(default)]
    pub methods: Vec<Text>,
    /// The time at which the version was loaded.
    pub loaded_at: Text,
    /// Replaced versions that can be put back.
    pub kept: usize,
    /// Waiting tasks that go on with this version.
    pub pinned_tasks: usize,
    /// The answer to a request that it fails: `reject` or `skip`.
    #[serde(default)]
    pub on_failure: Text,
    /// Calls of hooks over all versions of the URI that followed each other, since the first was installed.
    pub calls: u64,
    /// Those of them that refused the request, which is the client's fault.
    pub refused: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// The last one that failed.
    pub last_failure: Option<FailedCall<Text>>,
    /// The same calls by hook.
    pub timings: Vec<Timing<Text>>,
    /// The health of this version.
    pub quarantine: Quarantine,
}

/// A call of a hook that failed.
#[derive(Debug, Deserialize, Serialize)]
pub struct FailedCall<Text = String> {
    /// The time of the call.
    pub at: Text,
    /// The hook.
    pub hook: Text,
    /// The kind of failure.
    pub outcome: Text,
    /// The reason.
    pub reason: Text,
}

/// The calls of one hook. Times are in milliseconds, and absent while there are no calls.
#[derive(Debug, Deserialize, Serialize)]
pub struct Timing<Text = String> {
    /// The hook.
    pub hook: Text,
    /// The number of calls.
    pub calls: u64,
    /// The number of those that refused the request.
    pub refused: u64,
    /// The number of those that failed.
    pub failures: u64,
    /// The mean of all calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ms: Option<f64>,
    /// The longest call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<f64>,
}

/// The health of a version. Failures are of turns.
#[derive(Debug, Deserialize, Serialize)]
pub struct Quarantine {
    /// Milliseconds to the next trial; absent while it is not quarantined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_trial_ms: Option<u64>,
    /// Failures since the last turn that went well.
    pub failures_in_a_row: u32,
    /// The number of quarantines.
    #[serde(default)]
    pub count: u64,
}

/// The source of a version, and the time that it stays.
#[derive(Debug, Deserialize, Serialize)]
pub struct Source<Text = String> {
    /// `config`, `folder` or `added`.
    pub kind: Text,
    /// The name that the source gives it.
    pub name: Text,
    /// Set when a restart would install something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Text>,
}

/// A source that could not be installed.
#[derive(Debug, Deserialize, Serialize)]
pub struct NotInstalled<Text = String> {
    /// The source: a table of the config, or a file.
    pub source: Text,
    /// The reason.
    pub reason: Text,
    /// The time of the attempt.
    pub at: Text,
}

/// One extension with all that is known of it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(bound(deserialize = "Text: Deserialize<'de> + Default, Grants: Deserialize<'de> + Default"))]
pub struct Details<Text = String, Grants = GrantsConfig> {
    /// The part that a list has, too.
    #[serde(flatten)]
    pub summary: Summary<Text>,
    /// Counts changes of what is installed.
    pub edition: u64,
    /// The description that the component gives.
    pub description: Text,
    /// The keys that it may write in metadata.
    #[serde(default)]
    pub metadata_keys: Vec<Text>,
    /// The extensions that must be active with it.
    pub depends_on: Vec<Text>,
    /// As in `[extension.grants]` of a config.
    pub grants: Grants,
    /// The bounds of its calls.
    pub limits: Limits,
    /// The milliseconds that loading it took.
    #[serde(default)]
    pub load_ms: f64,
    /// True when it was compiled for that, and not found in the cache.
    #[serde(default)]
    pub compiled: bool,
    /// The version that runs beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadow<Text>>,
    /// Replaced versions that can be put back, the last one first.
    pub kept_versions: Vec<Kept<Text, Grants>>,
    /// The last changes of it, the oldest first.
    pub changes: Vec<Changed<Text>>,
}

/// The bounds of the calls of an extension, as in `[extension.limits]` of a config.
#[derive(Debug, Deserialize, Serialize)]
pub struct Limits {
    /// Linear memory in MiB.
    pub memory_mib: usize,
    /// Elements over all tables.
    pub table_elements: usize,
    /// CPU time per call.
    pub cpu_ms: u64,
    /// CPU time per turn.
    pub turn_cpu_ms: u64,
    /// Time on the clock per call.
    pub wall_ms: u64,
    /// Time on the clock in all calls of a turn.
    pub turn_wall_ms: u64,
    /// Host calls per turn.
    pub host_calls: u32,
    /// Bytes that are handed to one hook.
    pub input_bytes: usize,
    /// Bytes that one call may hand to the host.
    pub output_bytes: usize,
    /// Log lines per turn.
    pub log_lines: u32,
    /// All log lines per turn.
    pub log_bytes: usize,
    /// Turns at once.
    pub turns: u32,
}

/// A replaced version that can be put back.
#[derive(Debug, Deserialize, Serialize)]
pub struct Kept<Text = String, Grants = GrantsConfig> {
    /// Its number.
    pub version: u64,
    /// The digest of the component.
    pub digest: Text,
    /// The bytes of the component.
    #[serde(default)]
    pub size: usize,
    /// As in `[extension.grants]` of a config.
    #[serde(default)]
    pub grants: Grants,
    /// The time at which it was loaded.
    pub loaded_at: Text,
    /// Waiting tasks that go on with this version.
    #[serde(default)]
    pub pinned_tasks: usize,
}

/// A change of what is installed for one URI.
#[derive(Debug, Deserialize, Serialize)]
pub struct Changed<Text = String> {
    /// The time of the change.
    pub at: Text,
    /// The edition that came of it.
    pub edition: u64,
    /// The kind of change.
    pub change: Text,
    /// The version before.
    pub from: Option<u64>,
    /// The version after.
    pub to: Option<u64>,
}

/// The last lines of an extension's log.
#[derive(Debug, Deserialize, Serialize)]
pub struct Log<Text = String> {
    /// The extension.
    #[serde(default)]
    pub uri: Text,
    /// The lines in the order in which they were written.
    pub lines: Vec<LogLine<Text>>,
}

/// One line of a log.
#[derive(Debug, Deserialize, Serialize)]
pub struct LogLine<Text = String> {
    /// The time at which it was written.
    pub at: Text,
    /// `trace`, `debug`, `info`, `warn` or `error`.
    pub level: Text,
    /// The context that the guest names; absent where it names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Text>,
    /// The text of the line.
    pub message: Text,
    /// The hook that wrote it.
    pub hook: Text,
    /// The task of the turn, when there was a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<Text>,
    /// The conversation of the turn, when there was a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_id: Option<Text>,
    /// The id that the client was told if the extension failed in that turn.
    pub error_id: Text,
}

/// An extension that is no longer installed.
#[derive(Debug, Deserialize, Serialize)]
pub struct Removed<Text = String> {
    /// The extension.
    pub removed: Text,
    /// The number of its version.
    #[serde(default)]
    pub version: u64,
    /// The digest of its component.
    #[serde(default)]
    pub digest: Text,
    /// The edition that came of it.
    pub edition: u64,
    /// Set when a reload or a restart brings it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Text>,
}

/// The outcome of reading the config again.
#[derive(Debug, Deserialize, Serialize)]
pub struct Reloaded<Text = String> {
    /// True when anything is another now: extensions, tenants or settings.
    pub changed: bool,
    /// The edition that is in force now.
    pub edition: u64,
    /// True when the installed extensions are others now.
    pub extensions_changed: bool,
    /// Keys of the config that have changed and count now, besides those of extensions.
    pub changed_keys: Vec<Text>,
    /// Keys of the config whose changes count only after a restart, each with the reason.
    pub needs_restart: Vec<Text>,
    /// The sources of what could not be installed.
    pub failed: Vec<Text>,
}

//! What the admin API shows, as JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use annex_protocol::Timestamp;
use annex_runtime::{Health, Limits, OnFailure};
use serde::Serialize;

use super::calls::Calls;
use crate::config::GrantsConfig;
use crate::installation::installer::{Change, Failure, Installer, Origin, Reloaded, Version};

/// Everything that is installed, in order.
#[derive(Serialize)]
pub(super) struct List {
    edition: u64,
    extensions: Vec<Summary>,
    failures: Vec<Failed>,
    /// The names of the tenants, each with a list of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tenants: Vec<String>,
}

#[derive(Serialize)]
struct Summary {
    uri: String,
    name: String,
    /// The number of the version; another number is another component or has other settings.
    version: u64,
    digest: String,
    size: usize,
    required: bool,
    source: Source,
    hooks: Vec<&'static str>,
    /// The methods that it adds.
    methods: Vec<String>,
    loaded_at: String,
    /// Replaced versions that can be put back.
    kept: usize,
    /// Waiting tasks that go on with this version.
    pinned_tasks: usize,
    /// What becomes of a request that it fails: `reject` or `skip`.
    on_failure: &'static str,
    #[serde(flatten)]
    calls: Calls,
    quarantine: Quarantine,
}

/// How this version does. Failures are of turns.
#[derive(Serialize)]
struct Quarantine {
    /// Milliseconds to the next trial; absent while it is not quarantined.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_trial_ms: Option<u128>,
    failures_in_a_row: u32,
    /// How often it was quarantined.
    count: u64,
}

/// Where a version comes from, and how long it stays.
#[derive(Serialize)]
struct Source {
    /// `config`, `folder` or `added`.
    kind: &'static str,
    name: String,
    /// Set when a restart would install something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<&'static str>,
}

#[derive(Serialize)]
struct Failed {
    source: String,
    reason: String,
    at: String,
}

/// One extension.
#[derive(Serialize)]
pub(super) struct Details {
    #[serde(flatten)]
    summary: Summary,
    edition: u64,
    description: String,
    component_version: String,
    metadata_keys: Vec<String>,
    depends_on: Vec<String>,
    grants: GrantsConfig,
    limits: LimitsView,
    load_ms: f64,
    compiled: bool,
    kept_versions: Vec<Kept>,
    changes: Vec<Changed>,
}

/// Times in milliseconds, sizes in bytes.
#[derive(Serialize)]
struct LimitsView {
    memory: usize,
    table_elements: usize,
    cpu_ms: u128,
    turn_cpu_ms: u128,
    wall_ms: u128,
    turn_wall_ms: u128,
    host_calls: u32,
    input: usize,
    output: usize,
    log_lines: u32,
    log_bytes: usize,
    turns: u32,
}

#[derive(Serialize)]
struct Kept {
    version: u64,
    digest: String,
    size: usize,
    grants: GrantsConfig,
    loaded_at: String,
    pinned_tasks: usize,
}

#[derive(Serialize)]
struct Changed {
    at: String,
    edition: u64,
    change: &'static str,
    from: Option<u64>,
    to: Option<u64>,
}

/// The last lines of an extension's log.
#[derive(Serialize)]
pub(super) struct Log {
    uri: String,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    at: String,
    level: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    context: String,
    message: String,
}

#[derive(Serialize)]
pub(super) struct Removed {
    removed: String,
    version: u64,
    digest: String,
    edition: u64,
    /// Set when a reload or a restart brings it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<&'static str>,
}

#[derive(Serialize)]
pub(super) struct Reload {
    changed: bool,
    edition: u64,
    /// Tables of the config whose changes count only after a restart.
    needs_restart: Vec<String>,
    failed: Vec<String>,
}

impl List {
    pub(super) fn of(installer: &Installer, tenants: Vec<String>) -> Self {
        Self {
            tenants,
            edition: installer.publisher().current().extensions.number,
            extensions: installer.versions().iter().map(|version| Summary::of(installer, version)).collect(),
            failures: installer.failures().into_iter().map(Failed::from).collect(),
        }
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { source: failure.source, reason: failure.reason, at: failure.at.to_string() }
    }
}

impl Summary {
    fn of(installer: &Installer, version: &Version) -> Self {
        let extension = &version.extension;
        Self {
            uri: extension.uri().to_string(),
            name: extension.descriptor().name.clone(),
            version: version.number,
            digest: extension.digest().to_string(),
            size: extension.size(),
            required: extension.is_required(),
            source: Source::of(installer, version),
            hooks: extension.hooks().iter().map(|hook| hook.name()).collect(),
            methods: extension.methods().iter().map(|method| method.name.clone()).collect(),
            loaded_at: version.loaded_at.to_string(),
            kept: installer.kept(version.uri()).len(),
            pinned_tasks: installer.pins().count(extension),
            on_failure: match extension.on_failure() {
                OnFailure::Reject => "reject",
                OnFailure::Skip => "skip",
            },
            calls: Calls::from(extension.metrics()),
            quarantine: Quarantine::from(extension.health()),
        }
    }
}

impl From<Health> for Quarantine {
    fn from(health: Health) -> Self {
        Self {
            next_trial_ms: health.quarantined.map(|left| left.as_millis()),
            failures_in_a_row: health.failures_in_a_row,
            count: health.quarantines,
        }
    }
}

impl Source {
    fn of(installer: &Installer, version: &Version) -> Self {
        let (kind, is_temporary) = match &version.origin {
            Origin::Config { .. } => ("config", installer.overrules(version)),
            Origin::Folder { .. } => ("folder", installer.overrules(version)),
            Origin::Added { .. } => ("added", true),
        };
        Self { kind, name: version.origin.name().to_owned(), until: is_temporary.then_some("restart") }
    }
}

impl Details {
    pub(super) fn of(installer: &Installer, version: &Version) -> Self {
        let (extension, descriptor) = (&version.extension, version.extension.descriptor());
        Self {
            summary: Summary::of(installer, version),
            edition: installer.publisher().current().extensions.number,
            description: descriptor.description.clone(),
            component_version: descriptor.version.clone(),
            metadata_keys: descriptor.metadata_keys.clone(),
            depends_on: descriptor.depends_on.iter().map(ToString::to_string).collect(),
            grants: version.settings.grants.clone(),
            limits: LimitsView::of(extension.limits()),
            load_ms: extension.load_time().as_secs_f64() * 1e3,
            compiled: extension.was_compiled(),
            kept_versions: installer.kept(version.uri()).iter().map(|kept| Kept::of(installer, kept)).collect(),
            changes: installer.changes(version.uri()).into_iter().map(Changed::from).collect(),
        }
    }
}

impl LimitsView {
    fn of(limits: &Limits) -> Self {
        Self {
            memory: limits.memory,
            table_elements: limits.table_elements,
            cpu_ms: limits.cpu.as_millis(),
            turn_cpu_ms: limits.turn_cpu.as_millis(),
            wall_ms: limits.wall.as_millis(),
            turn_wall_ms: limits.turn_wall.as_millis(),
            host_calls: limits.host_calls,
            input: limits.input,
            output: limits.output,
            log_lines: limits.log_lines,
            log_bytes: limits.log_bytes,
            turns: limits.turns,
        }
    }
}

impl Kept {
    fn of(installer: &Installer, version: &Version) -> Self {
        Self {
            version: version.number,
            digest: version.extension.digest().to_string(),
            size: version.extension.size(),
            grants: version.settings.grants.clone(),
            loaded_at: version.loaded_at.to_string(),
            pinned_tasks: installer.pins().count(&version.extension),
        }
    }
}

impl From<Change> for Changed {
    fn from(change: Change) -> Self {
        let Change { at, edition, what, from, to, .. } = change;
        Self { at: at.to_string(), edition, change: what, from, to }
    }
}

impl Log {
    pub(super) fn of(version: &Version) -> Self {
        let lines = version.extension.log().into_iter().map(|line| Line {
            at: shown_time(line.at),
            level: line.level,
            context: line.context,
            message: line.message,
        });
        Self { uri: version.uri().to_string(), lines: lines.collect() }
    }
}

pub(super) fn shown_time(time: SystemTime) -> String {
    let millis = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX)).to_string()
}

impl Removed {
    pub(super) fn of(installer: &Installer, version: &Version) -> Self {
        let is_named = matches!(version.origin, Origin::Config { .. });
        Self {
            removed: version.uri().to_string(),
            version: version.number,
            digest: version.extension.digest().to_string(),
            edition: installer.publisher().current().extensions.number,
            until: is_named.then_some("reload or restart, because the config names it"),
        }
    }
}

impl Reload {
    pub(super) fn of(reloaded: Reloaded) -> Self {
        let Reloaded { changed, edition, needs_restart, failed } = reloaded;
        Self { changed, edition, needs_restart, failed }
    }
}

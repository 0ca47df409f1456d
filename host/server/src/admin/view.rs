//! The installed extensions as the admin API shows them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use annex_protocol::Timestamp;
use annex_runtime::{
    AllowedCallers, CallOutcome, Health, HookCost, HookMetrics, LastDeclaration, LastFailure, OnFailure,
};

use crate::admin_api::extensions::{
    CardDeclaration, Details, FailedCall, Limits, List, Log, LogLine, NotInstalled, Quarantine, ReloadResult,
    RemovedExtension, ReplacedVersion, Source, Summary, Timing, VersionChange,
};
use crate::admin_api::shadows::{self, Shadow};
use crate::installation::installer::{self, Change, Failure, Installer, Origin, Version};
use crate::installation::shadow::Report;
use crate::installation::{self};
use crate::tenants::Installers;

impl List {
    pub(super) fn of(installer: &Installer) -> Self {
        Self {
            tenants: Vec::new(),
            edition: installer.publisher().current().extensions.number,
            extensions: installer.versions().iter().map(|version| Summary::of(installer, version)).collect(),
            failures: installer.failures().into_iter().map(NotInstalled::from).collect(),
        }
    }

    /// Adds the names of all tenants, and a failure for each tenant that is not served.
    pub(super) fn add_tenants(&mut self, installers: &Installers) {
        self.tenants.extend(installers.names());
        self.failures.extend(installers.failing().into_iter().map(|(name, failure)| NotInstalled {
            source: format!("tenant {name}"),
            reason: failure.reason,
            at: failure.at.to_string(),
        }));
    }
}

impl From<Failure> for NotInstalled {
    fn from(failure: Failure) -> Self {
        Self { source: failure.source, reason: failure.reason, at: failure.at.to_string() }
    }
}

impl Summary {
    fn of(installer: &Installer, version: &Version) -> Self {
        let extension = &version.extension;
        let metrics = extension.metrics();
        let allow = extension.selection().allow.iter().flat_map(AllowedCallers::entries);
        Self {
            uri: extension.uri().to_string(),
            name: extension.descriptor().name.clone(),
            component_version: extension.descriptor().version.clone(),
            version: version.number,
            digest: extension.digest().to_string(),
            size: extension.size(),
            required: extension.is_required(),
            activate: extension.selection().activate.name().to_owned(),
            allow: allow.map(|caller| caller.to_string()).collect(),
            reads: extension.selection().readers.name().to_owned(),
            source: Source::of(installer, version),
            hooks: extension.hooks().iter().map(|hook| hook.name().to_owned()).collect(),
            methods: extension.methods().iter().map(|method| method.name.clone()).collect(),
            loaded_at: version.loaded_at.to_string(),
            kept: installer.kept(version.uri()).len(),
            pinned_tasks: installer.pins().count(extension),
            on_failure: match extension.on_failure() {
                OnFailure::Reject => "reject".to_owned(),
                OnFailure::Skip => "skip".to_owned(),
            },
            calls: metrics.hooks.iter().map(|hook| hook.calls).sum(),
            refused: metrics.hooks.iter().map(|hook| hook.count(CallOutcome::Refused)).sum(),
            failures: metrics.hooks.iter().map(HookMetrics::failures).sum(),
            timings: metrics.hooks.iter().map(Timing::from).collect(),
            last_failure: metrics.last_failure.map(FailedCall::from),
            memory_peak: metrics.memory_peak,
            quarantine: Quarantine::from(extension.health()),
        }
    }
}

impl From<LastFailure> for FailedCall {
    fn from(failure: LastFailure) -> Self {
        let LastFailure { at, hook, outcome, reason } = failure;
        Self { at: shown_time(at), hook: hook.name().to_owned(), outcome: outcome.name().to_owned(), reason }
    }
}

impl From<&HookMetrics> for Timing {
    fn from(metrics: &HookMetrics) -> Self {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let mean = metrics.mean();
        Self {
            hook: metrics.hook.name().to_owned(),
            calls: metrics.calls,
            refused: metrics.count(CallOutcome::Refused),
            failures: metrics.failures(),
            mean_ms: mean.map(millis),
            p99_ms: metrics.p99().map(millis),
            max_ms: mean.map(|_| millis(metrics.longest)),
            cpu_ms: millis(metrics.busy),
        }
    }
}

impl From<Health> for Quarantine {
    fn from(health: Health) -> Self {
        Self {
            next_trial_ms: health.quarantined.map(whole_millis),
            failures_in_a_row: health.failures_in_a_row,
            count: health.quarantines,
            revoked: health.revoked.map(|reason| reason.to_string()),
        }
    }
}

impl Source {
    fn of(installer: &Installer, version: &Version) -> Self {
        let (kind, is_temporary) = match &version.origin {
            Origin::Config { .. } => ("config", installer.overrules(version)),
            Origin::Folder { .. } => ("folder", installer.overrules(version)),
            // No file has an extension that was added over the API, so a restart would lose it. With other processes,
            // the database keeps it.
            Origin::Added { .. } => ("added", installer.agreement().is_none()),
        };
        let until = is_temporary.then(|| "restart".to_owned());
        Self { kind: kind.to_owned(), name: version.origin.name().to_owned(), until }
    }
}

impl Details {
    pub(super) fn of(installer: &Installer, version: &Version) -> Self {
        let extension = &version.extension;
        let descriptor = version.extension.descriptor();
        Self {
            summary: Summary::of(installer, version),
            edition: installer.publisher().current().extensions.number,
            description: descriptor.description.clone(),
            metadata_keys: descriptor.metadata_keys.clone(),
            depends_on: descriptor.depends_on.iter().map(ToString::to_string).collect(),
            // Grants name secrets by variable or file. Only the loaded extension has their values.
            grants: version.settings.grants.clone(),
            limits: Limits::from(extension.limits()),
            load_ms: extension.load_time().as_secs_f64() * 1e3,
            compiled: extension.was_compiled(),
            live_card: extension.last_declaration().map(CardDeclaration::from),
            shadow: installer.shadow_of(version.uri()).map(|shadow| Shadow::of(&shadow)),
            kept_versions: installer
                .kept(version.uri())
                .iter()
                .map(|kept| ReplacedVersion::of(installer, kept))
                .collect(),
            changes: installer.changes(version.uri()).into_iter().map(VersionChange::from).collect(),
        }
    }
}

impl From<LastDeclaration> for CardDeclaration {
    fn from(last: LastDeclaration) -> Self {
        let LastDeclaration { declared_at, seconds, error } = last;
        let time = |millis| shown_time(UNIX_EPOCH + Duration::from_millis(millis));
        let (failed_at, error) = error.map(|(at, reason)| (time(at), reason)).unzip();
        Self { declared_at: time(declared_at), seconds, failed_at, error }
    }
}

impl Shadow {
    pub(super) fn of(shadow: &installation::shadow::Shadow) -> Self {
        let candidate = &shadow.candidate;
        let Report { comparison, left_out, not_run } = shadow.report();
        let metrics = candidate.metrics();
        Self {
            digest: candidate.digest().to_string(),
            component_version: candidate.descriptor().version.clone(),
            since: shadow.since.to_string(),
            share: shadow.share(),
            turns: comparison.turns,
            agreed: comparison.agreed,
            failed: comparison.failed,
            unanswered: comparison.unanswered,
            left_out,
            not_run,
            differ: comparison.differ.into_iter().map(|(what, turns)| shadows::Differ { what, turns }).collect(),
            costs: comparison.costs.into_iter().map(shadows::Cost::from).collect(),
            memory_peak: metrics.memory_peak,
            examples: comparison.examples.into_iter().map(shadows::Example::from).collect(),
            last_failure: metrics.last_failure.map(FailedCall::from),
            quarantine: Quarantine::from(candidate.health()),
        }
    }
}

impl From<(String, HookCost)> for shadows::Cost {
    fn from((hook, cost): (String, HookCost)) -> Self {
        let HookCost { calls_before, micros_before, calls, micros } = cost;
        #[expect(clippy::cast_precision_loss, reason = "a mean of microseconds")]
        let mean = |micros: u64, calls: u64| (calls > 0).then(|| micros as f64 / calls as f64);
        let mean_us_in_force = mean(micros_before, calls_before);
        Self { hook, calls_in_force: calls_before, mean_us_in_force, calls, mean_us: mean(micros, calls) }
    }
}

impl From<annex_runtime::Example> for shadows::Example {
    fn from(example: annex_runtime::Example) -> Self {
        // A shadow gets the turns without redaction, so an example never hides anything (`hidden`).
        let annex_runtime::Example { at, context_id, differences, unanswered, hidden: _ } = example;
        let differences = differences.into_iter().map(|difference| {
            let annex_runtime::Difference { what, place, was, is } = difference;
            shadows::Difference { what, place, was, is }
        });
        Self { at: at.to_string(), context_id, differences: differences.collect(), unanswered }
    }
}

impl From<&annex_runtime::Limits> for Limits {
    fn from(limits: &annex_runtime::Limits) -> Self {
        Self {
            memory_mib: limits.memory >> 20,
            table_elements: limits.table_elements,
            cpu_ms: whole_millis(limits.cpu),
            turn_cpu_ms: whole_millis(limits.turn_cpu),
            wall_ms: whole_millis(limits.wall),
            turn_wall_ms: whole_millis(limits.turn_wall),
            host_calls: limits.host_calls,
            input_bytes: limits.input,
            output_bytes: limits.output,
            log_lines: limits.log_lines,
            log_bytes: limits.log_bytes,
            turns: limits.turns,
        }
    }
}

impl ReplacedVersion {
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

impl From<Change> for VersionChange {
    fn from(change: Change) -> Self {
        let Change { at, edition, what, from, to, .. } = change;
        Self { at: at.to_string(), edition, change: what.to_owned(), from, to }
    }
}

impl Log {
    pub(super) fn of(version: &Version) -> Self {
        let lines = version.extension.log().into_iter().map(|line| LogLine {
            at: shown_time(line.at),
            level: line.level.to_owned(),
            context: Some(line.context).filter(|context| !context.is_empty()),
            message: line.message,
            hook: line.hook.to_string(),
            task_id: line.task_id,
            context_id: line.context_id,
            error_id: line.error_id,
        });
        Self { uri: version.uri().to_string(), lines: lines.collect() }
    }
}

fn shown_time(time: SystemTime) -> String {
    let millis = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX)).to_string()
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl RemovedExtension {
    pub(super) fn of(installer: &Installer, version: &Version) -> Self {
        let is_named = matches!(version.origin, Origin::Config { .. });
        Self {
            removed: version.uri().to_string(),
            version: version.number,
            digest: version.extension.digest().to_string(),
            edition: installer.publisher().current().extensions.number,
            until: is_named.then(|| {
                let until = if installer.agreement().is_some() { "reload" } else { "reload or restart" };
                format!("{until}, because the config names it")
            }),
        }
    }
}

impl From<installer::ReloadOutcome> for ReloadResult {
    fn from(reloaded: installer::ReloadOutcome) -> Self {
        let installer::ReloadOutcome { changed, edition, extensions_changed, changed_keys, needs_restart, failed } =
            reloaded;
        Self { changed, edition, extensions_changed, changed_keys, needs_restart, failed }
    }
}

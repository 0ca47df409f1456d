//! An installed extension as pages show it.

use crate::admin_api::extensions::{
    Details, FailedCall, LogLine, Quarantine, ReplacedVersion, Source, Summary, Timing, VersionChange,
};
use crate::admin_api::shadows::{Difference, Shadow};
use crate::config::GrantsConfig;
use crate::console::shown::{Row, address, age, block, duration, line};

/// The number of log lines on a page, and of the examples of a shadow.
const LOG_LINES: usize = 100;
const EXAMPLES: usize = 5;
/// The number of digits of a digest in a table.
const DIGITS: usize = 12;

/// An extension in the list.
pub(super) struct ListRow {
    pub(super) link: String,
    pub(super) name: String,
    pub(super) uri: String,
    pub(super) version: String,
    pub(super) digest: String,
    pub(super) source: String,
    pub(super) is_required: bool,
    pub(super) calls: u64,
    pub(super) failures: u64,
    /// The share of the CPU time of the listed extensions.
    pub(super) cpu: String,
    pub(super) health: String,
}

impl ListRow {
    /// `all_cpu` is the CPU time of the listed extensions in milliseconds.
    pub(super) fn of(tenant: Option<&str>, summary: &Summary, all_cpu: f64) -> Self {
        Self {
            link: address("/extension", &[("tenant", tenant), ("uri", Some(summary.uri.as_str()))]),
            name: line(&summary.name),
            uri: line(&summary.uri),
            version: line(&format!("{} ({})", summary.version, summary.component_version)),
            digest: short(&summary.digest),
            source: source(&summary.source),
            is_required: summary.required,
            calls: summary.calls,
            failures: summary.failures,
            cpu: if all_cpu > 0.0 { format!("{:.0} %", cpu(summary) / all_cpu * 100.0) } else { "–".to_owned() },
            health: health(&summary.quarantine),
        }
    }
}

/// The CPU time of all calls of an extension in milliseconds.
pub(super) fn cpu(summary: &Summary) -> f64 {
    summary.timings.iter().map(|timing| timing.cpu_ms).sum()
}

/// The part of the page that the browser refreshes every two seconds.
pub(super) struct LivePart {
    pub(super) health: String,
    /// The number of times that the version was quarantined.
    pub(super) quarantines: u64,
    /// The most linear memory that one instance has had.
    pub(super) memory: String,
    pub(super) last_failure: Option<String>,
    pub(super) calls: Vec<CallRow>,
    pub(super) log: Vec<String>,
}

/// The calls of one hook.
pub(super) struct CallRow {
    pub(super) hook: String,
    pub(super) calls: u64,
    pub(super) refused: u64,
    pub(super) failures: u64,
    pub(super) mean: String,
    pub(super) p99: String,
    pub(super) longest: String,
    pub(super) cpu: String,
}

impl LivePart {
    pub(super) fn of(summary: &Summary, log: &[LogLine]) -> Self {
        let newest = log.get(log.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
        Self {
            health: health(&summary.quarantine),
            quarantines: summary.quarantine.count,
            memory: format!("{} KiB", summary.memory_peak.div_ceil(1024)),
            last_failure: summary.last_failure.as_ref().map(failed_call),
            calls: summary.timings.iter().map(CallRow::of).collect(),
            log: newest.iter().map(log_line).collect(),
        }
    }
}

impl CallRow {
    fn of(timing: &Timing) -> Self {
        let millis = |time: Option<f64>| time.map_or_else(|| "–".to_owned(), |time| format!("{time:.3} ms"));
        Self {
            hook: line(&timing.hook),
            calls: timing.calls,
            refused: timing.refused,
            failures: timing.failures,
            mean: millis(timing.mean_ms),
            p99: millis(timing.p99_ms),
            longest: millis(timing.max_ms),
            cpu: millis((timing.calls > 0).then_some(timing.cpu_ms)),
        }
    }
}

fn log_line(written: &LogLine) -> String {
    let LogLine { at, level, context, message, hook, error_id, .. } = written;
    let context = context.as_ref().map(|context| format!(" [{context}]")).unwrap_or_default();
    line(&format!("{at} {level} {hook}{context} {message} ({error_id})"))
}

fn failed_call(failure: &FailedCall) -> String {
    line(&format!("{} {} {}: {}", failure.at, failure.hook, failure.outcome, failure.reason))
}

/// The health of a version: serving, quarantined or revoked.
fn health(quarantine: &Quarantine) -> String {
    let Quarantine { next_trial_ms, failures_in_a_row, revoked, .. } = quarantine;
    match (revoked, next_trial_ms) {
        (Some(reason), _) => line(&format!("revoked: {reason}")),
        (None, Some(millis)) => format!("quarantined, next trial in {}", duration(millis.div_ceil(1_000))),
        (None, None) if *failures_in_a_row > 0 => format!("{failures_in_a_row} failed turns in a row"),
        (None, None) => "serving".to_owned(),
    }
}

fn source(source: &Source) -> String {
    let until = source.until.as_ref().map(|until| format!(", until {until}")).unwrap_or_default();
    line(&format!("{}: {}{until}", source.kind, source.name))
}

fn short(digest: &str) -> String {
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    line(hex.get(..DIGITS).unwrap_or(hex))
}

/// A replaced version on the page of its extension.
pub(super) struct KeptRow {
    pub(super) version: u64,
    pub(super) digest: String,
    pub(super) loaded_at: String,
    pub(super) roll_back: String,
}

/// One extension in full.
pub(super) struct Extension {
    pub(super) name: String,
    pub(super) uri: String,
    pub(super) facts: Vec<Row>,
    pub(super) grants: String,
    pub(super) limits: Vec<Row>,
    pub(super) kept: Vec<KeptRow>,
    pub(super) changes: Vec<String>,
    pub(super) shadow: Option<ShadowView>,
    pub(super) replace: String,
    pub(super) remove: String,
}

impl Extension {
    /// `signers` are those of `annex.lock`.
    pub(super) fn of(tenant: Option<&str>, details: &Details, signers: &[String]) -> Self {
        let summary = &details.summary;
        let confirm = |action: &str, to: Option<String>| {
            let parameters = [
                ("tenant", tenant),
                ("uri", Some(summary.uri.as_str())),
                ("action", Some(action)),
                ("to", to.as_deref()),
            ];
            address("/extension/confirm", &parameters)
        };
        let kept = |kept: &ReplacedVersion| KeptRow {
            version: kept.version,
            digest: short(&kept.digest),
            loaded_at: line(&kept.loaded_at),
            roll_back: confirm("rollback", Some(kept.version.to_string())),
        };
        let limits = serde_json::to_value(&details.limits).unwrap_or_default();
        let limits = limits.as_object().into_iter().flatten();
        Self {
            name: line(&summary.name),
            uri: line(&summary.uri),
            facts: facts(details, signers),
            grants: block(&grants(&details.grants)),
            limits: limits.map(|(name, value)| Row::new(name, &value.to_string())).collect(),
            kept: details.kept_versions.iter().map(kept).collect(),
            changes: details.changes.iter().rev().map(change).collect(),
            shadow: details.shadow.as_ref().map(|shadow| ShadowView {
                promote: confirm("promote", None),
                end: confirm("end-shadow", None),
                ..ShadowView::of(shadow)
            }),
            replace: address("/extensions/upload", &[("tenant", tenant), ("name", Some(summary.source.name.as_str()))]),
            remove: confirm("remove", None),
        }
    }
}

fn facts(details: &Details, signers: &[String]) -> Vec<Row> {
    let Details { summary, description, metadata_keys, depends_on, live_card, .. } = details;
    let mut facts = vec![
        Row::new("description", description),
        Row::new("version", &format!("{} ({})", summary.version, summary.component_version)),
        Row::new("digest", &summary.digest),
        Row::new("size", &format!("{} bytes", summary.size)),
        Row::new("source", &source(&summary.source)),
        Row::new("loaded", &summary.loaded_at),
        Row::new("required", if summary.required { "yes" } else { "no" }),
        Row::new("activate", &summary.activate),
        Row::new("on failure", &summary.on_failure),
        Row::new("hooks", &summary.hooks.join(", ")),
        Row::new("pinned tasks", &summary.pinned_tasks.to_string()),
    ];
    let lists = [
        ("signers", signers),
        ("methods", summary.methods.as_slice()),
        ("metadata keys", metadata_keys.as_slice()),
        ("depends on", depends_on.as_slice()),
        ("callers", summary.allow.as_slice()),
    ];
    let lists = lists.into_iter().filter(|(_, values)| !values.is_empty());
    facts.extend(lists.map(|(name, values)| Row::new(name, &values.join(", "))));
    if let Some(declared) = live_card {
        let error = declared.error.as_ref().map(|error| format!(", then failed: {error}")).unwrap_or_default();
        facts.push(Row::new("card entry declared", &format!("{}{error}", declared.declared_at)));
    }
    facts
}

/// The given grants as TOML, without the grants that the extension lacks.
fn grants(config: &GrantsConfig) -> String {
    let Ok(mut table) = toml::Table::try_from(config) else { return String::new() };
    table.retain(|_, value| value.as_bool() != Some(false) && value.as_table().is_none_or(|table| !table.is_empty()));
    let text = toml::to_string(&table).unwrap_or_default();
    if text.is_empty() { "none".to_owned() } else { text }
}

fn change(change: &VersionChange) -> String {
    let number = |number: Option<u64>| number.map_or_else(|| "none".to_owned(), |number| number.to_string());
    let VersionChange { at, edition, change, from, to } = change;
    line(&format!("{at}: {change}, version {} to {}, edition {edition}", number(*from), number(*to)))
}

/// The shadow of an extension, with its results.
pub(super) struct ShadowView {
    pub(super) facts: Vec<Row>,
    pub(super) costs: Vec<Row>,
    pub(super) examples: Vec<ExampleView>,
    pub(super) promote: String,
    pub(super) end: String,
}

/// A turn in which the shadow and the installed version differ.
pub(super) struct ExampleView {
    pub(super) title: String,
    pub(super) differences: Vec<DifferenceView>,
}

/// One difference, with the value of each version.
pub(super) struct DifferenceView {
    pub(super) what: String,
    pub(super) before: String,
    pub(super) after: String,
}

impl ShadowView {
    fn of(shadow: &Shadow) -> Self {
        let agreement = match shadow.turns {
            0 => "no turn yet".to_owned(),
            turns => format!("{} of {turns} turns ({} %)", shadow.agreed, shadow.agreed * 100 / turns),
        };
        let mut facts = vec![
            Row::new("digest", &shadow.digest),
            Row::new("component version", &shadow.component_version),
            Row::new("running for", &age(&shadow.since)),
            Row::new("share", &format!("{} % of the turns", shadow.share)),
            Row::new("same results", &agreement),
            Row::new("turns in which only the shadow failed", &shadow.failed.to_string()),
            Row::new("turns with a host call without an answer", &shadow.unanswered.to_string()),
            Row::new("turns that were not compared", &(shadow.left_out + shadow.not_run).to_string()),
            Row::new("health", &health(&shadow.quarantine)),
        ];
        facts.extend(
            shadow
                .differ
                .iter()
                .map(|differ| Row::new(&format!("turns with another {}", differ.what), &differ.turns.to_string())),
        );
        facts.extend(shadow.last_failure.as_ref().map(|failure| Row::new("last failure", &failed_call(failure))));
        let micros = |time: Option<f64>| time.map_or_else(|| "–".to_owned(), |time| format!("{time:.1} µs"));
        let costs = shadow.costs.iter().map(|cost| {
            Row::new(&cost.hook, &format!("{} before, {} now", micros(cost.mean_us_in_force), micros(cost.mean_us)))
        });
        let examples = shadow.examples.iter().take(EXAMPLES).map(|example| {
            let context = example.context_id.as_ref().map(|context| format!(", context {context}")).unwrap_or_default();
            ExampleView {
                title: line(&format!("{}{context}", example.at)),
                differences: example.differences.iter().map(DifferenceView::of).collect(),
            }
        });
        Self { facts, costs: costs.collect(), examples: examples.collect(), promote: String::new(), end: String::new() }
    }
}

impl DifferenceView {
    fn of(difference: &Difference) -> Self {
        let place = difference.place.as_ref().map(|place| format!(" at {place}")).unwrap_or_default();
        Self {
            what: line(&format!("{}{place}", difference.what)),
            before: block(&difference.was),
            after: block(&difference.is),
        }
    }
}

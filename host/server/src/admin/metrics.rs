//! What `/metrics` shows: the server, and each extension in force with its calls.
//!
//! The numbers of an extension go when it is removed, so there are never more of them than extensions.

use annex_runtime::{ExtensionMetrics, HookMetrics};

use super::exposition::{Exposition, Kind};
use crate::counters::Counters;
use crate::installer::{Installer, Version};

/// One extension in force.
struct Shown {
    uri: String,
    version: Version,
    metrics: ExtensionMetrics,
}

/// One number of each extension.
type PerExtension = (&'static str, Kind, &'static str, fn(&Shown) -> f64);

const PER_EXTENSION: &[PerExtension] = &[
    (
        "annex_extension_memory_peak_bytes",
        Kind::Gauge,
        "The most linear memory that one instance has had in a turn, over all versions.",
        |shown| shown.metrics.memory_peak as f64,
    ),
    (
        "annex_extension_host_calls_total",
        Kind::Counter,
        "Calls of imports in turns, counted when a turn is over.",
        |shown| shown.metrics.host_calls as f64,
    ),
    (
        "annex_extension_quarantined",
        Kind::Gauge,
        "Whether it is quarantined now, after failures in a row: 0 or 1.",
        |shown| f64::from(u8::from(shown.version.extension.health().quarantined.is_some())),
    ),
    (
        "annex_extension_quarantined_turns_total",
        Kind::Counter,
        "Turns that were refused, or went on without it, because it was quarantined.",
        |shown| shown.metrics.quarantined_turns as f64,
    ),
    (
        "annex_extension_busy_turns_total",
        Kind::Counter,
        "Turns that were refused, or went on without it, because it served as many as limits.turns allows.",
        |shown| shown.metrics.busy_turns as f64,
    ),
    (
        "annex_extension_instance_waits_total",
        Kind::Counter,
        "Places and instances that were not free at once and were waited for.",
        |shown| shown.metrics.waits as f64,
    ),
    (
        "annex_extension_instance_wait_seconds_total",
        Kind::Counter,
        "Time that was spent waiting for places and instances.",
        |shown| shown.metrics.waited.as_secs_f64(),
    ),
    ("annex_extension_log_lines_total", Kind::Counter, "Lines written to the log.", |shown| {
        shown.metrics.log_lines as f64
    }),
    ("annex_extension_log_lines_dropped_total", Kind::Counter, "Lines dropped because a turn had no more.", |shown| {
        shown.metrics.log_lines_dropped as f64
    }),
];

/// The metrics as they are now.
pub(super) fn text(installer: &Installer, counters: &Counters, running_turns: usize) -> String {
    let mut page = Exposition::default();
    server(&mut page, installer, running_turns);
    counted(&mut page, installer, counters);
    let shown =
        |version: Version| Shown { uri: version.uri().to_string(), metrics: version.extension.metrics(), version };
    let extensions: Vec<Shown> = installer.versions().into_iter().map(shown).collect();
    infos(&mut page, &extensions);
    hooks(&mut page, &extensions);
    for (name, kind, help, read) in PER_EXTENSION {
        let mut metric = page.metric(name, *kind, help);
        for shown in &extensions {
            metric.sample(&[("extension", &shown.uri)], read(shown));
        }
    }
    page.into_text()
}

fn server(page: &mut Exposition, installer: &Installer, running_turns: usize) {
    let gauges = [
        ("annex_edition", "The number of the edition in force.", installer.editions().current().number),
        ("annex_extensions_installed", "Extensions that are installed.", count(installer.versions().len())),
        ("annex_extension_failures", "Sources whose last load failed.", count(installer.failures().len())),
        ("annex_pinned_tasks", "Waiting tasks that have pinned versions.", count(installer.pins().tasks())),
        ("annex_turns_running", "Turns that run.", count(running_turns)),
    ];
    for (name, help, value) in gauges {
        page.metric(name, Kind::Gauge, help).sample(&[], value);
    }
}

fn counted(page: &mut Exposition, installer: &Installer, counters: &Counters) {
    let help = "Messages sent by clients, by how they were taken.";
    let mut messages = page.metric("annex_messages_total", Kind::Counter, help);
    counters.messages().for_each(|(outcome, count)| messages.sample(&[("outcome", outcome)], count));
    let mut turns = page.metric("annex_turns_total", Kind::Counter, "Turns that have ended, by how.");
    counters.turns().for_each(|(outcome, count)| turns.sample(&[("outcome", outcome)], count));
    let (loaded, refused) = installer.loads();
    let help = "Components that were loaded, and that were read and refused.";
    let mut loads = page.metric("annex_extension_loads_total", Kind::Counter, help);
    loads.sample(&[("outcome", "loaded")], loaded);
    loads.sample(&[("outcome", "refused")], refused);
}

fn infos(page: &mut Exposition, extensions: &[Shown]) {
    let help = "The version in force of each extension.";
    let mut infos = page.metric("annex_extension_info", Kind::Gauge, help);
    for Shown { uri, version, .. } in extensions {
        let (digest, number) = (version.extension.digest().to_string(), version.number.to_string());
        infos.sample(&[("extension", uri), ("digest", &digest), ("version", &number)], 1);
    }
}

fn hooks(page: &mut Exposition, extensions: &[Shown]) {
    let help = "Calls of hooks in turns, by how they ended.";
    let mut calls = page.metric("annex_hook_calls_total", Kind::Counter, help);
    for (uri, hook) in each_hook(extensions) {
        for (outcome, count) in &hook.outcomes {
            calls.sample(&[("extension", uri), ("hook", hook.hook.name()), ("outcome", outcome.name())], count);
        }
    }
    let help = "Time of a call from asking for an instance to the guest's answer, waiting included.";
    let mut times = page.metric("annex_hook_duration_seconds", Kind::Histogram, help);
    for (uri, hook) in each_hook(extensions) {
        let labels = [("extension", uri), ("hook", hook.hook.name())];
        let [extension, name] = labels;
        for (bound, count) in &hook.within {
            times.part("_bucket", &[extension, name, ("le", &bound.as_secs_f64().to_string())], count);
        }
        times.part("_bucket", &[extension, name, ("le", "+Inf")], hook.calls);
        times.part("_sum", &labels, hook.time.as_secs_f64());
        times.part("_count", &labels, hook.calls);
    }
    let help = "Time in which calls ran on a thread: the guest, starting its instance and the host's work for it, without \
                waiting. An upper bound of their CPU time.";
    let mut busy = page.metric("annex_hook_busy_seconds_total", Kind::Counter, help);
    for (uri, hook) in each_hook(extensions) {
        busy.sample(&[("extension", uri), ("hook", hook.hook.name())], hook.busy.as_secs_f64());
    }
}

fn each_hook(extensions: &[Shown]) -> impl Iterator<Item = (&str, &HookMetrics)> {
    extensions.iter().flat_map(|shown| shown.metrics.hooks.iter().map(|hook| (shown.uri.as_str(), hook)))
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

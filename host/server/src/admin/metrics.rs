//! The page `/metrics`: the numbers of the server and of each installed extension.
//!
//! The numbers of an extension disappear when it is removed, so the page never outgrows the installed extensions. A
//! tenant's numbers have its name as a label. With many tenants the page stays bounded: it has totals over all tenants,
//! and separate numbers only for the busiest tenants.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use annex_agent::AgentExecutor;
use annex_operations::counters::Counters;
use annex_operations::process_parts::ProcessParts;
use annex_runtime::{ExtensionMetrics, HookMetrics, HookTotals, Runtime};

use super::exposition::{Exposition, Family, Kind, Metric};
use crate::access_log::RequestNumbers;
use crate::installation::installer::{Installer, Version};
use crate::process::listeners_tls::ListenersTls;
use crate::tenants::{Installers, Serving};

mod work;

/// The maximum number of tenants whose numbers are shown.
const MAX_TENANTS: usize = 50;
/// The maximum number of extensions that the page shows, over all shown tenants. One extension can take a hundred
/// lines.
const MAX_EXTENSIONS: usize = 100;

/// One installed extension.
struct MeteredExtension<'a> {
    /// The tenant's name. Empty for the agent of the config itself.
    tenant: &'a str,
    uri: String,
    version: Version,
    metrics: ExtensionMetrics,
}

/// A metric with one sample for each extension: its name, its kind, its help text, and the function that reads the
/// value of a sample.
type PerExtension = (&'static str, Kind, &'static str, fn(&MeteredExtension<'_>) -> f64);

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
    ("annex_extension_revoked", Kind::Gauge, "Whether the operator has taken it out of service: 0 or 1.", |shown| {
        f64::from(u8::from(shown.version.extension.health().revoked.is_some()))
    }),
    (
        "annex_extension_quarantined_turns_total",
        Kind::Counter,
        "Turns that were refused, or went on without it, because it was quarantined or out of service.",
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
        "annex_extension_kept_turns_total",
        Kind::Counter,
        "Turns that got a kept instance, which had served others.",
        |shown| shown.metrics.kept_turns as f64,
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

/// A gauge with one sample for each tenant: its name, its help text, and the function that reads the value of a sample.
type PerTenant = (&'static str, &'static str, fn(&Installer) -> f64);

const PER_TENANT: &[PerTenant] = &[
    ("annex_edition", "The number of the edition in force.", |installer| {
        installer.publisher().current().extensions.number as f64
    }),
    ("annex_extensions_installed", "Extensions that are installed.", |installer| installer.versions().len() as f64),
    ("annex_extension_failures", "Sources whose last load failed.", |installer| installer.failures().len() as f64),
];

impl MeteredExtension<'_> {
    fn labels<'a>(&'a self, others: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        of_tenant(self.tenant, &[("extension", self.uri.as_str())]).into_iter().chain(others.iter().copied()).collect()
    }

    fn sample(&self, metric: &mut Metric<'_>, others: &[(&str, &str)], value: f64) {
        if is_told(self.tenant, value) {
            metric.sample(&self.labels(others), value);
        }
    }
}

fn of_tenant<'a>(tenant: &'a str, others: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let tenant = (!tenant.is_empty()).then_some(("tenant", tenant));
    tenant.into_iter().chain(others.iter().copied()).collect()
}

/// True if the page shows this value. A zero of a tenant is left out: most samples would be zeros, and an absent sample
/// means zero. A zero of the config's own agent is shown, so that a rate includes the first step from zero.
fn is_told(tenant: &str, value: f64) -> bool {
    tenant.is_empty() || value > 0.0
}

/// The sources of the page's numbers that do not concern extensions.
pub(crate) struct Sources<'a> {
    pub(crate) process: &'a ProcessParts,
    pub(crate) runtime: &'a Runtime,
    pub(crate) numbers: &'a RequestNumbers,
    /// The agent of the config itself.
    pub(crate) own_agent: &'a dyn AgentExecutor,
    /// The TLS of the listeners.
    pub(crate) tls: &'a ListenersTls,
}

/// The text of the page with the current numbers.
pub(super) fn text(installers: &Installers, sources: &Sources<'_>) -> String {
    let mut page = Exposition::default();
    write(&mut page, installers, sources);
    page.into_text()
}

/// The metrics of the page as numbers.
pub(crate) fn families(installers: &Installers, sources: &Sources<'_>) -> Vec<Family> {
    let mut page = Exposition::of_families();
    write(&mut page, installers, sources);
    page.into_families()
}

fn write(page: &mut Exposition, installers: &Installers, sources: &Sources<'_>) {
    let Sources { process, runtime, numbers, own_agent, tls } = *sources;
    let own = [(String::new(), Arc::clone(installers.own()))];
    let busiest = busiest(installers);
    let of_tenants = busiest.iter().map(|(name, serving)| (name.clone(), Arc::clone(&serving.installer)));
    let shown: Vec<(String, Arc<Installer>)> = own.into_iter().chain(of_tenants).collect();
    // The format wants all samples of a metric in one group, so the inner loop runs over the tenants.
    for (name, help, value) in PER_TENANT {
        let mut metric = page.metric(name, Kind::Gauge, help);
        for (tenant, installer) in &shown {
            let value = value(installer);
            if is_told(tenant, value) {
                metric.sample(&of_tenant(tenant, &[]), value);
            }
        }
    }
    tenants(page, installers);
    page.metric("annex_pinned_tasks", Kind::Gauge, "Waiting tasks that have pinned versions.")
        .sample(&[], process.tasks.pins().tasks() as f64);
    page.metric("annex_turns_running", Kind::Gauge, "Turns that run.").sample(&[], process.running.len() as f64);
    counted(page, &process.counters);
    work::requests(page, numbers);
    work::tls(page, tls);
    work::turns(page, &process.counters);
    work::spans(page, process.tracer.as_ref());
    work::tenants(page, own_agent, &busiest);
    loads(page, &shown);
    totals(page, &runtime.totals());
    let extensions = shown.iter().flat_map(|(tenant, installer)| {
        installer.versions().into_iter().map(|version| MeteredExtension {
            tenant: tenant.as_str(),
            uri: version.uri().to_string(),
            // The numbers are read once per page, so that the samples of an extension agree.
            metrics: version.extension.metrics(),
            version,
        })
    });
    let extensions: Vec<MeteredExtension<'_>> = extensions.collect();
    infos(page, &extensions);
    hooks(page, &extensions);
    for (name, kind, help, read) in PER_EXTENSION {
        let mut metric = page.metric(name, *kind, help);
        for shown in &extensions {
            shown.sample(&mut metric, &[], read(shown));
        }
    }
}

/// The tenants whose extensions used the most thread time, sorted by name. Only these tenants are on the page.
fn busiest(installers: &Installers) -> Vec<(String, Serving)> {
    let mut tenants: Vec<_> = installers
        .tenants_served()
        .into_iter()
        .map(|(name, serving)| {
            let published = serving.installer.publisher().current();
            let installed = &published.extensions.installed;
            let busy: Duration = installed.iter().map(|extension| extension.busy()).sum();
            (Reverse(busy), name, installed.iter().count(), serving)
        })
        .collect();
    tenants.sort_by(|(one_busy, one, ..), (other_busy, other, ..)| (one_busy, one).cmp(&(other_busy, other)));
    let mut room = MAX_EXTENSIONS;
    let fits = |(.., extensions, _): &(_, _, usize, _)| {
        let left = room.checked_sub(*extensions);
        room = left.unwrap_or(room);
        left.is_some()
    };
    let shown = tenants.into_iter().filter(fits).take(MAX_TENANTS);
    let mut shown: Vec<_> = shown.map(|(_, name, _, serving)| (name, serving)).collect();
    shown.sort_by(|(one, _), (other, _)| one.cmp(other));
    shown
}

fn tenants(page: &mut Exposition, installers: &Installers) {
    let mut tenants = page.metric("annex_tenants", Kind::Gauge, "Tenants, by whether they are served.");
    tenants.sample(&[("state", "served")], installers.tenants().len());
    tenants.sample(&[("state", "failing")], installers.failing().len());
}

fn counted(page: &mut Exposition, counters: &Counters) {
    let help = "Messages sent by clients, by how they were taken.";
    let mut messages = page.metric("annex_messages_total", Kind::Counter, help);
    counters.messages().for_each(|(outcome, count)| messages.sample(&[("outcome", outcome)], count));
    let mut turns = page.metric("annex_turns_total", Kind::Counter, "Turns that have ended, by how.");
    counters.turns().for_each(|(outcome, time)| turns.sample(&[("outcome", outcome)], time.count));
}

fn loads(page: &mut Exposition, shown: &[(String, Arc<Installer>)]) {
    let help = "Components that were loaded, and that were read and refused.";
    let mut loads = page.metric("annex_extension_loads_total", Kind::Counter, help);
    for (tenant, installer) in shown {
        let (loaded, refused) = installer.loads();
        for (outcome, count) in [("loaded", loaded), ("refused", refused)] {
            if is_told(tenant, count as f64) {
                loads.sample(&of_tenant(tenant, &[("outcome", outcome)]), count);
            }
        }
    }
}

/// Writes the totals over all extensions, including the extensions of tenants that the page does not show.
fn totals(page: &mut Exposition, totals: &[HookTotals]) {
    let help = "Calls of hooks of all extensions and tenants together, by how they ended.";
    let mut calls = page.metric("annex_all_hook_calls_total", Kind::Counter, help);
    for hook in totals {
        for (outcome, count) in hook.outcomes.iter().filter(|(_, count)| *count > 0) {
            calls.sample(&[("hook", hook.hook.name()), ("outcome", outcome.name())], count);
        }
    }
    let help = "Time in which calls of all extensions and tenants together ran on a thread.";
    let mut busy = page.metric("annex_all_hook_busy_seconds_total", Kind::Counter, help);
    for hook in totals.iter().filter(|hook| !hook.busy.is_zero()) {
        busy.sample(&[("hook", hook.hook.name())], hook.busy.as_secs_f64());
    }
}

fn infos(page: &mut Exposition, extensions: &[MeteredExtension<'_>]) {
    let help = "The version in force of each extension.";
    let mut infos = page.metric("annex_extension_info", Kind::Gauge, help);
    for shown in extensions {
        let version = &shown.version;
        let digest = version.extension.digest().to_string();
        let number = version.number.to_string();
        infos.sample(&shown.labels(&[("digest", &digest), ("version", &number)]), 1);
    }
}

fn hooks(page: &mut Exposition, extensions: &[MeteredExtension<'_>]) {
    let help = "Calls of hooks in turns, by how they ended.";
    let mut calls = page.metric("annex_hook_calls_total", Kind::Counter, help);
    for (shown, hook) in each_hook(extensions) {
        for (outcome, count) in &hook.outcomes {
            shown.sample(&mut calls, &[("hook", hook.hook.name()), ("outcome", outcome.name())], *count as f64);
        }
    }
    let help = "Time of a call from asking for an instance to the guest's answer, waiting included.";
    let mut times = page.metric("annex_hook_duration_seconds", Kind::Histogram, help);
    for (shown, hook) in each_hook(extensions) {
        // A histogram is written with all its buckets or left out.
        if !is_told(shown.tenant, hook.calls as f64) {
            continue;
        }
        let labels = shown.labels(&[("hook", hook.hook.name())]);
        times.histogram(&labels, &hook.within, (hook.calls, hook.time));
    }
    let help = "Time in which calls ran on a thread: the guest, starting its instance and the host's work for it, without \
                waiting. An upper bound of their CPU time.";
    let mut busy = page.metric("annex_hook_busy_seconds_total", Kind::Counter, help);
    for (shown, hook) in each_hook(extensions) {
        shown.sample(&mut busy, &[("hook", hook.hook.name())], hook.busy.as_secs_f64());
    }
}

fn each_hook<'a>(
    extensions: &'a [MeteredExtension<'a>],
) -> impl Iterator<Item = (&'a MeteredExtension<'a>, &'a HookMetrics)> {
    extensions.iter().flat_map(|shown| shown.metrics.hooks.iter().map(move |hook| (shown, hook)))
}

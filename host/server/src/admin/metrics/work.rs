//! The metrics of requests, of turns, and of calls that agents make.

use std::sync::atomic::Ordering;

use annex_agent::{AgentExecutor, StepKind};
use annex_operations::counters::Counters;
use annex_telemetry::traces::Tracer;

use super::{is_told, of_tenant};
use crate::access_log::RequestNumbers;
use crate::admin::exposition::{Exposition, Kind};
use crate::process::listeners_tls::ListenersTls;
use crate::tenants::Serving;

/// Writes the metrics of requests and refusals.
pub(super) fn requests(page: &mut Exposition, numbers: &RequestNumbers) {
    let help = "Time of a request to the end of its answer, by operation and how it ended.";
    let mut times = page.metric("annex_request_duration_seconds", Kind::Histogram, help);
    for (operation, outcome, time) in numbers.times() {
        let labels = [("operation", operation), ("outcome", outcome.name())];
        times.histogram(&labels, &time.within, (time.count, time.sum));
        times.add_exemplar(numbers.exemplar(operation, outcome));
    }
    let mut refusals = page.metric("annex_refusals_total", Kind::Counter, "Requests that were refused, by reason.");
    for (reason, count) in numbers.refusals() {
        refusals.sample(&[("reason", reason)], count);
    }
}

/// Writes the metrics of the listeners with TLS.
pub(super) fn tls(page: &mut Exposition, tls: &ListenersTls) {
    let help = "Time at which the certificate of a listener ends, in seconds since 1970.";
    let mut ends = page.metric("annex_tls_certificate_expires_seconds", Kind::Gauge, help);
    for (listener, tls) in tls.named() {
        ends.sample(&[("listener", listener)], tls.ends_at());
    }
    let help = "Changes of the TLS files of a listener, by whether the files could be used.";
    let mut reloads = page.metric("annex_tls_reloads_total", Kind::Counter, help);
    for (listener, tls) in tls.named() {
        let numbers = tls.numbers();
        for (outcome, count) in [("loaded", &numbers.reloads), ("refused", &numbers.refused_reloads)] {
            reloads.sample(&[("listener", listener), ("outcome", outcome)], count.load(Ordering::Relaxed));
        }
    }
    let help = "Connections to a listener that ended before their TLS handshake did.";
    let mut failed = page.metric("annex_tls_handshakes_failed_total", Kind::Counter, help);
    for (listener, tls) in tls.named() {
        failed.sample(&[("listener", listener)], tls.numbers().failed_handshakes.load(Ordering::Relaxed));
    }
}

/// Writes the number of spans, which is zero without `[traces]`.
pub(super) fn spans(page: &mut Exposition, tracer: Option<&Tracer>) {
    let help = "Spans, by whether the collector of traces has taken them or they were lost.";
    let mut spans = page.metric("annex_trace_spans_total", Kind::Counter, help);
    let (sent, lost) = tracer.map(Tracer::counts).unwrap_or_default();
    spans.sample(&[("outcome", "sent")], sent);
    spans.sample(&[("outcome", "lost")], lost);
}

/// Writes the metrics of turns, and of the calls to models, other agents and tools in these turns.
pub(super) fn turns(page: &mut Exposition, counters: &Counters) {
    let help = "Time of a turn from the message that began it, by how it ended.";
    let mut times = page.metric("annex_turn_duration_seconds", Kind::Histogram, help);
    for (outcome, time) in counters.turns().filter(|(_, time)| time.count > 0) {
        times.histogram(&[("outcome", outcome)], &time.within, (time.count, time.sum));
    }
    for (name, kind, help) in CALLS {
        let mut times = page.metric(name, Kind::Histogram, help);
        for (end, time) in counters.calls.read(kind).filter(|(_, time)| time.count > 0) {
            times.histogram(&[("outcome", end.name())], &time.within, (time.count, time.sum));
        }
    }
}

const CALLS: [(&str, StepKind, &str); 3] = [
    (
        "annex_upstream_duration_seconds",
        StepKind::Agent,
        "Time that an upstream agent took for a turn, by how that ended.",
    ),
    ("annex_model_call_duration_seconds", StepKind::Model, "Time of a call of a model, by how it ended."),
    ("annex_tool_call_duration_seconds", StepKind::Tool, "Time of a call of a tool, by how it ended."),
];

/// Writes the number of requests of each shown tenant. Also writes for each upstream agent whether the agent answered
/// its last call.
pub(super) fn tenants(page: &mut Exposition, own_agent: &dyn AgentExecutor, shown: &[(String, Serving)]) {
    let help = "Requests of a tenant since it was loaded, by how they ended.";
    let mut requests = page.metric("annex_tenant_requests_total", Kind::Counter, help);
    for (tenant, serving) in shown {
        for (outcome, count) in serving.requests.read() {
            if is_told(tenant, count as f64) {
                requests.sample(&of_tenant(tenant, &[("outcome", outcome.name())]), count);
            }
        }
    }
    let help = "Whether an upstream agent answered what it was asked last, a message or for its card: 0 or 1.";
    let mut answers = page.metric("annex_upstream_answers", Kind::Gauge, help);
    let of_tenants = shown.iter().map(|(tenant, serving)| (tenant.as_str(), &*serving.handler.agent));
    for (tenant, agent) in std::iter::once(("", own_agent)).chain(of_tenants) {
        if let Some(is_reached) = agent.is_reached() {
            answers.sample(&of_tenant(tenant, &[]), u8::from(is_reached));
        }
    }
}

//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};
use std::time::Duration;

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The text of one scrape.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
}

impl Exposition {
    /// Writes the head of a metric: its help text and its kind. The caller then writes the samples with the returned
    /// value.
    pub(super) fn metric(&mut self, name: &'static str, kind: Kind, help: &str) -> Metric<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a string never fails, here and below.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Metric { text: &mut self.text, name }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// A metric whose samples are being written.
pub(super) struct Metric<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Metric<'_> {
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.part("", labels, value);
    }

    /// Writes the samples of a histogram: its buckets, the count and the sum.
    pub(super) fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        within: &[(Duration, u64)],
        (count, sum): (u64, Duration),
    ) {
        let mut bucket = |bound: &str, count: u64| {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
            self.part("_bucket", &labels, count);
        };
        for (bound, count) in within {
            bucket(&bound.as_secs_f64().to_string(), *count);
        }
        // The format requires a last bucket `+Inf` that counts all values.
        bucket("+Inf", count);
        self.part("_sum", labels, sum.as_secs_f64());
        self.part("_count", labels, count);
    }

    /// Writes one sample of a histogram. `suffix` is `_bucket`, `_sum` or `_count`.
    fn part(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (place, (name, value)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(value));
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

fn escaped(text: &str) -> String {
    // The format escapes these three characters in label values. The backslash comes first, or it would escape the
    // other escapes.
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

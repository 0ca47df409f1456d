//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};
use std::time::Duration;

use crate::access_log::Exemplar;

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The text of one scrape.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
    /// The same metrics as numbers. `None` if only the text is needed.
    families: Option<Vec<Family>>,
}

/// All samples of a metric.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: String,
    pub(crate) samples: Vec<Sample>,
}

/// A sample with the values of its labels.
pub(crate) struct Sample {
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: SampleValue,
}

pub(crate) enum SampleValue {
    Number(f64),
    Histogram {
        /// For each bound, in ascending order, the number of values up to the bound.
        within: Vec<(Duration, u64)>,
        count: u64,
        sum: Duration,
        /// A value with its trace.
        exemplar: Option<Exemplar>,
    },
}

impl Exposition {
    /// Writes the head of a metric: its help text and its kind. The caller then writes the samples with the returned
    /// value.
    pub(super) fn metric(&mut self, name: &'static str, kind: Kind, help: &str) -> Metric<'_> {
        let word = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a string never fails, here and below.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {word}");
        let family = self.families.as_mut().and_then(|families| {
            families.push(Family { name, kind, help: help.to_owned(), samples: Vec::new() });
            families.last_mut()
        });
        Metric { text: &mut self.text, name, family }
    }

    /// A page that also keeps its metrics as numbers, for [`Self::into_families`].
    pub(super) fn of_families() -> Self {
        Self { text: String::new(), families: Some(Vec::new()) }
    }

    pub(super) fn into_families(self) -> Vec<Family> {
        self.families.unwrap_or_default()
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// A metric whose samples are being written.
pub(super) struct Metric<'a> {
    text: &'a mut String,
    name: &'static str,
    family: Option<&'a mut Family>,
}

impl Metric<'_> {
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        if let Some(family) = &mut self.family {
            // Each value is a number.
            let value = SampleValue::Number(value.to_string().parse().unwrap_or_default());
            family.samples.push(Sample { labels: owned(labels), value });
        }
        self.part("", labels, value);
    }

    /// Writes the samples of a histogram: its buckets, the count and the sum.
    pub(super) fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        within: &[(Duration, u64)],
        (count, sum): (u64, Duration),
    ) {
        if let Some(family) = &mut self.family {
            let value = SampleValue::Histogram { within: within.to_vec(), count, sum, exemplar: None };
            family.samples.push(Sample { labels: owned(labels), value });
        }
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

    /// Adds a value with its trace to the last histogram. The text has none.
    pub(super) fn add_exemplar(&mut self, added: Option<Exemplar>) {
        let last = self.family.as_mut().and_then(|family| family.samples.last_mut());
        if let Some(Sample { value: SampleValue::Histogram { exemplar, .. }, .. }) = last {
            *exemplar = added;
        }
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

fn owned(labels: &[(&str, &str)]) -> Vec<(String, String)> {
    labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn escaped(text: &str) -> String {
    // The format escapes these three characters in label values. The backslash comes first, or it would escape the
    // other escapes.
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

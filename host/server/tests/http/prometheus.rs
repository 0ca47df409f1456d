//! A strict reader of Prometheus' text format, which takes nothing that is in doubt.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// The samples of one scrape.
pub(crate) struct Scrape {
    samples: BTreeMap<(String, Labels), f64>,
}

impl Scrape {
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let key = key(name, labels);
        *self.samples.get(&key).unwrap_or_else(|| unreachable!("no {key:?} in {:?}", self.samples.keys()))
    }

    pub(crate) fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        self.samples.contains_key(&key(name, labels))
    }

    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The values that a label has.
    pub(crate) fn values_of(&self, label: &str) -> BTreeSet<&str> {
        self.samples.keys().filter_map(|(_, labels)| labels.get(label)).map(String::as_str).collect()
    }

    /// The names of samples with a label that are zero. Lower buckets of a histogram may be.
    pub(crate) fn zeros_with(&self, label: &str) -> BTreeSet<&str> {
        let zeros = self.samples.iter().filter(|(_, value)| **value == 0.0);
        let zeros = zeros.filter(|((_, labels), _)| labels.contains_key(label) && !labels.contains_key("le"));
        zeros.map(|((name, _), _)| name.as_str()).collect()
    }

    pub(crate) fn has_label(&self, name: &str, value: &str) -> bool {
        self.samples.keys().any(|(_, labels)| labels.get(name).is_some_and(|found| found == value))
    }
}

fn key(name: &str, labels: &[(&str, &str)]) -> (String, Labels) {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    (name.to_owned(), labels)
}

/// Each metric once, with HELP, TYPE and then its samples; no sample twice; histograms that add up.
pub(crate) fn parse(text: &str) -> Scrape {
    assert!(text.ends_with('\n'), "the last line ends too");
    let mut samples = BTreeMap::new();
    let mut metrics: Vec<(String, String)> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a text");
            assert!(is_name(name) && !text.contains('\\') && text.ends_with('.'), "{line}");
            let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect("a type");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            assert!(metrics.iter().all(|(known, _)| known != name), "{name} comes twice");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            metrics.push((name.to_owned(), kind.to_owned()));
            continue;
        }
        let (metric, kind) = metrics.last().expect("a sample has a metric");
        let (name, labels, value) = sample(line);
        let suffix = name.strip_prefix(metric.as_str()).unwrap_or_else(|| unreachable!("{line} is none of {metric}"));
        let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix) && (suffix == "_bucket") == labels.contains_key("le"), "{line}");
        assert!(value >= 0.0, "{line}");
        assert!(samples.insert((name, labels), value).is_none(), "{line} comes twice");
    }
    check_histograms(&samples);
    Scrape { samples }
}

fn is_name(text: &str) -> bool {
    let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.bytes().next().is_some_and(is_start) && text.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit())
}

fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).expect("a value");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    while let Some(label) = rest.strip_prefix(if labels.is_empty() { '{' } else { ',' }) {
        let (name, quoted) = label.split_once("=\"").expect("a label");
        let (value, left) = unquote(quoted);
        assert!(is_name(name) && labels.insert(name.to_owned(), value).is_none(), "{line}");
        rest = left;
    }
    if !labels.is_empty() {
        rest = rest.strip_prefix('}').expect("the end of the labels");
    }
    let value = rest.strip_prefix(' ').expect("one space").parse().expect("a number");
    (name.to_owned(), labels, value)
}

/// The text up to its closing quote, and what follows.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => return (value, &text[place + 1..]),
            '\\' => match characters.next().map(|(_, escaped)| escaped) {
                Some('n') => value.push('\n'),
                Some(escaped @ ('"' | '\\')) => value.push(escaped),
                other => unreachable!("\\{other:?} is no escape"),
            },
            plain => value.push(plain),
        }
    }
    unreachable!("{text} has no closing quote");
}

/// Checks that the counts of buckets grow with the bounds, and that the last bucket counts all samples.
fn check_histograms(samples: &BTreeMap<(String, Labels), f64>) {
    for ((name, labels), all) in samples.iter().filter(|((name, _), _)| name.ends_with("_seconds_count")) {
        let bucket = name.replace("_count", "_bucket");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for ((_, found), count) in samples.iter().filter(|((name, _), _)| *name == bucket) {
            let mut others = found.clone();
            let bound = others.remove("le").expect("a bound");
            if others == *labels {
                buckets.push((bound.parse().expect("a bound"), *count));
            }
        }
        buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{labels:?}: {buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, *all)), "{labels:?}");
    }
}

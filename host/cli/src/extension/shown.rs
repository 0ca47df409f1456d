//! The admin API's answers for people. What is not shown is not read.

use serde::Deserialize;
use serde_json::Value;

use crate::line::Line;

#[derive(Deserialize)]
pub(super) struct List {
    edition: u64,
    extensions: Vec<Summary>,
    failures: Vec<Failure>,
    #[serde(default)]
    tenants: Vec<Line>,
}

#[derive(Deserialize)]
struct Summary {
    uri: Line,
    version: u64,
    digest: Line,
    size: u64,
    required: bool,
    source: Source,
    loaded_at: Line,
    kept: u64,
    pinned_tasks: u64,
    calls: u64,
    failures: u64,
    last_failure: Option<FailedCall>,
    timings: Vec<Timing>,
    quarantine: Quarantine,
}

#[derive(Deserialize)]
struct Quarantine {
    next_trial_ms: Option<u64>,
    failures_in_a_row: u32,
}

#[derive(Deserialize)]
struct FailedCall {
    at: Line,
    hook: Line,
    outcome: Line,
    reason: Line,
}

#[derive(Deserialize)]
struct Timing {
    hook: Line,
    calls: u64,
    failures: u64,
    mean_ms: Option<f64>,
    max_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Source {
    kind: Line,
    name: Line,
    until: Option<Line>,
}

#[derive(Deserialize)]
struct Failure {
    source: Line,
    reason: Line,
    at: Line,
}

#[derive(Deserialize)]
pub(super) struct Details {
    #[serde(flatten)]
    summary: Summary,
    edition: u64,
    description: Line,
    hooks: Vec<Line>,
    methods: Vec<Line>,
    depends_on: Vec<Line>,
    grants: Value,
    limits: Value,
    kept_versions: Vec<Kept>,
    changes: Vec<Change>,
}

#[derive(Deserialize)]
struct Kept {
    version: u64,
    digest: Line,
    loaded_at: Line,
}

#[derive(Deserialize)]
struct Change {
    at: Line,
    edition: u64,
    change: Line,
    from: Option<u64>,
    to: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Removed {
    removed: Line,
    edition: u64,
    until: Option<Line>,
}

#[derive(Deserialize)]
pub(super) struct Reloaded {
    changed: bool,
    edition: u64,
    needs_restart: Vec<Line>,
    failed: Vec<Line>,
}

#[derive(Deserialize)]
pub(super) struct Log {
    lines: Vec<LogLine>,
}

#[derive(Deserialize)]
struct LogLine {
    at: Line,
    level: Line,
    context: Option<Line>,
    message: Line,
}

impl List {
    pub(super) fn text(&self) -> String {
        let mut text = format!("Edition {}\n", self.edition);
        for extension in &self.extensions {
            text.push_str(&extension.text());
        }
        if self.extensions.is_empty() {
            text.push_str("no extensions\n");
        }
        for Failure { source, reason, at } in &self.failures {
            text.push_str(&format!("\nNot installed: {source} ({at})\n  {reason}\n"));
        }
        if !self.tenants.is_empty() {
            text.push_str(&format!("\nTenants (--tenant NAME): {}\n", self.tenants.join(", ")));
        }
        text
    }
}

impl Summary {
    fn text(&self) -> String {
        let Self { uri, version, digest, kept, loaded_at, pinned_tasks, calls, failures, .. } = self;
        let required = if self.required { "  (required)" } else { "" };
        let size = self.size.div_ceil(1024);
        format!(
            "\n{uri}{required}\n  version {version}, {size} KiB, {digest}\n  from {}, loaded {loaded_at}\n  kept for a \
             rollback: {kept}, pinned by tasks: {pinned_tasks}\n  hook calls: {calls}, failed: {failures}\n{}{}",
            self.source.text(),
            self.last_failure.as_ref().map(FailedCall::text).unwrap_or_default(),
            self.quarantine.text()
        )
    }
}

impl FailedCall {
    fn text(&self) -> String {
        let Self { at, hook, outcome, reason } = self;
        format!("  last failure: {at} in {hook} ({outcome}): {reason}\n")
    }
}

impl Quarantine {
    fn text(&self) -> String {
        let Self { next_trial_ms: Some(left), failures_in_a_row } = self else { return String::new() };
        format!("  quarantined after {failures_in_a_row} failed turns in a row; the next trial is in {left} ms\n")
    }
}

impl Timing {
    fn text(&self) -> String {
        let Self { hook, calls, failures, mean_ms, max_ms } = self;
        let times = mean_ms.zip(*max_ms).map(|(mean, max)| format!(", mean {mean:.3} ms, longest {max:.3} ms"));
        format!("Calls       {hook}: {calls}, failed {failures}{}\n", times.unwrap_or_default())
    }
}

impl Source {
    fn text(&self) -> String {
        let until = self.until.as_ref().map(|until| format!(" (until {until})")).unwrap_or_default();
        format!("{} {:?}{until}", self.kind, &*self.name)
    }
}

impl Details {
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}  {}\n", self.summary.text().trim_start(), self.description);
        text.push_str(&format!("\nHooks       {}\n", self.hooks.join(", ")));
        if !self.methods.is_empty() {
            text.push_str(&format!("Methods     {}\n", self.methods.join(", ")));
        }
        text.push_str(&format!("Grants      {}\nLimits      {}\n", json(&self.grants), json(&self.limits)));
        if !self.depends_on.is_empty() {
            text.push_str(&format!("Depends on  {}\n", self.depends_on.join(", ")));
        }
        self.summary.timings.iter().for_each(|timing| text.push_str(&timing.text()));
        for Kept { version, digest, loaded_at } in &self.kept_versions {
            text.push_str(&format!("Kept        version {version}, {digest}, loaded {loaded_at}\n"));
        }
        for Change { at, edition, change, from, to } in &self.changes {
            let number = |number: &Option<u64>| number.map_or("none".to_owned(), |number| number.to_string());
            let (from, to) = (number(from), number(to));
            text.push_str(&format!("Changed     {at}  edition {edition}: {change}, version {from} to {to}\n"));
        }
        text
    }

    /// After something was done to it.
    pub(super) fn changed(&self, what: &str) -> String {
        let Summary { uri, version, digest, source, .. } = &self.summary;
        let until = match &source.until {
            Some(until) if &*source.kind == "added" => {
                format!("It is gone after a {until}; set runtime.extensions_dir to keep what is added.\n")
            }
            Some(until) => format!("It stays until the {until}: {} {:?} gives another.\n", source.kind, &*source.name),
            None => String::new(),
        };
        format!("{uri}\n  {what}: version {version}, {digest}, edition {}\n{until}", self.edition)
    }
}

impl Removed {
    pub(super) fn text(&self) -> String {
        let until = self.until.as_ref().map(|until| format!(" until {until}")).unwrap_or_default();
        format!("{}\n  removed{until}, edition {}\n", self.removed, self.edition)
    }
}

impl Reloaded {
    pub(super) fn text(&self) -> String {
        let what = if self.changed { "changed" } else { "nothing has changed" };
        let mut text = format!("Edition {}, {what}\n", self.edition);
        if !self.needs_restart.is_empty() {
            text.push_str(&format!("Changes that need a restart: {}\n", self.needs_restart.join(", ")));
        }
        for source in &self.failed {
            text.push_str(&format!("Not installed: {source} (`annex extension list` says why)\n"));
        }
        text
    }
}

impl Log {
    pub(super) fn text(&self) -> String {
        let line = |LogLine { at, level, context, message }: &LogLine| {
            let context = context
                .as_ref()
                .filter(|context| !context.is_empty())
                .map(|context| format!("{context}: "))
                .unwrap_or_default();
            format!("{at} {level:5} {context}{message}\n")
        };
        self.lines.iter().map(line).collect()
    }
}

fn json(value: &Value) -> String {
    annex_text::json(&value.to_string()).into_owned()
}

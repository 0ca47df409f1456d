//! The admin API's answers about extensions, formatted for people.

use annex_server::admin_api::extensions::{self, LogLine, NotInstalled, ReplacedVersion, Timing, VersionChange};
use serde_json::Value;

use super::shadow;
use crate::line::Line;

pub(super) type List = extensions::List<Line>;
/// The details of an extension, with its grants as JSON.
pub(super) type Details = extensions::Details<Line, Value>;
pub(super) type RemovedExtension = extensions::RemovedExtension<Line>;
pub(super) type ReloadResult = extensions::ReloadResult<Line>;
pub(super) type Log = extensions::Log<Line>;

type Summary = extensions::Summary<Line>;
type FailedCall = extensions::FailedCall<Line>;
type Source = extensions::Source<Line>;
type CardDeclaration = extensions::CardDeclaration<Line>;
type Quarantine = extensions::Quarantine<Line>;

pub(super) fn list(list: &List) -> String {
    let mut text = format!("Edition {}\n", list.edition);
    for extension in &list.extensions {
        text.push_str(&summary(extension));
    }
    if list.extensions.is_empty() {
        text.push_str("no extensions\n");
    }
    for NotInstalled { source, reason, at } in &list.failures {
        text.push_str(&format!("\nNot installed: {source} ({at})\n  {reason}\n"));
    }
    if !list.tenants.is_empty() {
        text.push_str(&format!("\nTenants (--tenant NAME): {}\n", list.tenants.join(", ")));
    }
    text
}

fn summary(extension: &Summary) -> String {
    let Summary { uri, digest, kept, loaded_at, pinned_tasks, calls, refused, failures, .. } = extension;
    let required = if extension.required { "  (required)" } else { "" };
    let active = active(&extension.activate, &extension.allow);
    let reads = reads(&extension.reads);
    let size = extension.size.div_ceil(1024);
    format!(
        "\n{uri}{required}\n{active}{reads}  {}, {size} KiB, {digest}\n  from {}, loaded {loaded_at}\n  kept for a \
         rollback: {kept}, pinned by tasks: {pinned_tasks}\n  hook calls: {calls}, refused: {refused}, failed: {failures}\n{}{}",
        version(extension),
        source(&extension.source),
        extension.last_failure.as_ref().map(failed_call).unwrap_or_default(),
        quarantine(&extension.quarantine)
    )
}

/// Writes the version that the author gave the extension, and the number that the server gave this version.
fn version(extension: &Summary) -> String {
    let Summary { component_version, version, .. } = extension;
    format!("version {component_version} (number {version})")
}

/// A line that says when the extension is active and for which callers. Empty if the extension is active on request and
/// for every caller, which is the default.
fn active(activate: &str, allow: &[Line]) -> String {
    let when = match activate {
        "always" => "for every message",
        "metadata" => "when it is asked for, or a message bears its metadata or names it",
        _ if allow.is_empty() => return String::new(),
        _ => "when it is asked for",
    };
    match allow {
        [] => format!("  active {when}\n"),
        allow => format!("  active {when}, of {}\n", allow.join(", ")),
    }
}

/// A line that says which readers of tasks see the extension's metadata. Empty if all readers do, which is the default.
fn reads(reads: &str) -> &'static str {
    if reads == "active" { "  metadata on tasks: for readers that have activated the extension\n" } else { "" }
}

pub(super) fn failed_call(call: &FailedCall) -> String {
    let FailedCall { at, hook, outcome, reason } = call;
    format!("  last failure: {at} in {hook} ({outcome}): {reason}\n")
}

pub(super) fn quarantine(quarantine: &Quarantine) -> String {
    let Quarantine { next_trial_ms, failures_in_a_row, revoked, .. } = quarantine;
    let revoked = revoked.as_ref().map(|reason| format!("  out of service: {reason}\n"));
    let quarantined = next_trial_ms.map(|left| {
        format!("  quarantined after {failures_in_a_row} failed turns in a row; the next trial is in {left} ms\n")
    });
    revoked.into_iter().chain(quarantined).collect()
}

fn timing(timing: &Timing<Line>) -> String {
    let Timing { hook, calls, refused, failures, mean_ms, p99_ms, max_ms, cpu_ms } = timing;
    let p99 = p99_ms.map(|p99| format!(", 99 % within {p99:.3} ms")).unwrap_or_default();
    let times = mean_ms
        .zip(*max_ms)
        .map(|(mean, max)| format!(", mean {mean:.3} ms{p99}, longest {max:.3} ms, {cpu_ms:.3} ms of CPU in all"));
    format!("Calls       {hook}: {calls}, refused {refused}, failed {failures}{}\n", times.unwrap_or_default())
}

fn source(source: &Source) -> String {
    let until = source.until.as_ref().map(|until| format!(" (until {until})")).unwrap_or_default();
    format!("{} {:?}{until}", source.kind, &*source.name)
}

pub(super) fn details(details: &Details) -> String {
    let mut text = format!("{}  {}\n", summary(&details.summary).trim_start(), details.description);
    text.push_str(&format!("\nHooks       {}\n", details.summary.hooks.join(", ")));
    if !details.summary.methods.is_empty() {
        text.push_str(&format!("Methods     {}\n", details.summary.methods.join(", ")));
    }
    if !details.depends_on.is_empty() {
        text.push_str(&format!("Depends on  {}\n", details.depends_on.join(", ")));
    }
    details.live_card.iter().for_each(|last| text.push_str(&card_declaration(last)));
    details.summary.timings.iter().for_each(|of_hook| text.push_str(&timing(of_hook)));
    if let Some(beside) = &details.shadow {
        text.push_str(&shadow::report(beside));
    }
    for ReplacedVersion { version, digest, loaded_at, .. } in &details.kept_versions {
        text.push_str(&format!("Kept        number {version}, {digest}, loaded {loaded_at}\n"));
    }
    for VersionChange { at, edition, change, from, to } in &details.changes {
        let number = |number: &Option<u64>| number.map_or("none".to_owned(), |number| number.to_string());
        let from = number(from);
        let to = number(to);
        text.push_str(&format!("Changed     {at}  edition {edition}: {change}, number {from} to {to}\n"));
    }
    text.push_str(&settings(details));
    text
}

/// Writes when the extension has declared its entry on the card, and why it could not declare it again.
fn card_declaration(last: &CardDeclaration) -> String {
    let CardDeclaration { declared_at, seconds, failed_at, error } = last;
    let holds = if *seconds == 0 { "until the next load".to_owned() } else { format!("for {seconds} s") };
    let failed = failed_at.as_ref().zip(error.as_ref());
    let failed = failed.map(|(at, error)| format!("Card entry  stayed as it was {at}: {error}\n"));
    format!("Card entry  declared {declared_at}, holds {holds}\n{}", failed.unwrap_or_default())
}

/// Writes the message that an extension was installed, promoted or rolled back.
pub(super) fn changed(details: &Details, what: &str) -> String {
    let Summary { uri, digest, source, .. } = &details.summary;
    let until = match &source.until {
        // The server has no file of an added extension. With `runtime.extensions_dir` in its config, the server writes
        // one.
        Some(until) if &*source.kind == "added" => {
            format!(
                "It is gone after a {until}. To keep what is added, set runtime.extensions_dir; to keep a component of a \
                 registry, write an [[extension]] with its reference.\n"
            )
        }
        Some(until) => format!("It stays until the {until}: {} {:?} gives another.\n", source.kind, &*source.name),
        None => String::new(),
    };
    format!("{uri}\n  {what}: {}, {digest}, edition {}\n{until}", version(&details.summary), details.edition)
}

pub(super) fn removed(removed: &RemovedExtension) -> String {
    let until = removed.until.as_ref().map(|until| format!(" until {until}")).unwrap_or_default();
    format!("{}\n  removed{until}, edition {}\n", removed.removed, removed.edition)
}

pub(super) fn reloaded(reloaded: &ReloadResult) -> String {
    let what = match (reloaded.changed, reloaded.extensions_changed) {
        (false, _) => "nothing has changed",
        (true, true) => "extensions have changed",
        (true, false) => "extensions are as they were",
    };
    let mut text = format!("Edition {}, {what}\n", reloaded.edition);
    for key in &reloaded.changed_keys {
        text.push_str(&format!("Counts now: {key}\n"));
    }
    for key in &reloaded.needs_restart {
        text.push_str(&format!("Needs a restart: {key}\n"));
    }
    for source in &reloaded.failed {
        text.push_str(&format!("Not installed: {source} (`annex extension list` says why)\n"));
    }
    text
}

pub(super) fn log(log: &Log) -> String {
    let line = |LogLine { at, level, context, message, hook, task_id, error_id, .. }: &LogLine<Line>| {
        let context = context
            .as_ref()
            .filter(|context| !context.is_empty())
            .map(|context| format!("{context}: "))
            .unwrap_or_default();
        let task = task_id.as_ref().map(|task| format!("task {task}, ")).unwrap_or_default();
        format!("{at} {level:5} {hook} {context}{message} ({task}error id {error_id})\n")
    };
    log.lines.iter().map(line).collect()
}

/// The grants and limits of an extension, as the tables of a config that set them.
fn settings(details: &Details) -> String {
    let limits = serde_json::to_value(&details.limits).unwrap_or_default();
    [("grants", &details.grants), ("limits", &limits)].map(|(name, values)| table(name, values)).concat()
}

/// The config table `[extension.NAME]` with these values. The values `false` and `null` and empty `secrets` are
/// omitted; if no value is left, the text is empty.
fn table(name: &str, values: &Value) -> String {
    let lines: String = values.as_object().into_iter().flatten().filter_map(setting).collect();
    if lines.is_empty() { lines } else { format!("\n[extension.{name}]\n{lines}") }
}

fn setting((key, value): (&String, &Value)) -> Option<String> {
    let says_nothing = match value {
        Value::Bool(granted) => !granted,
        Value::Object(members) => key == "secrets" && members.is_empty(),
        _ => false,
    };
    if says_nothing {
        return None;
    }
    let value = toml::Value::try_from(without_null(value)?).ok()?;
    Some(format!("{} = {}\n", annex_text::line(key), annex_text::line(&value.to_string())))
}

/// A copy of the value without the members that are `null`, because TOML has no `null`.
fn without_null(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(items) => Some(items.iter().filter_map(without_null).collect()),
        Value::Object(members) => {
            let members = members.iter().filter_map(|(key, value)| Some((key.clone(), without_null(value)?)));
            Some(Value::Object(members.collect()))
        }
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Line, active, reads, table};

    #[test]
    fn grants_are_shown_as_a_config_takes_them() {
        let grants = json!({
            "clock": true,
            "random": false,
            "http": { "allow": [{ "methods": ["GET"], "host": "a.example", "port": null }], "timeout_ms": 5000 },
            "keyvalue": {},
            "secrets": {},
            "session-state": null,
        });
        let shown = table("grants", &grants);
        let config: toml::Table = shown.parse().expect("TOML");
        let expected = "clock = true\nhttp = { allow = [{ methods = [\"GET\"], host = \"a.example\" }], timeout_ms = 5000 }\nkeyvalue = {}";
        assert_eq!(config["extension"]["grants"], toml::Value::Table(expected.parse().expect("TOML")));
        assert_eq!(table("grants", &json!({ "clock": false, "http": null })), "");
    }

    #[test]
    fn an_extension_is_shown_with_when_and_for_whom_it_is_active() {
        let allow: Vec<Line> = serde_json::from_str(r#"["principal:ada", "claim:org=acme"]"#).expect("a list");
        assert_eq!(active("requested", &[]), "");
        assert_eq!(active("always", &[]), "  active for every message\n");
        assert_eq!(active("requested", &allow), "  active when it is asked for, of principal:ada, claim:org=acme\n");
        assert_eq!((reads("all"), reads("")), ("", ""));
        assert_eq!(reads("active"), "  metadata on tasks: for readers that have activated the extension\n");
        assert_eq!(active("always", &allow), "  active for every message, of principal:ada, claim:org=acme\n");
    }
}

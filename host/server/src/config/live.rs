//! The keys of a config that a reload applies, and the keys that need a restart.

use std::collections::BTreeSet;

use toml::{Table, Value};

/// The tables that a reload can neither add nor remove, each with the reason. If such a table is there before and after
/// a reload, the reload applies the changes of its keys.
const MADE_AT_START: [(&str, &str); 5] = [
    ("admin", "its listener is opened at the start"),
    ("auth", "whether callers are authenticated is decided at the start"),
    ("push", "whether there are push notifications is decided at the start"),
    ("receipts", "whether turns get receipts is decided at the start"),
    ("tenants", "whether tenants can be added is decided at the start"),
];

/// The reason why a changed key needs a restart. `None` if a reload applies the change.
fn needs_restart(table: &str, key: &str) -> Option<&'static str> {
    match (table, key) {
        ("server" | "admin", "listen" | "metrics_listen" | "allow_remote") => Some("the address is taken at the start"),
        ("admin", "audit_file") => Some("the file is opened at the start"),
        ("server" | "admin", "tls") => Some("the listener is opened with it; changed files are read without a restart"),
        ("admin", "requests") => Some("the places for requests are made at the start"),
        ("server", "public_url") => Some("cards and links begin with it"),
        ("server", "a2a_0_3") => Some("the routes are created at the start"),
        ("trust", "deny_file") => Some("the file is watched from the start; its content applies without a restart"),
        ("server" | "admin" | "auth" | "push" | "tenants" | "log" | "trust" | "registries", _) => None,
        (
            "tasks",
            "keep_days"
            | "keep_count"
            | "max_task_bytes"
            | "max_task_messages"
            | "max_task_artifacts"
            | "keep_waiting_days"
            | "max_waiting_per_caller",
        )
        | ("sessions", "keep_days" | "keep_count")
        | ("runtime", "ceiling") => None,
        ("tasks", "list_all_anonymous") => Some("who sees which tasks is decided at the start"),
        ("tasks" | "sessions" | "keyvalue", _) => Some("the stores are opened at the start"),
        ("postgres" | "replica", _) => Some("the database is connected at the start"),
        ("runtime", _) => Some("the engine is made at the start"),
        ("agent" | "card", _) => Some("the agent of the config itself is loaded at the start"),
        _ => Some("it is read at the start"),
    }
}

/// The changed keys that need a restart, each with the reason. `[[extension]]` and `[[tenant]]` are not compared.
pub(super) fn that_need_restart(before: &Table, now: &Table) -> Vec<String> {
    let needing = changes(before, now).into_iter().filter_map(|(key, reason)| Some(format!("{key} ({})", reason?)));
    needing.collect()
}

/// The changed keys that a reload applies. `[[extension]]` and `[[tenant]]` are not compared.
pub(super) fn that_count(before: &Table, now: &Table) -> Vec<String> {
    changes(before, now).into_iter().filter(|(_, reason)| reason.is_none()).map(|(key, _)| key).collect()
}

/// The changed keys, each with the reason if it needs a restart.
fn changes(before: &Table, now: &Table) -> Vec<(String, Option<&'static str>)> {
    let mut changes = Vec::new();
    for name in names(before, now).into_iter().filter(|name| !matches!(*name, "extension" | "tenant")) {
        let made = MADE_AT_START.iter().find(|(table, _)| *table == name);
        if let Some((_, reason)) = made
            && before.contains_key(name) != now.contains_key(name)
        {
            changes.push((name.to_owned(), Some(*reason)));
            continue;
        }
        let empty = Table::new();
        let [before, now] = [before, now].map(|tables| tables.get(name).and_then(Value::as_table).unwrap_or(&empty));
        let changed = names(before, now).into_iter().filter(|key| before.get(*key) != now.get(*key));
        changes.extend(changed.map(|key| (format!("{name}.{key}"), needs_restart(name, key))));
    }
    changes
}

/// The keys of both tables, sorted.
fn names<'a>(one: &'a Table, other: &'a Table) -> BTreeSet<&'a str> {
    one.keys().chain(other.keys()).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use toml::Table;

    use super::that_need_restart;

    fn changed(before: &str, now: &str) -> Vec<String> {
        let table = |text: &str| text.parse::<Table>().expect("TOML");
        that_need_restart(&table(before), &table(now))
    }

    #[test]
    fn a_change_that_needs_a_restart_is_named_with_its_key_and_the_reason() {
        for (before, now, expected) in [
            ("", "server.listen = '[::1]:1'", "server.listen (the address is taken at the start)"),
            ("admin.listen = '[::1]:1'", "[admin]", "admin.listen (the address is taken at the start)"),
            ("[admin]", "admin.metrics_listen = '[::1]:1'", "admin.metrics_listen (the address is taken at the start)"),
            ("tasks.data_dir = 'a'", "tasks.data_dir = 'b'", "tasks.data_dir (the stores are opened at the start)"),
            ("", "runtime.max_instances = 7", "runtime.max_instances (the engine is made at the start)"),
            ("", "card.name = 'n'", "card.name (the agent of the config itself is loaded at the start)"),
            ("", "[auth.jwt]", "auth (whether callers are authenticated is decided at the start)"),
            ("", "[receipts]", "receipts (whether turns get receipts is decided at the start)"),
            ("[tenants]", "", "tenants (whether tenants can be added is decided at the start)"),
            (
                "",
                "trust.deny_file = 'd'",
                "trust.deny_file (the file is watched from the start; its content applies without a restart)",
            ),
            ("", "unheard_of.key = 1", "unheard_of.key (it is read at the start)"),
        ] {
            assert_eq!(changed(before, now), [expected], "{before:?} -> {now:?}");
        }
    }

    #[test]
    fn limits_callers_and_what_tenants_may_name_need_none() {
        for (before, now) in [
            ("", "server.max_body_bytes = 7\nserver.drain_seconds = 1\nserver.max_running_turns = 2"),
            ("", "server.cors_origins = ['https://app.example']"),
            ("", "tasks.keep_days = 1\ntasks.max_task_bytes = 2\nsessions.keep_count = 3"),
            ("", "runtime.ceiling.memory_mib = 1"),
            ("[[auth.api_key]]\nprincipal = 'ada'", "[[auth.api_key]]\nprincipal = 'bob'"),
            ("[tenants]", "tenants.components = ['x.wasm']"),
            ("[push]", "push.https_only = true"),
            ("admin.token_env = 'A'", "admin.token_env = 'B'\nadmin.metrics_token_env = 'C'"),
            ("", "log.access = 'off'"),
            ("", "trust.default = 'allow'\nregistries.'registry.example'.plain_http = true"),
            ("[[extension]]\n[[tenant]]", ""),
        ] {
            assert_eq!(changed(before, now), Vec::<String>::new(), "{before:?} -> {now:?}");
        }
    }
}

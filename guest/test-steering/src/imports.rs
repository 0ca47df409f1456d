//! The commands that call an import. Every hook supports them.

use annex_sdk::{caller, json, log, task_metadata};

use crate::command::Command;
use crate::{COMMAND_KEY, RESULT_KEY};

/// Parses the command of a hook. A command that calls an import is carried out, and its result is a line in the log.
/// The hook then continues as if it had no command, unless it supports the command itself.
pub(crate) fn command_for<'a>(hook: &'static str, text: Option<&'a str>) -> Command<'a> {
    let command = Command::of(hook, text);
    match command.name {
        "caller" => log::info(&format!("{hook}: {}", caller())),
        "set" => set(hook, RESULT_KEY, &json::string(hook)),
        "set-other" => set(hook, COMMAND_KEY, "1"),
        // For the hook `reads`, which finds its command there.
        "set-command" => {
            let rest = text.and_then(|text| text.split_once(' ')).map_or("ok", |(_, rest)| rest);
            set(hook, COMMAND_KEY, &json::string(rest));
        }
        "set-foreign" => set(hook, "someone/else", "true"),
        "set-bad-json" => set(hook, RESULT_KEY, "{"),
        "set-deep-json" | "set-odd-json" => {
            let unreadable = Command::of(hook, text.and_then(|text| text.strip_prefix("set-"))).unreadable();
            set(hook, RESULT_KEY, &unreadable);
        }
        "set-big" => set(hook, RESULT_KEY, &json::string(&command.filler())),
        "set-many" => (0..100).for_each(|number| set(hook, RESULT_KEY, &number.to_string())),
        _ => return command,
    }
    command
}

/// True for the names of the commands that [`command_for`] has carried out.
pub(crate) fn is_done(name: &str) -> bool {
    name == "caller" || name == "set" || name.starts_with("set-")
}

/// The caller as one line.
pub(crate) fn caller() -> String {
    match caller::current() {
        Ok(identity) => {
            let principal = identity.principal.as_deref().unwrap_or("nobody");
            format!("{:?} {principal} {} {:?}", identity.presence, identity.claims, identity.headers)
        }
        Err(reason) => format!("error: {reason}"),
    }
}

/// What the import of the command `name` returns while the extension is loaded.
pub(crate) fn result_at_load(name: &str) -> String {
    if name == "caller" { caller() } else { entry_set(RESULT_KEY, "1") }
}

fn set(hook: &str, key: &str, value: &str) {
    log::info(&format!("{hook}: {}", entry_set(key, value)));
}

fn entry_set(key: &str, value: &str) -> String {
    match task_metadata::set(key, value) {
        Ok(()) => "set".to_owned(),
        Err(reason) => format!("error: {reason}"),
    }
}

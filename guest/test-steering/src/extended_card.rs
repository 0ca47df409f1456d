//! The hook `extended-card`.

use annex_sdk::{EntryChange, ExtendedCard, Request, ShownEntry, json};

use crate::TestSteering;
use crate::imports::{self, command_for};

impl ExtendedCard for TestSteering {
    fn show_entry(parameters: &Self::Parameters, request: Request, entry: ShownEntry) -> Result<EntryChange, String> {
        let command = command_for("show-entry", parameters.entry.as_deref());
        let text = |text: &str| EntryChange::params(format!(r#"{{"shown":{}}}"#, json::string(text)));
        Ok(match command.name {
            "ok" => EntryChange::default(),
            "caller" => text(&imports::caller()),
            name if imports::is_done(name) => EntryChange::default(),
            "change" => text("changed"),
            "seen" => text(&format!("{}: {}, {:?}", request.operation, entry.description, entry.params)),
            "describe" => described("For you alone.".to_owned()),
            "same" => EntryChange { description: None, params: entry.params },
            "not-an-object" => EntryChange::params("[]"),
            "big-number" => EntryChange::params(r#"{"n":9007199254740993}"#),
            "bad-json" => EntryChange::params("{"),
            "deep-json" | "odd-json" => EntryChange::params(format!(r#"{{"x":{}}}"#, command.unreadable())),
            "big-result" => text(&command.filler()),
            "big-description" => described(command.filler()),
            "error" => return Err(command.refusal()),
            _ => command.misbehave(),
        })
    }
}

fn described(description: String) -> EntryChange {
    EntryChange { description: Some(description), ..EntryChange::default() }
}

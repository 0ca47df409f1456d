//! An extension that steers turns on command, in good ways and in bad ones, so that the host is tested with a real
//! component. README.md lists the commands. The hooks of this component need grants; `test-extension` has those that
//! need none.

// The commands that every hook supports are those of the test extension.
#[path = "../../test-extension/src/command.rs"]
#[expect(dead_code, reason = "the hooks of the test extension use the rest")]
mod command;
mod extended_card;
mod imports;
mod live_card;
mod output;
mod parameters;
mod reads;
mod reply;
mod steering;

use std::sync::OnceLock;

use annex_sdk::members::Members;
use annex_sdk::{
    Answer, Beginning, Descriptor, Entry, Event, EventKinds, Extension, Interruption, Json, Message, Method,
    MethodDeclaration, Patch, Rejection, Request, Response, Rewrite, Ruling, StateChange, Transition, Waiting, json,
};

use crate::imports::{command_for, is_done, result_at_load};
use crate::parameters::{Hooks, Parameters};

/// The metadata key of a message's commands.
const COMMAND_KEY: &str = "steering/command";
/// The metadata key that the extension writes.
const RESULT_KEY: &str = "steering/result";

/// The commands of the current message. The first hook that gets the message reads them; other hooks run later in the
/// same instance.
static REQUESTED: OnceLock<Hooks> = OnceLock::new();

/// Reads the commands in the metadata of the message, once.
fn requested(message: &str) -> &'static Hooks {
    REQUESTED.get_or_init(|| {
        let metadata = Members::of(message).and_then(|message| message.get("metadata").and_then(Members::of));
        metadata.and_then(|metadata| metadata.get(COMMAND_KEY).map(Hooks::of_request)).unwrap_or_default()
    })
}

/// The command of a hook: that of the message, or that of the parameters.
fn told<'a>(parameters: &'a Parameters, of: impl Fn(&'a Hooks) -> &'a Option<String>) -> Option<&'a str> {
    REQUESTED.get().and_then(|hooks| of(hooks).as_deref()).or(of(&parameters.behaviour).as_deref())
}

struct TestSteering;

impl Extension for TestSteering {
    type Parameters = Parameters;

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        let command = command_for("describe", parameters.behaviour.describe.as_deref());
        // The host keeps no log of this call, so an error tells what the import has returned.
        if is_done(command.name) {
            return Err(result_at_load(command.name));
        }
        let metadata_keys =
            if parameters.owns_keys { vec![COMMAND_KEY.to_owned(), RESULT_KEY.to_owned()] } else { Vec::new() };
        Ok(Descriptor {
            name: "steering".to_owned(),
            metadata_keys,
            events: EventKinds::all(),
            payload: parameters.payload,
            ..Descriptor::new(parameters.uri.clone(), "Steers turns on command.")
        })
    }
}

impl Message for TestSteering {
    fn check(parameters: &Parameters, _: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        requested(&message);
        command_for("check", told(parameters, |hooks| &hooks.check));
        Ok(Vec::new())
    }
}

impl Transition for TestSteering {
    fn begin(parameters: &Parameters, _: Request, _: Beginning) -> Result<Entry, String> {
        command_for("begin", told(parameters, |hooks| &hooks.begin));
        Ok(Entry::Proceed)
    }

    fn change(parameters: &Parameters, change: StateChange) -> Result<Ruling, String> {
        let command = command_for("change", told(parameters, |hooks| &hooks.change));
        let is_told = match command.name {
            "interrupt-wait" => change.next == "TASK_STATE_INPUT_REQUIRED",
            "interrupt-remark" => change.next == change.current,
            _ => false,
        };
        if !is_told {
            return Ok(Ruling::Pass);
        }
        let text = "Send money?".to_owned();
        Ok(Ruling::Interrupt(Interruption { waiting: Waiting::Input, text, metadata: Vec::new() }))
    }
}

impl Response for TestSteering {
    fn respond(parameters: &Parameters, event: Event) -> Result<Option<Patch>, String> {
        let command = command_for("respond", told(parameters, |hooks| &hooks.respond));
        match command.name {
            "payload" => Ok(Some(Patch::entry(RESULT_KEY, event.payload.unwrap_or_else(|| "null".to_owned())))),
            "caller" => Ok(Some(Patch::entry(RESULT_KEY, json::string(&imports::caller())))),
            _ => Ok(None),
        }
    }
}

impl Method for TestSteering {
    fn methods(parameters: &Parameters) -> Result<Vec<MethodDeclaration>, String> {
        let declared = |name: &String| MethodDeclaration::new(name.as_str(), "Answers with the caller.");
        Ok(parameters.methods.iter().map(declared).collect())
    }

    fn call(_: &Parameters, _: Request, _: &str, _: Json) -> Result<Answer, Rejection> {
        Ok(Answer::Value(json::string(&imports::caller())))
    }
}

annex_sdk::export!(
    TestSteering: live_card, message, transition, reply, steering, output, response, reads, extended_card, method
);

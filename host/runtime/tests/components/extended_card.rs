//! The hook `extended-card`: what extensions show readers of the extended Agent Card of their entries.

use std::sync::Arc;

use annex_protocol::{AgentExtension, ExtensionUri, Message, Metadata};
use annex_runtime::{
    Comparison, EntryDecision, Extension, GrantNeeded, Hook, Installation, OnFailure, Runtime, ShownEntries, StepInput,
    StepResult, replay, show_entries,
};

use crate::recording::RecordedTurns;
use crate::steering::{all_grants, steering};
use crate::support::{log_of, outside_of_turns, runtime};

/// The extension under this URI. It executes `command` for each read.
async fn showing(runtime: &Runtime, uri: &str, command: &str, on_failure: OnFailure) -> Arc<Extension> {
    let live = r#"{"params":{"n":1},"seconds":0}"#;
    let parameters = format!(r#"{{"uri":"{uri}","entry":"{command}","live":{live}}}"#);
    steering(runtime, &parameters, Installation { on_failure, ..all_grants() }).await
}

async fn told(command: &str) -> Arc<Extension> {
    showing(&runtime(), "urn:a", command, OnFailure::Reject).await
}

/// Reads a card with the entries of the extensions.
async fn read(extensions: &[Arc<Extension>]) -> ShownEntries {
    let entries: Vec<AgentExtension> =
        extensions.iter().map(|extension| AgentExtension::clone(&extension.card())).collect();
    read_card(extensions, &entries).await
}

async fn read_card(extensions: &[Arc<Extension>], entries: &[AgentExtension]) -> ShownEntries {
    let requested: Vec<ExtensionUri> = extensions.iter().map(|extension| extension.uri().clone()).collect();
    let (message, metadata) = (Message::default(), Metadata::new());
    let request = outside_of_turns("GetExtendedAgentCard", &requested, (&message, &metadata));
    show_entries(extensions, &request, entries).await
}

/// The params of each entry that has changed, as JSON.
fn params(shown: &ShownEntries) -> Vec<String> {
    let params = shown.changed.iter().map(|entry| entry.params.as_ref().expect("params").to_json_string());
    params.collect()
}

fn active(shown: &ShownEntries) -> Vec<&str> {
    shown.active.iter().map(ExtensionUri::as_str).collect()
}

fn calls(extension: &Extension) -> u64 {
    let hooks = extension.metrics().hooks;
    hooks.iter().find(|metrics| metrics.hook == Hook::ExtendedCard).expect("the component has the hook").calls
}

#[tokio::test]
async fn an_extension_changes_the_params_of_its_entry_or_the_description() {
    let extension = told("change").await;
    let shown = read(&[Arc::clone(&extension)]).await;
    assert_eq!((params(&shown), active(&shown)), (vec![r#"{"shown":"changed"}"#.to_owned()], vec!["urn:a"]));
    let present = AgentExtension::clone(&extension.card());
    let expected = AgentExtension { params: shown.changed[0].params.clone(), ..present };
    assert_eq!(shown.changed, [expected], "the rest stays");
    let extension = told("describe").await;
    let shown = read(&[Arc::clone(&extension)]).await;
    let description = "For you alone.".to_owned();
    assert_eq!(shown.changed, [AgentExtension { description, ..AgentExtension::clone(&extension.card()) }]);
}

#[tokio::test]
async fn the_hook_sees_the_operation_and_the_entry_of_the_card() {
    let shown = read(&[told("seen").await]).await;
    let seen = params(&shown).concat();
    assert!(seen.contains("GetExtendedAgentCard: Steers turns on command., Some("), "{seen}");
    assert!(seen.contains(r#"{\\\"n\\\":1}"#), "{seen}");
}

#[tokio::test]
async fn an_unchanged_entry_is_no_change_and_one_call() {
    for command in ["ok", "same"] {
        let extension = told(command).await;
        let shown = read(&[Arc::clone(&extension)]).await;
        assert_eq!((shown.changed.len(), active(&shown), calls(&extension)), (0, vec!["urn:a"], 1), "{command}");
    }
    // Without an entry on the card there is nothing to ask about.
    let extension = told("change").await;
    let shown = read_card(&[Arc::clone(&extension)], &[]).await;
    assert_eq!((shown.changed.len(), shown.active.len(), calls(&extension)), (0, 0, 0));
}

#[tokio::test]
async fn a_fault_leaves_the_entry_as_it_is_and_not_those_of_others() {
    let runtime = runtime();
    let good = showing(&runtime, "urn:good", "change", OnFailure::Reject).await;
    for (command, expected) in [
        ("bad-json", "params is not a JSON object"),
        ("not-an-object", "params is not a JSON object"),
        ("deep-json", "params is not a JSON object"),
        ("odd-json 0", "params is not a JSON object"),
        ("big-result 40000", "at most 32768 are allowed"),
        ("big-description 40000", "at most 32768 are allowed"),
        ("big-result 2000000", "limit of output bytes"),
        ("error", "show-entry was told to fail"),
        ("trap", "trapped in extended-card"),
        ("loop", "CPU time limit"),
        ("memory-bomb", "memory limit"),
    ] {
        for on_failure in [OnFailure::Reject, OnFailure::Skip] {
            let bad = showing(&runtime, "urn:bad", command, on_failure).await;
            let mut shown = ShownEntries::default();
            let log = log_of(async { shown = read(&[Arc::clone(&bad), Arc::clone(&good)]).await }).await;
            assert_eq!(params(&shown), [r#"{"shown":"changed"}"#], "{command}");
            assert_eq!(active(&shown), ["urn:good"], "{command}");
            assert!(log.contains(expected) && log.contains("urn:bad"), "{command}: {log}");
            assert_eq!((bad.health().failures, calls(&bad)), (1, 1), "{command}");
        }
    }
}

#[tokio::test]
async fn a_quarantined_extension_is_not_asked_for_its_entry() {
    let extension = told("trap").await;
    for expected in [1, 2, 3, 4, 5, 5] {
        let shown = read(&[Arc::clone(&extension)]).await;
        assert_eq!((shown.changed.len(), shown.active.len(), calls(&extension)), (0, 0, expected));
    }
}

#[tokio::test]
async fn an_entry_that_the_card_has_no_room_for_stays_as_it_is() {
    let runtime = runtime();
    let mut extensions = Vec::new();
    for number in 0..10 {
        extensions.push(showing(&runtime, &format!("urn:{number}"), "big-result 30000", OnFailure::Reject).await);
    }
    let mut shown = ShownEntries::default();
    let log = log_of(async { shown = read(&extensions).await }).await;
    assert_eq!(shown.changed.len(), 8, "of 256 KiB");
    assert_eq!(active(&shown), ["urn:0", "urn:1", "urn:2", "urn:3", "urn:4", "urn:5", "urn:6", "urn:7"]);
    assert!(log.contains("urn:8") && log.contains("no room"), "{log}");
}

#[tokio::test]
async fn an_entry_beyond_the_limit_of_an_extension_stays_as_it_is() {
    let extension = told("change").await;
    let description = "d".repeat(extension.limits().input + 1);
    let large = AgentExtension { description, ..AgentExtension::clone(&extension.card()) };
    let shown = read_card(&[extension], &[large]).await;
    assert_eq!((shown.changed.len(), shown.active.len()), (0, 0));
}

#[tokio::test]
async fn a_read_of_the_extended_card_is_recorded_and_played_again() {
    let runtime = runtime();
    let extension = showing(&runtime, "urn:a", "change", OnFailure::Reject).await;
    let recorded = RecordedTurns::on(&extension);
    read(&[Arc::clone(&extension)]).await;
    let turn = recorded.turn(&extension);
    assert_eq!((turn.operation.as_str(), turn.steps.len()), ("GetExtendedAgentCard", 1));
    let (input, result) = (&turn.steps[0].input, &turn.steps[0].result);
    assert!(matches!(input, StepInput::ExtendedCard(entry) if *entry == *extension.card()), "{input:?}");
    assert!(matches!(result, StepResult::ShowsEntry(EntryDecision::Replaced(_))), "{result:?}");
    let same = replay(&extension, &turn, None).await.expect("it runs");
    assert!(Comparison::default().add(&turn, &same.turn, same.unanswered), "{:?}", same.turn);
    let other = showing(&runtime, "urn:a", "describe", OnFailure::Reject).await;
    let other = replay(&other, &turn, None).await.expect("it runs");
    assert!(!Comparison::default().add(&turn, &other.turn, other.unanswered), "{:?}", other.turn);
}

#[test]
fn the_hook_needs_the_grant_of_reads() {
    assert_eq!(Hook::ExtendedCard.grant(), Some(GrantNeeded::Reads));
}

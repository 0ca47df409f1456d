//! The hook `reads`: what extensions show readers of tasks.

use std::sync::Arc;

use annex_protocol::{ExtensionUri, Message, Metadata, TaskState};
use annex_runtime::{
    Comparison, Extension, GrantNeeded, Grants, Hook, Installation, LoadError, OnFailure, Runtime, ShownTasks,
    StepInput, StepResult, TaskToShow, replay, show_tasks,
};

use crate::recording::RecordedTurns;
use crate::steering::{all_grants, steering};
use crate::support::{component, log_of, outside_of_turns, refused, runtime};

/// The key under which the extension adds.
const RESULT: &str = "steering/result";

/// The extension under this URI. It executes `command` for each task of a read.
async fn showing(runtime: &Runtime, uri: &str, command: &str, on_failure: OnFailure) -> Arc<Extension> {
    let parameters = format!(r#"{{"uri":"{uri}","reads":"{command}"}}"#);
    steering(runtime, &parameters, Installation { on_failure, ..all_grants() }).await
}

async fn told(command: &str) -> Arc<Extension> {
    showing(&runtime(), "urn:a", command, OnFailure::Reject).await
}

fn task(number: usize, metadata: &str) -> TaskToShow {
    TaskToShow {
        id: format!("t-{number}").into(),
        context_id: "c-1".into(),
        state: TaskState::Completed,
        metadata: Metadata::parse(metadata).expect("a JSON object"),
    }
}

fn tasks(count: usize) -> Vec<TaskToShow> {
    (0..count).map(|number| task(number, "{}")).collect()
}

async fn read(extensions: &[Arc<Extension>], tasks: &[TaskToShow]) -> ShownTasks {
    let requested: Vec<ExtensionUri> = extensions.iter().map(|extension| extension.uri().clone()).collect();
    let (message, metadata) = (Message::default(), Metadata::new());
    let request = outside_of_turns("ListTasks", &requested, (&message, &metadata));
    show_tasks(extensions, &request, tasks).await
}

/// The entries that are added to each task, as JSON. `None` for a task that is left out.
fn added(shown: &ShownTasks) -> Vec<Option<String>> {
    shown.added.iter().map(|added| added.as_ref().map(Metadata::to_json_string)).collect()
}

fn active(shown: &ShownTasks) -> Vec<&str> {
    shown.active.iter().map(ExtensionUri::as_str).collect()
}

fn calls(extension: &Extension) -> u64 {
    let hooks = extension.metrics().hooks;
    hooks.iter().find(|metrics| metrics.hook == Hook::Reads).expect("the component has the hook").calls
}

#[tokio::test]
async fn each_task_is_shown_with_what_is_added_or_left_out() {
    let extension = steering(&runtime(), "{}", all_grants()).await;
    let tasks = [
        task(0, r#"{"steering/command":"add"}"#),
        task(1, r#"{"steering/command":"leave-out"}"#),
        task(2, r#"{"steering/command":"ok"}"#),
        task(3, r#"{"steering/command":"leave-out"}"#),
        task(4, "{}"),
    ];
    let shown = read(&[Arc::clone(&extension)], &tasks).await;
    let nothing = || Some("{}".to_owned());
    assert_eq!(added(&shown), [Some(r#"{"steering/result":"added"}"#.to_owned()), None, nothing(), None, nothing()]);
    assert_eq!(active(&shown), ["https://annex.example/steering/v1"]);
    // One line for all tasks that are left out.
    let lines: Vec<String> = extension.log().into_iter().map(|line| line.message).collect();
    assert_eq!(lines, ["2 of 5 tasks are left out; the reason for the first one: it was told to"]);
}

#[tokio::test]
async fn the_hook_sees_the_operation_and_its_own_metadata_alone() {
    let shown = read(&[told("seen").await], &[task(7, r#"{"steering/result":1,"someone/else":2}"#)]).await;
    let entry = shown.added[0].as_ref().and_then(|added| added.get(RESULT)).expect("an entry");
    let seen: String = entry.to().expect("a text");
    assert!(seen.starts_with("ListTasks: t-7 in c-1, TASK_STATE_COMPLETED, "), "{seen}");
    assert!(seen.contains(RESULT) && !seen.contains("someone/else"), "{seen}");
}

#[tokio::test]
async fn a_page_of_a_hundred_tasks_is_one_call() {
    let extension = told("count").await;
    let shown = read(&[Arc::clone(&extension)], &tasks(100)).await;
    assert_eq!(added(&shown), vec![Some(r#"{"steering/result":100}"#.to_owned()); 100]);
    assert_eq!(calls(&extension), 1);
    // Without a task there is nothing to ask about.
    let shown = read(&[Arc::clone(&extension)], &[]).await;
    assert_eq!((added(&shown).len(), active(&shown).len(), calls(&extension)), (0, 0, 1));
}

#[tokio::test]
async fn a_task_that_one_extension_leaves_out_is_not_shown_to_the_next() {
    let runtime = runtime();
    let first = steering(&runtime, "{}", all_grants()).await;
    let next = showing(&runtime, "urn:b", "count", OnFailure::Reject).await;
    let tasks = [task(0, r#"{"steering/command":"leave-out"}"#), task(1, r#"{"steering/command":"add"}"#)];
    let shown = read(&[Arc::clone(&first), Arc::clone(&next)], &tasks).await;
    // Both have the same key here, and the later one counts.
    assert_eq!(added(&shown), [None, Some(r#"{"steering/result":1}"#.to_owned())]);
    let shown = read(&[first, Arc::clone(&next)], &tasks[..1]).await;
    assert_eq!((added(&shown), active(&shown).len(), calls(&next)), (vec![None], 1, 1));
}

#[tokio::test]
async fn a_fault_leaves_the_extensions_part_out_and_not_the_read() {
    let runtime = runtime();
    let good = showing(&runtime, "urn:good", "add", OnFailure::Reject).await;
    for on_failure in [OnFailure::Reject, OnFailure::Skip] {
        for (command, expected) in [
            ("foreign-key", "which it does not own"),
            ("bad-json", "is not JSON"),
            ("odd-json 0", "surrogate pair"),
            ("big-result 5000", "at most 4096 are allowed"),
            ("big-result 2000000", "limit of output bytes"),
            ("error", "show was told to fail"),
            ("trap", "trapped in reads"),
            ("loop", "CPU time limit"),
        ] {
            let bad = showing(&runtime, "urn:bad", command, on_failure).await;
            let mut shown = ShownTasks::unchanged(0);
            let log = log_of(async { shown = read(&[Arc::clone(&bad), Arc::clone(&good)], &tasks(1)).await }).await;
            assert_eq!(added(&shown), [Some(r#"{"steering/result":"added"}"#.to_owned())], "{command}");
            assert_eq!(active(&shown), ["urn:good"], "{command}");
            assert!(log.contains(expected) && log.contains("urn:bad"), "{command}: {log}");
            assert_eq!(bad.health().failures, 1, "{command}");
        }
    }
}

#[tokio::test]
async fn views_that_do_not_fit_the_tasks_are_a_fault() {
    for (command, views) in [("too-few", 0), ("too-many", 6)] {
        let extension = told(command).await;
        let mut shown = ShownTasks::unchanged(0);
        let log = log_of(async { shown = read(&[Arc::clone(&extension)], &tasks(3)).await }).await;
        let expected = format!("the number of its views is {views}, and that of the tasks is 3");
        assert!(log.contains(&expected), "{command}: {log}");
        assert_eq!((added(&shown), active(&shown).len()), (vec![Some("{}".to_owned()); 3], 0), "{command}");
        assert_eq!(extension.health().failures, 1, "{command}");
    }
}

#[tokio::test]
async fn a_quarantined_extension_is_not_asked_and_the_read_goes_on() {
    let extension = told("trap").await;
    for expected in [1, 2, 3, 4, 5, 5] {
        let shown = read(&[Arc::clone(&extension)], &tasks(1)).await;
        assert_eq!((added(&shown), calls(&extension)), (vec![Some("{}".to_owned())], expected));
    }
}

#[tokio::test]
async fn tasks_beyond_the_limit_of_an_extension_are_shown_without_it() {
    let extension = told("add").await;
    let context = "c".repeat(extension.limits().input);
    let large = TaskToShow { context_id: context.into(), ..task(0, "{}") };
    let shown = read(&[Arc::clone(&extension)], &[large]).await;
    assert_eq!((added(&shown), active(&shown).len()), (vec![Some("{}".to_owned())], 0));
    assert_eq!(added(&read(&[extension], &tasks(1)).await), [Some(r#"{"steering/result":"added"}"#.to_owned())]);
}

#[tokio::test]
async fn a_read_is_recorded_and_played_again() {
    let runtime = runtime();
    let extension = steering(&runtime, "{}", all_grants()).await;
    let recorded = RecordedTurns::on(&extension);
    let tasks =
        [task(0, r#"{"steering/command":"add","someone/else":1}"#), task(1, r#"{"steering/command":"leave-out"}"#)];
    read(&[Arc::clone(&extension)], &tasks).await;
    let turn = recorded.turn(&extension);
    assert_eq!((turn.operation.as_str(), turn.steps.len()), ("ListTasks", 1));
    match &turn.steps[0].input {
        StepInput::Read { tasks } => {
            assert_eq!(tasks.len(), 2);
            assert_eq!(tasks[0].metadata.keys().collect::<Vec<_>>(), ["steering/command"]);
        }
        other => unreachable!("{other:?}"),
    }
    let result = &turn.steps[0].result;
    assert!(matches!(result, StepResult::Shows(decisions) if decisions.len() == 2), "{result:?}");
    let same = replay(&extension, &turn, None).await.expect("it runs");
    assert!(Comparison::default().add(&turn, &same.turn, same.unanswered), "{:?}", same.turn);
    let other = showing(&runtime, "urn:other", "add", OnFailure::Reject).await;
    let other = replay(&other, &turn, None).await.expect("it runs");
    assert!(!Comparison::default().add(&turn, &other.turn, other.unanswered), "{:?}", other.turn);
}

#[tokio::test]
async fn a_component_that_shows_tasks_needs_the_grant_at_load() {
    let grants = Grants { reads: false, ..all_grants().grants };
    match refused(component(annex_components::TEST_STEERING), Installation { grants, ..all_grants() }).await {
        LoadError::NotGranted { needs, grant } => {
            assert_eq!((needs.as_str(), grant), ("the hook reads", GrantNeeded::Reads));
        }
        other => unreachable!("{other}"),
    }
}

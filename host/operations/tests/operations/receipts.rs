//! Receipts of turns: their content, their chain, and the turns that have one.

use std::slice;
use std::sync::Arc;

use annex_auth::Jwks;
use annex_auth::receipt::{Issuer, Receipt, Verdict, check, metadata_key, verify};
use annex_auth::signature::Signer;
use annex_conversation::TaskLimits;
use annex_operations::receipts::{Receipts, StoredReceipt};
use annex_protocol::{Message, Metadata, StreamResponse, Task};
use futures::StreamExt;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::fixture::{Door, Settings, anonymous, door, door_in_file_with, door_with, in_time, say};
use crate::in_words::{rest, status};

const KEY: &str = include_str!("../../../auth/tests/auth/fixtures/ed25519.pem");
const PUBLIC_KEY: &str = include_str!("../../../auth/tests/auth/fixtures/ed25519.pub.pem");

fn settings() -> Settings {
    settings_with(None)
}

fn settings_with(copies: Option<mpsc::Sender<StoredReceipt>>) -> Settings {
    let issuer = Issuer { url: "http://localhost".to_owned(), name: "agent".to_owned(), tenant: None };
    let signer = Arc::new(Signer::from_pem(KEY, "k1", None).expect("a key"));
    Settings { receipts: Some(Arc::new(Receipts { issuer, signer, copies })), ..Settings::default() }
}

async fn signing_door() -> Door {
    door_with(settings()).await
}

fn keys() -> Jwks {
    Jwks::from_pem(PUBLIC_KEY).expect("a key")
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("JSON")
}

fn checked(tasks: &[Task]) -> Verdict {
    let inputs: Vec<String> = tasks.iter().map(json).collect();
    check(&inputs, &keys()).expect("something to check")
}

/// The receipt with this number.
fn receipt_in(metadata: &Metadata, number: u64) -> Receipt {
    let value = metadata.get(&metadata_key(number)).expect("a receipt");
    verify(&value.to::<String>().expect("a text"), &keys()).expect("a valid receipt")
}

fn has_receipt(metadata: &Metadata) -> bool {
    metadata.keys().any(|key| key.starts_with("annex/receipt/"))
}

#[tokio::test(start_paused = true)]
async fn a_turn_has_a_receipt_that_verifies() {
    let task = signing_door().await.task(say("work, artifact hello, complete done").context("c")).await;
    let verdict = checked(slice::from_ref(&task));
    assert_eq!((verdict.receipts.len(), verdict.differences, verdict.notes), (1, Vec::new(), Vec::new()));
    let receipt = receipt_in(&task.metadata, 1);
    assert_eq!((receipt.context_id.as_str(), receipt.task_id.as_str()), ("c", task.id.as_str()));
    assert_eq!((receipt.number, receipt.prev, receipt.state.as_deref()), (1, None, Some("TASK_STATE_COMPLETED")));
    assert_eq!(receipt.message.id, task.history[0].message_id.as_str());
    assert_eq!((receipt.answer.artifacts.len(), receipt.answer.message.is_some()), (1, true));
    assert!(receipt.extensions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_changed_message_and_a_changed_answer_are_noticed() {
    let task = signing_door().await.task("work, artifact hello, complete done").await;
    let changes: [fn(&mut Task); 3] = [
        |task| task.history[0].parts = Message::user_text("other").parts,
        |task| task.artifacts[0].parts = Message::user_text("other").parts,
        |task| task.status.message = None,
    ];
    for change in changes {
        let mut changed = task.clone();
        change(&mut changed);
        assert_eq!(checked(&[changed]).differences.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_receipts_of_a_conversation_are_a_chain() {
    let door = signing_door().await;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(door.task(say("artifact hello").context("c")).await);
    }
    let other = door.task(say("artifact hello").context("other")).await;
    assert_eq!(receipt_in(&other.metadata, 1).prev, None);
    assert_eq!(checked(&tasks).differences, Vec::<String>::new());
    tasks.remove(1);
    assert_eq!(checked(&tasks).differences, ["context c: the receipts between 1 and 3 are missing"]);
}

#[tokio::test]
async fn the_chain_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("conversations.db");
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let door = door_in_file_with(&file, settings()).await;
        for _ in 0..2 {
            tasks.push(door.task(say("artifact hello").context("c")).await);
        }
        let answer = door.message(say("answer hello").context("c")).await;
        assert!(has_receipt(&answer.metadata));
        door.handler.process.tasks.close().await;
    }
    // The receipts 3 and 6 are those of the answers.
    let numbers: Vec<u64> = checked(&tasks).receipts.iter().map(|receipt| receipt.number).collect();
    assert_eq!(numbers, [1, 2, 4, 5]);
    assert_eq!(checked(&tasks).differences, ["context c: the receipts between 2 and 4 are missing"]);
}

#[tokio::test(start_paused = true)]
async fn each_turn_of_a_task_has_a_receipt_of_its_own() {
    let door = signing_door().await;
    let asked = door.task("ask Which one?").await;
    assert_eq!(receipt_in(&asked.metadata, 1).state.as_deref(), Some("TASK_STATE_INPUT_REQUIRED"));
    assert_eq!(checked(slice::from_ref(&asked)).differences, Vec::<String>::new());
    let task = door.task(say("artifact this, complete done").task(&asked)).await;
    let verdict = checked(slice::from_ref(&task));
    assert_eq!((verdict.receipts.len(), verdict.differences, verdict.notes), (2, Vec::new(), Vec::new()));
    assert!(receipt_in(&task.metadata, 2).prev.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_the_receipt_in_its_last_status() {
    for text in ["work, artifact hello", "work, yield, artifact hello, yield, complete done, yield, artifact late"] {
        let door = signing_door().await;
        let stream = door.stream(say(text).context("c")).await.expect("a stream");
        let events: Vec<_> = in_time(stream.collect()).await;
        let events: Vec<_> = events.into_iter().map(|event| event.expect("an event")).collect();
        let (last, earlier) = events.split_last().expect("events");
        let StreamResponse::StatusUpdate(update) = last.event() else { panic!("a stream ends with a status") };
        let receipt = receipt_in(&update.metadata, 1);
        assert_eq!((receipt.task_id.as_str(), receipt.answer.artifacts.len()), (update.task_id.as_str(), 1), "{text}");
        let is_signed = |event: &StreamResponse| match event {
            StreamResponse::StatusUpdate(update) => has_receipt(&update.metadata),
            _ => false,
        };
        assert!(!earlier.iter().any(|event| is_signed(event.event())), "{text}");
        let task = door.get(&anonymous(), &update.task_id).await.expect("a task");
        assert_eq!(checked(&[task]).differences, Vec::<String>::new(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn turns_that_fail_are_rejected_or_are_cancelled_have_receipts() {
    let door = signing_door().await;
    for (text, state) in [("work, fail Too hard.", "FAILED: Too hard."), ("work, reject no", "REJECTED: no")] {
        let task = door.task(text).await;
        assert_eq!((status(&task).as_str(), has_receipt(&task.metadata)), (state, true));
        assert_eq!(checked(&[task]).differences, Vec::<String>::new(), "{text}");
    }
    let task = door.waiting_turn("work, wait").await;
    let canceled = door.cancel(&anonymous(), &task.id).await.expect("a task");
    assert_eq!((status(&canceled).as_str(), has_receipt(&canceled.metadata)), ("CANCELED", true));
    assert_eq!(checked(&[canceled]).differences, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_task_has_its_receipt_in_the_message() {
    let answer = signing_door().await.message("answer hello").await;
    let verdict = check(&[json(&answer)], &keys()).expect("a message");
    assert_eq!((verdict.receipts.len(), verdict.differences), (1, Vec::new()));
    let mut changed = answer;
    changed.parts = Message::user_text("other").parts;
    assert_eq!(check(&[json(&changed)], &keys()).expect("a message").differences.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_stored_receipt_is_copied_and_a_turn_does_not_wait_for_its_copy() {
    let (copies, mut receipts) = mpsc::channel(2);
    let door = door_with(settings_with(Some(copies))).await;
    let task = door.task(say("work, artifact hello").context("c")).await;
    let answer = door.message(say("answer hello").context("c")).await;
    door.refusal(say("refuse not now").context("c")).await;
    // There is no room for the copy of this receipt.
    let third = door.task(say("work").context("c")).await;
    assert!(has_receipt(&third.metadata));
    for (number, metadata) in [(1, &task.metadata), (2, &answer.metadata)] {
        let copy = receipts.try_recv().expect("a copy");
        let expected: String = metadata.get(&metadata_key(number)).expect("a receipt").to().expect("a text");
        assert_eq!((copy.signed.jws, copy.context_id.as_str(), copy.tenant), (expected, "c", None));
    }
    assert!(receipts.try_recv().is_err(), "a refused message has no receipt");
}

#[tokio::test(start_paused = true)]
async fn a_refused_message_has_no_receipt_and_no_number() {
    let door = signing_door().await;
    door.task(say("work").context("c")).await;
    door.refusal(say("refuse not now").context("c")).await;
    let next = door.task(say("work").context("c")).await;
    assert!(receipt_in(&next.metadata, 2).prev.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_task_without_room_for_its_receipt_ends_as_it_would_without_receipts() {
    let limits = TaskLimits { bytes: 8_000, messages: 100, artifacts: 100 };
    let plain = door_with(Settings { limits, ..Settings::default() }).await;
    let signing = door_with(Settings { limits, ..settings() }).await;
    let mut without = 0;
    for size in (0..8_000).step_by(250) {
        let text = format!("large {size}, ask Which one?");
        let task = signing.task(text.as_str()).await;
        assert_eq!(task.status.state, plain.task(text.as_str()).await.status.state, "{text}");
        without += usize::from(!has_receipt(&task.metadata));
    }
    assert!(without > 0, "each task has had room");
}

#[tokio::test(start_paused = true)]
async fn without_receipts_in_the_config_nothing_is_signed() {
    let door = door().await;
    let task = door.task("work, artifact hello").await;
    assert!(task.metadata.is_empty());
    let events = rest(door.stream("work, yield, complete done").await.expect("a stream")).await;
    assert_eq!(events, ["task SUBMITTED", "WORKING", "COMPLETED: done"]);
}

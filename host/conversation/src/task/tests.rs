use std::borrow::Cow;
use std::sync::Arc;

use annex_protocol::{
    Artifact, Message, Part, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};

use super::{Form, SMALL, TaskSnapshot, apply};
use crate::entry::{Entry, UserMessage};
use crate::limits::TaskLimits;

fn task(state: TaskState) -> TaskSnapshot {
    Task { id: "t".into(), status: TaskStatus { state, ..TaskStatus::default() }, ..Task::default() }.into()
}

fn chunk(id: &str, text: &str, append: bool) -> Entry {
    let artifact = Artifact { artifact_id: id.into(), parts: vec![Part::text(text)].into(), ..Artifact::default() };
    StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent { artifact, append, ..Default::default() }).into()
}

fn said(text: &str) -> Entry {
    let status = TaskStatus { message: Some(Message::user_text(text)), ..TaskStatus::default() };
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent { status, ..Default::default() }).into()
}

fn joins(text: &str) -> Entry {
    Entry::Message(Arc::new(UserMessage { message: Message::user_text(text), event: None, opens: None }))
}

#[test]
fn a_finished_task_that_a_store_has_kept_is_not_encoded_again() {
    let kept = task(TaskState::Completed);
    let sent = kept.clone();
    let stored = kept.stored_json().unwrap();
    assert!(matches!(sent.json().unwrap(), Cow::Borrowed(json) if json == &*stored));
    assert!(Arc::ptr_eq(&sent.stored_json().unwrap(), &stored));
}

#[test]
fn a_task_that_goes_on_keeps_no_text_beside_its_values() {
    let kept = task(TaskState::Working);
    assert_eq!(*kept.stored_json().unwrap(), *kept.json().unwrap());
    assert!(matches!(kept.json().unwrap(), Cow::Owned(_)));
}

#[test]
fn a_task_that_grows_is_what_its_entries_make_of_it_and_is_not_copied_for_each() {
    let mut expected = Task::clone(&task(TaskState::Working));
    let mut grown = task(TaskState::Working);
    let large = "x".repeat(SMALL);
    let events = [
        chunk("a", &large, false),
        joins("go on"),
        said("one"),
        chunk("a", "more", true),
        chunk("b", "other", false),
        said("two"),
        chunk("a", "instead", false),
    ];
    for event in &events {
        grown = grown.with(std::slice::from_ref(event));
        apply(&mut expected, event);
        assert!(matches!(&grown.inner.form, Form::Grown(grown) if grown.whole.get().is_none()));
    }
    assert_eq!((grown.size().messages, grown.size().artifacts), (3, 2));
    assert_eq!(grown.clone().into_task(), expected);
    assert_eq!(*grown, expected);
    // It has been looked at: what was replaced counts no longer.
    assert!(grown.size().bytes < SMALL && grown.size().logged > SMALL, "{:?}", grown.size());
}

#[test]
fn later_entries_do_not_change_a_snapshot() {
    let moment = task(TaskState::Working).with(&[chunk("a", &"x".repeat(SMALL), false)]);
    let one = moment.with(&[said("one")]);
    let other = moment.with(&[said("other")]);
    let longer = other.with(&[said("longer")]);
    let text = |snapshot: &TaskSnapshot| snapshot.status.message.as_ref().map(Message::text);
    assert_eq!(text(&moment), None);
    assert_eq!(text(&one).as_deref(), Some("one"));
    assert_eq!(text(&other).as_deref(), Some("other"));
    assert_eq!((text(&longer).as_deref(), longer.history.len()), (Some("longer"), 1));
}

#[test]
fn replaced_pieces_count_only_towards_the_limit_on_entries() {
    let limits = TaskLimits { bytes: 100_000, messages: 10, artifacts: 1 };
    let mut growing = task(TaskState::Working);
    let mut replaced = 0;
    loop {
        let next = growing.with(&[chunk("a", &"x".repeat(40_000), false)]);
        if let Err(excess) = next.check(&growing, &limits) {
            assert!(excess.to_string().contains("bytes of events"), "{excess}");
            break;
        }
        growing = next;
        replaced += 1;
    }
    assert_eq!(replaced, 9);
}

#[test]
fn a_task_of_any_size_can_end_by_a_short_update() {
    let limits = TaskLimits { bytes: 10, messages: 1, artifacts: 0 };
    let grown = task(TaskState::Working).with(&[chunk("a", &"x".repeat(SMALL), false), said("one"), said("two")]);
    let end = |text: &str| {
        let status =
            TaskStatus { state: TaskState::Failed, message: Some(Message::user_text(text)), ..TaskStatus::default() };
        StreamResponse::StatusUpdate(TaskStatusUpdateEvent { status, ..Default::default() }).into()
    };
    assert!(grown.with(&[end("it is too large")]).check(&grown, &limits).is_ok());
    assert!(grown.with(&[end(&"x".repeat(20_000))]).check(&grown, &limits).is_err());
    assert!(grown.with(&[said("three")]).check(&grown, &limits).is_err());
}

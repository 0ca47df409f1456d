//! Conversations: what a turn leaves for the next one.

use annex_conversation::{ConversationKey, Window};
use annex_protocol::{ContextId, Owner, PartContent};

use crate::agent::NAME;
use crate::fixture::{Door, Settings, door, door_with, say};
use crate::in_words::{artifacts, status};

/// True if the anonymous conversation `c` is stored.
async fn exists(door: &Door) -> bool {
    let key = ConversationKey::of(NAME, &Owner::default(), &ContextId::new("c"));
    door.store.conversation(&key, Window::NONE).await.expect("a store that answers").exists()
}

#[tokio::test(start_paused = true)]
async fn the_next_turn_reads_what_was_said_before() {
    let door = door().await;
    door.task(say("say hello").context("c")).await;
    let next = door.task(say("history").context("c")).await;
    assert_eq!(artifacts(&next), "user: say hello | scripted: hello | user: history");
}

#[tokio::test(start_paused = true)]
async fn the_history_of_one_context_is_not_read_in_another() {
    let door = door().await;
    door.task(say("say hello").context("c")).await;
    assert_eq!(artifacts(&door.task(say("history").context("d")).await), "user: history");
}

#[tokio::test(start_paused = true)]
async fn the_history_of_one_principal_is_not_read_by_another() {
    let door = door().await;
    door.task(say("say hello").context("c").by("ada")).await;
    for other in [say("history").context("c").by("bob"), say("history").context("c")] {
        assert_eq!(artifacts(&door.task(other).await), "user: history");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_without_an_answer_is_an_event_of_the_agent_all_the_same() {
    let door = door().await;
    door.task(say("work").context("c")).await;
    assert_eq!(artifacts(&door.task(say("history").context("c")).await), "user: work | scripted:  | user: history");
}

#[tokio::test(start_paused = true)]
async fn a_failed_turn_leaves_its_reason_in_the_conversation() {
    let door = door().await;
    door.task(say("work, fail Too hard.").context("c")).await;
    let next = door.task(say("history").context("c")).await;
    assert_eq!(artifacts(&next), "user: work, fail Too hard. | scripted: Too hard. | user: history");
}

#[tokio::test(start_paused = true)]
async fn a_delta_of_a_turn_is_read_in_the_same_turn_and_in_the_next() {
    let door = door().await;
    let task = door.task(say("set color blue, read color").context("c")).await;
    assert_eq!(artifacts(&task), r#""blue""#);
    assert_eq!(artifacts(&door.task(say("read color").context("c")).await), r#""blue""#);
}

#[tokio::test(start_paused = true)]
async fn a_later_delta_replaces_the_value_of_its_key_and_no_other() {
    let door = door().await;
    door.task(say("set color blue, set size small").context("c")).await;
    door.task(say("set color red").context("c")).await;
    assert_eq!(artifacts(&door.task(say("read color").context("c")).await), r#""red""#);
    assert_eq!(artifacts(&door.task(say("read size").context("c")).await), r#""small""#);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_one_conversation_is_not_read_in_another() {
    let door = door().await;
    door.task(say("set color blue").context("c")).await;
    assert_eq!(artifacts(&door.task(say("read color").context("d")).await), "nothing");
}

#[tokio::test(start_paused = true)]
async fn a_user_key_is_read_in_all_conversations_of_its_principal() {
    let door = door().await;
    door.task(say("set user:color blue").context("c").by("ada")).await;
    assert_eq!(artifacts(&door.task(say("read user:color").context("d").by("ada")).await), r#""blue""#);
    assert_eq!(artifacts(&door.task(say("read user:color").context("d").by("bob")).await), "nothing");
}

#[tokio::test(start_paused = true)]
async fn an_app_key_is_read_by_all_callers() {
    let door = door().await;
    door.task(say("set app:color blue").context("c").by("ada")).await;
    assert_eq!(artifacts(&door.task(say("read app:color").context("d").by("bob")).await), r#""blue""#);
}

#[tokio::test(start_paused = true)]
async fn a_temporary_key_ends_with_its_turn() {
    let door = door().await;
    let task = door.task(say("set temp:color blue, read temp:color").context("c")).await;
    assert_eq!(artifacts(&task), r#""blue""#);
    assert_eq!(artifacts(&door.task(say("read temp:color").context("c")).await), "nothing");
}

#[tokio::test(start_paused = true)]
async fn the_delta_that_an_agent_adds_before_its_turn_is_stored_with_the_message() {
    let door = door().await;
    door.task(say("with a delta").context("c")).await;
    assert_eq!(artifacts(&door.task(say("read before").context("c")).await), r#""the turn""#);
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_too_large_fails_the_turn_and_leaves_the_state() {
    let mut settings = Settings::default();
    settings.store.limits.state_bytes = 100;
    let door = door_with(settings).await;
    door.task(say("set color blue").context("c")).await;
    let task = door.task(say(&format!("set color {}", "x".repeat(200))).context("c")).await;
    assert!(status(&task).starts_with("FAILED: The conversation cannot keep the answer: "), "{}", status(&task));
    assert_eq!(artifacts(&door.task(say("read color").context("c")).await), r#""blue""#);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_events_leave_a_long_conversation() {
    let mut settings = Settings::default();
    settings.store.limits.events = 3;
    let door = door_with(settings).await;
    for text in ["say one", "say two"] {
        door.task(say(text).context("c")).await;
    }
    let key = ConversationKey::of(NAME, &Owner::default(), &ContextId::new("c"));
    let stored = door.store.conversation(&key, Window::latest(10)).await.expect("a conversation");
    let texts: Vec<_> = stored.history.iter().map(|event| event.parts[0].content.clone()).collect();
    assert_eq!(texts, ["one", "say two", "two"].map(|text| PartContent::Text(text.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_agent_refuses_before_its_turn_leaves_no_conversation() {
    let door = door().await;
    door.refusal(say("not this").context("c")).await;
    assert!(!exists(&door).await);
    assert_eq!(door.agent.turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_agent_refuses_in_its_turn_stays_in_the_conversation() {
    let door = door().await;
    door.refusal(say("refuse not now").context("c")).await;
    assert!(exists(&door).await);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_task_is_part_of_the_conversation() {
    let door = door().await;
    door.message(say("say hello, answer hello").context("c")).await;
    let next = door.task(say("history").context("c")).await;
    assert_eq!(artifacts(&next), "user: say hello, answer hello | scripted: hello | user: history");
}

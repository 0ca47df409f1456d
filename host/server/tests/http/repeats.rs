//! Messages without a context that authenticated callers send twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::auth::{ADA, BOB, api_keys};
use crate::durable::{Counting, counting, serve};
use crate::three_ways::{ALL, Binding, TestAnswer, TestMessage, say};

fn work(key: &'static str, id: &'static str) -> TestMessage<'static> {
    TestMessage { key: Some(key), text: "work", id, ..TestMessage::default() }
}

fn turns(agent: &Arc<Counting>) -> usize {
    agent.turns.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_principals_message_without_a_context_is_one_turn_whichever_way_it_comes() {
    let agent = counting();
    let server = serve(&agent, &api_keys()).await;
    let first = say(&server, Binding::JsonRpc, work(ADA, "m")).await;
    assert!(matches!(&first, TestAnswer::Task(_, state) if state == "TASK_STATE_COMPLETED"), "{first:?}");
    for binding in ALL {
        assert_eq!(say(&server, binding, work(ADA, "m")).await, first, "{binding:?}");
        let other = TestMessage { text: "other work", ..work(ADA, "m") };
        assert_eq!(say(&server, binding, other).await.error(), ("INVALID_PARAMS", "message.messageId"), "{binding:?}");
    }
    assert_eq!(turns(&agent), 1);
    // Another principal's message, and one that names a context, are others.
    let bobs = say(&server, Binding::JsonRpc, work(BOB, "m")).await;
    let named = say(&server, Binding::JsonRpc, TestMessage { context: "c", ..work(ADA, "m") }).await;
    assert!(bobs.task() != first.task() && named.task() != first.task() && bobs.task() != named.task());
    assert_eq!(turns(&agent), 3);
}

#[tokio::test]
async fn a_principals_message_without_a_context_is_known_after_a_restart() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("data_dir = {:?}\n{}", folder.path().join("data"), api_keys());
    let mut server = serve(&agent, &config).await;
    let first = say(&server, Binding::Grpc, work(ADA, "m")).await;
    server.begin_shutdown();
    server.ended().await.expect("a clean end");
    let server = serve(&agent, &config).await;
    for binding in ALL {
        assert_eq!(say(&server, binding, work(ADA, "m")).await, first, "{binding:?}");
    }
    assert_eq!(turns(&agent), 1);
}

#[tokio::test]
async fn anonymous_clients_that_name_no_context_never_meet_in_a_message_id() {
    let agent = counting();
    let server = serve(&agent, "").await;
    let said = TestMessage { key: None, ..work(ADA, "m") };
    let first = say(&server, Binding::JsonRpc, said).await;
    for binding in ALL {
        assert_ne!(say(&server, binding, said).await.task(), first.task(), "{binding:?}");
    }
    assert_eq!(turns(&agent), 4);
}

#[tokio::test]
async fn a_message_that_was_answered_with_a_message_gets_the_same_answer_again() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("data_dir = {:?}", folder.path().join("data"));
    let question = TestMessage { text: "answer", id: "m", context: "c", ..TestMessage::default() };
    let mut server = serve(&agent, &config).await;
    let first = say(&server, Binding::JsonRpc, question).await;
    assert!(matches!(&first, TestAnswer::Message(_, text) if text == "hello"), "{first:?}");
    for binding in ALL {
        assert_eq!(say(&server, binding, question).await, first, "{binding:?}");
    }
    server.begin_shutdown();
    server.ended().await.expect("a clean end");

    let server = serve(&agent, &config).await;
    assert_eq!(say(&server, Binding::Grpc, question).await, first);
    let stream = server.say("answer").context("c").field("messageId", "m").streaming().open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    let TestAnswer::Message(id, _) = &first else { unreachable!("looked at above") };
    assert_eq!((events.len(), events[0]["result"]["message"]["messageId"].as_str()), (1, Some(id.as_str())));
    assert_eq!(turns(&agent), 1);
    let other = TestMessage { text: "work", ..question };
    assert_eq!(say(&server, Binding::HttpJson, other).await.error(), ("INVALID_PARAMS", "message.messageId"));
}

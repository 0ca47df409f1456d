//! Bounds on turns that run at once.

use annex_test_support::{Events, TestServer};

use crate::auth::{ADA, BOB, api_keys};
use crate::durable::{counting, serve_with, state};
use crate::three_ways::{ALL, Binding, TestAnswer, TestMessage, say};

/// A turn that runs until the test releases the agent.
async fn waiting(server: &TestServer) -> Events {
    let mut stream = server.say("wait").context("c").streaming().open().await.expect("a stream");
    for _ in 0..2 {
        stream.next().await.expect("an event").expect("the task, and that it works");
    }
    stream
}

#[tokio::test]
async fn a_message_beyond_the_bound_on_turns_is_refused_on_each_binding_and_leaves_nothing() {
    let agent = counting();
    let server = serve_with(&agent, "max_running_turns = 1", "").await;
    let running = waiting(&server).await;
    // One that waited for the context would take a place as well.
    for (binding, context) in ALL.into_iter().zip(["c", "d", "e"]) {
        let said = TestMessage { text: "work", id: "m", context, ..TestMessage::default() };
        assert_eq!(say(&server, binding, said).await.error().0, "OVERLOADED", "{binding:?}");
    }
    let listed = server.call("ListTasks", r#"{"contextId":"d"}"#).send().await.expect("a list");
    assert_eq!(listed.body["result"]["totalSize"], 0);
    agent.go.add_permits(1);
    let events = running.rest().await.expect("events");
    assert_eq!(state(&events.last().expect("an end")["result"]["statusUpdate"]), "TASK_STATE_COMPLETED");
    // The place is free once the turn is over, and a refused message may come again.
    loop {
        match say(&server, Binding::Grpc, TestMessage { text: "work", id: "m", context: "d", ..TestMessage::default() })
            .await
        {
            TestAnswer::Error(reason, _) => assert_eq!(reason, "OVERLOADED"),
            heard => break assert!(matches!(&heard, TestAnswer::Task(_, state) if state == "TASK_STATE_COMPLETED")),
        }
    }
}

#[tokio::test]
async fn a_caller_has_a_bound_of_its_own() {
    let agent = counting();
    let server = serve_with(&agent, "max_running_turns_per_caller = 1", &api_keys()).await;
    let wait = TestMessage { key: Some(ADA), text: "wait", id: "m", context: "c", ..TestMessage::default() };
    let work = TestMessage { text: "work", id: "", context: "d", ..wait };
    let running = say(&server, Binding::JsonRpc, wait);
    let meanwhile = async {
        // Until the first one runs the second one is taken.
        while !matches!(say(&server, Binding::HttpJson, work).await, TestAnswer::Error(..)) {}
        assert_eq!(say(&server, Binding::Grpc, work).await.error().0, "OVERLOADED");
        // Another caller has room.
        assert!(matches!(
            say(&server, Binding::JsonRpc, TestMessage { key: Some(BOB), ..work }).await,
            TestAnswer::Task(..)
        ));
        agent.go.add_permits(1);
    };
    let (running, ()) = futures::future::join(running, meanwhile).await;
    assert!(matches!(&running, TestAnswer::Task(_, state) if state == "TASK_STATE_COMPLETED"), "{running:?}");
}

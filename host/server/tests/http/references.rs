//! Messages that refer to other tasks.

use crate::agent;
use crate::auth::{ADA, BOB, guarded};
use crate::three_ways::{ALL, TestAnswer, TestMessage, say};

#[tokio::test]
async fn references_to_tasks_that_are_unknown_foreign_or_of_another_context_are_taken_alike() {
    let server = guarded().await;
    for binding in ALL {
        let prompt = TestMessage { text: "prompt", ..TestMessage::default() };
        let own = say(&server, binding, TestMessage { key: Some(ADA), ..prompt }).await.task().to_owned();
        let foreign = say(&server, binding, TestMessage { key: Some(BOB), ..prompt }).await.task().to_owned();
        for reference in [own, foreign, "nobody".to_owned(), String::new()] {
            let said = TestMessage { key: Some(ADA), references: &[reference], context: "other", ..prompt };
            let TestAnswer::Task(_, state) = say(&server, binding, said).await else { panic!("{binding:?}: no task") };
            assert_eq!(state, "TASK_STATE_COMPLETED", "{binding:?}");
        }
    }
}

#[tokio::test]
async fn references_are_bounded_in_number_and_length() {
    let server = agent("Say something.", "").await;
    let cases = [
        (vec!["t".to_owned(); 64], None),
        (vec!["t".to_owned(); 65], Some("message.referenceTaskIds")),
        (vec!["t".to_owned(), "t".repeat(257)], Some("message.referenceTaskIds[1]")),
    ];
    for binding in ALL {
        for (references, field) in &cases {
            let said = TestMessage { text: "prompt", references, ..TestMessage::default() };
            let heard = say(&server, binding, said).await;
            match field {
                None => assert!(matches!(heard, TestAnswer::Task(..)), "{binding:?}: {heard:?}"),
                Some(field) => assert_eq!(heard.error(), ("INVALID_PARAMS", *field), "{binding:?}"),
            }
        }
    }
}

use serde_json::Value;

use crate::catalogue::example;

const URI: &str = "https://annex.example/generating-image/v1";

/// The texts of a working task's statuses, and whether each is in the sub-state.
fn working(events: &[Value]) -> Vec<(String, Option<bool>)> {
    let statuses = events.iter().map(|event| &event["result"]["statusUpdate"]["status"]);
    statuses
        .filter(|status| status["state"] == "TASK_STATE_WORKING")
        .map(|status| {
            let message = &status["message"];
            let text = message["parts"][0]["text"].as_str().unwrap_or_default().to_owned();
            (text, message["metadata"]["generating-image"].as_bool())
        })
        .collect()
}

#[tokio::test]
async fn a_working_task_is_in_the_sub_state_while_it_generates_an_image() {
    let server = example("images.toml").await;
    let stream = server.say("draw").extensions(URI).streaming().open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    let expected = [("Thinking about colours".to_owned(), None), ("Generating image 1 of 1".to_owned(), Some(true))];
    assert_eq!(working(&events), expected, "{events:?}");
}

#[tokio::test]
async fn clients_that_do_not_know_the_sub_state_do_not_see_it() {
    let server = example("images.toml").await;
    let stream = server.say("draw").streaming().open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    assert!(working(&events).iter().all(|(_, marked)| marked.is_none()), "{events:?}");
}

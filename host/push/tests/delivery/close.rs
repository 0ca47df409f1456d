//! Closing a notifier.

use std::time::Duration;

use annex_push::Counts;

use crate::support::{DeadReceiver, PATIENCE, Receiver, notifier, send, update};

#[tokio::test]
async fn queued_events_are_delivered_before_the_notifier_closes() {
    let mut receiver = Receiver::start().await;
    let notifier = notifier();
    for event in 0..10 {
        send(&notifier, &receiver.config("c"), &update(&event.to_string()));
    }
    notifier.close(PATIENCE).await;
    assert_eq!(receiver.rest(), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

#[tokio::test]
async fn events_that_cannot_be_delivered_in_time_are_given_up_on_close() {
    let dead = DeadReceiver::start();
    let notifier = notifier();
    for event in ["0", "1", "2"] {
        send(&notifier, &dead.config("c"), &update(event));
    }
    notifier.close(Duration::from_millis(10)).await;
    assert_eq!(notifier.counts(), Counts { given_up: 3, ..Counts::default() });
    assert_eq!(notifier.queues(), 0);
}

#[tokio::test]
async fn nothing_is_sent_after_the_end() {
    let mut receiver = Receiver::start().await;
    let notifier = notifier();
    notifier.close(PATIENCE).await;
    send(&notifier, &receiver.config("c"), &update("late"));
    notifier.close(PATIENCE).await;
    assert!(receiver.rest().is_empty());
    assert_eq!(notifier.counts(), Counts { dropped: 1, ..Counts::default() });
}

//! Queues that overflow, events that are too long, and configs that are suspended or removed.

use std::time::Duration;

use annex_push::{Counts, Notifier, NotifierConfig};

use crate::support::{DeadReceiver, PATIENCE, Receiver, last, notifier, quick, send, settled, update};

#[tokio::test]
async fn an_overflow_drops_the_oldest_events_but_not_the_last_of_a_task() {
    let (mut receiver, gate) = Receiver::gated().await;
    let notifier = Notifier::new(&NotifierConfig { max_queued: 3, ..quick() }).unwrap();
    let config = receiver.config("c");
    send(&notifier, &config, &update("in flight"));
    assert_eq!(receiver.next().await.body, "in flight");
    for event in [update("1"), update("2"), last("3"), update("4"), update("5"), last("6")] {
        send(&notifier, &config, &event);
    }
    assert_eq!(notifier.counts().dropped, 3);
    gate.add_permits(10);
    assert_eq!(receiver.bodies(3).await, ["3", "5", "6"]);
    settled(&notifier).await;
    assert_eq!(notifier.counts(), Counts { delivered: 4, given_up: 0, dropped: 3 });
}

#[tokio::test]
async fn a_queue_of_last_events_alone_drops_the_oldest_and_takes_no_update() {
    let (mut receiver, gate) = Receiver::gated().await;
    let notifier = Notifier::new(&NotifierConfig { max_queued: 2, ..quick() }).unwrap();
    let config = receiver.config("c");
    send(&notifier, &config, &update("in flight"));
    receiver.next().await;
    for event in [last("1"), last("2"), update("3"), last("4")] {
        send(&notifier, &config, &event);
    }
    gate.add_permits(10);
    assert_eq!(receiver.bodies(2).await, ["2", "4"]);
}

#[tokio::test]
async fn a_slow_receiver_does_not_take_the_room_of_others() {
    let dead = DeadReceiver::start();
    let mut live = Receiver::start().await;
    let notifier = Notifier::new(&NotifierConfig { max_queued_bytes: 20 * 1024, ..quick() }).unwrap();
    for task in 0..4 {
        for event in 0..50 {
            notifier.send(&task.to_string().into(), &[dead.config("dead")], &update(&event.to_string()));
        }
    }
    assert!(notifier.counts().dropped > 180, "{:?}", notifier.counts());
    for event in 0..3 {
        send(&notifier, &live.config("live"), &update(&event.to_string()));
        assert_eq!(live.next().await.body, event.to_string());
    }
}

#[tokio::test]
async fn the_number_of_queues_is_bounded_by_their_room() {
    let dead = DeadReceiver::start();
    let notifier = Notifier::new(&NotifierConfig { max_queued_bytes: 20 * 1024, ..quick() }).unwrap();
    for task in 0..100 {
        notifier.send(&task.to_string().into(), &[dead.config("dead")], &update("event"));
    }
    assert!(notifier.queues() < 20);
    assert_eq!(notifier.counts().dropped, 100 - notifier.queues() as u64);
}

#[tokio::test]
async fn an_event_that_is_too_long_is_not_sent() {
    let mut receiver = Receiver::start().await;
    let notifier = Notifier::new(&NotifierConfig { max_body: 10, ..quick() }).unwrap();
    for event in ["0123456789", "0123456789a", "after"] {
        send(&notifier, &receiver.config("c"), &update(event));
    }
    assert_eq!(receiver.bodies(2).await, ["0123456789", "after"]);
    assert_eq!(notifier.counts().dropped, 1);
}

#[tokio::test]
async fn a_config_is_suspended_after_consecutive_failures_until_its_removal() {
    let mut receiver = Receiver::scripted([400, 400, 200, 400, 400, 400].map(|status| (status, &[] as &[_]))).await;
    let notifier = Notifier::new(&NotifierConfig { suspend_after: 3, ..quick() }).unwrap();
    let config = receiver.config("c");
    for event in 0..8 {
        send(&notifier, &config, &update(&event.to_string()));
    }
    settled(&notifier).await;
    send(&notifier, &config, &last("8"));
    settled(&notifier).await;
    assert_eq!(receiver.rest(), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(notifier.counts(), Counts { delivered: 1, given_up: 5, dropped: 3 });

    notifier.remove(&"task".into(), "c");
    send(&notifier, &config, &update("9"));
    assert_eq!(receiver.next().await.body, "9");
}

#[tokio::test]
async fn a_suspension_is_of_one_config_alone() {
    let mut bad = Receiver::scripted([(400, &[] as &[_])]).await;
    let mut good = Receiver::start().await;
    let notifier = Notifier::new(&NotifierConfig { suspend_after: 1, ..quick() }).unwrap();
    let configs = [bad.config("bad"), good.config("good")];
    for event in ["0", "1"] {
        notifier.send(&"task".into(), &configs, &update(event));
        settled(&notifier).await;
    }
    assert_eq!(bad.rest(), ["0"]);
    assert_eq!(good.rest(), ["0", "1"]);
}

#[tokio::test]
async fn nothing_more_is_sent_for_a_config_that_was_removed() {
    let (mut receiver, gate) = Receiver::gated().await;
    let notifier = notifier();
    let config = receiver.config("c");
    for event in ["in flight", "waits", "waits too"] {
        send(&notifier, &config, &update(event));
    }
    assert_eq!(receiver.next().await.body, "in flight");
    notifier.remove(&"task".into(), "c");
    gate.add_permits(10);
    send(&notifier, &config, &update("new"));
    assert_eq!(receiver.next().await.body, "new");
    settled(&notifier).await;
    assert_eq!(notifier.counts(), Counts { delivered: 1, given_up: 0, dropped: 3 });
}

#[tokio::test]
async fn removing_a_config_cancels_its_running_attempt() {
    let (mut receiver, _gate) = Receiver::gated().await;
    let long = Duration::from_secs(3600);
    let notifier = Notifier::new(&NotifierConfig { timeout: long, ..quick() }).unwrap();
    send(&notifier, &receiver.config("c"), &update("event"));
    receiver.next().await;
    notifier.remove(&"task".into(), "c");
    tokio::time::timeout(PATIENCE, notifier.close(long)).await.expect("nothing is left to wait for");
    assert_eq!(notifier.counts(), Counts { dropped: 1, ..Counts::default() });
}

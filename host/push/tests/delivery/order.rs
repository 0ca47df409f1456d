//! Order per config, and independence of configs.

use crate::support::{DeadReceiver, Receiver, notifier, quick, send, settled, update};
use annex_push::{Counts, Fate, Notifier, NotifierConfig};

#[tokio::test]
async fn events_arrive_in_order_although_some_are_tried_again() {
    let mut receiver = Receiver::scripted([(503, &[] as &[_]), (200, &[]), (500, &[]), (429, &[])]).await;
    let notifier = notifier();
    let config = receiver.config("c");
    for event in 0..6 {
        send(&notifier, &config, &update(&event.to_string()));
    }
    assert_eq!(receiver.bodies(9).await, ["0", "0", "1", "1", "1", "2", "3", "4", "5"]);
    settled(&notifier).await;
    assert_eq!(notifier.counts(), Counts { delivered: 6, given_up: 0, dropped: 0 });
}

#[tokio::test]
async fn deliver_returns_the_outcome_of_its_event() {
    let failing = [(500, &[] as &[_]), (500, &[]), (500, &[])];
    let mut receiver = Receiver::scripted([(200, &[] as &[_]), (400, &[])].into_iter().chain(failing)).await;
    let notifier = notifier();
    let config = receiver.config("c");
    let task = "task".into();
    for fate in [Fate::Delivered, Fate::Refused, Fate::Failed, Fate::Delivered] {
        assert_eq!(notifier.deliver(&task, &config, &update("{}")).await, fate);
    }
    assert_eq!(receiver.bodies(6).await.len(), 6);
    let (mut slow, _gate) = Receiver::gated().await;
    let config = slow.config("slow");
    let removed = async {
        slow.next().await;
        notifier.remove(&task, "slow");
    };
    let update = update("{}");
    let (fate, ()) = tokio::join!(notifier.deliver(&task, &config, &update), removed);
    assert_eq!(fate, Fate::Dropped);
    notifier.close(std::time::Duration::ZERO).await;
    assert_eq!(notifier.deliver(&task, &config, &update).await, Fate::Dropped);
}

#[tokio::test]
async fn an_event_that_is_given_up_does_not_hold_up_the_next() {
    let mut receiver = Receiver::scripted([(500, &[] as &[_]), (500, &[]), (500, &[])]).await;
    let notifier = notifier();
    let config = receiver.config("c");
    send(&notifier, &config, &update("0"));
    send(&notifier, &config, &update("1"));
    assert_eq!(receiver.bodies(4).await, ["0", "0", "0", "1"]);
    settled(&notifier).await;
    assert_eq!(notifier.counts(), Counts { delivered: 1, given_up: 1, dropped: 0 });
}

#[tokio::test]
async fn an_unresponsive_receiver_delays_no_other_receiver() {
    let dead = DeadReceiver::start();
    let mut live = Receiver::start().await;
    // There are fewer slots than unresponsive hosts. Only the limit per host keeps one slot free.
    let notifier = Notifier::new(&NotifierConfig { max_concurrent: 3, max_concurrent_per_host: 2, ..quick() }).unwrap();
    let mut configs: Vec<_> = (0..10).map(|config| dead.config(&format!("dead {config}"))).collect();
    configs.push(live.config("live"));
    for event in 0..5 {
        notifier.send(&"task".into(), &configs, &update(&event.to_string()));
    }
    assert_eq!(live.bodies(5).await, ["0", "1", "2", "3", "4"]);
    notifier.close(std::time::Duration::ZERO).await;
    assert_eq!(notifier.counts(), Counts { delivered: 5, given_up: 50, dropped: 0 });
}

#[tokio::test]
async fn tasks_do_not_share_a_queue_though_their_configs_have_one_id() {
    let ((mut slow, _gate), mut quick) = (Receiver::gated().await, Receiver::start().await);
    let notifier = notifier();
    notifier.send(&"one".into(), &[slow.config("same")], &update("1"));
    notifier.send(&"two".into(), &[quick.config("same")], &update("2"));
    assert_eq!(slow.next().await.body, "1");
    assert_eq!(quick.next().await.body, "2");
}

#[tokio::test]
async fn an_empty_queue_is_removed() {
    let mut receiver = Receiver::start().await;
    let notifier = notifier();
    for task in 0..20 {
        notifier.send(&task.to_string().into(), &[receiver.config("c")], &update("event"));
    }
    receiver.bodies(20).await;
    settled(&notifier).await;
    assert_eq!(notifier.queues(), 0);
}

//! Messages that come more than once.

use annex_tasks::{MessageKey, Remembered};

use crate::fixture::{Store, owner};

on_every_store! {
    a_message_is_new_once,
    another_message_under_the_same_id_is_told_apart,
    messages_of_others_are_others,
    a_forgotten_message_is_new_again,
    of_concurrent_messages_exactly_one_is_new,
}

fn message(id: &str, content: u8) -> MessageKey {
    MessageKey { context: "c-1".into(), message: id.into(), digest: [content; 32] }
}

async fn a_message_is_new_once(store: Store) {
    let ada = owner("ada");
    assert_eq!(store.remember(&ada, &message("m-1", 1), &"t-1".into()).await.unwrap(), Remembered::New);
    for task in ["t-2", "t-1"] {
        let again = store.remember(&ada, &message("m-1", 1), &task.into()).await.unwrap();
        assert_eq!(again, Remembered::Same("t-1".into()));
    }
    assert_eq!(store.remember(&ada, &message("m-2", 1), &"t-1".into()).await.unwrap(), Remembered::New);
}

async fn another_message_under_the_same_id_is_told_apart(store: Store) {
    let ada = owner("ada");
    store.remember(&ada, &message("m-1", 1), &"t-1".into()).await.unwrap();
    let other = store.remember(&ada, &message("m-1", 2), &"t-2".into()).await.unwrap();
    assert_eq!(other, Remembered::Different);
    let again = store.remember(&ada, &message("m-1", 1), &"t-3".into()).await.unwrap();
    assert_eq!(again, Remembered::Same("t-1".into()));
}

async fn messages_of_others_are_others(store: Store) {
    let mut globex = owner("ada");
    globex.tenant = "globex".to_owned();
    let mut elsewhere = message("m-1", 1);
    elsewhere.context = "".into();
    let cases = [
        (owner("ada"), message("m-1", 1)),
        (owner("bob"), message("m-1", 1)),
        (globex, message("m-1", 2)),
        (owner("ada"), elsewhere),
    ];
    for (owner, message) in cases {
        let remembered = store.remember(&owner, &message, &"t-1".into()).await.unwrap();
        assert_eq!(remembered, Remembered::New, "{owner:?} {message:?}");
    }
}

async fn a_forgotten_message_is_new_again(store: Store) {
    let ada = owner("ada");
    store.remember(&ada, &message("m-1", 1), &"t-1".into()).await.unwrap();
    // Neither another's nor another content.
    store.forget(&owner("bob"), &message("m-1", 1)).await.unwrap();
    store.forget(&ada, &message("m-1", 2)).await.unwrap();
    let again = store.remember(&ada, &message("m-1", 1), &"t-2".into()).await.unwrap();
    assert_eq!(again, Remembered::Same("t-1".into()));
    store.forget(&ada, &message("m-1", 1)).await.unwrap();
    assert_eq!(store.remember(&ada, &message("m-1", 1), &"t-2".into()).await.unwrap(), Remembered::New);
}

async fn of_concurrent_messages_exactly_one_is_new(store: Store) {
    for round in 0..5 {
        let calls = (0..32).map(|caller| {
            let store = store.clone();
            let message = message(&format!("m-{round}"), 1);
            let task = format!("t-{caller}").into();
            tokio::spawn(async move { (store.remember(&owner("ada"), &message, &task).await.unwrap(), task) })
        });
        let outcomes = futures::future::join_all(calls.collect::<Vec<_>>()).await;
        let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
        let winners: Vec<_> = outcomes.iter().filter(|(outcome, _)| *outcome == Remembered::New).collect();
        assert_eq!(winners.len(), 1);
        let same = Remembered::Same(winners[0].1.clone());
        assert_eq!(outcomes.iter().filter(|(outcome, _)| *outcome == same).count(), 31);
    }
}

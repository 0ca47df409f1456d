//! The same from many threads at once.

use std::sync::Barrier;
use std::thread;

use annex_session::SessionError;

use crate::support::{create, delta, event, key, open, service};

/// Runs `work` on ten threads that start together and gives what each returned.
fn ten_at_once<T: Send>(work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(10);
    thread::scope(|scope| {
        let run = |index| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(index)
            })
        };
        let threads: Vec<_> = (0..10).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn of_ten_creates_of_one_session_one_succeeds() {
    let service = service();
    let results = ten_at_once(|index| service.create(&key("s"), delta(&format!(r#"{{"user:k{index}":1}}"#))));
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let exists = SessionError::AlreadyExists { context: "s".into() };
    assert_eq!(results.iter().filter(|result| result.as_ref() == Err(&exists)).count(), 9);
    assert_eq!(service.get(&key("s")).unwrap().state.len(), 1);
}

#[test]
fn of_ten_writers_that_read_the_same_revision_one_succeeds() {
    let service = service();
    create(&service, "s", "{}");
    let results = ten_at_once(|index| service.append(&key("s"), 1, event(&index.to_string(), r#"{"a":1}"#)));
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let stale = SessionError::Stale { expected: 1, found: 2 };
    assert_eq!(results.iter().filter(|result| result.as_ref() == Err(&stale)).count(), 9);
    assert_eq!(service.events(&key("s"), Default::default()).unwrap().len(), 1);
}

#[test]
fn ten_sessions_that_set_keys_of_one_user_lose_none() {
    let service = service();
    ten_at_once(|index| {
        let path = format!("ann/{index}");
        create(&service, &path, "{}");
        service.append(&key(&path), 1, event("e", &format!(r#"{{"user:k{index}":{index}}}"#))).unwrap();
    });
    create(&service, "ann/reader", "{}");
    assert_eq!(service.get(&key("ann/reader")).unwrap().state.len(), 10);
}

#[tokio::test]
async fn parallel_appends_within_one_turn_all_succeed() {
    let service = service();
    let session = open(&service, "s").await;
    ten_at_once(|thread| {
        let session = session.clone();
        for round in 0..2 {
            let id = format!("{thread}-{round}");
            session.append(event(&id, &format!(r#"{{"k{id}":1,"temp:k{id}":1}}"#))).unwrap();
        }
    });
    assert_eq!(session.history().len(), 20);
    assert_eq!(session.snapshot().len(), 20);
    assert_eq!(session.state().len(), 40);
    assert_eq!(service.get(&key("s")).unwrap().revision, 20);
}

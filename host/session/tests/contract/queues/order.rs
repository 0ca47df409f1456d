//! The order of turns of which several come to one process.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tokio::time::{sleep, timeout};

use super::{A_WHILE, Place, Process, SOON, answer, said, speak};
use crate::support::{events, ids};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_three_processes_run_in_the_order_in_which_they_came() {
    let Some(mut place) = Place::create().await else { return };
    let processes = [place.process("a").await, place.process("b").await, place.process("c").await].map(Arc::new);
    let running = processes[2].begin().await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..9 {
        let process = Arc::clone(&processes[number % 3]);
        waiting.push(tokio::spawn(async move {
            let session = process.begin().await.unwrap();
            session.append(said(&format!("q{number}"))).await.unwrap();
            session.append_last(answer(&format!("a{number}"))).await.unwrap();
        }));
        place.until_queued(number as i64 + 2).await;
    }
    drop(running);
    for turn in waiting {
        timeout(SOON, turn).await.unwrap().unwrap();
    }
    let expected: Vec<String> = (0..9).flat_map(|number| [format!("q{number}"), format!("a{number}")]).collect();
    assert_eq!(ids(&events(&processes[0].service, "s").await), expected);
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_wait_behind_one_of_their_process_keep_their_places_among_those_of_others() {
    let Some(mut place) = Place::create().await else { return };
    let [one, other] = [Arc::new(place.process("one").await), Arc::new(place.process("other").await)];
    let running = one.begin().await.unwrap();
    let mut waiting = Vec::new();
    let order = ["one a", "one b", "other a", "one c", "other b"];
    for (id, queued) in order.into_iter().zip(2..) {
        waiting.push(speak(if id.starts_with("one") { &one } else { &other }, id));
        place.until_queued(queued).await;
    }
    drop(running);
    for turn in waiting {
        timeout(SOON, turn).await.unwrap().unwrap();
    }
    assert_eq!(ids(&events(&one.service, "s").await), order);
    place.until_queued(0).await;
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_has_lost_its_place_comes_before_those_of_its_process_that_wait_for_it() {
    let Some(mut place) = Place::create().await else { return };
    let [one, other] = [Arc::new(place.process("one").await), Arc::new(place.process("other").await)];
    let running = one.begin().await.unwrap();
    running.append(answer("runs")).await.unwrap();
    let lost = speak(&one, "lost its place");
    place.until_queued(2).await;
    place.execute("UPDATE session SET turns = turns[:1]").await;
    let elsewhere = speak(&other, "elsewhere");
    place.until_queued(2).await;
    let next = speak(&one, "next");
    place.until_queued(3).await;
    drop(running);
    for turn in [lost, elsewhere, next] {
        timeout(SOON, turn).await.unwrap().unwrap();
    }
    assert_eq!(ids(&events(&one.service, "s").await), ["runs", "elsewhere", "lost its place", "next"]);
    place.until_queued(0).await;
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_gives_up_while_one_of_its_process_runs_leaves_the_queue() {
    let Some(mut place) = Place::create().await else { return };
    let one = Arc::new(place.process("one").await);
    let running = one.begin().await.unwrap();
    let waiting = speak(&one, "gives up");
    place.until_queued(2).await;
    waiting.abort();
    place.until_queued(1).await;
    running.append_last(answer("runs")).await.unwrap();
    drop(running);
    place.until_queued(0).await;
    place.remove().await;
}

/// A turn begins, and is given up before anything else runs. Returns false if it need not wait.
fn is_given_up(process: &Process) -> bool {
    pin!(process.begin()).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test]
async fn a_turn_that_is_given_up_while_it_joins_leaves_the_queue() {
    let Some(mut place) = Place::create().await else { return };
    let one = place.process("one").await;
    assert!(is_given_up(&one), "it joins in a task of its own, which has not begun yet");
    sleep(A_WHILE).await;
    place.until_queued(0).await;
    let running = one.begin().await.unwrap();
    assert!(is_given_up(&one), "it lines up");
    sleep(A_WHILE).await;
    place.until_queued(1).await;
    drop(running);
    place.until_queued(0).await;
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_one_of_its_process_has_come_before_goes_on() {
    let Some(mut place) = Place::create().await else { return };
    let one = place.process("one").await;
    let running = one.begin().await.unwrap();
    running.append(answer("half")).await.unwrap();
    // As a statement does that the database has had later.
    place.execute("UPDATE session SET turns = array_prepend('one/late', turns)").await;
    running.append(answer("whole")).await.unwrap();
    place.execute("UPDATE session SET turns = array_prepend('one/late', array_remove(turns, 'one/late'))").await;
    running.append_last(answer("last")).await.unwrap();
    assert_eq!(
        place
            .execute("UPDATE session SET turns = array_remove(turns, 'one/late') WHERE turns = ARRAY['one/late']")
            .await,
        1
    );
    drop(running);
    assert_eq!(ids(&events(&one.service, "s").await), ["half", "whole", "last"]);
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_turn_of_a_new_session_goes_before_one_of_its_process_that_came_before_its_first_event() {
    let Some(mut place) = Place::create().await else { return };
    let one = Arc::new(place.process("one").await);
    let first = one.begin_new().await;
    let next = speak(&one, "next");
    place.until_queued(1).await;
    first.append(said("new")).await.unwrap();
    first.append_last(answer("first")).await.unwrap();
    drop(first);
    timeout(SOON, next).await.unwrap().unwrap();
    assert_eq!(ids(&events(&one.service, "s").await), ["new", "first", "next"]);
    place.until_queued(0).await;
    place.remove().await;
}

//! Connections to the database that fail while turns run, in both directions or only from the database.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::proxy::{Proxy, Way};
use crate::push::is_without_gap;
use crate::replicas::{LEASE_AND_LOOK, Replicas, said};
use crate::support::Server;
use crate::wake::{follow, ids, ticks};

/// A time in which a lease surely does not end. A lease lasts five seconds, and was renewed at most 1.25 seconds ago.
const LESS_THAN_A_LEASE: Duration = Duration::from_millis(2_500);

struct Link {
    replicas: Replicas,
    proxy: Proxy,
    /// A process that reaches the database through the proxy.
    through: Server,
    other: Server,
}

impl Link {
    async fn create(more: &str) -> Result<Option<Self>> {
        let Some(replicas) = Replicas::create().await else { return Ok(None) };
        let proxy = Proxy::start(replicas.url()).await?;
        let through = replicas.start_with(more, &[("ANNEX_TEST_TASKS", proxy.url())])?;
        let other = replicas.start(more)?;
        Ok(Some(Self { replicas, proxy, through, other }))
    }

    async fn events(&self) -> Result<i64> {
        self.replicas.number("SELECT count(*) FROM log_entry WHERE kind <> 'event'").await
    }

    /// Waits until the tasks have `events` events, then switches the proxy to `way` for the time `time`.
    async fn blocked(&self, way: Way, (events, time): (i64, Duration)) -> Result<()> {
        let begin = Instant::now();
        while self.events().await? < events {
            ensure!(begin.elapsed() < Duration::from_secs(20), "not {events} events");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.proxy.set(way);
        tokio::time::sleep(time).await;
        self.proxy.set(Way::Open);
        Ok(())
    }

    async fn remove(self) {
        drop((self.through, self.other));
        self.replicas.remove().await;
    }
}

fn state(sent: &Value) -> &str {
    sent["result"]["task"]["status"]["state"].as_str().unwrap_or_default()
}

/// Checks that a turn survives a short interruption. The turn lasts three seconds and has thirty events, and
/// subscribers of both processes must miss none.
async fn check_goes_on(way: Way) -> Result<()> {
    let Some(link) = Link::create(&ticks(30, 100)).await? else { return Ok(()) };
    let task = link.replicas.begin(&link.through, "ticks").await?;
    let of_task = (task.as_str(), None);
    let (here, there, blocked) = tokio::join!(
        follow(&link.replicas, &link.through, of_task, usize::MAX),
        follow(&link.replicas, &link.other, of_task, usize::MAX),
        link.blocked(way, (5, LESS_THAN_A_LEASE))
    );
    blocked?;
    for seen in [ids(&here?), ids(&there?)] {
        assert!(is_without_gap(&seen), "each event once, and in order: {seen:?}");
    }
    let done = link.replicas.until(&link.other, &task, "TASK_STATE_COMPLETED", Duration::from_secs(5)).await?;
    assert_eq!(link.replicas.conversation().await?, ["ticks", "-"], "nobody has taken it: {done}");
    // One that comes while the way is blocked waits for it.
    let (sent, blocked) = tokio::join!(
        link.replicas.call(&link.through, "SendMessage", said("hello", "m-2")),
        link.blocked(way, (0, Duration::from_secs(2)))
    );
    blocked?;
    let sent = sent?;
    assert_eq!(state(&sent), "TASK_STATE_COMPLETED", "{sent}");
    link.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_goes_on_when_its_database_was_a_black_hole_for_less_than_a_lease() -> Result<()> {
    check_goes_on(Way::Closed).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_goes_on_when_the_answers_of_its_database_did_not_come_for_less_than_a_lease() -> Result<()> {
    check_goes_on(Way::AnswersHeld).await
}

/// Checks that late statements change nothing: a process sends statements, which reach the database only after another
/// process has ended the task.
async fn check_writes_nothing_late(way: Way) -> Result<()> {
    let Some(link) = Link::create(&ticks(200, 100)).await? else { return Ok(()) };
    let task = link.replicas.begin(&link.through, "ticks").await?;
    let block = link.blocked(way, (5, Duration::from_secs(9)));
    let failed = link.replicas.until(&link.other, &task, "TASK_STATE_FAILED", LEASE_AND_LOOK + Duration::from_secs(2));
    let (failed, blocked) = tokio::join!(failed, block);
    blocked?;
    let failed = failed?;
    // It would have added some by now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(link.replicas.call(&link.other, "GetTask", json!({"id": task})).await?["result"], failed);
    assert_eq!(link.replicas.conversation().await?, ["ticks", "BROKEN_OFF"]);
    // It goes on under another lease.
    let again = link.replicas.repeat(&link.through, &said("hello", "m-2")).await?;
    assert_eq!(state(&again), "TASK_STATE_COMPLETED", "{again}");
    assert_eq!(link.replicas.conversation().await?, ["ticks", "BROKEN_OFF", "hello", "-"]);
    link.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_held_back_in_a_black_hole_for_longer_than_a_lease_is_not_written() -> Result<()> {
    check_writes_nothing_late(Way::Closed).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_hears_no_answers_for_longer_than_a_lease_writes_nothing_more() -> Result<()> {
    check_writes_nothing_late(Way::AnswersHeld).await
}

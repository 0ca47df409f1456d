//! Several `annex serve` processes on one PostgreSQL database. The clocks of the processes differ by an hour.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::push::is_without_gap;
use crate::replicas::{LEASE_AND_LOOK, Replicas, said};
use crate::support::Server;
use crate::wake::{follow, ids, ticks};

/// The path of libfaketime, which changes the time that a process sees; `None` if it is not installed.
fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
    folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1")).find(|library| library.exists())
}

/// Starts servers whose clocks are an hour ahead, an hour behind, or right.
struct Clocks {
    replicas: Replicas,
    library: String,
}

impl Clocks {
    /// Creates the database. `None`, after a note on standard error, without PostgreSQL or without libfaketime.
    async fn create() -> Result<Option<Self>> {
        let Some(library) = library() else {
            writeln!(std::io::stderr(), "SKIPPED a test with wrong clocks: no libfaketime in /usr/lib")?;
            return Ok(None);
        };
        let Some(replicas) = Replicas::create().await else { return Ok(None) };
        let library = library.to_str().context("a path in UTF-8")?.to_owned();
        Ok(Some(Self { replicas, library }))
    }

    fn start(&self, offset: &str) -> Result<Server> {
        // The time since some moment stays right, as it does where a clock is set.
        let clock = [
            ("LD_PRELOAD", self.library.as_str()),
            ("FAKETIME", offset),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("FAKETIME_DONT_RESET", "1"),
        ];
        let more = ticks(40, 50);
        if offset.is_empty() { self.replicas.start(&more) } else { self.replicas.start_with(&more, &clock) }
    }

    fn start_all(&self) -> Result<[Server; 3]> {
        Ok([self.start("+1h")?, self.start("-1h")?, self.start("")?])
    }
}

fn state(sent: &Value) -> &str {
    sent["result"]["task"]["status"]["state"].as_str().unwrap_or_default()
}

/// The hour in the timestamp of a task.
fn hour(sent: &Value) -> Result<i64> {
    let timestamp = sent["result"]["task"]["status"]["timestamp"].as_str().context("a timestamp")?;
    Ok(timestamp.get(11..13).context("an hour")?.parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_answered_once_and_in_their_order_by_processes_whose_clocks_are_an_hour_off() -> Result<()> {
    let Some(clocks) = Clocks::create().await? else { return Ok(()) };
    let replicas = &clocks.replicas;
    let servers = clocks.start_all()?;
    let mut hours = Vec::new();
    for (number, server) in (0..9).zip(servers.iter().cycle()) {
        let sent = replicas.call(server, "SendMessage", said(&format!("m {number}"), &format!("m-{number}"))).await?;
        assert_eq!(state(&sent), "TASK_STATE_COMPLETED", "{sent}");
        hours.push(hour(&sent)?);
    }
    // The clocks are as they are said to be, unless an hour has just begun.
    let apart = hours.chunks(3).filter(|hours| (hours[0] - hours[1]).rem_euclid(24) == 2).count();
    assert!(apart >= 2, "{hours:?}");
    let expected: Vec<String> = (0..9).flat_map(|number| [format!("m {number}"), "-".to_owned()]).collect();
    assert_eq!(replicas.conversation().await?, expected);
    // One message to all of them at once is one task.
    let sent = said("silent", "to all");
    let [first, second, third] = [0, 1, 2].map(|at| replicas.call(&servers[at], "SendMessage", sent.clone()));
    let (first, second, third) = tokio::try_join!(first, second, third)?;
    assert_eq!(state(&first), "TASK_STATE_COMPLETED", "{first}");
    assert_eq!(
        (&first["result"]["task"], &first["result"]["task"]),
        (&second["result"]["task"], &third["result"]["task"])
    );
    drop(servers);
    clocks.replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_misses_nothing_of_a_task_of_a_process_whose_clock_is_an_hour_off() -> Result<()> {
    let Some(clocks) = Clocks::create().await? else { return Ok(()) };
    let [ahead, behind, right] = clocks.start_all()?;
    for (from, to) in [(&ahead, &behind), (&behind, &ahead), (&right, &ahead)] {
        let mut sent = said("ticks", "m");
        sent["message"]["contextId"] = json!(format!("{} to {}", from.url, to.url));
        let task = clocks.replicas.begin_by(from, sent).await?;
        let begin = Instant::now();
        let seen = ids(&follow(&clocks.replicas, to, (&task, None), usize::MAX).await?);
        assert!(is_without_gap(&seen), "{seen:?}");
        clocks.replicas.until(to, &task, "TASK_STATE_COMPLETED", Duration::ZERO).await?;
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    }
    drop((ahead, behind, right));
    clocks.replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_over_after_five_seconds_whatever_the_clocks_of_the_processes_say() -> Result<()> {
    let Some(clocks) = Clocks::create().await? else { return Ok(()) };
    let replicas = &clocks.replicas;
    let [mut ahead, mut behind, right] = clocks.start_all()?;
    let begin = async |server: &Server, context: &str| {
        let mut sent = said("long", "m");
        sent["message"]["contextId"] = json!(context);
        replicas.begin_by(server, sent).await
    };
    let tasks = [begin(&ahead, "ahead").await?, begin(&behind, "behind").await?, begin(&right, "right").await?];
    // Longer than a lease: nobody takes anything from a process that lives.
    tokio::time::sleep(Duration::from_secs(7)).await;
    for task in &tasks {
        replicas.until(&right, task, "TASK_STATE_WORKING", Duration::ZERO).await?;
    }
    ahead.process.kill()?;
    behind.process.kill()?;
    let killed = Instant::now();
    for task in &tasks[..2] {
        replicas.until(&right, task, "TASK_STATE_FAILED", LEASE_AND_LOOK).await?;
        assert!(killed.elapsed() > Duration::from_secs(3), "taken after {:?}", killed.elapsed());
    }
    // One that starts touches nothing of others, and takes the place of none.
    let again = clocks.start("+1h")?;
    replicas.until(&again, &tasks[2], "TASK_STATE_WORKING", Duration::ZERO).await?;
    drop((ahead, behind, right, again));
    clocks.replicas.remove().await;
    Ok(())
}

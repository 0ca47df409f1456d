//! Push notifications of several `annex serve` on one PostgreSQL database.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::replicas::{Replicas, said};
use crate::support::Server;
use crate::wake::{follow, ids, ticks};

/// The longest time until another process sends the notifications of an ended one: the end of its lease, the next look,
/// and ten seconds for a busy machine.
const TAKEN_OVER: Duration = Duration::from_secs(6 + 10);

/// A receiver of push notifications. It refuses them while `is_down` is set.
pub(crate) struct Receiver {
    url: String,
    seen: Arc<ReceivedEvents>,
}

#[derive(Default)]
struct ReceivedEvents {
    is_down: AtomicBool,
    /// The received events, each with the value of its `annex-event-id` field.
    events: Mutex<Vec<(String, Value)>>,
}

impl Receiver {
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/events", listener.local_addr()?);
        let seen = Arc::new(ReceivedEvents::default());
        let taking = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(take(stream, Arc::clone(&taking)));
            }
        });
        Ok(Self { url, seen })
    }

    fn set_down(&self, is_down: bool) {
        self.seen.is_down.store(is_down, Ordering::SeqCst);
    }

    fn events(&self) -> Vec<(String, Value)> {
        self.seen.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The numbers of the received events, in order of arrival. Fails if an event belongs to another task than `task`.
    pub(crate) fn numbers(&self, task: &str) -> Result<Vec<u64>> {
        let number = |(id, _): &(String, Value)| -> Result<u64> {
            let number = id.strip_prefix(task).and_then(|number| number.strip_prefix('/'));
            Ok(number.with_context(|| format!("{id} of another task"))?.parse()?)
        };
        self.events().iter().map(number).collect()
    }

    /// Waits until `count` events have arrived.
    pub(crate) async fn has(&self, count: usize) -> Result<()> {
        self.until(|events| events.len() >= count).await
    }

    /// Waits until `count` events with the state `state` have arrived.
    async fn has_states(&self, state: &str, count: usize) -> Result<()> {
        let is_it = |(_, event): &&(String, Value)| event["statusUpdate"]["status"]["state"] == state;
        self.until(|events| events.iter().filter(is_it).count() >= count).await
    }

    /// Waits until the last received event has the state `state`.
    pub(crate) async fn has_state(&self, state: &str) -> Result<()> {
        self.until(|events| events.last().is_some_and(|(_, event)| event["statusUpdate"]["status"]["state"] == state))
            .await
    }

    async fn until(&self, is_so: impl Fn(&[(String, Value)]) -> bool) -> Result<()> {
        let begin = Instant::now();
        while !is_so(&self.events()) {
            anyhow::ensure!(begin.elapsed() < TAKEN_OVER, "{:?}", self.events());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

/// Answers the requests of one connection, and records their events.
async fn take(stream: TcpStream, seen: Arc<ReceivedEvents>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut id = String::new();
        let mut length = 0;
        let mut line = String::new();
        while stream.read_line(&mut line).await? > 2 {
            let (name, value) = line.split_once(':').unwrap_or_default();
            match name.to_ascii_lowercase().as_str() {
                "annex-event-id" => value.trim().clone_into(&mut id),
                "content-length" => length = value.trim().parse()?,
                _ => {}
            }
            line.clear();
        }
        anyhow::ensure!(!line.is_empty(), "the connection has ended");
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let is_down = seen.is_down.load(Ordering::SeqCst);
        if !is_down {
            let event = serde_json::from_slice(&body)?;
            seen.events.lock().unwrap_or_else(PoisonError::into_inner).push((id, event));
        }
        let status = if is_down { "503 Service Unavailable" } else { "200 OK" };
        stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await?;
    }
}

/// Starts a server that may send notifications to this machine. Its agent has a rule for the text `ticks`.
pub(crate) fn start(replicas: &Replicas) -> Result<Server> {
    replicas.start(&format!("{}\n[push]\nallow = [\"127.0.0.1\"]\nhttps_only = false", ticks(80, 50)))
}

pub(crate) async fn register(replicas: &Replicas, server: &Server, task: &str, receiver: &Receiver) -> Result<()> {
    let config = json!({"taskId": task, "id": "c", "url": receiver.url});
    let made = replicas.call(server, "CreateTaskPushNotificationConfig", config).await?;
    anyhow::ensure!(made["result"]["id"] == "c", "{made}");
    Ok(())
}

/// True if no event of a task is missing. One number may be skipped, because the agent's last event in the conversation
/// also has a number.
pub(crate) fn is_without_gap(numbers: &[u64]) -> bool {
    let steps: Vec<u64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.iter().all(|step| [1, 2].contains(step)) && steps.iter().sum::<u64>() <= numbers.len() as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_is_registered_in_another_process_is_sent_the_events_of_the_turn() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [start(&replicas)?, start(&replicas)?];
    let receiver = Receiver::start().await?;
    let task = replicas.begin(&one, "ticks").await?;
    register(&replicas, &other, &task, &receiver).await?;
    receiver.has_state("TASK_STATE_COMPLETED").await?;
    let numbers = receiver.numbers(&task)?;
    assert!(numbers.len() > 40 && is_without_gap(&numbers), "{numbers:?}");
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_is_deleted_in_another_process_is_sent_one_event_more_at_most() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [start(&replicas)?, start(&replicas)?];
    let receiver = Receiver::start().await?;
    let task = replicas.begin(&one, "ticks").await?;
    register(&replicas, &one, &task, &receiver).await?;
    receiver.has(5).await?;
    replicas.call(&other, "DeleteTaskPushNotificationConfig", json!({"taskId": task, "id": "c"})).await?;
    let sent = receiver.events().len();
    replicas.until(&other, &task, "TASK_STATE_COMPLETED", Duration::from_secs(30)).await?;
    let more = receiver.events().len() - sent;
    assert!(more <= 1, "{more} after it was deleted");
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_sends_on_where_a_killed_one_has_stopped() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [mut killed, other] = [start(&replicas)?, start(&replicas)?];
    let receiver = Receiver::start().await?;
    let task = replicas.begin(&killed, "ticks").await?;
    register(&replicas, &killed, &task, &receiver).await?;
    receiver.has(5).await?;
    // Some events are stored and cannot be sent.
    receiver.set_down(true);
    let sent = receiver.events().len();
    tokio::time::sleep(Duration::from_millis(500)).await;
    killed.process.kill()?;
    receiver.set_down(false);
    receiver.has_state("TASK_STATE_FAILED").await?;

    let mut numbers = receiver.numbers(&task)?;
    let stored = ids(&follow(&replicas, &other, (&task, Some(numbers[0] - 1)), usize::MAX).await?);
    assert!(stored.len() > sent + 5, "{stored:?}");
    // An event that was sent and not noted comes again, and none comes late.
    let twice = numbers.windows(2).filter(|pair| pair[0] == pair[1]).count();
    numbers.dedup();
    assert_eq!(numbers, stored);
    assert!(twice <= 1, "{twice} came again");
    drop((killed, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_cannot_be_read_keeps_no_notification_of_another_one_and_is_tried_later() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let mut killed = start(&replicas)?;
    let receiver = Receiver::start().await?;
    let mut tasks = Vec::new();
    for context in ["a", "b"] {
        let mut sent = said("ticks", "m");
        sent["message"]["contextId"] = json!(context);
        let task = replicas.begin_by(&killed, sent).await?;
        register(&replicas, &killed, &task, &receiver).await?;
        tasks.push(task);
    }
    receiver.has(5).await?;
    receiver.set_down(true);
    tokio::time::sleep(Duration::from_millis(500)).await;
    killed.process.kill()?;
    killed.process.wait()?;
    let mut database = PgConnection::connect(replicas.url()).await?;
    let broken = "UPDATE task SET json = '{' WHERE id = $1";
    sqlx::query(broken).bind(&tasks[0]).execute(&mut database).await?;
    receiver.set_down(false);
    let other = start(&replicas)?;
    receiver.has_state("TASK_STATE_FAILED").await?;
    let (_, last) = receiver.events().pop().context("an event")?;
    assert_eq!(last["statusUpdate"]["taskId"], tasks[1], "{last}");
    // It is nobody's, and found again when its time has come.
    let left = "SELECT count(*) FROM push_cursor
        WHERE sender IS NULL AND retry_at BETWEEN clock_timestamp() + INTERVAL '30 s' AND clock_timestamp() + INTERVAL '70 s'";
    let begin = Instant::now();
    while replicas.number(left).await? != 1 {
        anyhow::ensure!(begin.elapsed() < TAKEN_OVER, "the cursor is lost");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    database.close().await?;
    drop((killed, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_a_killed_process_had_to_send_is_sent_on_at_once() -> Result<()> {
    const TASKS: usize = 60;
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [mut killed, other] = [start(&replicas)?, start(&replicas)?];
    let receiver = Receiver::start().await?;
    for number in 0..TASKS {
        let mut sent = said("long", "m");
        sent["message"]["contextId"] = json!(format!("c-{number}"));
        let task = replicas.begin_by(&killed, sent).await?;
        register(&replicas, &killed, &task, &receiver).await?;
    }
    killed.process.kill()?;
    receiver.has_states("TASK_STATE_FAILED", 1).await?;
    let first = Instant::now();
    receiver.has_states("TASK_STATE_FAILED", TASKS).await?;
    // Sixteen a second would take three seconds and more.
    assert!(first.elapsed() < Duration::from_secs(2), "{:?}", first.elapsed());
    drop((killed, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_hears_at_once_of_a_task_that_is_cancelled_while_it_waits() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [start(&replicas)?, start(&replicas)?];
    let receiver = Receiver::start().await?;
    let waits = replicas.call(&one, "SendMessage", said("ask", "m")).await?;
    let task = waits["result"]["task"]["id"].as_str().context("a task")?;
    register(&replicas, &one, task, &receiver).await?;
    // Longer than it takes to look at everything once, at the start.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let canceled = replicas.call(&other, "CancelTask", json!({"id": task})).await?;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    let begin = Instant::now();
    receiver.has_state("TASK_STATE_CANCELED").await?;
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

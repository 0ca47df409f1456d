//! Push notifications of several `annex serve` on one PostgreSQL database.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::replicas::Replicas;
use crate::support::Server;
use crate::wake::{follow, ids, ticks};

/// A lease, the time to the next look of another process, and some for a machine that is busy.
const TAKEN_OVER: Duration = Duration::from_secs(6 + 10);

/// Takes notifications, unless it is told to refuse them.
struct Receiver {
    url: String,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    is_down: AtomicBool,
    /// The field that numbers an event, and the event.
    events: Mutex<Vec<(String, Value)>>,
}

impl Receiver {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/events", listener.local_addr()?);
        let seen = Arc::new(Seen::default());
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

    /// The numbers of the events of a task in the order in which they came.
    fn numbers(&self, task: &str) -> Result<Vec<u64>> {
        let number = |(id, _): &(String, Value)| -> Result<u64> {
            let number = id.strip_prefix(task).and_then(|number| number.strip_prefix('/'));
            Ok(number.with_context(|| format!("{id} of another task"))?.parse()?)
        };
        self.events().iter().map(number).collect()
    }

    /// Waits until so many events have come.
    async fn has(&self, count: usize) -> Result<()> {
        self.until(|events| events.len() >= count).await
    }

    /// Waits for an event with this state.
    async fn has_state(&self, state: &str) -> Result<()> {
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

/// The requests of one connection.
async fn take(stream: TcpStream, seen: Arc<Seen>) -> Result<()> {
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

/// A server that may send to this machine, whose agent does a little again and again.
fn start(replicas: &Replicas) -> Result<Server> {
    replicas.start(&format!("{}\n[push]\nallow = [\"127.0.0.1\"]\nhttps_only = false", ticks(80, 50)))
}

async fn register(replicas: &Replicas, server: &Server, task: &str, receiver: &Receiver) -> Result<()> {
    let config = json!({"taskId": task, "id": "c", "url": receiver.url});
    let made = replicas.call(server, "CreateTaskPushNotificationConfig", config).await?;
    anyhow::ensure!(made["result"]["id"] == "c", "{made}");
    Ok(())
}

fn is_without_gap(numbers: &[u64]) -> bool {
    numbers.windows(2).all(|pair| pair[1] == pair[0] + 1)
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

//! Memory use: over many requests, and for waiting subscribers.

use anyhow::Context;
use futures::stream::{self, StreamExt, TryStreamExt};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::echo::WAIT;
use crate::kind::Kind;
use crate::load::CONNECTIONS;
use crate::process::ServerProcess;
use crate::request::{Request, call, post};
use crate::{http1, load};

type Part = fn() -> anyhow::Result<()>;

/// The measurements, each with its title.
pub(crate) const PARTS: [(&str, Part); 3] = [
    ("resident memory of the component server, state of 1 KiB, a new context each", soak),
    ("idle subscribers of one task, each on an HTTP/1.1 connection of its own", || subscribe(1)),
    ("idle subscribers of a task each, each on an HTTP/1.1 connection of its own", || subscribe(SUBSCRIBERS)),
];

/// The number of requests between two measurements.
const SOAK: usize = 50_000;
const SUBSCRIBERS: usize = 10_000;
/// The number of connections that are opened at the same time.
const AT_ONCE: usize = 64;
/// The number of requests after which pools and caches have their final size.
const WARM_UP: usize = 5_000;

fn soak() -> anyhow::Result<()> {
    let server = ServerProcess::start(Kind::Component)?;
    let request = Request::injecting(1 << 10);
    for step in 0..=6 {
        println!("  {:>7} requests {:>8.1} MiB", step * SOAK, mib(server.resident_bytes()?));
        load::round(&server, &request, CONNECTIONS, SOAK)?;
    }
    Ok(())
}

/// Measures the memory of subscribers. They share `tasks` tasks, which wait for their client.
fn subscribe(tasks: usize) -> anyhow::Result<()> {
    allow_files(SUBSCRIBERS as u64 + 1_000)?;
    let server = ServerProcess::start(Kind::Memory)?;
    load::round(&server, &Request::json_rpc(), CONNECTIONS, WARM_UP)?;
    open_all(&server, tasks)
}

#[tokio::main(flavor = "current_thread")]
async fn open_all(server: &ServerProcess, tasks: usize) -> anyhow::Result<()> {
    let address = server.address();
    let ids: Vec<String> = stream::iter(0..tasks).map(|_| wait(address)).buffered(AT_ONCE).try_collect().await?;
    let before = server.resident_bytes()?;
    let named = ids.iter().cycle().take(SUBSCRIBERS);
    let streams: Vec<TcpStream> =
        stream::iter(named).map(|id| open(address, id)).buffered(AT_ONCE).try_collect().await?;
    let after = server.resident_bytes()?;
    let each = after.saturating_sub(before) / streams.len() as u64;
    println!("  {} subscribers: {:.1} MiB before, {:.1} MiB after", streams.len(), mib(before), mib(after));
    println!("  {each} bytes per subscriber");
    Ok(())
}

/// Creates a task that waits for its client. Returns the id of the task.
async fn wait(address: &str) -> anyhow::Result<String> {
    let params = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"{WAIT}"}}]}}}}"#);
    let request = post("/a2a/jsonrpc", "", &call("SendMessage", &params));
    let mut stream = http1::connect(address).await?;
    let mut buffer = Vec::new();
    let answer = std::str::from_utf8(http1::ask(&mut stream, &request, false, &mut buffer).await?)?;
    anyhow::ensure!(answer.contains("TASK_STATE_INPUT_REQUIRED"), "{answer}");
    let id = answer.split(r#""task":{"id":""#).nth(1).and_then(|rest| rest.split('"').next());
    Ok(id.context("a task's id")?.to_owned())
}

/// Subscribes to a task, and reads the first event. Returns the open stream.
async fn open(address: &str, task: &str) -> anyhow::Result<TcpStream> {
    let request = post("/a2a/jsonrpc", "", &call("SubscribeToTask", &format!(r#"{{"id":"{task}"}}"#)));
    let mut stream = http1::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = Vec::new();
    while !buffer.ends_with(b"\n\n\r\n") {
        anyhow::ensure!(stream.read_buf(&mut buffer).await? > 0, "the server hung up");
    }
    let text = String::from_utf8_lossy(&buffer);
    anyhow::ensure!(text.contains("data: ") && text.contains(task), "{text}");
    Ok(stream)
}

/// Raises the limit on open files for this process and its servers.
pub(crate) fn allow_files(files: u64) -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < files) {
        limit.current = Some(files);
        setrlimit(Resource::Nofile, limit).context("the hard limit of open files is too low; see ulimit -Hn")?;
    }
    Ok(())
}

pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

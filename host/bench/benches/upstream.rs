//! The cost of Annex in front of an agent. Measures the latency and the CPU time per request with state injection
//! active, and the delay of a stream's first event.
//!
//!     cargo bench -p annex-bench --bench upstream
//!
//! The upstream agent is as fast as possible, because its answer is fixed. It runs in a process of its own, so that the
//! CPU time is Annex's alone.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use annex_server::{App, Config, Locations, Server};
use annex_test_support::{STATE_INJECTION, STATE_KEY};
use anyhow::Context;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[path = "server/http1.rs"]
mod http1;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of requests in a round that are sent one after the other.
const IN_A_ROW: usize = 2_000;
const AT_ONCE: usize = 8_000;
const CONNECTIONS: usize = 32;
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    annex_runtime::compile_if_asked();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--serve", "agent"] => serve_agent(),
        ["--serve", "front", agent] => serve_front(agent),
        // Cargo also runs benches as tests; there is nothing to test here.
        arguments if arguments.contains(&"--test") || !annex_bench::is_wanted("upstream") => Ok(()),
        _ => measure(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn measure() -> anyhow::Result<()> {
    let agent = Process::start(&["agent"])?;
    let front = Process::start(&["front", &agent.address])?;
    println!("{:<24}{:>12}{:>12}{:>12}{:>14}", "", "p50 µs", "p99 µs", "requests/s", "CPU µs/request");
    for round in 1..=ROUNDS {
        println!("round {round}");
        for (title, is_streamed) in [("plain", false), ("stream", true)] {
            row(&format!("  {title}, direct"), &agent, &request("/rpc", is_streamed), is_streamed).await?;
            row(&format!("  {title}, through Annex"), &front, &request("/a2a/jsonrpc", is_streamed), is_streamed)
                .await?;
        }
        for (title, process, path) in [("direct", &agent, "/rpc"), ("through Annex", &front, "/a2a/jsonrpc")] {
            let delay = first_event(&process.address, &request(path, true)).await?;
            println!("  first event, {title:<14}{:>9.0}", micros(delay));
        }
    }
    Ok(())
}

/// Measures one kind of request, and prints a line of the table.
async fn row(title: &str, process: &Process, request: &str, is_streamed: bool) -> anyhow::Result<()> {
    let mut stream = http1::connect(&process.address).await?;
    let mut buffer = Vec::new();
    let mut times = Vec::with_capacity(IN_A_ROW);
    for _ in 0..IN_A_ROW {
        let started = Instant::now();
        http1::ensure_completed(http1::ask(&mut stream, request, is_streamed, &mut buffer).await?)?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let percentile = |hundredths: usize| times.get(IN_A_ROW * hundredths / 100).copied().unwrap_or_default();
    let cpu = process.cpu()?;
    let started = Instant::now();
    let count = AT_ONCE / CONNECTIONS;
    let workers = (0..CONNECTIONS).map(|_| http1::work(&process.address, request, is_streamed, count));
    futures::future::try_join_all(workers).await?;
    let wall = started.elapsed();
    let cpu = process.cpu()?.saturating_sub(cpu);
    let p50 = micros(percentile(50));
    let p99 = micros(percentile(99));
    let rate = AT_ONCE as f64 / wall.as_secs_f64();
    println!("{title:<24}{p50:>12.0}{p99:>12.0}{rate:>12.0}{:>14.1}", micros(cpu) / AT_ONCE as f64);
    Ok(())
}

/// The median time until the first event of a stream.
async fn first_event(address: &str, request: &str) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..IN_A_ROW / 10 {
        let mut stream = http1::connect(address).await?;
        let started = Instant::now();
        let mut buffer = Vec::new();
        stream.write_all(request.as_bytes()).await?;
        while !buffer.windows(6).any(|window| window == b"data: ") {
            anyhow::ensure!(stream.read_buf(&mut buffer).await? > 0, "the server hung up");
        }
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied().context("no events")
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The text of a whole HTTP/1.1 request that sends a message with a small state.
fn request(path: &str, is_streamed: bool) -> String {
    let state = r#"{"user_info":{"name":"Ada","role":"Engineer","email":"ada@example.com"}}"#;
    let metadata = format!(r#"{{"{STATE_KEY}":{state}}}"#);
    let message =
        format!(r#"{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"Who am I?"}}],"metadata":{metadata}}}"#);
    let method = if is_streamed { "SendStreamingMessage" } else { "SendMessage" };
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"message":{message}}}}}"#);
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\na2a-version: 1.0\r\n\
         a2a-extensions: {STATE_INJECTION}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len(),
    )
}

/// Another process of this program, which runs one of the servers. Dropping this value stops the process.
struct Process {
    process: Child,
    address: String,
}

impl Process {
    fn start(what: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        let mut process = command.arg("--serve").args(what).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut address = String::new();
        BufReader::new(process.stdout.take().context("the server's output")?).read_line(&mut address)?;
        anyhow::ensure!(!address.is_empty(), "a server did not become ready");
        Ok(Self { process, address: address.trim().to_owned() })
    }

    /// The CPU time of the process so far, of all its threads.
    fn cpu(&self) -> anyhow::Result<Duration> {
        let mut total = Duration::ZERO;
        for task in fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let statistics = fs::read_to_string(task?.path().join("schedstat"))?;
            let nanoseconds = statistics.split(' ').next().context("schedstat")?;
            total += Duration::from_nanos(nanoseconds.parse()?);
        }
        Ok(total)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Waits until the parent process closes standard input.
async fn until_stdin_closes() {
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await;
}

#[tokio::main]
async fn serve_agent() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let card = format!(
        r#"{{"name":"Fast","description":"","version":"1","capabilities":{{"streaming":true}},"defaultInputModes":[],
            "defaultOutputModes":[],"skills":[],"supportedInterfaces":[{{"url":"http://{address}/rpc",
            "protocolBinding":"JSONRPC","protocolVersion":"1.0"}}]}}"#
    );
    let served = get(move || async { ([(CONTENT_TYPE, "application/json")], card) });
    let router = Router::new().route("/.well-known/agent-card.json", served).route("/rpc", post(answer));
    println!("{address}");
    tokio::select! {
        ended = axum::serve(listener, router) => Ok(ended?),
        () = until_stdin_closes() => Ok(()),
    }
}

/// Answers every message with the same task. For Annex the context and the task are new each time, because each message
/// begins a conversation.
async fn answer(body: String) -> impl IntoResponse {
    let artifact = r#""artifact":{"artifactId":"a","parts":[{"text":"You are Ada."}]}"#;
    let envelope = |result: String| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
    let status = |state: &str| format!(r#""contextId":"c","status":{{"state":"TASK_STATE_{state}"}}"#);
    if !body.contains("SendStreamingMessage") {
        let artifacts = r#""artifacts":[{"artifactId":"a","parts":[{"text":"You are Ada."}]}]"#;
        let task = envelope(format!(r#"{{"task":{{"id":"t",{},{artifacts}}}}}"#, status("COMPLETED")));
        return ([(CONTENT_TYPE, "application/json")], task.into_response());
    }
    let events = [
        format!(r#"{{"task":{{"id":"t",{}}}}}"#, status("SUBMITTED")),
        format!(r#"{{"artifactUpdate":{{"taskId":"t","contextId":"c",{artifact},"lastChunk":true}}}}"#),
        format!(r#"{{"statusUpdate":{{"taskId":"t",{}}}}}"#, status("COMPLETED")),
    ];
    let events = events.map(|event| Ok::<_, std::io::Error>(format!("data: {}\n\n", envelope(event))));
    let body = axum::body::Body::from_stream(futures::stream::iter(events));
    ([(CONTENT_TYPE, "text/event-stream")], body.into_response())
}

#[tokio::main]
async fn serve_front(agent: &str) -> anyhow::Result<()> {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[agent]\nkind = \"upstream\"\nname = \"front\"\ncard = \"http://{agent}\"\n\
         [agent.state]\nsend = \"text-part\"\ntemplate = \"About the user: {{user_info}}\"\n\
         [[extension]]\ncomponent = \"state-injection\"\nrequired = true\n\
         [extension.grants]\nsession-state = {{ read = true }}\n"
    );
    let config = Config::parse(Path::new("bench.toml"), &config)?;
    let built = Path::new(annex_components::STATE_INJECTION);
    let components = built.parent().unwrap_or(built).to_owned();
    let locations = Locations { config: PathBuf::new(), cache: Some(components.join("compile-cache")), components };
    let server = Server::bind(config).await?;
    let address = server.address();
    let load = async |config: &Config, url: &str| App::load(config, &locations, url).await;
    server.run(load, |_| println!("{address}"), until_stdin_closes()).await?;
    Ok(())
}

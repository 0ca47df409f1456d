//! Load over keep-alive connections, by a client that does as little as possible.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::ServerProcess;

/// All from one thread, so that the client leaves the server a core.
const CONNECTIONS: usize = 32;

/// What one round measured.
pub(crate) struct Round {
    requests: usize,
    wall: Duration,
    cpu: Duration,
}

impl Round {
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.wall.as_secs_f64()
    }

    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests as f64
    }
}

/// A SendMessage that injects about `bytes` of state.
pub(crate) fn injecting(bytes: usize) -> String {
    let padding = "x".repeat(bytes.saturating_sub(100));
    let state = format!(
        r#"{{"user_info":{{"name":"Ada Lovelace","role":"Engineer","email":"ada@example.com"}},"notes":"{padding}"}}"#
    );
    message(&format!(r#","metadata":{{"{}":{state}}}"#, annex_test_support::STATE_KEY))
}

/// A SendMessage without metadata.
pub(crate) fn plain() -> String {
    message("")
}

fn message(rest: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{{"messageId":"b0a1","role":"ROLE_USER","parts":[{{"text":"Who am I and what is my email?"}}]{rest}}},"configuration":{{}}}}}}"#
    )
}

/// Sends `requests` over several connections and reads the server's CPU time before and after.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn round(server: &ServerProcess, body: &str, requests: usize) -> anyhow::Result<Round> {
    let request = format!(
        "POST /a2a/jsonrpc HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\na2a-version: 1.0\r\n\
         {}content-length: {}\r\n\r\n{body}",
        server.extension_header(),
        body.len(),
    );
    let (cpu, started) = (server.cpu()?, Instant::now());
    let workers = (0..CONNECTIONS).map(|_| work(server.address(), &request, requests / CONNECTIONS));
    futures::future::try_join_all(workers).await?;
    Ok(Round { requests, wall: started.elapsed(), cpu: server.cpu()?.saturating_sub(cpu) })
}

async fn work(address: &str, request: &str, count: usize) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(64 << 10);
    for _ in 0..count {
        stream.write_all(request.as_bytes()).await?;
        buffer.clear();
        let end = loop {
            anyhow::ensure!(stream.read_buf(&mut buffer).await? > 0, "the server hung up");
            if let Some(end) = answer_end(&buffer)? {
                break end;
            }
        };
        // An error would be cheap to serve and would look like speed.
        let answer = buffer.get(..end).context("more than the answer came")?;
        let completed = answer.windows(20).any(|window| window == b"TASK_STATE_COMPLETED");
        anyhow::ensure!(completed, "{}", String::from_utf8_lossy(answer));
    }
    Ok(())
}

/// Where the answer ends, once all of it is there.
fn answer_end(buffer: &[u8]) -> anyhow::Result<Option<usize>> {
    let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(buffer.get(..head).unwrap_or_default())?;
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).context("a length")?;
    let end = head + 4 + length.parse::<usize>()?;
    Ok((buffer.len() >= end).then_some(end))
}

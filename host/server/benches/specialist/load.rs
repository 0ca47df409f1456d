//! Load over keep-alive connections, by a client that does as little as possible.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::server::ServerProcess;

const CONNECTIONS: usize = 8;

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
pub(crate) fn round(server: &ServerProcess, body: &str, requests: usize) -> anyhow::Result<Round> {
    let request = format!(
        "POST /a2a/jsonrpc HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\na2a-version: 1.0\r\n\
         {}content-length: {}\r\n\r\n{body}",
        server.extension_header(),
        body.len(),
    );
    let (cpu, started) = (server.cpu()?, Instant::now());
    thread::scope(|scope| {
        let workers =
            [(); CONNECTIONS].map(|()| scope.spawn(|| work(server.address(), &request, requests / CONNECTIONS)));
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
    })?;
    Ok(Round { requests, wall: started.elapsed(), cpu: server.cpu()?.saturating_sub(cpu) })
}

fn work(address: &str, request: &str, count: usize) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(64 << 10, stream.try_clone()?);
    let (mut line, mut body) = (String::new(), Vec::new());
    for _ in 0..count {
        stream.write_all(request.as_bytes())?;
        let mut length = 0;
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        body.resize(length, 0);
        reader.read_exact(&mut body)?;
        // An error would be cheap to serve and would look like speed.
        let answer = std::str::from_utf8(&body).context("an answer that is no text")?;
        anyhow::ensure!(answer.contains("TASK_STATE_COMPLETED"), "{answer}");
    }
    Ok(())
}

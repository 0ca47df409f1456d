//! Load over keep-alive connections, from a minimal client.

use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::process::ServerProcess;
use crate::request::{Binding, Request};
use crate::{grpc, http1};

/// The number of connections in most comparisons. One thread of the client uses all connections, so that a core is left
/// for the server.
pub(crate) const CONNECTIONS: usize = 32;

/// The measurements of one round.
pub(crate) struct Round {
    requests: usize,
    wall: Duration,
    cpu: Duration,
}

impl Round {
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.wall.as_secs_f64()
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests
    }

    /// The same round with another CPU time of the server.
    pub(crate) fn with_cpu(self, cpu: Duration) -> Self {
        Self { cpu, ..self }
    }

    /// The CPU time of the server per request, in microseconds.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests as f64
    }
}

/// Sends `requests` requests over several connections. Each connection has one request at a time. Measures the server's
/// CPU time.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn round(
    server: &ServerProcess,
    request: &Request,
    connections: usize,
    requests: usize,
) -> anyhow::Result<Round> {
    let address = server.address();
    let count = requests / connections;
    let requests = count * connections;
    if request.binding == Binding::Grpc {
        let watch = Watch::start(server)?;
        let workers = (0..connections).map(|_| grpc::work(address, request, count));
        futures::future::try_join_all(workers).await?;
        return watch.round(requests);
    }
    let text = request.http1();
    let opened = (0..connections).map(|_| Client::connect(address, request, &text));
    let mut clients = futures::future::try_join_all(opened).await?;
    let watch = Watch::start(server)?;
    futures::future::try_join_all(clients.iter_mut().map(|client| client.work(count))).await?;
    watch.round(requests)
}

/// The server's CPU time and the wall-clock time at the beginning of a round.
struct Watch<'a> {
    server: &'a ServerProcess,
    cpu: Duration,
    started: Instant,
}

impl<'a> Watch<'a> {
    fn start(server: &'a ServerProcess) -> anyhow::Result<Self> {
        Ok(Self { server, cpu: server.cpu()?, started: Instant::now() })
    }

    fn round(self, requests: usize) -> anyhow::Result<Round> {
        let wall = self.started.elapsed();
        Ok(Round { requests, wall, cpu: self.server.cpu()?.saturating_sub(self.cpu) })
    }
}

/// An open connection to the server.
struct Client<'a> {
    stream: TcpStream,
    request: &'a Request,
    text: &'a str,
    buffer: Vec<u8>,
}

impl<'a> Client<'a> {
    /// Opens a connection and sends one request, so that the cost of opening is not part of the round.
    async fn connect(address: &str, request: &'a Request, text: &'a str) -> anyhow::Result<Self> {
        let stream = http1::connect(address).await?;
        let mut client = Self { stream, request, text, buffer: Vec::new() };
        client.work(1).await?;
        Ok(client)
    }

    async fn work(&mut self, count: usize) -> anyhow::Result<()> {
        for _ in 0..count {
            let answer = http1::ask(&mut self.stream, self.text, self.request.is_streamed, &mut self.buffer).await?;
            self.request.check(answer)?;
        }
        Ok(())
    }
}

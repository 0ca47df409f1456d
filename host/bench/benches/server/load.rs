//! Load over keep-alive connections, by a client that does as little as possible.

use std::time::{Duration, Instant};

use crate::process::ServerProcess;
use crate::request::{Binding, Request};
use crate::{grpc, http1};

/// All from one thread, so that the client leaves the server a core.
const CONNECTIONS: usize = 32;

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

    /// CPU time of the server alone.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests as f64
    }
}

/// Sends `requests` over several connections, one at a time on each, and reads the server's CPU time before and after.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn round(server: &ServerProcess, request: &Request, requests: usize) -> anyhow::Result<Round> {
    let address = server.address();
    let count = requests / CONNECTIONS;
    let cpu = server.cpu()?;
    let started = Instant::now();
    match request.binding {
        Binding::Grpc => {
            let workers = (0..CONNECTIONS).map(|_| grpc::work(address, request, count));
            futures::future::try_join_all(workers).await?;
        }
        Binding::JsonRpc | Binding::HttpJson => {
            let text = request.http1();
            let workers = (0..CONNECTIONS).map(|_| http1::work(address, &text, request.is_streamed, count));
            futures::future::try_join_all(workers).await?;
        }
    }
    let requests = count * CONNECTIONS;
    Ok(Round { requests, wall: started.elapsed(), cpu: server.cpu()?.saturating_sub(cpu) })
}

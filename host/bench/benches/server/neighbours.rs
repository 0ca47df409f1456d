//! A quiet extension, and a noisy one that uses all its CPU time again and again.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::http1;
use crate::kind::Kind;
use crate::process::ServerProcess;
use crate::request::Request;

pub(crate) const PART: (&str, fn() -> anyhow::Result<()>) =
    ("a quiet neighbour of an extension that loops at its limit, state of 1 KiB injected", measure);

const ROUNDS: usize = 7;
const REQUESTS: usize = 2_000;
/// The duration of each call of the noisy extension on an idle machine. There is no pause between calls. Under load a
/// call takes longer. The limit on a call is 50 ms.
const CALL: Duration = Duration::from_millis(25);

fn measure() -> anyhow::Result<()> {
    let server = ServerProcess::start(Kind::Neighbours)?;
    measure_at(server.address())
}

#[tokio::main(flavor = "current_thread")]
async fn measure_at(address: &str) -> anyhow::Result<()> {
    let noise = looping(address).await?;
    let quiet = Request::injecting(1 << 10).http1();
    latencies(address, &quiet, REQUESTS).await?;
    let mut alone = Vec::new();
    let mut beside = Vec::new();
    for _ in 0..ROUNDS {
        alone.extend(latencies(address, &quiet, REQUESTS).await?);
        let stop = CancellationToken::new();
        let noisy = async {
            let mut calls = 0;
            while !stop.is_cancelled() {
                http1::work(address, &noise, false, 1).await?;
                calls += 1;
            }
            anyhow::Ok(calls)
        };
        let quiet = async {
            let latencies = latencies(address, &quiet, REQUESTS).await;
            stop.cancel();
            latencies
        };
        let (measured, calls) = futures::future::try_join(quiet, noisy).await?;
        anyhow::ensure!(calls > 1, "the neighbour was not noisy");
        beside.extend(measured);
    }
    let alone = Percentiles::of(alone);
    let beside = Percentiles::of(beside);
    alone.print("alone");
    beside.print("beside a loop");
    println!("  ratio of the 99th: {:.2}", beside.p99 / alone.p99);
    Ok(())
}

/// A request whose hook loops for almost [`CALL`]. The number of iterations is found by trial.
async fn looping(address: &str) -> anyhow::Result<String> {
    let mut rounds = 1_000_000_u64;
    loop {
        let request = Request::looping(rounds).http1();
        let started = Instant::now();
        http1::work(address, &request, false, 1).await?;
        let taken = started.elapsed();
        if taken > CALL.mul_f64(0.8) {
            println!("  the neighbour's calls take {:.0} ms each", taken.as_secs_f64() * 1e3);
            return Ok(request);
        }
        // In steps, because the rest of a request's time does not grow with the loop.
        let factor = (CALL.as_secs_f64() * 0.9 / taken.as_secs_f64()).min(4.0);
        rounds = (rounds as f64 * factor) as u64;
    }
}

/// Sends `requests` requests, one at a time. Returns their latencies in seconds.
pub(crate) async fn latencies(address: &str, request: &str, requests: usize) -> anyhow::Result<Vec<f64>> {
    let mut stream = http1::connect(address).await?;
    let mut buffer = Vec::new();
    let mut latencies = Vec::with_capacity(requests);
    for _ in 0..requests {
        let started = Instant::now();
        let answer = http1::ask(&mut stream, request, false, &mut buffer).await?;
        latencies.push(started.elapsed().as_secs_f64());
        http1::ensure_completed(answer)?;
    }
    Ok(latencies)
}

/// Percentiles of latencies, in seconds.
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Percentiles {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| values.get(values.len() * percent / 100).copied().unwrap_or(f64::NAN);
        Self { p50: at(50), p99: at(99) }
    }

    pub(crate) fn print(&self, name: &str) {
        println!("  {name:14} {:>7.0} µs median {:>7.0} µs 99th percentile", self.p50 * 1e6, self.p99 * 1e6);
    }
}

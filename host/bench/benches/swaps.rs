//! 10,000 swaps of an extension under load. Measures the duration of a swap, and the memory afterwards.
//!
//! Fails if a request fails, or if memory grows after the warm-up.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use annex_test_support::{TEST_EXTENSION, TestConfig, TestServer};
use anyhow::{Context, ensure};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SWAPS: usize = 10_000;
const ROUNDS: usize = 10;
const CLIENTS: usize = 4;
/// If memory grows by less than this many MiB from the first round to the last, the growth counts as noise.
const NOISE_MIB: f64 = 16.0;

fn main() -> anyhow::Result<()> {
    annex_runtime::compile_if_asked();
    if annex_bench::is_wanted("swaps") { measure() } else { Ok(()) }
}

#[tokio::main]
async fn measure() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("annex.toml");
    write_config(&file, false)?;
    let server = Arc::new(TestServer::from_file(&file, None).await?);
    let stop = CancellationToken::new();
    let clients: Vec<_> = (0..CLIENTS).map(|_| tokio::spawn(client(Arc::clone(&server), stop.clone()))).collect();
    println!("{:>8} {:>12} {:>10}", "swaps", "ms per swap", "RSS MiB");
    let mut resident = Vec::with_capacity(ROUNDS);
    for round in 1..=ROUNDS {
        let started = Instant::now();
        for swap in 0..SWAPS / ROUNDS {
            write_config(&file, swap % 2 == 0)?;
            ensure!(server.installer().reload().await?.changed, "nothing was swapped");
        }
        let each = started.elapsed().as_secs_f64() * 1e3 / (SWAPS / ROUNDS) as f64;
        let mib = resident_mib()?;
        println!("{:>8} {each:>12.2} {mib:>10.1}", round * SWAPS / ROUNDS);
        resident.push(mib);
    }
    stop.cancel();
    let mut requests = 0;
    for client in clients {
        requests += client.await??;
    }
    let growth = resident.last().context("a round")? - resident.first().context("a round")?;
    println!("{requests} requests, none failed; {growth:+.1} MiB since the first round");
    ensure!(growth < NOISE_MIB, "memory is not flat");
    Ok(())
}

/// Writes the config of the server. With another value of `payload` the extension has other settings, and so becomes a
/// new version.
fn write_config(file: &Path, payload: bool) -> anyhow::Result<()> {
    let component = annex_test_support::component("test-extension");
    let config = TestConfig::template("i").extension(component, &format!("parameters.payload = {payload}"));
    // Sessions and tasks are limited, so that memory can only grow by swaps.
    let config = config.set("sessions.max_sessions", 100).set("tasks.max_tasks", 100).set("runtime.watch", false);
    Ok(fs::write(file, config.toml())?)
}

/// Sends messages until `stop` fires. Returns the number of messages.
async fn client(server: Arc<TestServer>, stop: CancellationToken) -> anyhow::Result<usize> {
    let mut requests = 0;
    while !stop.is_cancelled() {
        let reply = server.say("hi").extensions(TEST_EXTENSION).send().await?;
        ensure!(reply.extensions.as_deref() == Some(TEST_EXTENSION), "{}", reply.text);
        requests += 1;
    }
    Ok(requests)
}

fn resident_mib() -> anyhow::Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1024.0)
}

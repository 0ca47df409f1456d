//! The specialist with state injection as a component and with the same logic compiled in, in one run.
//!
//!     cargo bench -p annex-server
//!     cargo bench -p annex-server -- "1 KiB"    (only the comparisons whose title holds this)
//!
//! Each server is a process of its own; rounds of load go to them in turn, so that a machine that slows down slows all
//! of them down. What counts are the ratios and the CPU time per request, both from the same rounds.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

mod load;
mod native;
mod server;

use std::process::ExitCode;

use server::{Kind, ServerProcess};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rounds per server and comparison.
const ROUNDS: usize = 7;
/// Requests per round.
const REQUESTS: usize = 20_000;
/// Requests after which the memory of the component server is compared.
const SOAK: usize = 100_000;

fn main() -> ExitCode {
    let result = match server::asked_for() {
        Some(kind) => server::run(kind),
        // Cargo also runs benches as tests; there is nothing to test here.
        None if std::env::args().any(|argument| argument == "--test") => Ok(()),
        None => measure(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> anyhow::Result<()> {
    // Cargo adds options of its own, such as `--bench`.
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let comparisons = [
        ("state of 1 KiB injected", Kind::Native, Kind::Component, load::injecting(1 << 10)),
        ("state of 16 KiB injected", Kind::Native, Kind::Component, load::injecting(16 << 10)),
        ("nothing activated", Kind::Bare, Kind::Installed, load::plain()),
    ];
    for (title, baseline, other, request) in &comparisons {
        if filter.as_ref().is_none_or(|filter| title.contains(filter.as_str())) {
            compare(title, *baseline, *other, request)?;
        }
    }
    if filter.is_some() { Ok(()) } else { soak() }
}

/// Rounds to both servers in turn; prints the medians and the median of the ratios round by round.
fn compare(title: &str, baseline: Kind, other: Kind, body: &str) -> anyhow::Result<()> {
    let servers = [ServerProcess::start(baseline)?, ServerProcess::start(other)?];
    let mut rounds: [Vec<load::Round>; 2] = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for (server, rounds) in servers.iter().zip(&mut rounds) {
            let measured = load::round(server, body, REQUESTS)?;
            // The first round warms caches, pools and the branch predictor.
            if round > 0 {
                rounds.push(measured);
            }
        }
    }
    println!("\n{title}: {ROUNDS} rounds of {REQUESTS} requests, medians");
    for (kind, rounds) in [baseline, other].iter().zip(&rounds) {
        let rate = median(rounds.iter().map(load::Round::rate));
        let cpu = median(rounds.iter().map(load::Round::cpu_micros));
        println!("  {:10} {rate:>8.0} requests/s {cpu:>8.1} µs CPU/request", kind.name());
    }
    let [base, other] = &rounds;
    let pairs = || base.iter().zip(other);
    let rate = median(pairs().map(|(base, other)| other.rate() / base.rate()));
    let cpu = median(pairs().map(|(base, other)| other.cpu_micros() / base.cpu_micros()));
    println!("  ratio      {rate:>8.2} throughput  {cpu:>8.2} CPU");
    Ok(())
}

fn soak() -> anyhow::Result<()> {
    let server = ServerProcess::start(Kind::Component)?;
    let body = load::injecting(1 << 10);
    println!("\nresident memory of the component server, state of 1 KiB, a new context each");
    for step in 0..=6 {
        println!("  {:>7} requests {:>8.1} MiB", step * SOAK / 2, server.resident_mib()?);
        load::round(&server, &body, SOAK / 2)?;
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

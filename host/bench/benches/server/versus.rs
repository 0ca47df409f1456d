//! Annex, the official server in Rust and a bare axum, all in one run: what a request costs each of them.
//!
//! The ratio says how many times Annex's CPU time the official server takes for the same answer. It is the median of the
//! ratios round by round, so that what slows the machine down for a while slows both down.

use crate::answer::Expected;
use crate::burner::Burner;
use crate::comparison::median;
use crate::kind::Kind;
use crate::load::{self, Round};
use crate::memory::mib;
use crate::process::ServerProcess;
use crate::request::Request;

type Part = fn() -> anyhow::Result<()>;

pub(crate) const PARTS: [(&str, Part); 3] = [
    ("official SDK: CPU, allocations and memory, state of 100 bytes injected, and an echo", || compare(None)),
    ("official SDK: the same beside a neighbour that burns memory bandwidth", || compare(Some(Burner::start()?))),
    ("official SDK: resident memory after 300,000 requests", resident),
];

const CONNECTIONS: usize = 16;
const ROUNDS: usize = 11;
/// Requests of one round.
const REQUESTS: usize = 10_000;
/// Requests whose allocations are counted, after all rounds, so that counting disturbs none of them.
const COUNTED: usize = 1_600;
/// Requests until memory is looked at, in so many steps.
const LONG_RUN: usize = 300_000;
const STEPS: usize = 6;

struct Contender {
    title: &'static str,
    kind: Kind,
    request: Request,
    server: ServerProcess,
    rounds: Vec<Round>,
}

impl Contender {
    fn start(title: &'static str, kind: Kind, request: Request) -> anyhow::Result<Self> {
        Ok(Self { title, kind, request, server: ServerProcess::start(kind)?, rounds: Vec::new() })
    }

    fn round(&self, requests: usize) -> anyhow::Result<Round> {
        load::round(&self.server, &self.request, CONNECTIONS, requests)
    }

    fn cpu(&self) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(Round::cpu_micros)
    }

    fn allocations(&mut self) -> anyhow::Result<f64> {
        self.server.count_allocations()?;
        self.round(COUNTED)?;
        Ok(self.server.counted_allocations()? as f64 / COUNTED as f64)
    }
}

/// Those that get the state, and those that echo. The official server is in each group what the others are compared with.
fn groups() -> anyhow::Result<[Vec<Contender>; 2]> {
    let injected = |title, kind: Kind| Contender::start(title, kind, Request::injecting(100).expecting(kind.answer()));
    let echo = |title, kind| Contender::start(title, kind, Request::json_rpc().expecting(Expected::Echo));
    Ok([
        vec![
            injected("official SDK, compiled in", Kind::OfficialNative)?,
            injected("Annex, fresh instance", Kind::Component)?,
            injected("Annex, kept instance", Kind::Kept)?,
            injected("Annex, compiled in", Kind::Native)?,
            injected("Annex, no extension", Kind::Bare)?,
            injected("axum and serde_json", Kind::Floor)?,
        ],
        vec![echo("official SDK, echo", Kind::Official)?, echo("Annex, echo", Kind::Memory)?],
    ])
}

/// The neighbour, if there is one, is there until the end.
fn compare(_neighbour: Option<Burner>) -> anyhow::Result<()> {
    let mut groups = groups()?;
    for round in 0..=ROUNDS {
        for contender in groups.iter_mut().flatten() {
            let measured = contender.round(REQUESTS)?;
            // The first round warms caches, pools and the branch predictor.
            if round > 0 {
                contender.rounds.push(measured);
            }
        }
    }
    println!("  {ROUNDS} rounds of {REQUESTS} requests over {CONNECTIONS} connections, each answer checked");
    println!(
        "  {:28}{:>10}{:>10}{:>18}{:>13}{:>9}",
        "CPU µs per request", "least", "median", "official / this", "allocations", "RSS MiB"
    );
    for group in &mut groups {
        print_group(group)?;
    }
    Ok(())
}

fn print_group(group: &mut [Contender]) -> anyhow::Result<()> {
    let official: Vec<f64> = group.first().map(|first| first.cpu().collect()).unwrap_or_default();
    for contender in group {
        let least = contender.cpu().fold(f64::INFINITY, f64::min);
        let ratio = median(official.iter().zip(contender.cpu()).map(|(official, own)| official / own));
        let cpu = median(contender.cpu());
        let resident = mib(contender.server.resident_bytes()?);
        let allocations = contender.allocations()?;
        let title = contender.title;
        println!("  {title:28}{least:>10.1}{cpu:>10.1}{ratio:>18.2}{allocations:>13.1}{resident:>9.1}");
    }
    Ok(())
}

/// One server after the other, because each has the machine's memory for itself.
fn resident() -> anyhow::Result<()> {
    print!("  {:28}", "MiB after requests of");
    (0..=STEPS).for_each(|step| print!("{:>9}", step * LONG_RUN / STEPS));
    println!();
    for group in groups()? {
        for contender in group.into_iter().filter(|contender| contender.kind != Kind::Floor) {
            print!("  {:28}{:>9.1}", contender.title, mib(contender.server.resident_bytes()?));
            for _ in 0..STEPS {
                contender.round(LONG_RUN / STEPS)?;
                print!("{:>9.1}", mib(contender.server.resident_bytes()?));
            }
            println!();
        }
    }
    Ok(())
}

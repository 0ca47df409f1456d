//! Compares Annex, the official server in Rust and a bare axum in one run: the cost of a request on each server.
//!
//! The ratio is the official server's CPU time divided by Annex's, for the same answer. It is the median of the ratios
//! of all rounds, so that a temporary slowdown of the machine affects both servers alike.

use crate::answer::ExpectedAnswer;
use crate::burner::Burner;
use crate::comparison::{Cpu, in_turns};
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
/// The number of requests in a round.
const REQUESTS: usize = 10_000;
/// The number of requests whose allocations are counted. Counting begins after all rounds, so that it disturbs no
/// round.
const COUNTED: usize = 1_600;
/// The number of requests in the measurement of memory. They are sent in [`STEPS`] steps.
const LONG_RUN: usize = 300_000;
const STEPS: usize = 6;

struct Contender {
    title: &'static str,
    kind: Kind,
    request: Request,
    server: ServerProcess,
}

impl Contender {
    fn start(title: &'static str, kind: Kind, request: Request) -> anyhow::Result<Self> {
        Ok(Self { title, kind, request, server: ServerProcess::start(kind)? })
    }

    fn round(&self, requests: usize) -> anyhow::Result<Round> {
        load::round(&self.server, &self.request, CONNECTIONS, requests)
    }

    fn allocations(&mut self) -> anyhow::Result<f64> {
        self.server.count_allocations()?;
        self.round(COUNTED)?;
        Ok(self.server.counted_allocations()? as f64 / COUNTED as f64)
    }
}

/// Two groups of contenders: one injects state, the other echoes. The first contender of each group is the official
/// server, the baseline.
fn groups() -> anyhow::Result<[Vec<Contender>; 2]> {
    let injected = |title, kind: Kind| Contender::start(title, kind, Request::injecting(100).expecting(kind.answer()));
    let echo = |title, kind| Contender::start(title, kind, Request::json_rpc().expecting(ExpectedAnswer::Echo));
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

/// Compares the contenders. `_neighbour` is a process that may run until the end of the comparison.
fn compare(_neighbour: Option<Burner>) -> anyhow::Result<()> {
    let mut groups = groups()?;
    let contenders: Vec<&Contender> = groups.iter().flatten().collect();
    let measured = in_turns(&contenders, ROUNDS, |contender| contender.round(REQUESTS))?;
    println!("  {ROUNDS} rounds of {REQUESTS} requests over {CONNECTIONS} connections, each answer checked");
    println!(
        "  {:28}{:>10}{:>10}{:>18}{:>13}{:>9}",
        "CPU µs per request", "least", "median", "official / this", "allocations", "RSS MiB"
    );
    let mut measured = measured.as_slice();
    for group in &mut groups {
        let (own, rest) = measured.split_at(group.len());
        measured = rest;
        print_group(group, own)?;
    }
    Ok(())
}

fn print_group(group: &mut [Contender], measured: &[Vec<Round>]) -> anyhow::Result<()> {
    let Some(official) = measured.first() else { return Ok(()) };
    for (contender, rounds) in group.iter_mut().zip(measured) {
        let Cpu { least, median, .. } = Cpu::of(rounds, official);
        // The official server's time divided by this server's time.
        let Cpu { ratio, .. } = Cpu::of(official, rounds);
        let resident = mib(contender.server.resident_bytes()?);
        let allocations = contender.allocations()?;
        let title = contender.title;
        println!("  {title:28}{least:>10.1}{median:>10.1}{ratio:>18.2}{allocations:>13.1}{resident:>9.1}");
    }
    Ok(())
}

/// Measures memory on one server after the other, so that each has the whole machine.
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

//! Comparisons of servers, or of ways to reach one server, under the same load.

use crate::kind::Kind;
use crate::load::{self, CONNECTIONS, Round};
use crate::process::ServerProcess;
use crate::request::Request;

/// The number of rounds for each contender in a comparison.
const ROUNDS: usize = 7;
/// The number of requests in a round.
const REQUESTS: usize = 20_000;

/// Contenders that are compared. The first one is the baseline.
pub(crate) struct Comparison {
    pub(crate) title: &'static str,
    contenders: Vec<Contender>,
}

struct Contender {
    kind: Kind,
    request: Request,
}

/// The servers that echo. The official server stores only in memory, and has no gRPC.
const ECHOES: [Kind; 3] = [Kind::Memory, Kind::Sqlite, Kind::Official];

pub(crate) fn all() -> Vec<Comparison> {
    let extension = |kind: Kind, bytes| Contender { kind, request: Request::injecting(bytes).expecting(kind.answer()) };
    let echo = |title, kinds: &[Kind], request: fn() -> Request| Comparison {
        title,
        contenders: kinds.iter().map(|&kind| Contender { kind, request: request() }).collect(),
    };
    let without = [Kind::Bare, Kind::Installed];
    let own = [Kind::Memory, Kind::Sqlite];
    vec![
        Comparison {
            title: "state of 1 KiB injected",
            contenders: vec![extension(Kind::Native, 1 << 10), extension(Kind::Component, 1 << 10)],
        },
        Comparison {
            title: "state of 16 KiB injected",
            contenders: vec![extension(Kind::Native, 16 << 10), extension(Kind::Component, 16 << 10)],
        },
        echo("nothing activated", &without, Request::json_rpc),
        echo("SendMessage over JSON-RPC", &ECHOES, Request::json_rpc),
        echo("SendMessage over JSON-RPC, streamed", &ECHOES, || Request::json_rpc().streamed()),
        echo("SendMessage over HTTP+JSON", &ECHOES, Request::http_json),
        echo("SendMessage over HTTP+JSON, streamed", &ECHOES, || Request::http_json().streamed()),
        echo("SendMessage over gRPC", &own, Request::grpc),
        echo("SendMessage over gRPC, streamed", &own, || Request::grpc().streamed()),
    ]
}

impl Comparison {
    /// Runs a round on each contender in rotation. Prints the medians, and the median of the ratios per round.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let started = self.contenders.iter().map(|contender| ServerProcess::start(contender.kind));
        let servers = started.collect::<anyhow::Result<Vec<_>>>()?;
        let pairs: Vec<_> = servers.iter().zip(&self.contenders).collect();
        let measured = in_turns(&pairs, ROUNDS, |(server, contender)| {
            load::round(server, &contender.request, CONNECTIONS, REQUESTS)
        })?;
        println!("\n{}: {ROUNDS} rounds of {REQUESTS} requests, medians", self.title);
        let Some(base) = measured.first() else { return Ok(()) };
        for (contender, rounds) in self.contenders.iter().zip(&measured) {
            print_rounds(contender.kind.title(), base, rounds);
        }
        Ok(())
    }
}

/// Runs a round on each contender in rotation, so that a temporary slowdown of the machine affects all contenders
/// alike. The first round of each contender warms up caches, pools and the branch predictor. It does not count.
pub(crate) fn in_turns<T>(
    contenders: &[T],
    rounds: usize,
    mut measure: impl FnMut(&T) -> anyhow::Result<Round>,
) -> anyhow::Result<Vec<Vec<Round>>> {
    let mut measured: Vec<Vec<Round>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..=rounds {
        for (contender, rounds) in contenders.iter().zip(&mut measured) {
            let measured = measure(contender)?;
            if round > 0 {
                rounds.push(measured);
            }
        }
    }
    Ok(measured)
}

/// The CPU time per request in microseconds.
pub(crate) struct Cpu {
    pub(crate) least: f64,
    pub(crate) median: f64,
    /// The contender's CPU time divided by the baseline's in the same round: the median over all rounds.
    pub(crate) ratio: f64,
}

impl Cpu {
    pub(crate) fn of(rounds: &[Round], base: &[Round]) -> Self {
        let ratios = base.iter().zip(rounds).map(|(base, this)| this.cpu_micros() / base.cpu_micros());
        Self {
            least: rounds.iter().map(Round::cpu_micros).fold(f64::INFINITY, f64::min),
            median: median(rounds.iter().map(Round::cpu_micros)),
            ratio: median(ratios),
        }
    }
}

fn print_rounds(name: &str, base: &[Round], rounds: &[Round]) {
    let rate = median(rounds.iter().map(Round::rate));
    let Cpu { median: cpu, ratio: cpu_ratio, .. } = Cpu::of(rounds, base);
    let rate_ratio = median(base.iter().zip(rounds).map(|(base, other)| other.rate() / base.rate()));
    println!(
        "  {name:22} {rate:>7.0} requests/s {cpu:>7.1} µs CPU/request   ratio {rate_ratio:.2} throughput {cpu_ratio:.2} CPU"
    );
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

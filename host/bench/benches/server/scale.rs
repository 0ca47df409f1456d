//! The cost of a request as connections, tasks, extensions and cores become more. The cost should stay the same. Also
//! measures the latency on a busy server.

use std::path::{Path, PathBuf};

use crate::answer::ExpectedAnswer;
use crate::comparison::{Cpu, in_turns};
use crate::kind::Kind;
use crate::load::{self, CONNECTIONS, Round};
use crate::many::{self, uri};
use crate::memory::{allow_files, mib};
use crate::open_loop::{self, Arrivals};
use crate::process::{self, ServerProcess, Setup};
use crate::request::Request;

type Part = fn() -> anyhow::Result<()>;

pub(crate) const PARTS: [(&str, Part); 5] = [
    ("scale: connections", connections),
    ("scale: tasks kept in memory", tasks),
    ("scale: extensions, installed and active", extensions),
    ("scale: cores", cores),
    ("scale: 99th percentile at 70 % of the highest throughput", waiting),
];

const ROUNDS: usize = 7;
/// The number of requests in a round. Rounds with many connections have more, so that each connection sends some.
const REQUESTS: usize = 8_000;
const REQUESTS_PER_CONNECTION: usize = 8;
/// The core that a server with only one core uses.
const SERVER_CORE: usize = 0;

/// A row of a table: a server under one kind of load. The first row of a table is the baseline.
pub(crate) struct Row<'a> {
    pub(crate) title: String,
    pub(crate) server: &'a ServerProcess,
    pub(crate) request: Request,
    pub(crate) connections: usize,
}

impl Row<'_> {
    pub(crate) fn round(&self) -> anyhow::Result<Round> {
        let requests = REQUESTS.max(REQUESTS_PER_CONNECTION * self.connections);
        load::round(self.server, &self.request, self.connections, requests)
    }
}

/// Runs a round on each row in rotation. Returns each row's median CPU time per request, in microseconds.
fn table(rows: &[Row<'_>]) -> anyhow::Result<Vec<f64>> {
    table_of(rows, Row::round)
}

/// Like [`table`], with another measurement of a round.
pub(crate) fn table_of<'a>(
    rows: &[Row<'a>],
    measure: impl FnMut(&Row<'a>) -> anyhow::Result<Round>,
) -> anyhow::Result<Vec<f64>> {
    let measured = in_turns(rows, ROUNDS, measure)?;
    println!("  {:44}{:>10}{:>10}{:>18}", "CPU µs per request", "least", "median", "this / first row");
    let Some(first) = measured.first() else { return Ok(Vec::new()) };
    let mut medians = Vec::new();
    for (row, rounds) in rows.iter().zip(&measured) {
        let Cpu { least, median, ratio } = Cpu::of(rounds, first);
        println!("  {:44}{least:>10.1}{median:>10.1}{ratio:>18.2}", row.title);
        medians.push(median);
    }
    Ok(medians)
}

fn connections() -> anyhow::Result<()> {
    const COUNTS: [usize; 4] = [16, 1, 256, 4_096];
    allow_files(10_000)?;
    for (title, kind) in [("state injected", Kind::Component), ("no extension", Kind::Bare)] {
        let server = ServerProcess::start(kind)?;
        let row = |connections| Row {
            title: format!("{title}, {connections} connections"),
            server: &server,
            request: Request::injecting(100).expecting(kind.answer()),
            connections,
        };
        table(&COUNTS.map(row))?;
    }
    Ok(())
}

/// Compares servers with different limits on tasks. Their stores are full, so that each new task evicts the oldest one.
fn tasks() -> anyhow::Result<()> {
    let mut servers = Vec::new();
    for count in [10_000, 10, 1_000_000] {
        let settings = format!("[tasks]\nmax_tasks = {count}\nmax_bytes = {}\n", 16_u64 << 30);
        let server = ServerProcess::start_with(&Setup { settings: &settings, ..Setup::new(Kind::Memory) })?;
        load::round(&server, &Request::json_rpc(), CONNECTIONS, count + CONNECTIONS)?;
        servers.push((format!("echo, {count} tasks, {:.0} MiB", mib(server.resident_bytes()?)), server));
    }
    let request = || Request::json_rpc().expecting(ExpectedAnswer::Echo);
    let rows = servers.iter().map(|(title, server)| Row {
        title: title.clone(),
        server,
        request: request(),
        connections: CONNECTIONS,
    });
    table(&rows.collect::<Vec<_>>()).map(drop)
}

/// Compares numbers of installed and of active extensions. Each extension has its own component, whose hooks do almost
/// nothing.
fn extensions() -> anyhow::Result<()> {
    let mut servers = Vec::new();
    for installed in [1, 10, 1_000] {
        // It stays for the next run, because compiling 1,000 components takes minutes.
        let folder = many_folder(installed);
        many::fill(&folder.join("extensions"), installed)?;
        servers.push((installed, ServerProcess::start_in(Kind::Many, &folder)?));
    }
    let mut rows = Vec::new();
    let mut actives = Vec::new();
    for (installed, server) in &servers {
        for active in [0, 1, 10].into_iter().filter(|active| active <= installed) {
            let uris: Vec<String> = (0..active).map(uri).collect();
            let request = Request::json_rpc().activating(uris.join(", "));
            let title = format!("{active} active of {installed} installed");
            rows.push(Row { title, server, request, connections: CONNECTIONS });
            actives.push(active);
        }
    }
    let medians = table(&rows)?;
    let none = medians.first().copied().unwrap_or_default();
    let mut one = none;
    for ((row, cpu), active) in rows.iter().zip(&medians).zip(actives) {
        match active {
            0 => continue,
            1 => one = *cpu,
            // The row before has one active extension on the same server.
            _ => println!(
                "  {}: {:.1} times the request with one, {:.1} times what one adds",
                row.title,
                cpu / one,
                (cpu - none) / (one - none)
            ),
        }
        println!("  {}: {:.1} µs for each active one", row.title, (cpu - none) / active as f64);
    }
    Ok(())
}

fn many_folder(installed: usize) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("many-{installed}"))
}

fn cores() -> anyhow::Result<()> {
    let both = ServerProcess::start(Kind::Component)?;
    let one = ServerProcess::start_with(&Setup { core: Some(SERVER_CORE), ..Setup::new(Kind::Component) })?;
    let servers = [("state injected, all cores", &both), ("state injected, one core", &one)];
    let rows = servers.map(|(title, server)| Row {
        title: title.to_owned(),
        server,
        request: Request::injecting(100),
        connections: CONNECTIONS,
    });
    table(&rows).map(drop)
}

/// Measures latencies at 70 % of the highest throughput. The server has one core and the client uses only other cores,
/// so they do not compete.
fn waiting() -> anyhow::Result<()> {
    // A polling client uses a whole core. On the server's core it would distort the measurement.
    process::keep_off(SERVER_CORE)?;
    for (title, kind, request) in [
        ("state injected", Kind::Component, Request::injecting(100)),
        ("echo", Kind::Memory, Request::json_rpc().expecting(ExpectedAnswer::Echo)),
    ] {
        let server = ServerProcess::start_with(&Setup { core: Some(SERVER_CORE), ..Setup::new(kind) })?;
        load::round(&server, &request, CONNECTIONS, REQUESTS)?;
        let highest = (0..ROUNDS).map(|_| Ok(load::round(&server, &request, CONNECTIONS, REQUESTS)?.rate()));
        let highest = highest.collect::<anyhow::Result<Vec<_>>>()?.into_iter().fold(0.0, f64::max);
        for arrivals in [Arrivals::Even, Arrivals::Random] {
            let latencies = open_loop::run(&server, &request, 0.7 * highest, arrivals)?;
            let title = format!("{title}, {arrivals:?} arrivals, 70 % of {highest:.0}/s");
            println!(
                "  {title:52}{:>7.0} µs median{:>8.0} µs 99th percentile{:>7.1} times",
                latencies.p50 * 1e6,
                latencies.p99 * 1e6,
                latencies.p99 / latencies.p50,
            );
        }
    }
    Ok(())
}

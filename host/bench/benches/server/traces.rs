//! The cost of traces, by the share of traces that are sampled.

use std::thread;
use std::time::Duration;

use annex_test_support::collector::Collector;
use anyhow::ensure;

use crate::kind::Kind;
use crate::load::{CONNECTIONS, Round};
use crate::process::{ServerProcess, Setup};
use crate::request::Request;
use crate::scale::{Row, table_of};

pub(crate) const PART: (&str, fn() -> anyhow::Result<()>) =
    ("traces: off, 1 % and 100 % sampled, sent to a collector on loopback", measure);

/// The shares of sampled traces, and the protocol. `None` is a server without `[traces]`.
const SAMPLED: [Option<(f64, &str)>; 5] =
    [None, Some((0.01, "grpc")), Some((1.0, "grpc")), Some((0.01, "http")), Some((1.0, "http"))];
/// A server that sends no spans for this long has sent all of them. It sends the spans of half a second together.
const SILENCE: Duration = Duration::from_millis(1_200);

/// Compares the CPU time of the server per request. It includes the time until the collector has the last span. The
/// collector runs in this process, so its own work does not count.
fn measure() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (url, collector) = runtime.block_on(Collector::start());
    for (title, kind) in [("state injected", Kind::Component), ("no extension", Kind::Bare)] {
        let servers = SAMPLED.iter().map(|sampled| start(kind, &url, *sampled)).collect::<anyhow::Result<Vec<_>>>()?;
        let rows = servers.iter().zip(SAMPLED).map(|(server, sampled)| Row {
            title: format!("{title}, {}", name(sampled)),
            server,
            request: Request::injecting(100).expecting(kind.answer()),
            connections: CONNECTIONS,
        });
        let rows: Vec<Row<'_>> = rows.collect();
        table_of(&rows, |row| Ok(traced_round(row, &collector)?.0))?;
        for (row, sampled) in rows.iter().zip(SAMPLED) {
            let (round, spans) = traced_round(row, &collector)?;
            let per_request = spans as f64 / round.requests() as f64;
            println!("  {}: {per_request:.2} spans per request", row.title);
            // Each request has a span of its own, and its turn has another.
            ensure!(sampled.is_none_or(|(share, _)| share < 1.0) || per_request >= 2.0, "spans are lost");
        }
    }
    Ok(())
}

fn name(sampled: Option<(f64, &str)>) -> String {
    sampled
        .map_or_else(|| "no traces".to_owned(), |(share, protocol)| format!("{:.0} % over {protocol}", share * 100.0))
}

/// Starts a server whose queue is long enough for the spans of a round.
fn start(kind: Kind, collector: &str, sampled: Option<(f64, &str)>) -> anyhow::Result<ServerProcess> {
    let settings = sampled.map_or_else(String::new, |(share, protocol)| {
        format!("[traces]\nendpoint = {collector:?}\nprotocol = {protocol:?}\nsample = {share}\nmax_queued = 1000000\n")
    });
    ServerProcess::start_with(&Setup { settings: &settings, ..Setup::new(kind) })
}

/// Runs a round, and waits until the collector has its spans. Returns the round with the CPU time of both, and the
/// number of the spans.
fn traced_round(row: &Row<'_>, collector: &Collector) -> anyhow::Result<(Round, usize)> {
    let before = row.server.cpu()?;
    let round = row.round()?;
    let mut spans = 0;
    loop {
        thread::sleep(SILENCE);
        let more = collector.take_count();
        spans += more;
        // A server without traces waits for as long, so that its idle time counts too.
        if more == 0 {
            return Ok((round.with_cpu(row.server.cpu()?.saturating_sub(before)), spans));
        }
    }
}

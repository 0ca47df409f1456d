//! Traces of turns whose `annex serve` is killed. The trace in the process that continues a turn links to the earlier one.

use std::time::Duration;

use annex_test_support::collector::Collector;
use annex_test_support::until;
use anyhow::{Context, Result};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;

use crate::lost::{COMPLETED, LIMIT, RERUN, start};
use crate::replicas::{LEASE_AND_LOOK, Replicas, said};
use crate::support::Server;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Starts a server of a set of replicas that sends its traces as the service `name`.
fn traced(replicas: &Replicas, collector: &str, name: &str) -> Result<Server> {
    start(replicas, &format!("{RERUN}\n[traces]\nendpoint = {collector:?}\nservice_name = {name:?}"), "")
}

/// Begins a turn whose caller names [`TRACE`]. Returns the id of its task.
async fn begin(replicas: &Replicas, server: &Server, text: &str) -> Result<String> {
    let mut sent = said(text, text);
    sent["message"]["metadata"] = json!({"traceparent": format!("00-{TRACE}-b7ad6b7169203331-01")});
    replicas.begin_by(server, sent).await
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Waits until the collector has the span `name` of the trace [`TRACE`].
async fn span_of_caller(collector: &Collector, name: &str) -> Result<Span> {
    let found = || {
        let is_it = |span: &Span| span.name == name && hexadecimal(&span.trace_id) == TRACE;
        collector.spans().into_iter().find(is_it)
    };
    until("the span of the request is sent", async || found().is_some()).await;
    found().context("a span")
}

/// Checks that `lost_turn` begins a trace of its own, and that its only link is to `request`.
fn links_to(lost_turn: &Span, request: &Span) {
    assert!(lost_turn.parent_span_id.is_empty(), "{lost_turn:?}");
    assert_ne!(lost_turn.trace_id, request.trace_id);
    let linked: Vec<_> = lost_turn.links.iter().map(|link| (&link.trace_id, &link.span_id)).collect();
    assert_eq!(linked, [(&request.trace_id, &request.span_id)], "{lost_turn:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trace_of_a_turn_that_is_run_again_links_to_the_request_at_the_killed_process() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let (url, collector) = Collector::start().await;
    let [mut killed, other] = [traced(&replicas, &url, "killed")?, traced(&replicas, &url, "other")?];
    let task = begin(&replicas, &killed, "talk").await?;
    let request = span_of_caller(&collector, "SendMessage").await?;
    killed.process.kill()?;
    replicas.until(&other, &task, COMPLETED, LEASE_AND_LOOK + Duration::from_secs(3)).await?;
    let continued = collector.trace_of("lost_turn").await;
    let lost_turn = continued.iter().find(|span| span.name == "lost_turn").context("a span")?;
    links_to(lost_turn, &request);
    let turn = continued.iter().find(|span| span.name == "turn").context("the turn is in the new trace")?;
    assert_eq!(turn.parent_span_id, lost_turn.span_id);
    let services = collector.services();
    assert!(services.iter().any(|name| name == "killed") && services.iter().any(|name| name == "other"));
    drop((killed, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trace_of_a_message_that_waited_links_to_the_request_at_the_killed_process() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let (url, collector) = Collector::start().await;
    let [mut killed, other] = [traced(&replicas, &url, "killed")?, traced(&replicas, &url, "other")?];
    // The second message waits for the end of this turn, which takes three seconds.
    replicas.begin(&other, "talk").await?;
    let task = begin(&replicas, &killed, "brief").await?;
    let request = span_of_caller(&collector, "SendMessage").await?;
    killed.process.kill()?;
    replicas.until(&other, &task, COMPLETED, LIMIT).await?;
    let continued = collector.trace_of("lost_turn").await;
    links_to(continued.iter().find(|span| span.name == "lost_turn").context("a span")?, &request);
    drop((killed, other));
    replicas.remove().await;
    Ok(())
}

//! The overview: the agent, the numbers of the server, and the list of problems.

use std::fs;
use std::sync::Arc;

use annex_protocol::AgentCard;
use askama::Template;
use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::get;

use super::operator::{ConsoleState, Operator};
use super::page::{fragment, page};
use super::shown::{block_within, line};

mod figures;
mod problems;

use figures::{Figures, History, RecentFigures};
use problems::Problems;

/// The maximum size of the card and of its description on the page, in bytes.
const MAX_CARD_BYTES: usize = 64 << 10;

pub(super) fn routes() -> Router<ConsoleState> {
    let history = Arc::<History>::default();
    Router::new().route("/", get(show)).route("/overview/now", get(show_now)).layer(Extension(history))
}

/// The agent of the config itself, as its card describes it to clients.
struct AgentView {
    name: String,
    version: String,
    description: String,
    interfaces: Vec<String>,
    extensions: Vec<String>,
    skills: usize,
    is_signed: bool,
    card: String,
}

/// The part of the page that refreshes itself.
struct NowView {
    is_ready: bool,
    phase: String,
    edition: u64,
    running: usize,
    memory: String,
    recent: RecentFigures,
    refusals: Vec<(&'static str, u64)>,
    problems: Problems,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewTemplate {
    agent: Option<AgentView>,
    now: NowView,
}

#[derive(Template)]
#[template(path = "overview_now.html")]
struct NowTemplate {
    now: NowView,
}

async fn show(
    State(console): State<ConsoleState>,
    Extension(history): Extension<Arc<History>>,
    operator: Operator,
) -> Response {
    let card = console.admin.installers.own().publisher().current().card.decoded();
    let agent = card.ok().map(|card| AgentView::of(&card));
    let template = OverviewTemplate { agent, now: now(&console, &history).await };
    page(&operator, "Overview", "overview", &template)
}

async fn show_now(
    State(console): State<ConsoleState>,
    Extension(history): Extension<Arc<History>>,
    _operator: Operator,
) -> Response {
    fragment(&NowTemplate { now: now(&console, &history).await })
}

async fn now(console: &ConsoleState, history: &History) -> NowView {
    let (is_ready, readiness) = console.gate.readiness().await;
    let process = &console.admin.process;
    let numbers = &console.gate.access_log.numbers;
    NowView {
        is_ready,
        phase: console.gate.phase().to_string(),
        edition: console.admin.installers.own().publisher().current().extensions.number,
        running: process.running.len(),
        memory: memory().unwrap_or_else(|| "unknown".to_owned()),
        recent: history.add(Figures::read(&process.counters, numbers)),
        refusals: numbers.refusals().filter(|(_, count)| *count > 0).collect(),
        problems: problems::find(console, readiness.stores_answer),
    }
}

impl AgentView {
    fn of(card: &AgentCard) -> Self {
        let interface = |interface: &annex_protocol::AgentInterface| {
            let (binding, version) = (&interface.protocol_binding, &interface.protocol_version);
            line(&format!("{binding} {version} at {}", interface.url))
        };
        let json = serde_json::to_string_pretty(card).unwrap_or_default();
        Self {
            name: line(&card.name),
            version: line(&card.version),
            description: block_within(&card.description, MAX_CARD_BYTES),
            interfaces: card.supported_interfaces.iter().map(interface).collect(),
            extensions: card.capabilities.extensions.iter().map(|extension| line(extension.uri.as_str())).collect(),
            skills: card.skills.len(),
            is_signed: !card.signatures.is_empty(),
            card: block_within(&json, MAX_CARD_BYTES),
        }
    }
}

/// The memory of the process that is in RAM. `None` on a system that does not have this file.
fn memory() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = kibibytes.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(format!("{} MiB", kibibytes / 1024))
}

//! The cost of each shipped extension per turn: the time in its hooks, as the server counts it. Of many rounds only the
//! fastest one counts, so that other load on the machine does not matter.
//!
//! Writes `examples/catalogue/times.json`, from which the table in `host/docs/extensions.md` is made.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use annex_runtime::Extension;
use annex_test_support::{Request, TestServer, mandates};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 60;
/// The number of turns in a round.
const TURNS: usize = 50;

fn main() -> anyhow::Result<()> {
    annex_runtime::compile_if_asked();
    if annex_bench::is_wanted("catalogue") { measure() } else { Ok(()) }
}

#[tokio::main]
async fn measure() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/catalogue");
    let server = TestServer::from_file(&folder.join("annex.toml"), None).await?;
    let mut times = BTreeMap::new();
    for (name, _) in annex_components::shipped() {
        let installed = server.installer().installed();
        let extension = installed.iter().find(|extension| extension.descriptor().name == name).context(name)?;
        let mut each = f64::INFINITY;
        for round in 0..ROUNDS {
            each = each.min(micros(&server, extension, round).await?);
        }
        println!("{name:<24} {each:>8.1} µs per turn");
        times.insert(name, each.round());
    }
    let text = serde_json::to_string_pretty(&times)?;
    Ok(fs::write(folder.join("times.json"), format!("{text}\n"))?)
}

/// Runs a round. Returns the time that a turn spends in the extension's hooks on average, in microseconds.
async fn micros(server: &TestServer, extension: &Extension, round: usize) -> anyhow::Result<f64> {
    let before = busy(extension);
    for turn in 0..TURNS {
        let request = request(server, extension, round * TURNS + turn).extensions(extension.uri().as_str());
        let reply = request.send().await?;
        ensure!(reply.code() == 0, "{}", reply.text);
    }
    Ok((busy(extension) - before).as_secs_f64() * 1e6 / TURNS as f64)
}

fn busy(extension: &Extension) -> Duration {
    extension.metrics().hooks.iter().map(|hook| hook.busy).sum()
}

/// A request that the extension handles. Each request begins a new conversation.
fn request(server: &TestServer, extension: &Extension, turn: usize) -> Request {
    let uri = extension.uri().as_str();
    let mut parts = json!([{"text": "hello"}]);
    let mut metadata = json!({});
    match extension.descriptor().name.as_str() {
        "task-history" => return server.call("tasks/search", json!({"contextId": "none", "query": "x"}).to_string()),
        "strict-parts" => {
            parts = json!([{"data": {"item": "tea", "count": 2}, "mediaType": "application/vnd.example.order+json"}]);
        }
        "agent-gateway-protocol" => {
            parts = json!([{"data": {"target_capability": "billing:invoice:generate", "payload": {"amount": 99.99}}}]);
        }
        "a2ui" => {
            let basic = "https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json";
            metadata = json!({"a2uiClientCapabilities": {"v0.9": {"supportedCatalogIds": [basic]}}});
        }
        "ap2" => parts = json!([{"data": mandates::signed(&turn.to_string())}]),
        "session-sharing" => metadata = json!({"annex.example/session-sharing/v1/shared": shared()}),
        "secure-passport" => metadata = json!({uri: passport()}),
        "state-injection" => {
            metadata = json!({annex_test_support::STATE_KEY: {"user_info": {"name": "Ada", "role": "Engineer"}}});
        }
        _ => {}
    }
    let message =
        json!({"messageId": format!("{uri} {turn}"), "role": "ROLE_USER", "parts": parts, "metadata": metadata});
    server.call("SendMessage", json!({"message": message}).to_string())
}

/// A passport, signed with the key that the example uses.
fn passport() -> Value {
    json!({
        "clientId": "a2a://orchestrator.example.com",
        "state": {"loyalty_tier": "Gold"},
        "signature": "7Krm6uVSCuPY47BkPgtwuuYygjRCiUrR-ZTHrMgb8Fc"
    })
}

/// The metadata of a message that shares one event, which is new to the agent.
fn shared() -> Value {
    json!({
        "version": 1, "mode": "delta", "peer": "bench", "upTo": 2,
        "events": [{"seq": 1, "author": "planner", "role": "agent", "parts": [{"text": "Ada goes to Rome."}]}]
    })
}

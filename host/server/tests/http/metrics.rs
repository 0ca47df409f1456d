//! `/metrics` and the numbers of the admin API, after real requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use annex_test_support::{TEST_EXTENSION, TestConfig, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::installation::{ADMIN, Installation, TOKEN, addition, admin, extension, marked, segment};
use crate::prometheus::{Scrape, parse};

/// A server with the test extension, which answers nothing.
async fn serve() -> (Installation, TestServer) {
    let limits = "[extension.limits]\ncpu_ms = 10";
    serve_with(&extension("test.wasm", limits, "none")).await
}

async fn serve_with(extensions: &str) -> (Installation, TestServer) {
    let installation = Installation::new();
    installation.component("test.wasm", "first");
    installation.config(&format!("{ADMIN}{extensions}"));
    let server = installation.serve().await;
    (installation, server)
}

pub(crate) async fn scrape(server: &TestServer) -> Scrape {
    let response = server.client().get(format!("{}/metrics", server.admin_url())).bearer_auth(TOKEN).send().await;
    let response = response.expect("a reply");
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    parse(&response.text().await.expect("a body"))
}

/// Sends a message that tells `validate` what to do.
async fn command(server: &TestServer, command: &str) -> i64 {
    let request = server.say("hi").extensions(TEST_EXTENSION).metadata("test/command", &format!("{command:?}"));
    request.send().await.expect("a reply").code()
}

/// The number of calls of the hook that ended so.
fn calls(scrape: &Scrape, hook: &str, outcome: &str) -> f64 {
    scrape.value("annex_hook_calls_total", &[("extension", TEST_EXTENSION), ("hook", hook), ("outcome", outcome)])
}

#[tokio::test]
async fn requests_are_counted_by_how_each_hook_ended() {
    let (_files, server) = serve().await;
    let before = scrape(&server).await;
    assert_eq!(calls(&before, "state", "ok"), 0.0, "a series is there before its first call");
    for (told, code) in [("ok", 0), ("violation", -32_602), ("trap", -32_603), ("loop", -32_603), ("log-flood 130", 0)]
    {
        assert_eq!(command(&server, told).await, code, "{told}");
    }
    let after = scrape(&server).await;
    for (outcome, count) in [("ok", 2.0), ("refused", 1.0), ("trap", 1.0), ("cpu_limit", 1.0), ("wall_limit", 0.0)] {
        assert_eq!(calls(&after, "state", outcome), count, "{outcome}");
    }
    assert_eq!(calls(&after, "activation", "ok"), 5.0);
    let of_state = [("extension", TEST_EXTENSION), ("hook", "state")];
    assert_eq!(after.value("annex_hook_duration_seconds_count", &of_state), 5.0);
    let busy = after.value("annex_hook_busy_seconds_total", &of_state);
    let all = after.value("annex_hook_duration_seconds_sum", &of_state);
    assert!((0.01..=all).contains(&busy), "the loop is busy for its share: {busy} of {all}");
    let of_extension = |name| after.value(name, &[("extension", TEST_EXTENSION)]);
    assert_eq!(of_extension("annex_extension_log_lines_total"), 100.0);
    assert_eq!(of_extension("annex_extension_log_lines_dropped_total"), 30.0);
    assert!(of_extension("annex_extension_host_calls_total") >= 130.0);
    assert!(of_extension("annex_extension_memory_peak_bytes") >= 65_536.0);
    assert_eq!(of_extension("annex_extension_instance_waits_total"), 0.0);
}

#[tokio::test]
async fn messages_turns_and_loads_are_counted_by_how_they_ended() {
    let (_files, server) = serve().await;
    for told in ["ok", "violation", "trap"] {
        command(&server, told).await;
    }
    server.say("ask").extensions(TEST_EXTENSION).send().await.expect("a reply");
    let bad = marked("bad");
    admin(&server, "POST", "extensions", addition("x", &bad[..100], None)).await;
    let scrape = scrape(&server).await;
    let outcome = |name, outcome| scrape.value(name, &[("outcome", outcome)]);
    for (reception, count) in [("started", 2.0), ("refused", 1.0), ("failed", 1.0), ("repeated", 0.0)] {
        assert_eq!(outcome("annex_messages_total", reception), count, "{reception}");
    }
    for (end, count) in [("completed", 1.0), ("interrupted", 1.0), ("failed", 0.0)] {
        assert_eq!(outcome("annex_turns_total", end), count, "{end}");
    }
    assert_eq!(outcome("annex_extension_loads_total", "loaded"), 1.0);
    assert_eq!(outcome("annex_extension_loads_total", "refused"), 1.0);
    assert_eq!(scrape.value("annex_extension_failures", &[]), 0.0, "what is installed is as good as it was");
}

#[tokio::test]
async fn a_uri_with_quotes_and_backslashes_is_escaped() {
    const ODD: &str = r#"urn:odd"\n{}='x'"#;
    let config = format!("[[extension]]\ncomponent = \"./test.wasm\"\n[extension.parameters]\nuri = '''{ODD}'''");
    let (_files, server) = serve_with(&config).await;
    let reply = server.say("hi").extensions(ODD).send().await.expect("a reply");
    assert_eq!(reply.code(), 0);
    let scrape = scrape(&server).await;
    let labels = [("extension", ODD), ("hook", "state"), ("outcome", "ok")];
    assert_eq!(scrape.value("annex_hook_calls_total", &labels), 1.0);
}

#[tokio::test]
async fn counters_go_on_over_fifty_swaps_and_go_with_the_extension() {
    let (_files, server) = serve_with("").await;
    let mut lines = None;
    for number in 0..50 {
        let added = addition("test", &marked(&number.to_string()), None);
        assert_eq!(admin(&server, "POST", "extensions", added).await.0, 201);
        assert_eq!(command(&server, "ok").await, 0);
        let scrape = scrape(&server).await;
        assert_eq!(calls(&scrape, "state", "ok"), f64::from(number + 1));
        assert_eq!(*lines.get_or_insert(scrape.len()), scrape.len(), "no version adds to what is shown");
    }
    admin(&server, "DELETE", &format!("extensions/{}", segment(TEST_EXTENSION)), Value::Null).await;
    let scrape = scrape(&server).await;
    assert!(!scrape.has_label("extension", TEST_EXTENSION), "what is removed is gone");
}

#[tokio::test]
async fn failures_and_timings_are_in_the_list_and_the_details() {
    let (_files, server) = serve().await;
    let path = format!("extensions/{}", segment(TEST_EXTENSION));
    let (_, fresh) = admin(&server, "GET", &path, Value::Null).await;
    let none = json!({"hook": "state", "calls": 0, "refused": 0, "failures": 0, "cpu_ms": 0.0});
    assert_eq!((&fresh["calls"], &fresh["last_failure"]), (&json!(0), &Value::Null));
    assert_eq!(fresh["timings"][2], none, "{fresh}");
    command(&server, "ok").await;
    command(&server, "trap").await;
    let (_, details) = admin(&server, "GET", &path, Value::Null).await;
    let (_, list) = admin(&server, "GET", "extensions", Value::Null).await;
    for shown in [&details, &list["extensions"][0]] {
        assert_eq!(shown["failures"], 1, "{shown}");
        let failure = &shown["last_failure"];
        assert_eq!((&failure["hook"], &failure["outcome"]), (&json!("state"), &json!("trap")), "{failure}");
        assert!(failure["reason"].as_str().is_some_and(|reason| reason.contains("trapped in state")), "{failure}");
        assert!(failure["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{failure}");
        let timing = &shown["timings"][2];
        assert_eq!((&timing["calls"], &timing["failures"]), (&json!(2), &json!(1)), "{timing}");
        let mean = timing["mean_ms"].as_f64();
        let max = timing["max_ms"].as_f64();
        assert!(mean.is_some_and(|mean| mean > 0.0) && mean <= max, "{timing}");
        assert!(timing["p99_ms"] == timing["max_ms"] && timing["cpu_ms"].as_f64() > Some(0.0), "{timing}");
        assert!(shown["memory_peak"].as_u64() >= Some(65_536), "{shown}");
    }
}

/// A server with a template agent and these keys of `[admin]`.
async fn with_admin(keys: &str) -> (TempDir, TestServer) {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("token", TOKEN);
    write("metrics-token", METRICS_TOKEN);
    let config = TestConfig::template("Say something.").with(&format!("{ADMIN}{keys}"));
    write("annex.toml", &config.toml());
    let server = TestServer::from_file(&folder.path().join("annex.toml"), None).await.expect("a server");
    (folder, server)
}

const METRICS_TOKEN: &str = "a-token-of-the-scraper";

/// Sends a malformed request, and waits until the server hangs up.
async fn malformed(server: &TestServer) {
    let mut stream = TcpStream::connect(server.url().trim_start_matches("http://")).await.expect("a connection");
    stream.write_all(b"no request\r\n\r\n").await.expect("sent");
    stream.read_to_end(&mut Vec::new()).await.expect("an answer");
}

#[tokio::test]
async fn requests_turns_and_calls_of_the_model_are_counted_with_their_times_and_refusals_by_reason() {
    let (_folder, server) = with_admin("").await;
    for _ in 0..3 {
        assert_eq!(server.say("prompt").send().await.expect("a reply").code(), 0);
    }
    server.call("GetTask", r#"{"id":"nobody"}"#).send().await.expect("a reply");
    server.say("prompt").version(None).send().await.expect("a reply");
    server.get("/nowhere").await.expect("a reply");
    malformed(&server).await;
    let scrape = scrape(&server).await;
    let requests = |operation, outcome| {
        let labels = [("operation", operation), ("outcome", outcome)];
        scrape.value("annex_request_duration_seconds_count", &labels)
    };
    assert_eq!((requests("SendMessage", "ok"), requests("GetTask", "refused")), (3.0, 1.0));
    assert_eq!((requests("SendMessage", "refused"), requests("Unknown", "refused")), (1.0, 2.0));
    for (reason, count) in
        [("not_found", 1.0), ("version", 1.0), ("unknown_path", 1.0), ("malformed", 1.0), ("quota", 0.0)]
    {
        assert_eq!(scrape.value("annex_refusals_total", &[("reason", reason)]), count, "{reason}");
    }
    assert_eq!(scrape.value("annex_turn_duration_seconds_count", &[("outcome", "completed")]), 3.0);
    assert_eq!(scrape.value("annex_model_call_duration_seconds_count", &[("outcome", "ok")]), 3.0);
    assert!(!scrape.has("annex_upstream_answers", &[]), "its agent is no upstream");
}

#[tokio::test]
async fn a_token_for_metrics_opens_nothing_else() {
    let (_folder, server) = with_admin("metrics_token_file = \"metrics-token\"").await;
    let get = async |path: &str, token: &str| {
        let request = server.client().get(format!("{}{path}", server.admin_url())).bearer_auth(token);
        request.send().await.expect("a reply").status().as_u16()
    };
    assert_eq!((get("/metrics", METRICS_TOKEN).await, get("/metrics", TOKEN).await), (200, 200));
    assert_eq!((get("/v1/extensions", METRICS_TOKEN).await, get("/metrics", "another-token-000").await), (401, 401));
}

#[tokio::test]
async fn a_listener_of_its_own_has_metrics_alone_and_asks_for_the_token_if_there_is_one() {
    let listen = "metrics_listen = \"127.0.0.1:0\"";
    for (keys, without, with) in
        [(listen.to_owned(), 200, 200), (format!("{listen}\nmetrics_token_file = \"metrics-token\""), 401, 200)]
    {
        let (_folder, server) = with_admin(&keys).await;
        let get = async |path: &str, token: &str| {
            let request = server.client().get(format!("{}{path}", server.metrics_url())).bearer_auth(token);
            request.send().await.expect("a reply").status().as_u16()
        };
        assert_eq!((get("/metrics", "no-token-at-all-0").await, get("/metrics", METRICS_TOKEN).await), (without, with));
        assert_eq!(get("/v1/extensions", TOKEN).await, 404);
        let foreign = server.client().get(format!("{}/metrics", server.metrics_url())).header("host", "evil.example");
        let foreign = foreign.bearer_auth(TOKEN).send().await.expect("a reply");
        assert_eq!(foreign.status().as_u16(), 403);
    }
}

/// The names and kinds of all metrics.
async fn kinds() -> BTreeMap<String, String> {
    let (_folder, server) = with_admin("").await;
    let response = server.client().get(format!("{}/metrics", server.admin_url())).bearer_auth(TOKEN).send().await;
    let text = response.expect("a reply").text().await.expect("a body");
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    kinds.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

#[tokio::test]
async fn the_page_about_metrics_names_each_of_them_and_no_other() {
    let kinds = kinds().await;
    let shown: BTreeSet<&str> = kinds.keys().map(String::as_str).collect();
    let rows = include_str!("../../../docs/metrics.md").lines().filter_map(|line| line.strip_prefix("| `annex_"));
    let names = rows.flat_map(|row| row.split('|').next().unwrap_or_default().split(','));
    let names: BTreeSet<String> =
        names.map(|name| format!("annex_{}", name.trim().trim_matches('`').trim_start_matches("annex_"))).collect();
    assert_eq!(names.iter().map(String::as_str).collect::<BTreeSet<_>>(), shown);
}

#[tokio::test]
async fn the_board_for_grafana_asks_for_metrics_that_exist() {
    let mut known = BTreeSet::new();
    for (name, kind) in kinds().await {
        match kind.as_str() {
            "histogram" => known.extend(["bucket", "count", "sum"].map(|part| format!("{name}_{part}"))),
            _ => drop(known.insert(name)),
        }
    }
    let board: Value = serde_json::from_str(include_str!("../../../deploy/grafana/annex.json")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets")) {
        let expression = target["expr"].as_str().expect("a query");
        let words = expression.split(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
        let asked: Vec<&str> = words.filter(|word| word.starts_with("annex_")).collect();
        assert!(!asked.is_empty(), "{expression}");
        for name in asked {
            assert!(known.contains(name), "{name} in {expression}");
        }
    }
}

#[tokio::test]
async fn a_token_or_a_listener_for_metrics_that_is_unsafe_is_refused_at_the_start() {
    let installation = Installation::new();
    fs::write(installation.path("other"), TOKEN).expect("a file");
    for (keys, expected) in [
        ("metrics_token_file = \"other\"", "are the same"),
        ("metrics_token_file = \"other\"\nmetrics_token_env = \"X\"", "metrics_token_file and metrics_token_env"),
        ("metrics_token_env = \"ANNEX_NO_SUCH_VARIABLE\"", "ANNEX_NO_SUCH_VARIABLE"),
        ("metrics_listen = \"0.0.0.0:0\"", "allow_remote"),
    ] {
        installation.config(&format!("{ADMIN}{keys}"));
        let error = installation.try_serve().await.err().expect("a refusal");
        let error = format!("{error:#}");
        assert!(error.contains(expected), "{keys}: {error}");
    }
}

//! Log lines of requests that are not operations: preflights, input that is not HTTP, and turns without a request.

use annex_test_support::{TestServer, until};
use axum::http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Line, line, message, next_line, requests};
use crate::agent;
use crate::auth::api_keys;
use crate::hostile::log;

/// The status of the preflight that a browser sends before a page of `origin` may send a message.
async fn preflight(server: &TestServer, origin: &str) -> u16 {
    let request = server.client().request(Method::OPTIONS, format!("{}/a2a/jsonrpc", server.url()));
    let request = request.header("origin", origin).header("access-control-request-method", "POST");
    request.send().await.expect("an answer").status().as_u16()
}

#[tokio::test]
async fn a_preflight_has_a_line_that_says_whether_the_page_may_call() {
    log::listen();
    let listed = "[server]\ncors_origins = [\"https://app.example\"]";
    let all = "[server]\ncors_origins = [\"*\"]";
    for (server, origin, status, outcome, reason) in [
        (listed, "https://app.example", "200", "ok", ""),
        (listed, "https://other.example", "200", "refused", "foreign_host"),
        (all, "https://other.example", "200", "ok", ""),
        ("", "https://app.example", "403", "refused", "foreign_host"),
    ] {
        let server = agent("Say something.", server).await;
        log::of_thread();
        let told = preflight(&server, origin).await;
        let line = line();
        assert_eq!(line.ended(), ("Preflight", outcome, reason), "{}", line.0);
        assert_eq!((told.to_string().as_str(), line.get("status")), (status, status), "{}", line.0);
    }
}

/// Sends the bytes and nothing more, and reads until the server hangs up.
async fn send(server: &TestServer, bytes: &[u8]) {
    let mut stream = TcpStream::connect(server.url().trim_start_matches("http://")).await.expect("a connection");
    // The server may hang up before it has read all.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[tokio::test]
async fn a_connection_with_input_that_is_not_http_has_one_line() {
    log::listen();
    let server = agent("Say something.", "").await;
    log::of_thread();
    let large = |head: &str| format!("{head}{}", "a".repeat(200_000)).into_bytes();
    for bytes in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 the hello of TLS".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nno field\r\n\r\n".to_vec(),
        b"no request at all\r\n\r\n".repeat(100),
        large("GET /"),
        large("GET / HTTP/1.1\r\nhost: localhost\r\nx: "),
        [HTTP2, b"no frame of settings"].concat(),
    ] {
        send(&server, &bytes).await;
        let line = next_line().await;
        assert_eq!(line.ended(), ("Unknown", "refused", "malformed"), "{}", line.0);
        assert_eq!((line.get("address"), line.get("status")), ("127.0.0.1", ""), "{}", line.0);
    }
}

#[tokio::test]
async fn what_follows_a_request_on_its_connection_has_a_line_of_its_own_if_it_is_not_http() {
    log::listen();
    let server = agent("Say something.", "").await;
    log::of_thread();
    send(&server, b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\nno request\r\n\r\n").await;
    let lines = requests(log::of_thread());
    let reasons: Vec<_> = lines.iter().map(|line| line.get("reason")).collect();
    assert_eq!(reasons, ["unknown_path", "malformed"]);
    // A body is a part of its request, and who hangs up has sent nothing wrong.
    let chunked = "POST /a2a/jsonrpc HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                   transfer-encoding: chunked\r\n\r\nno length\r\n";
    for (bytes, expected) in
        [(chunked.as_bytes(), &["broken_body"][..]), (b"", &[]), (b"GET / HT", &[]), (b"PRI * HTTP", &[]), (HTTP2, &[])]
    {
        send(&server, bytes).await;
        let lines = requests(log::of_thread());
        let reasons: Vec<_> = lines.iter().map(|line| line.get("reason")).collect();
        assert_eq!(reasons, expected, "{:?}", String::from_utf8_lossy(bytes));
    }
}

fn turns(lines: Vec<String>) -> Vec<Line> {
    lines.into_iter().filter(|line| line.starts_with("INFO turn ")).map(Line).collect()
}

/// Has a turn begin that takes about a second, with the task as the answer at once.
async fn begin(server: &TestServer) -> Value {
    let mut params = message("slow");
    params["configuration"] = json!({"returnImmediately": true});
    server.call("SendMessage", params.to_string()).send().await.expect("a reply").task().clone()
}

#[tokio::test]
async fn a_turn_that_outlives_its_request_has_a_line_when_it_ends() {
    log::listen();
    let server = agent("Say something.", "").await;
    server.say("prompt").send().await.expect("a reply");
    assert_eq!(turns(log::of_thread()).len(), 0, "its request says how it ended");
    let task = begin(&server).await;
    let mut left = server.say("slow").context("c-left").streaming().open().await.expect("a stream");
    left.next().await.expect("an event");
    drop(left);
    let mut lines = Vec::new();
    until("two lines", async || {
        lines.extend(turns(log::of_thread()));
        lines.len() == 2
    })
    .await;
    for line in &lines {
        assert_eq!(line.get("outcome"), "completed", "{}", line.0);
        assert!(line.number("ms") > 500.0, "{}", line.0);
    }
    let told = [lines[0].get("task"), lines[0].get("context"), lines[1].get("context")];
    let expected = [task["id"].as_str(), task["contextId"].as_str(), Some("c-left")];
    assert_eq!(told.map(Some), expected);
}

#[tokio::test]
async fn turns_have_no_lines_where_requests_have_none() {
    log::listen();
    let server = agent("Say something.", "[log]\naccess = \"off\"").await;
    let task = begin(&server).await;
    until("the end", async || {
        let params = json!({"id": task["id"]}).to_string();
        let shown = server.call("GetTask", params).send().await.expect("a reply");
        shown.body["result"]["status"]["state"] == "TASK_STATE_COMPLETED"
    })
    .await;
    assert_eq!(turns(log::of_thread()).len(), 0);
}

#[tokio::test]
async fn a_request_without_a_valid_key_has_its_operation_in_the_line_where_the_path_names_it() {
    log::listen();
    let server = agent("Say something.", &api_keys()).await;
    log::of_thread();
    for (method, path, operation) in [
        (Method::POST, "/a2a/rest/message:send", "SendMessage"),
        (Method::POST, "/a2a/rest/acme/message:stream", "SendStreamingMessage"),
        (Method::GET, "/a2a/rest/tasks/t1", "GetTask"),
        (Method::POST, "/a2a/rest/v1/message:send", "SendMessage"),
        (Method::GET, "/a2a/rest/v1/card", "GetExtendedAgentCard"),
        (Method::GET, "/a2a/rest/nothing/at/all", "Unknown"),
        // JSON-RPC names it in the body, which nobody reads for a stranger.
        (Method::POST, "/a2a/jsonrpc", "Unknown"),
    ] {
        let request = server.client().request(method, format!("{}{path}", server.url()));
        let status = request.json(&message("prompt")).send().await.expect("an answer").status();
        let line = line();
        assert_eq!((status.as_u16(), line.ended()), (401, (operation, "refused", "credentials")), "{path}: {}", line.0);
    }
}

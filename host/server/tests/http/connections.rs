//! Slow and many clients: bounds on time and on connections.

use std::time::Duration;

use annex_test_support::TestServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::agent;

/// Far beyond the second that the servers here allow.
const PATIENCE: Duration = Duration::from_secs(20);

async fn impatient(more: &str) -> TestServer {
    agent("Say something.", &format!("[server]\nhead_seconds = 1\nbody_seconds = 1\n{more}")).await
}

async fn connect(server: &TestServer) -> TcpStream {
    TcpStream::connect(server.url().trim_start_matches("http://")).await.expect("a connection")
}

/// Sends the bytes, then nothing, and reads until the server hangs up.
async fn stall(server: &TestServer, bytes: &[u8]) -> String {
    let mut stream = connect(server).await;
    stream.write_all(bytes).await.expect("sent");
    let mut answer = Vec::new();
    // What was never read makes it a reset instead of an end.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the server hangs up");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn clients_that_stop_sending_are_hung_up_on() {
    let server = impatient("").await;
    let beginnings: [&[u8]; 5] = [
        b"",
        b"P",
        b"PRI * HTTP/2.0\r\n",
        b"POST /a2a/jsonrpc HTTP/1.1\r\nhost: x",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    let stalled = beginnings.map(|bytes| stall(&server, bytes));
    futures::future::join_all(stalled).await;
    assert!(server.say("prompt").send().await.is_ok());
}

#[tokio::test]
async fn a_body_that_does_not_come_gets_an_error_on_each_binding() {
    let server = impatient("").await;
    for path in ["/a2a/jsonrpc", "/a2a/rest/message:send"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\na2a-version: 1.0\r\n\
             connection: close\r\ncontent-length: 100\r\n\r\n{{\"jsonrpc\""
        );
        let answer = stall(&server, head.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("longer than 1 seconds"), "{answer}");
    }
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_their_turn() {
    let server = impatient("max_connections = 1").await;
    // Takes the only place until the server loses patience with it.
    let idle = connect(&server).await;
    let answer = timeout(PATIENCE, server.say("prompt").send()).await.expect("served in the end");
    assert!(answer.expect("a reply").body["result"]["task"].is_object());
    drop(idle);
}

//! Slow and many clients: bounds on time and on connections.

use std::time::Duration;

use annex_test_support::TestServer;
use axum::http::Request;
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::agent;
use crate::durable::{Counting, counting, serve_with};

/// Far beyond the second that the servers here allow.
const TIMEOUT: Duration = Duration::from_secs(60);

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
    let _ = timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.expect("the server hangs up");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn clients_that_stop_sending_are_hung_up_on() {
    let server = impatient("").await;
    let beginnings: [&[u8]; 5] = [
        b"",
        b"P",
        b"PRI * HTTP/2.0\r\n",
        b"POST /a2a/jsonrpc HTTP/1.1\r\nhost: localhost",
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
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\na2a-version: 1.0\r\n\
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
    let answer = timeout(TIMEOUT, server.say("prompt").send()).await.expect("served in the end");
    assert!(answer.expect("a reply").body["result"]["task"].is_object());
    drop(idle);
}

/// An HTTP/2 connection, and the task that keeps it alive; it ends with the connection.
pub(crate) async fn http2(
    server: &TestServer,
    settings: Builder,
) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let (client, connection) = settings.handshake(connect(server).await).await.expect("a handshake");
    (client, tokio::spawn(connection))
}

async fn served_by(agent: &std::sync::Arc<Counting>, more: &str) -> TestServer {
    serve_with(agent, &format!("head_seconds = 1\nwrite_seconds = 1\n{more}"), "").await
}

fn framed(server: &TestServer, said: &annex_test_support::Request) -> (Request<()>, Bytes) {
    let request = Request::post(format!("{}/a2a/jsonrpc", server.url()))
        .header("content-type", "application/json")
        .header("a2a-version", "1.0");
    (request.body(()).expect("a request"), said.body().into())
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_hung_up_on() {
    let agent = counting();
    let server = served_by(&agent, "max_connections = 1").await;
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("a small buffer");
    let address = server.url().trim_start_matches("http://").parse().expect("an address");
    let mut stream = socket.connect(address).await.expect("a connection");
    let body = server.say("long").body();
    let head = format!(
        "POST /a2a/jsonrpc HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\na2a-version: 1.0\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    // The only place becomes free when the server has lost patience.
    let answer = timeout(TIMEOUT, server.say("work").send()).await.expect("served in the end");
    assert!(answer.expect("a reply").body["result"]["task"].is_object());
    drop(stream);
}

#[tokio::test]
async fn a_client_that_shuts_the_window_of_its_request_is_hung_up_on() {
    let agent = counting();
    let server = served_by(&agent, "").await;
    for (text, window) in [("work", 0), ("long", 65_535)] {
        let mut settings = Builder::new();
        settings.initial_window_size(window);
        let (client, connection) = http2(&server, settings).await;
        let mut client = client.ready().await.expect("ready");
        let (request, body) = framed(&server, &server.say(text));
        let (response, mut sending) = client.send_request(request, false).expect("sent");
        sending.send_data(body, true).expect("sent");
        // Its head comes; the body is never taken, while PINGs are answered.
        let response = response.await.expect("an answer");
        let ended = timeout(TIMEOUT, connection).await.expect("the server hangs up");
        drop(ended.expect("no panic"));
        let mut body = response.into_body();
        while body.data().await.expect("the answer is cut off, not at its end").is_ok() {}
    }
}

#[tokio::test]
async fn an_http2_connection_without_requests_is_closed_and_one_with_a_quiet_stream_is_not() {
    let agent = counting();
    let server = served_by(&agent, "").await;
    let (client, _connection) = http2(&server, Builder::new()).await;
    let mut client = client.ready().await.expect("ready");
    let (request, body) = framed(&server, &server.say("wait").streaming());
    let (response, mut sending) = client.send_request(request, false).expect("sent");
    sending.send_data(body, true).expect("sent");
    let mut stream = response.await.expect("a stream").into_body();
    // A connection is closed after a second or two without a request; three of them are a clock.
    for _ in 0..3 {
        let (_client, idle) = http2(&server, Builder::new()).await;
        timeout(TIMEOUT, idle).await.expect("the server closes it").expect("no panic").expect("in good order");
    }
    agent.go.add_permits(1);
    let mut text = String::new();
    while let Some(chunk) = stream.data().await {
        text.push_str(std::str::from_utf8(&chunk.expect("a chunk")).expect("text"));
    }
    assert!(text.contains("TASK_STATE_COMPLETED"), "{text}");
}

#[tokio::test]
async fn a_long_answer_comes_whole_over_http2() {
    let agent = counting();
    let server = served_by(&agent, "").await;
    let client = reqwest::Client::builder().http2_prior_knowledge().build().expect("a client");
    let url = format!("{}/a2a/jsonrpc", server.url());
    let request = client.post(url).header("content-type", "application/json").header("a2a-version", "1.0");
    let answer = request.body(server.say("long").body()).send().await.expect("an answer");
    let length = answer.content_length();
    let text = answer.text().await.expect("a body");
    assert!(text.ends_with("}}}") && length == Some(text.len() as u64), "{length:?}");
}

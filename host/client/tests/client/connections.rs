//! Connections of a client that follows no redirects. The next call reuses a connection, and no request is sent twice
//! when a connection is closed.

use std::sync::{Arc, Mutex};

use annex_client::{Agent, Binding, Client, ClientConfig, ClientError};
use futures::TryStreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::support::{Foreign, by, card, client, no_parameters, read_request, text};

const MESSAGE: &str = r#"{"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}}"#;

/// A server that closes each connection without notice after some answers.
struct ClosingServer {
    url: String,
    /// For each connection, the number of its requests.
    connections: Arc<Mutex<Vec<usize>>>,
}

impl ClosingServer {
    /// Starts a server that closes each connection after `answers` answers. With `reads_on` the server reads one more
    /// request before it closes the connection.
    async fn start(answers: usize, reads_on: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&connections);
        let served = card("").replace("{url}", &url);
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.expect("a connection");
                let seen = Arc::clone(&seen);
                let served = served.clone();
                tokio::spawn(async move {
                    let first = read_request(&mut connection).await;
                    if first.starts_with("get") {
                        connection.write_all(served.as_bytes()).await.expect("sent");
                        return;
                    }
                    let number = seen.lock().expect("no panic").len();
                    seen.lock().expect("no panic").push(1);
                    let mut request = first;
                    for answered in 1.. {
                        connection.write_all(answer(&request).as_bytes()).await.expect("sent");
                        if answered == answers && !reads_on {
                            return;
                        }
                        request = read_request(&mut connection).await;
                        seen.lock().expect("no panic")[number] += 1;
                        if answered == answers {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, connections }
    }

    async fn agent(&self) -> (Client, Agent) {
        let client = client(ClientConfig { follow_redirects: false, ..by(Binding::JsonRpc) });
        let agent = client.agent(&self.url).await.expect("an agent");
        (client, agent)
    }

    fn connections(&self) -> Vec<usize> {
        self.connections.lock().expect("no panic").clone()
    }
}

fn answer(request: &str) -> String {
    if request.contains("SendStreamingMessage") {
        let event = format!("data: {MESSAGE}\n\n");
        let chunk = format!("{:x}\r\n{event}\r\n0\r\n\r\n", event.len());
        return format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"
        );
    }
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{MESSAGE}", MESSAGE.len())
}

#[tokio::test]
async fn a_connection_is_kept_for_the_next_call() {
    let server = ClosingServer::start(usize::MAX, false).await;
    let (_client, agent) = server.agent().await;
    for _ in 0..3 {
        agent.send_message(no_parameters(), text("x")).await.expect("an answer");
        let stream = agent.send_streaming_message(no_parameters(), text("x")).await.expect("a stream");
        assert_eq!(stream.value.try_collect::<Vec<_>>().await.expect("events").len(), 1);
    }
    assert_eq!(server.connections(), [6]);
}

#[tokio::test]
async fn calls_at_the_same_time_have_connections_of_their_own() {
    let server = ClosingServer::start(usize::MAX, false).await;
    let (_client, agent) = server.agent().await;
    for _ in 0..2 {
        let calls = (0..3).map(|_| agent.send_message(no_parameters(), text("x")));
        futures::future::try_join_all(calls).await.expect("answers");
    }
    assert_eq!(server.connections(), [2, 2, 2]);
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_replaced() {
    let server = ClosingServer::start(1, false).await;
    let (client, agent) = server.agent().await;
    for _ in 0..3 {
        agent.send_message(no_parameters(), text("x")).await.expect("an answer");
        // A second call over the network. When it has ended, the close has arrived too.
        client.card(&server.url).await.expect("a card");
    }
    assert_eq!(server.connections(), [1, 1, 1]);
}

#[tokio::test]
async fn a_request_that_may_have_arrived_is_not_sent_again() {
    let server = ClosingServer::start(1, true).await;
    let (_client, agent) = server.agent().await;
    agent.send_message(no_parameters(), text("x")).await.expect("an answer");
    let error = agent.send_message(no_parameters(), text("x")).await.expect_err("cut off");
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
    assert_eq!(server.connections(), [2]);
}

#[tokio::test]
async fn an_agent_that_is_gone_is_unreachable() {
    // Bound and dropped, so that nothing listens on the port.
    let port = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address").port();
    let server = Foreign::start(&[&card("").replace("{url}", &format!("http://127.0.0.1:{port}"))]).await;
    let client = client(ClientConfig { follow_redirects: false, ..by(Binding::JsonRpc) });
    let agent = client.agent(&server.url).await.expect("an agent");
    let error = agent.send_message(no_parameters(), text("x")).await.expect_err("nobody is there");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}

//! A client, and servers whose answers a test scripts.

use std::sync::{Arc, Mutex, Once};

use annex_client::{Agent, Binding, Client, ClientConfig, ServiceParameters};
use annex_protocol::{Message, SendMessageRequest};
use annex_test_support::{TestConfig, TestServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A client with this config.
pub(crate) fn client(config: ClientConfig) -> Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    Client::new(config).expect("a client")
}

/// The specialist of `examples/`, with all bindings on its card.
pub(crate) fn specialist() -> String {
    let specialist = include_str!("../../../../examples/specialist/annex.toml");
    specialist.replacen("\"HTTP+JSON\"]", "\"HTTP+JSON\", \"GRPC\"]", 1)
}

pub(crate) fn by(binding: Binding) -> ClientConfig {
    ClientConfig { bindings: vec![binding], ..ClientConfig::default() }
}

pub(crate) async fn agent(url: &str, binding: Binding) -> Agent {
    client(by(binding)).agent(url).await.expect("an agent")
}

pub(crate) fn text(text: &str) -> SendMessageRequest {
    SendMessageRequest { message: Message::user_text(text), ..SendMessageRequest::default() }
}

pub(crate) fn no_parameters() -> ServiceParameters {
    ServiceParameters::default()
}

/// The error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A server that gives its answers one after the other, one for each connection.
pub(crate) struct Foreign {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Foreign {
    /// Starts a server. `answers` are status line, header fields and body; `{url}` in them is the server's URL.
    pub(crate) async fn start(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let answers: Vec<String> = answers.iter().map(|answer| answer.replace("{url}", &url)).collect();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            for answer in answers {
                let (mut connection, _) = listener.accept().await.expect("a connection");
                let request = read_request(&mut connection).await;
                seen.lock().expect("no panic").push(request);
                // The client may have seen enough.
                let _ = connection.write_all(answer.as_bytes()).await;
                let _ = connection.shutdown().await;
            }
        });
        Self { url, requests }
    }

    /// The received requests, heads in lower case.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }
}

pub(crate) async fn read_request(connection: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return format!("{head}\r\n\r\n{body}");
            }
        }
        let mut chunk = [0; 4096];
        let read = connection.read(&mut chunk).await.expect("a request");
        assert_ne!(read, 0, "the request was cut off: {text}");
        bytes.extend_from_slice(&chunk[..read]);
    }
}

/// An answer with a body of this media type.
pub(crate) fn ok(media_type: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {media_type}\r\n\r\n{body}")
}

/// The response with the card of a foreign agent. `fields` are additional header fields, each ending in a line break.
pub(crate) fn card(fields: &str) -> String {
    let body = r#"{"name":"Foreign","supportedInterfaces":[
        {"url":"{url}/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"},
        {"url":"{url}/rest","protocolBinding":"HTTP+JSON","protocolVersion":"1.0","tenant":"acme"}],
        "capabilities":{"streaming":true}}"#;
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n{fields}\r\n{body}")
}

/// A server with the test extension, which does what a message orders. The order `prompt` makes the agent repeat its
/// instruction.
pub(crate) async fn test_server(more: &str) -> TestServer {
    let config = TestConfig::template("test={test?}");
    config.extension(annex_test_support::component("test-extension"), more).start().await.expect("a server")
}

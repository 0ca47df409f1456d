//! MCP servers with endless lists, answers or requests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annex_agent::{McpConfig, McpServers, Tool, Tools};
use annex_egress::{Screen, ScreenConfig};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Bench, serve};

/// The most bytes that socket buffers may hold on one machine.
const IN_BETWEEN: usize = 16 << 20;

/// A server: its list of tools, its answers to calls, and counters of its requests.
#[derive(Clone)]
struct Server {
    list: fn(usize) -> Value,
    /// The messages of the answer to a call, by number, perhaps without end. `None` ends the answer. A text that begins
    /// with a colon is sent as a comment.
    call: fn(usize, &Value) -> Option<String>,
    sent: Arc<AtomicUsize>,
    lists: Arc<AtomicUsize>,
    /// The number of other posts: answers to its requests, and notifications.
    others: Arc<AtomicUsize>,
    gets: Arc<AtomicUsize>,
}

fn one_tool(_: usize) -> Value {
    json!({"tools": [{"name": "sum", "inputSchema": {"type": "object"}}]})
}

fn result(id: &Value) -> String {
    let result = json!({"content": [{"type": "text", "text": "from afar"}]});
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

fn notification() -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x".repeat(1_000)}})
        .to_string()
}

fn request(number: usize) -> String {
    let params = json!({"messages": [], "maxTokens": 1});
    json!({"jsonrpc": "2.0", "id": format!("s{number}"), "method": "sampling/createMessage", "params": params})
        .to_string()
}

impl Server {
    fn new(list: fn(usize) -> Value, call: fn(usize, &Value) -> Option<String>) -> Self {
        let [sent, lists, others, gets] = std::array::from_fn(|_| Arc::default());
        Self { list, call, sent, lists, others, gets }
    }

    async fn answer(State(server): State<Self>, method: Method, body: Bytes) -> Response {
        if method != Method::POST {
            server.gets.fetch_add(1, Ordering::Relaxed);
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        }
        let asked: Value = serde_json::from_slice(&body).unwrap();
        let id = asked["id"].clone();
        let result = match asked["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": asked["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "far", "version": "1"},
            }),
            "tools/list" => (server.list)(server.lists.fetch_add(1, Ordering::Relaxed)),
            "tools/call" => return server.events(id),
            _ => {
                server.others.fetch_add(1, Ordering::Relaxed);
                return StatusCode::ACCEPTED.into_response();
            }
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
        headers.insert("mcp-session-id", "one".parse().unwrap());
        (headers, json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()).into_response()
    }

    fn events(&self, id: Value) -> Response {
        let server = self.clone();
        let pieces = (0..).map_while(move |number| {
            let message = (server.call)(number, &id)?;
            let field = if message.starts_with(':') { "" } else { "data: " };
            let piece = format!("{field}{message}\n\n");
            server.sent.fetch_add(piece.len(), Ordering::Relaxed);
            Some(Ok::<_, std::io::Error>(Bytes::from(piece)))
        });
        ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream::iter(pieces))).into_response()
    }

    async fn config(&self) -> McpConfig {
        let url = serve(Router::new().fallback(Self::answer).with_state(self.clone())).await;
        toml::from_str(&format!("name = \"far\"\nurl = {url:?}\ntimeout_seconds = 20")).unwrap()
    }

    async fn start(&self) -> Result<(McpServers, Vec<Arc<dyn Tool>>), String> {
        let started = McpServers::start(&[self.config().await], Path::new("")).await;
        started.map_err(|error| annex_text::with_causes(&error))
    }

    /// The result of a call that the model gets.
    async fn call(&self) -> String {
        told_of_call(self.start().await.unwrap()).await.0
    }
}

/// Makes the page with this number.
type MakePage = fn(usize) -> Value;

#[tokio::test]
async fn a_list_of_tools_without_end_is_not_read_to_its_end() {
    let cases: [(MakePage, &str, usize); 3] = [
        (|_| json!({"tools": [], "nextCursor": "on"}), "its list of tools has more than 100 pages", 100),
        (
            |page| {
                let tool = |number| json!({"name": format!("t{page}-{number}"), "inputSchema": {"type": "object"}});
                json!({"tools": (0..100).map(tool).collect::<Vec<_>>(), "nextCursor": "on"})
            },
            "more than 1000 tools",
            11,
        ),
        (
            |page| {
                let tool = json!({"name": format!("t{page}"), "description": "x".repeat(1 << 20), "inputSchema": {"type": "object"}});
                json!({"tools": [tool], "nextCursor": "on"})
            },
            "more than 4194304 bytes of them",
            4,
        ),
    ];
    for (list, expected, pages) in cases {
        let server = Server::new(list, |_, _| None);
        let error = server.start().await.err().unwrap();
        assert!(error.contains("MCP server `far` cannot be started") && error.contains(expected), "{error}");
        assert_eq!(server.lists.load(Ordering::Relaxed), pages);
    }
}

#[tokio::test]
async fn an_error_of_a_server_without_end_fails_the_start() {
    let sent = Arc::new(AtomicUsize::new(0));
    for media_type in ["application/json", "text/html"] {
        let counted = Arc::clone(&sent);
        let router = Router::new().fallback(move || async move {
            let pieces = (0..).map(move |_: u64| {
                counted.fetch_add(64 << 10, Ordering::Relaxed);
                Ok::<_, std::io::Error>(Bytes::from("x".repeat(64 << 10)))
            });
            let body = Body::from_stream(stream::iter(pieces));
            (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, media_type)], body).into_response()
        });
        let url = serve(router).await;
        let config: McpConfig = toml::from_str(&format!("name = \"far\"\nurl = {url:?}")).unwrap();
        let error = McpServers::start(&[config], Path::new("")).await.err().unwrap();
        let error = annex_text::with_causes(&error);
        assert!(error.contains("MCP server `far` cannot be started") && error.len() < 2 << 10, "{error}");
    }
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 2 * IN_BETWEEN, "{sent}");
}

#[tokio::test]
async fn a_result_that_is_too_large_is_not_taken() {
    let large = |number: usize, id: &Value| {
        let result = json!({"content": [{"type": "text", "text": "x".repeat(300_000)}]});
        (number == 0).then(|| json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
    };
    let told = Server::new(one_tool, large).call().await;
    assert!(told.contains("the result has 300000 bytes of text, at most 262144 are taken"), "{told}");
}

#[tokio::test]
async fn notifications_without_end_fail_the_call() {
    let server = Server::new(one_tool, |_, _| Some(notification()));
    let told = server.call().await;
    assert!(told.contains("the server sent too much with its answer"), "{told}");
    let sent = server.sent.load(Ordering::Relaxed);
    assert!(sent < (20 << 20) + IN_BETWEEN, "{sent}");
}

#[tokio::test]
async fn what_is_no_message_without_end_fails_the_call() {
    let server = Server::new(one_tool, |number, _| Some(["nonsense", "{}", "[1]"][number % 3].to_owned()));
    let told = server.call().await;
    assert!(told.contains("the server sent too much with its answer"), "{told}");
}

#[tokio::test]
async fn comments_without_end_fail_the_call() {
    let server = Server::new(one_tool, |_, _| Some(":x\n\n".repeat(1_000)));
    let told = server.call().await;
    assert!(told.contains("the server sent too much with its answer"), "{told}");
    let sent = server.sent.load(Ordering::Relaxed);
    assert!(sent < (20 << 20) + IN_BETWEEN, "{sent}");
}

#[tokio::test]
async fn requests_of_a_server_are_answered_a_few_times_and_the_call_goes_on() {
    let server = Server::new(one_tool, |number, id| match number {
        0..5_000 => Some(request(number)),
        5_000 => Some(result(id)),
        _ => None,
    });
    let told = server.call().await;
    assert!(told.contains("from afar"), "{told}");
    // The notification that the client is ready, and four refusals.
    let others = server.others.load(Ordering::Relaxed);
    assert!(others <= 5, "{others} answers");
}

#[tokio::test]
async fn a_server_that_goes_on_after_its_answer_is_not_listened_to() {
    let server = Server::new(one_tool, |number, id| Some(if number == 0 { result(id) } else { request(number) }));
    let told = server.call().await;
    assert!(told.contains("from afar"), "{told}");
    // The server could send only as much as the buffers hold, so the client has closed the connection.
    let sent = server.sent.load(Ordering::Relaxed);
    let settled = async {
        let mut before = sent;
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = server.sent.load(Ordering::Relaxed);
            if now == before {
                return now;
            }
            before = now;
        }
    };
    let sent = tokio::time::timeout(Duration::from_secs(20), settled).await.unwrap();
    assert!(sent < IN_BETWEEN, "{sent}");
    assert!(server.others.load(Ordering::Relaxed) <= 5);
}

#[tokio::test]
async fn a_server_is_not_listened_to_between_calls() {
    let server = Server::new(one_tool, |number, id| (number == 0).then(|| result(id)));
    let told = server.call().await;
    assert!(told.contains("from afar"), "{told}");
    // One request may end the session. The client opens no stream without a request.
    assert!(server.gets.load(Ordering::Relaxed) <= 1);
}

/// Accepts a connection, reads the request and sends `head`. If `again` is not empty, waits until the client has read
/// some of it.
async fn asked(listener: &TcpListener, head: &str, again: &str) -> TcpStream {
    let (mut connection, _) = listener.accept().await.unwrap();
    assert!(connection.read(&mut [0; 1 << 10]).await.unwrap() > 0);
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut sent = 0;
    while !again.is_empty() && sent < IN_BETWEEN {
        connection.write_all(again.as_bytes()).await.unwrap();
        sent += again.len();
    }
    connection
}

/// Sends `again` until the client closes the connection.
async fn closed(mut connection: TcpStream, again: &str) {
    let mut rest = [0; 1 << 10];
    let mut is_open = true;
    while is_open {
        is_open = match again {
            "" => connection.read(&mut rest).await.is_ok_and(|bytes| bytes > 0),
            again => connection.write_all(again.as_bytes()).await.is_ok(),
        };
    }
}

/// Drops the start of a server after the server has received a request.
async fn closed_when_the_start_is_given_up(config: McpConfig, listener: &TcpListener, head: &str, again: &str) {
    let configs = [config];
    let connection = tokio::select! {
        _ = McpServers::start(&configs, Path::new("")) => panic!("the start has ended by itself"),
        connection = asked(listener, head, again) => connection,
    };
    tokio::time::timeout(Duration::from_secs(20), closed(connection, again)).await.unwrap();
}

#[tokio::test]
async fn a_connection_to_a_server_whose_start_is_given_up_is_closed() {
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let comment = format!(":{}\n\n", "x".repeat(64 << 10));
    let comment = format!("{:x}\r\n{comment}\r\n", comment.len());
    let hint = format!("HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n", "x".repeat(4 << 10));
    for (head, again) in [("", ""), (stream, ""), (stream, comment.as_str()), ("", hint.as_str())] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let config = toml::from_str(&format!("name = \"far\"\nurl = {url:?}")).unwrap();
        closed_when_the_start_is_given_up(config, &listener, head, again).await;
    }
}

#[tokio::test]
async fn a_program_whose_start_is_given_up_is_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // It goes on when its standard input is closed.
    let code = format!("import socket; s = socket.create_connection(('127.0.0.1', {port})); s.send(b'x'); s.recv(1)");
    let config = format!("name = \"near\"\ncommand = \"python3\"\nargs = [\"-c\", {code:?}]");
    closed_when_the_start_is_given_up(toml::from_str(&config).unwrap(), &listener, "", "").await;
}

#[tokio::test]
async fn behind_a_screen_a_server_at_a_private_address_is_not_asked() {
    let screen = |allow: &[&str]| {
        let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
        Screen::new(ScreenConfig { allow, https_only: false })
    };
    let server = Server::new(one_tool, |_, _| None);
    let config = server.config().await;
    let refused = McpServers::start(&[config.clone().behind(screen(&[]))], Path::new("")).await.err().unwrap();
    assert!(annex_text::with_causes(&refused).contains("address 127.0.0.1 is not public"), "{refused}");
    assert_eq!(server.lists.load(Ordering::Relaxed), 0);
    let (servers, tools) = McpServers::start(&[config.behind(screen(&["127.0.0.1"]))], Path::new("")).await.unwrap();
    assert_eq!(tools.len(), 1);
    servers.close().await;
}

/// An MCP program that additionally writes the output of the Python code `more`.
fn program(more: &str) -> McpConfig {
    let code = format!(
        r#"
import json, sys
def send(message):
    sys.stdout.write(json.dumps(dict(message, jsonrpc="2.0")) + "\n")
    sys.stdout.flush()
for line in sys.stdin:
    asked = json.loads(line)
    method, id = asked.get("method"), asked.get("id")
    if method == "initialize":
        send({{"id": id, "result": {{"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {{"tools": {{}}}}, "serverInfo": {{"name": "near", "version": "1"}}}}}})
    elif method == "tools/list":
        send({{"id": id, "result": {{"tools": [{{"name": "sum", "inputSchema": {{"type": "object"}}}}]}}}})
    elif method == "tools/call":
        {more}
        send({{"id": id, "result": {{"content": [{{"type": "text", "text": "from near"}}]}}}})
"#
    );
    let code = toml::Value::String(code);
    toml::from_str(&format!("name = \"near\"\ncommand = \"python3\"\nargs = [\"-c\", {code}]\ntimeout_seconds = 60"))
        .unwrap()
}

/// Calls the tool `sum` in a turn. Returns the result that the model gets, and the bench of the turn.
pub(crate) async fn told_of_call((servers, tools): (McpServers, Vec<Arc<dyn Tool>>)) -> (String, Bench) {
    let mut bench = Bench::answering("i", None, &[&[">sum {}"], &["done"]]);
    bench.agent.tools = Tools::new(tools).unwrap();
    bench.turn("go", "{}").await.1.unwrap();
    servers.close().await;
    (format!("{:?}", bench.prompt(1).turns.last().unwrap()), bench)
}

/// The result of a call of the program that the model gets.
pub(crate) async fn told_by_program(more: &str) -> String {
    told_of_call(McpServers::start(&[program(more)], Path::new("")).await.unwrap()).await.0
}

#[tokio::test]
async fn a_program_may_say_some_things_that_nobody_asked_for_and_not_without_end() {
    let said = "[send({\"method\": \"notifications/message\", \"params\": {\"level\": \"info\", \"data\": 1}}) for _ in range(1000)]";
    assert!(told_by_program(said).await.contains("from near"));
    let flood = "[send({\"method\": \"notifications/message\", \"params\": {\"level\": \"info\", \"data\": 1}}) for _ in iter(int, 1)]";
    let told = told_by_program(flood).await;
    assert!(told.contains("the tool could not be reached"), "{told}");
    let answers = "[send({\"id\": 1000 + number, \"result\": {}}) for number in iter(int, 1)]";
    let told = told_by_program(answers).await;
    assert!(told.contains("the tool could not be reached"), "{told}");
}

//! Limits on the memory that clients can occupy: bodies without an end, unread answers, streams and connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::TestServer;
use axum::http::Request;
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use h2::client::Builder;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tonic::transport::Channel;

use crate::agent;
use crate::auth::{ADA, BOB, api_keys};
use crate::connections::http2;
use crate::durable::{Counting, counting, id_of, serve_with};
use crate::three_ways::{ALL, Binding, TestAnswer, TestMessage, say};

/// Until something that must happen is taken for missing.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Timeouts that no slow client of these tests reaches.
const PATIENT: &str = "head_seconds = 600\nbody_seconds = 600\nwrite_seconds = 600";

/// A connection from the address `127.0.0.host` with a small receive buffer.
async fn connect_from(server: &TestServer, host: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("a small buffer");
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0))).expect("a loopback address");
    let address = server.url().trim_start_matches("http://").parse().expect("an address");
    socket.connect(address).await.expect("a connection")
}

fn post(path: &str, length: usize, body: &str) -> Vec<u8> {
    let head = "host: localhost\r\ncontent-type: application/json\r\na2a-version: 1.0";
    format!("POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// Reads to the end of the connection.
async fn read(mut stream: TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let _ = timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.expect("the connection ends");
    answer
}

/// The head, and a body of the length in the head.
async fn read_answer(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let count = timeout(TIMEOUT, stream.read(&mut piece)).await.expect("an answer").unwrap_or(0);
        bytes.extend_from_slice(&piece[..count]);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
            let body = &bytes[end + 4..];
            if body.len() == length.parse::<usize>().expect("a number") {
                return Some((head, body.to_vec()));
            }
        }
        if count == 0 {
            return None;
        }
    }
}

#[tokio::test]
async fn unfinished_bodies_keep_no_other_caller_out() {
    // Room for sixteen bodies, four of one caller.
    const BODY: usize = 64 << 10;
    let bounds = format!("[server]\n{PATIENT}\nmax_body_bytes = {BODY}\nmax_reading_bytes = {}", 16 * BODY);
    let server = agent("Say something.", &bounds).await;
    let unfinished = post("/a2a/jsonrpc", BODY, &" ".repeat(BODY - 1));
    let mut refused = FuturesUnordered::new();
    for number in 0..150 {
        let mut stream = connect_from(&server, 2 + number % 5).await;
        let unfinished = &unfinished;
        refused.push(async move {
            // The end may come while there is more to send.
            let _ = stream.write_all(unfinished).await;
            read_answer(&mut stream).await
        });
    }
    // All but sixteen are ended; the budget has no room for a seventeenth.
    let mut told = 0;
    for _ in 0..150 - 16 {
        // Whoever still sends may miss the reason.
        let Some((head, body)) = refused.next().await.expect("one more") else { continue };
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body["error"]["data"][0]["reason"], "OVERLOADED", "{body}");
        told += 1;
    }
    assert!(told > 0);
    // Another caller, whose body has to be waited for, too.
    let said = server.say("prompt").body();
    let (first, second) = said.split_at(said.len() / 2);
    let mut stream = connect_from(&server, 1).await;
    stream.write_all(&post("/a2a/jsonrpc", said.len(), first)).await.expect("sent");
    tokio::task::yield_now().await;
    stream.write_all(second.as_bytes()).await.expect("sent");
    let (head, _) = read_answer(&mut stream).await.expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    // Those that were let be can still end.
    drop(refused);
    assert!(server.say("prompt").send().await.is_ok());
}

/// Sends the beginning of a body on the binding's path and returns the server's answer.
async fn unfinished(server: &TestServer, binding: Binding, key: &str, bytes: usize) -> String {
    let path = match binding {
        Binding::JsonRpc => "/a2a/jsonrpc",
        Binding::HttpJson => "/a2a/rest/message:send",
        Binding::Grpc => "/lf.a2a.v1.A2AService/SendMessage",
    };
    let media_type = if matches!(binding, Binding::Grpc) { "application/grpc" } else { "application/json" };
    let (client, _connection) = http2(server, Builder::new()).await;
    let mut client = client.ready().await.expect("ready");
    let request = Request::post(format!("{}{path}", server.url()))
        .header("content-type", media_type)
        .header("a2a-version", "1.0")
        .header("x-api-key", key);
    let (response, mut sending) = client.send_request(request.body(()).expect("a request"), false).expect("sent");
    // For gRPC the beginning of a long message, for the others of a text.
    let length = u32::try_from(bytes).expect("a small body") + 100;
    let mut body = [&[0][..], &length.to_be_bytes()].concat();
    body.resize(bytes, b' ');
    sending.send_data(Bytes::from(body), false).expect("sent");
    let response = response.await.expect("an answer");
    let status = response.headers().get("grpc-status").map(|status| status.to_str().expect("ASCII").to_owned());
    status.unwrap_or_else(|| response.status().as_u16().to_string())
}

#[tokio::test]
async fn the_bodies_of_one_caller_count_together_on_each_binding_and_not_for_another() {
    const BODY: usize = 40_000;
    let bounds = format!("{PATIENT}\nmax_body_bytes = {BODY}\nmax_reading_bytes = {}", 4 * BODY);
    let server = serve_with(&counting(), &bounds, &api_keys()).await;
    for (first, second) in
        [(Binding::JsonRpc, Binding::HttpJson), (Binding::HttpJson, Binding::Grpc), (Binding::Grpc, Binding::JsonRpc)]
    {
        // The two do not fit, so one is ended: the larger one, which is the first.
        let larger = unfinished(&server, first, ADA, 30_000);
        let smaller = async {
            for binding in ALL {
                let said = TestMessage { key: Some(BOB), text: "work", ..TestMessage::default() };
                assert!(matches!(say(&server, binding, said).await, TestAnswer::Task(..)));
            }
            unfinished(&server, second, ADA, 20_000).await
        };
        let status = tokio::select! {
            status = larger => status,
            status = smaller => panic!("the smaller one was ended with {status}"),
        };
        assert_eq!(status, if matches!(first, Binding::Grpc) { "14" } else { "503" });
    }
}

/// A task that is too long for the buffers of a connection.
async fn long_task(server: &TestServer) -> String {
    id_of(&server.say("long").send().await.expect("a task"))
}

fn get_task(id: &str) -> Vec<u8> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": id}}).to_string();
    post("/a2a/jsonrpc", body.len(), &body)
}

/// Asks for the task and reads no more than the beginning of the answer.
async fn leave_unread(server: &TestServer, host: u8, id: &str) -> TcpStream {
    let mut stream = connect_from(server, host).await;
    stream.write_all(&get_task(id)).await.expect("sent");
    assert!(stream.peek(&mut [0]).await.expect("a beginning") > 0);
    stream
}

async fn answering(agent: &std::sync::Arc<Counting>, bytes: usize) -> TestServer {
    serve_with(agent, &format!("{PATIENT}\nmax_body_bytes = 10000\nmax_answer_bytes = {bytes}"), "").await
}

#[tokio::test]
async fn a_caller_that_leaves_long_answers_unread_is_cut_off_when_another_needs_the_room() {
    // Room for eight answers of a bit more than 6 MiB, two of one caller.
    let server = answering(&counting(), 52 << 20).await;
    let id = long_task(&server).await;
    let mut unread = Vec::new();
    for host in [2, 3, 4, 5, 2, 3, 4, 5] {
        unread.push(leave_unread(&server, host, &id).await);
    }
    // One that has its share gets no more.
    let mut greedy = connect_from(&server, 2).await;
    greedy.write_all(&get_task(&id)).await.expect("sent");
    let (head, body) = read_answer(&mut greedy).await.expect("an answer");
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!((&body["id"], &body["error"]["data"][0]["reason"]), (&json!(1), &json!("OVERLOADED")), "{body}");
    // Another one is served whole, and one of those answers is given up for it.
    let read = server.call("GetTask", json!({"id": id}).to_string()).send().await.expect("an answer");
    assert_eq!(read.body["result"]["id"], id.as_str(), "{:?}", read.body["error"]);
    let mut whole = 0;
    for mut stream in unread {
        whole += usize::from(read_answer(&mut stream).await.is_some());
    }
    assert_eq!(whole, 7);
}

#[tokio::test]
async fn a_long_answer_is_refused_on_each_binding_while_too_much_is_unread_and_short_ones_are_not() {
    let server = answering(&counting(), 8 << 20).await;
    let id = long_task(&server).await;
    let unread = leave_unread(&server, 1, &id).await;
    for binding in ALL {
        assert_eq!(get(&server, binding, &id).await, Err("OVERLOADED".to_owned()), "{binding:?}");
    }
    assert!(matches!(
        say(&server, Binding::Grpc, TestMessage { text: "work", ..TestMessage::default() }).await,
        TestAnswer::Task(..)
    ));
    drop(unread);
    for binding in ALL {
        // The server notices some time that the client is gone.
        while let Err(reason) = get(&server, binding, &id).await {
            assert_eq!(reason, "OVERLOADED");
        }
    }
}

/// The task's id, or why there is none.
async fn get(server: &TestServer, binding: Binding, id: &str) -> Result<String, String> {
    use tonic_types::StatusExt;

    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    match binding {
        Binding::JsonRpc => {
            let reply = server.call("GetTask", json!({"id": id}).to_string()).send().await.expect("a reply");
            let error = &reply.body["error"]["data"][0]["reason"];
            if error.is_null() { Ok(text(&reply.body["result"]["id"])) } else { Err(text(error)) }
        }
        Binding::HttpJson => {
            let request = server.client().get(format!("{}/a2a/rest/tasks/{id}", server.url()));
            let reply = request.header("a2a-version", "1.0").send().await.expect("a reply");
            let body: Value = reply.json().await.expect("JSON");
            let error = &body["error"]["details"][0]["reason"];
            if error.is_null() { Ok(text(&body["id"])) } else { Err(text(error)) }
        }
        Binding::Grpc => {
            let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await;
            let client = A2aServiceClient::new(channel.expect("a channel"));
            let mut request = tonic::Request::new(pb::GetTaskRequest { id: id.to_owned(), ..Default::default() });
            request.metadata_mut().insert("a2a-version", "1.0".parse().expect("ASCII"));
            match client.max_decoding_message_size(64 << 20).get_task(request).await {
                Ok(task) => Ok(task.into_inner().id),
                Err(status) => Err(status.get_details_error_info().expect("an ErrorInfo").reason),
            }
        }
    }
}

#[tokio::test]
async fn streams_are_bounded_in_all_and_per_caller_on_each_binding() {
    let agent = counting();
    let bounds = "max_streams = 2\nmax_streams_per_caller = 1";
    let server = serve_with(&agent, bounds, &api_keys()).await;
    let wait = |key| server.say("wait").header("x-api-key", key).streaming();
    let mut ada = wait(ADA).open().await.expect("a stream");
    ada.next().await.expect("an event").expect("a task");
    for binding in ALL {
        assert_eq!(open_stream(&server, binding, ADA).await, Err("OVERLOADED".to_owned()), "{binding:?}");
    }
    assert_eq!(agent.turns.load(std::sync::atomic::Ordering::SeqCst), 1, "a refused stream began a turn");
    for binding in ALL {
        // Until the stream before is over.
        while let Err(reason) = open_stream(&server, binding, BOB).await {
            assert_eq!(reason, "OVERLOADED");
        }
    }
    drop(ada);
    for binding in ALL {
        while open_stream(&server, binding, ADA).await.is_err() {}
    }
}

/// Opens a stream of a turn that ends at once, and reads it.
async fn open_stream(server: &TestServer, binding: Binding, key: &str) -> Result<(), String> {
    use tonic_types::StatusExt;

    let id = uuid::Uuid::new_v4().to_string();
    let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "work"}]});
    let (path, body) = match binding {
        Binding::JsonRpc => {
            let params = json!({"message": message});
            let method = "SendStreamingMessage";
            ("/a2a/jsonrpc", json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
        }
        Binding::HttpJson => ("/a2a/rest/message:stream", json!({"message": message})),
        Binding::Grpc => {
            let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await;
            let part = pb::Part { content: Some(pb::part::Content::Text("work".to_owned())), ..pb::Part::default() };
            let message = pb::Message {
                message_id: id,
                role: pb::Role::User.into(),
                parts: vec![part],
                ..pb::Message::default()
            };
            let message = pb::SendMessageRequest { message: Some(message), ..Default::default() };
            let mut request = tonic::Request::new(message);
            request.metadata_mut().insert("a2a-version", "1.0".parse().expect("ASCII"));
            request.metadata_mut().insert("x-api-key", key.parse().expect("ASCII"));
            let mut client = A2aServiceClient::new(channel.expect("a channel"));
            return match client.send_streaming_message(request).await {
                Ok(events) => {
                    let mut events = events.into_inner();
                    while events.message().await.expect("events").is_some() {}
                    Ok(())
                }
                Err(status) => Err(status.get_details_error_info().expect("an ErrorInfo").reason),
            };
        }
    };
    let request = server.client().post(format!("{}{path}", server.url())).json(&body);
    let reply = request.header("a2a-version", "1.0").header("x-api-key", key).send().await.expect("a reply");
    let is_stream = reply.headers()["content-type"] == "text/event-stream";
    let text = reply.text().await.expect("a body");
    if is_stream {
        return Ok(());
    }
    let body: Value = serde_json::from_str(&text).expect("JSON");
    let details = &body["error"][if matches!(binding, Binding::JsonRpc) { "data" } else { "details" }];
    Err(details[0]["reason"].as_str().expect("a reason").to_owned())
}

#[tokio::test]
async fn connections_of_one_address_are_bounded_and_leave_room_for_others() {
    let bounds = format!("[server]\n{PATIENT}\nmax_connections_per_address = 2");
    let server = agent("Say something.", &bounds).await;
    let idle = [connect_from(&server, 2).await, connect_from(&server, 2).await];
    assert_eq!(read(connect_from(&server, 2).await).await, b"", "it is closed at once");
    assert!(server.say("prompt").send().await.is_ok());
    drop(idle);
    // The server notices some time that the two are gone.
    let request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    loop {
        let mut stream = connect_from(&server, 2).await;
        let _ = stream.write_all(request).await;
        if read(stream).await.starts_with(b"HTTP/1.1 200") {
            break;
        }
    }
}

#[tokio::test]
async fn requests_of_one_http2_connection_are_bounded() {
    for (bounds, expected) in [("", 32), ("[server]\nmax_requests_per_connection = 2", 2)] {
        let server = agent("Say something.", bounds).await;
        let (client, _connection) = http2(&server, Builder::new()).await;
        let mut client = client.ready().await.expect("ready");
        let request = Request::get(format!("{}/livez", server.url())).body(()).expect("a request");
        client.send_request(request, true).expect("sent").0.await.expect("an answer");
        assert_eq!(client.current_max_send_streams(), expected);
    }
}

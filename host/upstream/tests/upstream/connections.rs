//! Turns that reuse the connections of earlier turns to the upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::bench::{Bench, config};

const TURNS: usize = 20;

/// The response to a message, up to its last event. The end of the stream is missing.
fn stream() -> String {
    let completed = json!({"taskId": "t", "contextId": "theirs", "status": {"state": "TASK_STATE_COMPLETED"}});
    let event = format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": 1, "result": {"statusUpdate": completed}}));
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{event}\r\n", event.len())
}

/// Reads one request. False if the connection has ended.
async fn read_request(connection: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") || bytes.starts_with(b"POST") && !bytes.ends_with(b"}")
    {
        if connection.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn a_stream_that_ends_behind_its_last_event_leaves_its_connection_to_the_next_turn() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let card = json!({"name": "By hand", "capabilities": {"streaming": true},
        "supportedInterfaces": [{"url": format!("{url}/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]});
    let connections = Arc::new(AtomicUsize::new(0));
    let turn_over = Arc::new(Notify::new());
    let counted = Arc::clone(&connections);
    let may_end = Arc::clone(&turn_over);
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        assert!(read_request(&mut first).await);
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n";
        first.write_all(format!("{head}{card}").as_bytes()).await.unwrap();
        drop(first);
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let may_end = Arc::clone(&may_end);
            tokio::spawn(async move {
                while read_request(&mut connection).await {
                    connection.write_all(stream().as_bytes()).await.unwrap();
                    may_end.notified().await;
                    // The client may have closed the connection in between.
                    let _ = connection.write_all(b"0\r\n\r\n").await;
                }
            });
        }
    });
    let bench = Bench::with(config(&url)).await;
    for task in ["t"; TURNS] {
        let turn = bench.say(task).await;
        assert!(turn.result.is_ok(), "{turn:?}");
        turn_over.notify_one();
        tokio::task::yield_now().await;
    }
    // A turn may begin before the end of the previous stream has arrived, and then uses another connection.
    let connections = connections.load(Ordering::Relaxed);
    assert!(connections < TURNS, "{connections} connections for {TURNS} turns");
}

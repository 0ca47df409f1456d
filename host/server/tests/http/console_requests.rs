//! The console's pages of requests, and the stream of new ones.

use std::time::Duration;

use annex_test_support::{TEST_EXTENSION, TestServer, until};
use reqwest::Response;
use serde_json::json;

use crate::console_pages::Browser;
use crate::installation::{self, ADMIN, Installation, extension};
use crate::requests::command;

/// The number of pages that get new requests at the same time.
const MAX_LISTENERS: usize = 16;

async fn serve() -> (Installation, TestServer, Browser) {
    let (files, server) = installation::serve(&format!("{ADMIN}{}", extension("test.wasm", "", "none"))).await;
    let browser = Browser::log_in(&server).await;
    (files, server, browser)
}

/// The path of the newest request in the list.
fn newest(list: &str) -> String {
    let (_, link) = list.split_once("href=\"/requests/").expect("a request");
    format!("/requests/{}", link.split('"').next().expect("a number"))
}

/// Reads a stream until it has `text`.
async fn read_until(stream: &mut Response, text: &str) -> String {
    let mut read = String::new();
    while !read.contains(text) {
        let chunk = tokio::time::timeout(Duration::from_secs(30), stream.chunk()).await.expect("an event in time");
        read.push_str(&String::from_utf8_lossy(&chunk.expect("a chunk").expect("more of the stream")));
    }
    read
}

#[tokio::test]
async fn a_request_is_in_the_list_and_its_page_has_the_verdict_of_each_hook() {
    let (_files, server, browser) = serve().await;
    assert_eq!(command(&server, "ok").await, 0);
    let page = browser.page(&newest(&browser.page("/requests?operation=SendMessage").await)).await;
    for text in ["authentication", "activation", "hook", "state", "agent", "<rect class=\"bar\"", TEST_EXTENSION] {
        assert!(page.contains(text), "{text}: {page}");
    }
    command(&server, "violation").await;
    let list = browser.page("/requests?outcome=refused").await;
    assert!(list.contains("violation") && list.contains("<option value=\"refused\" selected>"), "{list}");
    assert!(browser.page(&newest(&list)).await.contains("refused"));
    command(&server, "trap").await;
    let page = browser.page(&newest(&browser.page("/requests?outcome=failed").await)).await;
    assert!(page.contains("trapped in"), "the page has the cause that the log has: {page}");
    assert_eq!(browser.open("/requests/4711").await.status, 404);
    assert_eq!(browser.open("/requests?outcome=good").await.status, 400);
}

#[tokio::test]
async fn what_clients_wrote_is_text_on_the_pages_of_requests() {
    let (_files, server, browser) = serve().await;
    let huge = "x".repeat(100_000);
    for hostile in ["<script>alert(1)</script>\u{202e}\u{1b}[31m", &huge] {
        let params = json!({"tenant": hostile, "id": "none"});
        let answer = server.call("GetTask", params.to_string()).send().await.expect("a reply");
        assert_ne!(answer.code(), 0, "there is no such tenant");
        let list = browser.page("/requests").await;
        let page = browser.page(&newest(&list)).await;
        for (name, html) in [("list", &list), ("page", &page)] {
            for harmful in ["<script>alert", "\u{202e}", "\u{1b}", &huge[..1_000]] {
                assert!(!html.contains(harmful), "{name}: {harmful:?}");
            }
        }
    }
}

#[tokio::test]
async fn new_requests_come_in_the_stream_as_they_end() {
    let (_files, server, browser) = serve().await;
    command(&server, "ok").await;
    let list = browser.page("/requests?operation=SendMessage").await;
    let (_, live) = list.split_once("data-live=\"").expect("a stream");
    let live = live.split('"').next().expect("a path").replace("&#38;", "&").replace("&amp;", "&");
    let mut stream = browser.get(&live).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    // The first event is a request that the list does not have yet.
    command(&server, "violation").await;
    let event = read_until(&mut stream, "</tr>").await;
    assert!(event.contains("event: row") && event.contains("violation"), "{event}");
    assert!(!event.contains("AgentCard"), "{event}");
    let stranger = browser.client.get(format!("{}{live}", browser.url)).send().await.expect("an answer");
    assert_eq!(stranger.status().as_u16(), 303, "a stranger gets no stream");
}

#[tokio::test]
async fn only_so_many_pages_get_new_requests_and_a_closed_one_makes_room() {
    let (_files, server, browser) = serve().await;
    command(&server, "ok").await;
    let mut streams = Vec::new();
    for _ in 0..MAX_LISTENERS {
        let mut stream = browser.get("/requests/live?after=0").await;
        assert_eq!(stream.status().as_u16(), 200);
        read_until(&mut stream, "</tr>").await;
        streams.push(stream);
    }
    assert_eq!(browser.get("/requests/live?after=0").await.status().as_u16(), 503);
    drop(streams.pop());
    // The server notices the closed connection when it next writes to it.
    until("a place for a page", async || {
        command(&server, "ok").await;
        browser.get("/requests/live?after=0").await.status().as_u16() == 200
    })
    .await;
}

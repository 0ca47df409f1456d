//! Lines of what is no call of an operation: preflights, and input that is not HTTP.

use annex_test_support::TestServer;
use axum::http::Method;

use super::line;
use crate::agent;
use crate::hostile::log;

/// The status of the answer to what a browser asks before a page of `origin` sends a message.
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

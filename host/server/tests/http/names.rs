//! Under which names a server without authentication may be called.

use annex_test_support::TestServer;
use axum::http::{Request, StatusCode};

use crate::auth::guarded;
use crate::connections::http2;
use crate::{agent, test_extension};

const PATHS: [&str; 4] = ["/a2a/jsonrpc", "/a2a/rest/tasks/x", "/.well-known/agent-card.json", "/livez"];

async fn called(server: &TestServer, path: &str, host: &str) -> (StatusCode, String) {
    let request = server.client().get(format!("{}{path}", server.url())).header("host", host);
    let response = request.send().await.expect("an answer");
    (response.status(), response.text().await.expect("a body"))
}

#[tokio::test]
async fn a_server_that_trusts_everybody_is_called_by_names_of_this_machine_only() {
    let server = agent("Say something.", "").await;
    for path in PATHS {
        for host in ["evil.example", "evil.example:9999", "localhost.evil.example", "10.0.0.1", "[::2]:80", "", "@"] {
            let (status, text) = called(&server, path, host).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{host}{path}");
            assert!(text.contains("server.public_url"), "{text}");
        }
        for host in ["localhost", "LOCALHOST:1", "a.localhost", "127.0.0.1:9999", "127.8.8.8", "[::1]", "[::1]:80"] {
            assert_ne!(called(&server, path, host).await.0, StatusCode::FORBIDDEN, "{host}{path}");
        }
    }
}

#[tokio::test]
async fn the_host_of_the_public_url_is_a_name_of_the_server() {
    let server = agent("Say something.", "[server]\npublic_url = \"https://Agent.example/here\"").await;
    assert_eq!(called(&server, "/livez", "agent.example:443").await.0, StatusCode::OK);
    assert_eq!(called(&server, "/livez", "localhost").await.0, StatusCode::OK);
    assert_eq!(called(&server, "/livez", "other.example").await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_server_that_authenticates_its_callers_has_any_name() {
    let server = guarded().await;
    assert_eq!(called(&server, "/livez", "agent.example").await.0, StatusCode::OK);
}

#[tokio::test]
async fn grpc_calls_are_told_by_their_authority() {
    let server = agent("test={test?}", &test_extension("required = false")).await;
    let (mut client, _connection) = http2(&server, h2::client::Builder::new()).await;
    for (host, status) in [("evil.example", StatusCode::FORBIDDEN), ("localhost", StatusCode::OK)] {
        let request = Request::post(format!("http://{host}/lf.a2a.v1.A2AService/GetTask"));
        let request = request.header("content-type", "application/grpc").body(()).expect("a request");
        client = client.ready().await.expect("ready");
        let (response, _) = client.send_request(request, true).expect("sent");
        assert_eq!(response.await.expect("an answer").status(), status, "{host}");
    }
}

//! The last requests, as the admin API shows them.

use annex_test_support::{COMMAND_KEY, TEST_EXTENSION, TestServer};
use serde_json::{Value, json};

use crate::installation::{ADMIN, Installation, admin, extension, serve};

/// A server with the test extension, which says nothing by itself.
async fn with_extension(admin: &str) -> (Installation, TestServer) {
    serve(&format!("{admin}{}", extension("test.wasm", "", "none"))).await
}

/// Sends a message that tells the hooks of the test extension what to do.
pub(crate) async fn command(server: &TestServer, command: &str) -> i64 {
    let request = server.say("hi").extensions(TEST_EXTENSION).metadata(COMMAND_KEY, &format!("{command:?}"));
    request.send().await.expect("a reply").code()
}

async fn requests(server: &TestServer, query: &str) -> Vec<Value> {
    let (status, list) = admin(server, "GET", &format!("requests{query}"), Value::Null).await;
    assert_eq!(status, 200, "{list}");
    list["requests"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn a_request_is_shown_with_the_verdict_and_the_time_of_each_hook() {
    let (_files, server) = with_extension(ADMIN).await;
    assert_eq!(command(&server, "ok").await, 0);
    let listed = requests(&server, "?operation=SendMessage").await;
    let [request] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((&request["outcome"], &request["extensions"]), (&json!("ok"), &json!(TEST_EXTENSION)), "{request}");
    let (status, shown) = admin(&server, "GET", &format!("requests/{}", request["number"]), Value::Null).await;
    assert_eq!((status, &shown["context"]), (200, &request["context"]), "{shown}");
    let work = shown["work"].as_array().expect("a list");
    let hooks: Vec<_> = work.iter().filter(|part| part["kind"] == "hook").collect();
    assert!(hooks.iter().any(|hook| hook["what"] == "state"), "{shown}");
    for hook in &hooks {
        assert_eq!((&hook["verdict"], &hook["name"]), (&json!("ok"), &json!(TEST_EXTENSION)), "{hook}");
        assert!(hook["us"].as_u64() >= hook["cpu_us"].as_u64(), "{hook}");
    }
    for kind in ["authentication", "activation", "agent", "event"] {
        assert!(work.iter().any(|part| part["kind"] == kind), "{kind}: {shown}");
    }
    assert!(!shown.to_string().contains("\"hi\""), "the words of the user are not kept: {shown}");
}

#[tokio::test]
async fn a_refused_request_has_its_reason_and_a_failed_one_the_cause_in_the_log() {
    let (_files, server) = with_extension(ADMIN).await;
    command(&server, "violation").await;
    command(&server, "trap").await;
    let refused = requests(&server, &format!("?outcome=refused&extension={TEST_EXTENSION}")).await;
    assert_eq!((refused.len(), &refused[0]["reason"]), (1, &json!("violation")), "{refused:?}");
    assert_eq!(refused[0]["extension"], TEST_EXTENSION);
    let failed = requests(&server, "?outcome=failed").await;
    assert_eq!((failed.len(), failed[0]["error_id"].is_string()), (1, true), "{failed:?}");
    let (_, shown) = admin(&server, "GET", &format!("requests/{}", failed[0]["number"]), Value::Null).await;
    assert!(shown["cause"].as_str().expect("a cause").contains("trapped"), "{shown}");
    let trapped = |part: &Value| part["what"] == "state" && part["verdict"] == "trap";
    assert!(shown["work"].as_array().expect("a list").iter().any(trapped), "{shown}");
}

#[tokio::test]
async fn a_query_for_a_tenant_shows_no_request_of_another() {
    let (_files, server) = with_extension(ADMIN).await;
    command(&server, "ok").await;
    let own = requests(&server, "").await;
    assert_eq!(requests(&server, "?tenant=acme").await, Vec::<Value>::new());
    let path = format!("requests/{}?tenant=acme", own[0]["number"]);
    let (status, refusal) = admin(&server, "GET", &path, Value::Null).await;
    assert_eq!((status, &refusal["error"]["code"]), (404, &json!("no_request")));
}

#[tokio::test]
async fn only_as_many_requests_are_kept_as_the_config_allows() {
    let (_files, server) = with_extension(&format!("{ADMIN}requests = 2\n")).await;
    for _ in 0..5 {
        command(&server, "ok").await;
    }
    let listed = requests(&server, "").await;
    let numbers: Vec<_> = listed.iter().map(|request| request["number"].as_u64().expect("a number")).collect();
    assert_eq!((numbers.len(), numbers[0] - numbers[1]), (2, 1), "{listed:?}");
    let (status, _) = admin(&server, "GET", "requests?outcome=good", Value::Null).await;
    assert_eq!(status, 400);

    let (_files, server) = with_extension(&format!("{ADMIN}requests = 0\n")).await;
    command(&server, "ok").await;
    let (status, refusal) = admin(&server, "GET", "requests", Value::Null).await;
    assert_eq!((status, &refusal["error"]["code"]), (409, &json!("no_requests")), "{refusal}");
}

//! Quotas of tenants. A request beyond a quota is refused with the reason and a delay, other tenants are not affected,
//! and the tenant is served again later.

use std::fs;
use std::time::Duration;

use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_grpc::pb::{self};
use annex_test_support::{COMMAND_KEY, TEST_EXTENSION, TestConfig, TestServer, until};
use axum::http::header;
use axum::routing::post as posted;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;
use tonic_types::StatusExt;

use super::{KEYS, answer, channel, files, message, say, serve};
use crate::installation::admin;
use crate::output::steering;
use crate::scoped_keys::capable;
use crate::upstream::foreign;

pub(super) const ADMIN: &str = "[admin]\ntoken_file = \"token\"\n[runtime]\nwatch = false\n";

/// A server whose tenant acme has these quotas.
async fn limited(quota: &str, acme: &str) -> (TempDir, TestServer) {
    let folder = files(ADMIN, &format!("[tenant.quota]\n{quota}"), acme);
    let server = serve(&folder).await;
    (folder, server)
}

/// An answer of JSON-RPC with its HTTP status and `Retry-After`.
struct QuotaAnswer {
    status: u16,
    retry_after: Option<u64>,
    body: Value,
}

impl QuotaAnswer {
    /// The quota that is used up.
    fn quota(&self) -> Option<&str> {
        let info = &self.body["error"]["data"][0];
        (info["reason"] == "QUOTA_EXCEEDED").then(|| info["metadata"]["quota"].as_str()).flatten()
    }

    /// Waits for the time in the `Retry-After` of the refusal.
    async fn wait(&self) {
        sleep(Duration::from_secs(self.retry_after.expect("a time"))).await;
    }
}

async fn call(server: &TestServer, method: &str, params: Value, extension: &str) -> QuotaAnswer {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).header("a2a-version", "1.0");
    let reply = request.header("a2a-extensions", extension).json(&body).send().await.expect("an answer");
    let status = reply.status().as_u16();
    let retry_after = reply.headers().get(header::RETRY_AFTER).map(|value| value.to_str().expect("text"));
    let retry_after = retry_after.map(|seconds| seconds.parse().expect("seconds"));
    QuotaAnswer { status, retry_after, body: reply.json().await.expect("JSON") }
}

/// Says something in a conversation of acme.
async fn say_in(server: &TestServer, context: &str, text: &str) -> QuotaAnswer {
    let mut params = message("acme", text);
    params["message"]["contextId"] = json!(context);
    call(server, "SendMessage", params, "").await
}

/// Asks until the answer is a refusal.
async fn refused(mut ask: impl AsyncFnMut() -> QuotaAnswer) -> QuotaAnswer {
    for _ in 0..200 {
        let told = ask().await;
        if told.quota().is_some() {
            return told;
        }
    }
    unreachable!("nothing is refused")
}

async fn usage(server: &TestServer) -> Value {
    let (status, usage) = admin(server, "GET", "tenants/acme/usage", Value::Null).await;
    assert_eq!(status, 200, "{usage}");
    usage
}

#[tokio::test]
async fn too_many_requests_of_a_tenant_are_refused_on_each_binding_and_taken_when_the_time_is_over() {
    let (_folder, server) = limited("requests_per_second = 2", "").await;
    let read = async || call(&server, "GetTask", json!({"tenant": "acme", "id": "t"}), "").await;
    let told = refused(read).await;
    assert_eq!((told.status, told.retry_after), (429, Some(1)), "{}", told.body);
    let error = &told.body["error"];
    assert_eq!((&error["code"], &told.body["id"]), (&json!(-32_000), &json!(1)));
    let metadata = json!({"quota": "requests_per_second", "used": "2", "limit": "2"});
    let info = "type.googleapis.com/google.rpc.ErrorInfo";
    let info = json!({"@type": info, "reason": "QUOTA_EXCEEDED", "domain": "a2a-protocol.org", "metadata": metadata});
    let retry = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"});
    assert_eq!(error["data"], json!([info, retry]));

    let url = format!("{}/a2a/rest/acme/tasks/t", server.url());
    let reply = async || server.client().get(&url).header("a2a-version", "1.0").send().await.expect("an answer");
    let mut told = reply().await;
    while told.status() != 429 {
        told = reply().await;
    }
    assert_eq!(told.headers()[header::RETRY_AFTER], "1");
    let body: Value = told.json().await.expect("JSON");
    assert_eq!((&body["error"]["status"], &body["error"]["details"]), (&json!("RESOURCE_EXHAUSTED"), &error["data"]));

    let mut client = A2aServiceClient::new(channel(&server).await);
    let status = loop {
        let request = pb::GetTaskRequest { tenant: "acme".to_owned(), id: "t".to_owned(), ..Default::default() };
        let mut request = tonic::Request::new(request);
        request.metadata_mut().insert("a2a-version", "1.0".parse().expect("a value"));
        let status = client.get_task(request).await.expect_err("there is no such task");
        if status.code() != tonic::Code::NotFound {
            break status;
        }
    };
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
    let delay = status.get_details_retry_info().expect("a time").retry_delay;
    assert_eq!(delay, Some(Duration::from_secs(1)));

    assert!(answer(&say(&server, "globex", "x").await).contains("remembers"), "others do not notice");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(read().await.body["error"]["code"], -32_001, "it is asked again");
    until("the refusals are counted", async || usage(&server).await["last_day"]["refused"].as_u64() >= Some(3)).await;
}

#[tokio::test]
async fn a_tenant_whose_extensions_take_too_long_is_refused_until_that_is_paid_back() {
    let component = annex_test_support::component("test-extension");
    let (_folder, server) =
        limited("cpu_ms_per_second = 2", &format!("[[extension]]\ncomponent = {component:?}\n")).await;
    let work = async || {
        let mut params = message("acme", "x");
        params["message"]["metadata"] = json!({COMMAND_KEY: "loop 4000000"});
        call(&server, "SendMessage", params, TEST_EXTENSION).await
    };
    let told = refused(work).await;
    assert_eq!((told.status, told.quota()), (429, Some("cpu_ms_per_second")), "{}", told.body);
    let listed = json!({"tenant": "acme", "contextId": "none"});
    assert_eq!(call(&server, "ListTasks", listed.clone(), "").await.quota(), Some("cpu_ms_per_second"));
    assert!(answer(&say(&server, "globex", "x").await).contains("remembers"), "others do not notice");
    told.wait().await;
    let told = call(&server, "ListTasks", listed, "").await;
    assert_eq!(told.body["result"]["totalSize"], 0, "{}", told.body);
}

#[tokio::test]
async fn a_tenant_with_all_its_sessions_begins_no_other_and_goes_on_with_those() {
    let (_folder, server) = limited("sessions = 2", "").await;
    for context in ["c-1", "c-2"] {
        answer(&say_in(&server, context, "one").await.body);
    }
    let told = say_in(&server, "c-3", "one").await;
    assert_eq!((told.status, told.quota()), (429, Some("sessions")), "{}", told.body);
    let mut params = message("acme", "one");
    params["message"].as_object_mut().expect("an object").remove("contextId");
    assert_eq!(call(&server, "SendMessage", params, "").await.quota(), Some("sessions"));
    let listed = call(&server, "ListTasks", json!({"tenant": "acme", "contextId": "c-3"}), "").await;
    assert_eq!(listed.body["result"]["totalSize"], 0, "a refused message leaves nothing behind");
    answer(&say_in(&server, "c-1", "two").await.body);
    assert_eq!(usage(&server).await["sessions"], json!({"used": 2, "limit": 2, "counted_in": "all"}));

    let (status, deleted) = admin(&server, "DELETE", "sessions/c-2?tenant=acme", Value::Null).await;
    assert_eq!(status, 200, "{deleted}");
    until("there is room again", async || say_in(&server, "c-3", "one").await.status == 200).await;
}

#[tokio::test]
async fn a_tenant_with_all_the_state_that_it_may_have_is_refused_until_some_is_deleted() {
    let (_folder, server) = limited("state_bytes = 2000", "").await;
    let small = say_in(&server, "small", "x").await;
    answer(&small.body);
    // The agent keeps what it says, and says what it was told before.
    let long = "x".repeat(3_000);
    let mut told = say_in(&server, "large", &long).await;
    until("the state is counted", async || {
        told = say_in(&server, "large", "y").await;
        told.quota() == Some("state_bytes")
    })
    .await;
    assert_eq!(told.status, 429);
    let task = &small.body["result"]["task"]["id"];
    let read = call(&server, "GetTask", json!({"tenant": "acme", "id": task}), "").await;
    assert_eq!(&read.body["result"]["id"], task, "what is there can be read");
    assert!(usage(&server).await["state_bytes"]["used"].as_u64() >= Some(2_000));
    let (status, deleted) = admin(&server, "DELETE", "sessions/large?tenant=acme", Value::Null).await;
    assert_eq!(status, 200, "{deleted}");
    until("there is room again", async || say_in(&server, "small", "y").await.status == 200).await;
}

/// A turn that an extension answers in place of the agent is counted as any other.
#[tokio::test]
async fn an_answer_counts_for_the_quota_of_the_tenant() {
    let (_folder, server) = limited("sessions = 1", &steering(r#"before-agent = "answer""#)).await;
    assert_eq!(answer(&say_in(&server, "c-1", "x").await.body), "answered");
    let told = say_in(&server, "c-2", "x").await;
    assert_eq!((told.status, told.quota()), (429, Some("sessions")), "{}", told.body);
    let used = usage(&server).await;
    assert_eq!((&used["sessions"]["used"], &used["tasks"]["used"]), (&json!(1), &json!(1)), "{used}");

    let costly = steering(r#"check = "loop 4000000", before-agent = "answer""#);
    let (_folder, server) = limited("cpu_ms_per_second = 2", &costly).await;
    let told = refused(async || say_in(&server, "c", "x").await).await;
    assert_eq!((told.status, told.quota()), (429, Some("cpu_ms_per_second")), "{}", told.body);
}

#[tokio::test]
async fn of_the_finished_tasks_of_a_tenant_the_oldest_go_beyond_its_quota() {
    let (_folder, server) = limited("tasks = 2", "").await;
    let mut ids = Vec::new();
    for number in 0..4 {
        let told = say_in(&server, &format!("c{number}"), "x").await;
        ids.push(told.body["result"]["task"]["id"].as_str().expect("a task").to_owned());
    }
    let is_kept = async |id: &String| {
        let told = call(&server, "GetTask", json!({"tenant": "acme", "id": id}), "").await;
        told.body["result"].is_object()
    };
    // The count in between may be of a moment with three tasks.
    until("the two oldest are gone", async || !is_kept(&ids[0]).await && !is_kept(&ids[1]).await).await;
    assert!(is_kept(&ids[2]).await && is_kept(&ids[3]).await);
    until("two are counted", async || usage(&server).await["tasks"]["used"] == 2).await;
    assert_eq!(usage(&server).await["tasks"]["limit"], 2);
}

#[tokio::test]
async fn a_tenant_with_all_its_keys_is_refused_and_can_read_its_tasks() {
    let (_folder, server) = limited("keys = 3", &capable(KEYS, "", "")).await;
    let run = async |commands: Value| {
        let mut sent = message("acme", "x");
        sent["message"]["metadata"] = json!({"test/capability": [], "test/later": commands});
        call(&server, "SendMessage", sent, KEYS).await
    };
    let set: Vec<Value> =
        (0..3).map(|number| json!({"in": ["context", {"set": [format!("k-{number}"), "v"]}]})).collect();
    answer(&run(json!(set)).await.body);
    until("the keys are counted", async || run(json!([])).await.quota() == Some("keys")).await;
    assert_eq!(usage(&server).await["keys"], json!({"used": 3, "limit": 3, "counted_in": "all"}));
    let listed = call(&server, "ListTasks", json!({"tenant": "acme", "contextId": "c"}), "").await;
    assert!(listed.body["result"]["totalSize"].as_u64() >= Some(1), "{}", listed.body);
    assert!(answer(&say(&server, "globex", "x").await).contains("remembers"), "others do not notice");
}

pub(super) const COUNTED: &str = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15}}

data: [DONE]

"#;

#[tokio::test]
async fn tokens_of_a_day_are_counted_over_restarts_and_those_beyond_are_for_tomorrow() {
    let complete = posted(async || ([(header::CONTENT_TYPE, "text/event-stream")], COUNTED));
    let url = foreign::serve(axum::Router::new().route("/v1/chat/completions", complete)).await;
    let folder = files(&format!("{ADMIN}[tasks]\ndata_dir = \"data\"\n"), "[tenant.quota]\ntokens_per_day = 45\n", "");
    let generative = TestConfig::without_agent().with(&format!(
        "[agent]\nkind = \"template\"\nname = \"a\"\ninstruction = \"i\"\n[agent.model.generative]\nmodel = \"m\"\n\
         endpoint = \"{url}/v1/\"\n"
    ));
    fs::write(folder.path().join("acme/agent.toml"), generative.toml()).expect("a file");
    let mut server = serve(&folder).await;
    for _ in 0..2 {
        let told = say_in(&server, "c", "x").await;
        assert_eq!(told.body["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{}", told.body);
    }
    assert_eq!(usage(&server).await["tokens_per_day"], json!({"used": 30, "limit": 45, "counted_in": "all"}));
    server.begin_shutdown();
    server.ended().await.expect("an end");

    let mut server = serve(&folder).await;
    assert_eq!(usage(&server).await["tokens_per_day"]["used"], 30);
    assert_eq!(say_in(&server, "c", "x").await.status, 200);
    let told = say_in(&server, "c", "x").await;
    assert_eq!((told.status, told.quota()), (429, Some("tokens_per_day")), "{}", told.body);
    assert_eq!(told.body["error"]["data"][0]["metadata"]["used"], "45");
    assert!(told.retry_after.is_some_and(|seconds| seconds <= 24 * 60 * 60));
    assert_eq!(usage(&server).await["keys"]["used"], 0, "what the host keeps is no key of an extension");
    server.begin_shutdown();
    server.ended().await.expect("an end");

    let server = serve(&folder).await;
    let told = say_in(&server, "c", "x").await;
    assert_eq!(told.quota(), Some("tokens_per_day"), "the first request of a process: {}", told.body);
}

#[tokio::test]
async fn the_usage_of_a_tenant_names_each_figure_with_its_limit_and_where_it_was_counted() {
    let (_folder, server) = limited("turns = 7\nkeys = 100", "").await;
    answer(&say_in(&server, "c", "x").await.body);
    let usage = usage(&server).await;
    assert_eq!((&usage["tenant"], &usage["processes"]), (&json!("acme"), &json!(1)));
    assert_eq!(usage["turns"], json!({"used": 0, "limit": 7, "counted_in": "all"}));
    assert_eq!(usage["keys"], json!({"used": 0, "limit": 100, "counted_in": "all"}));
    assert_eq!(usage["tasks"], json!({"used": 1, "counted_in": "all"}), "no quota was set");
    assert_eq!(usage["sessions"], json!({"used": 1, "counted_in": "all"}));
    assert_eq!(usage["requests_per_second"]["counted_in"], "process");
    assert_eq!((&usage["last_day"]["requests"], &usage["last_day"]["refused"]), (&json!(1), &json!(0)), "{usage}");
    let (status, body) = admin(&server, "GET", "tenants/none/usage", Value::Null).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("no_tenant")));
}

#[tokio::test]
async fn the_costliest_tenants_come_first() {
    let (_folder, server) = limited("requests_per_second = 1000", "").await;
    for number in 0..3 {
        say_in(&server, &format!("c{number}"), "x").await;
    }
    answer(&say(&server, "globex", "x").await);
    let (status, used) = admin(&server, "GET", "usage?hours=1", Value::Null).await;
    assert_eq!((status, &used["hours"]), (200, &json!(1)), "{used}");
    let tenants = used["tenants"].as_array().expect("tenants");
    let requests_of =
        |name: &str| tenants.iter().find(|tenant| tenant["tenant"] == name).map(|tenant| tenant["requests"].clone());
    assert_eq!((requests_of("acme"), requests_of("globex")), (Some(json!(3)), Some(json!(1))), "{used}");
    let cost = |tenant: &Value| tenant["cpu_ms"].as_u64().expect("a number");
    assert!(tenants.is_sorted_by_key(|tenant| std::cmp::Reverse(cost(tenant))), "{used}");
    let (_, first) = admin(&server, "GET", "usage?limit=1", Value::Null).await;
    assert_eq!(first["tenants"].as_array().map(Vec::len), Some(1), "{first}");
    for query in ["hours=0", "hours=169"] {
        let (status, refused) = admin(&server, "GET", &format!("usage?{query}"), Value::Null).await;
        assert_eq!(status, 400, "{refused}");
    }
}

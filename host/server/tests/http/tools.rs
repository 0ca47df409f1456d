//! Tools of the template agent from an MCP server: a program in Python that the server starts.

use std::sync::{Arc, Mutex};

use annex_test_support::{Reply, TestConfig, TestServer, until};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::state_injection;

const TRACE: &str = "https://github.com/a2aproject/a2a-samples/extensions/traceability/v1";
const TRACE_KEY: &str = "github.com/a2aproject/a2a-samples/extensions/traceability/v1/traceability";

/// An agent that calls the tool and arguments in the message, and answers with the result.
pub(crate) fn config(mcp: &str, more: &str) -> TestConfig {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/mcp_server.py");
    let tools = ["remember", "break", "book", "draw", "env", "sleep", "end", "sum", "pid", "cancelled"];
    let rule = |tool: &&str| {
        format!(
            r#"
            [[agent.model.scripted.rules]]
            when = "^{tool} (?<a>\\S+) ?(?<b>\\S*)$"
            call = [{{ tool = "{tool}", arguments = '''{arguments}''' }}]

            [[agent.model.scripted.rules]]
            when = ""
            after = "{tool}"
            extract = {{ state = "State: (.*)" }}
            extract_result = {{ result = "(?s)(.+)" }}
            answer = "{{result}} with {{state}}"
            "#,
            arguments = match *tool {
                "sum" => r#"{"a": {a}, "b": {b}}"#,
                "sleep" => r#"{"seconds": {a}, "touch": "{b}"}"#,
                "env" => r#"{"name": "{a}"}"#,
                "book" => r#"{"what": "{a}"}"#,
                _ => r#"{"key": "{a}", "value": "{b}"}"#,
            },
        )
    };
    let rules: String = tools.iter().map(rule).collect();
    let instruction = "State: {mood?}{user:mood?} {artifact.note://1?}";
    let config = TestConfig::template(instruction).set("agent.max_tool_rounds", 3).with(&rules).with(more);
    config.with(&format!("[[agent.mcp]]\nname = \"test\"\ncommand = \"python3\"\nargs = [{program:?}]\n{mcp}"))
}

async fn serve(mcp: &str, more: &str) -> TestServer {
    config(mcp, more).start().await.expect("the server starts")
}

async fn say(server: &TestServer, text: &str) -> Reply {
    server.say(text).context("c").send().await.expect("a reply")
}

async fn refusal(mcp: &str) -> String {
    let error = config(mcp, "").start().await.err().expect("the server does not start");
    format!("{error:#}")
}

#[tokio::test]
async fn a_tool_changes_the_state_and_the_answer_shows_it() {
    let injection = state_injection("session-state = { read = true }");
    let server = serve(r#"state = ["session"]"#, &injection).await;
    let reply = server.say("remember mood good").context("c").state("{}").send().await;
    let reply = reply.expect("a reply");
    assert_eq!(reply.answer(), r#"{"result":"remembered"} with good "#, "{}", reply.text);
    assert_eq!(reply.returned_state(), &json!({"mood": "good"}));
    assert_eq!(say(&server, "sum 2 0.5").await.answer(), r#"{"total":2.5} with good "#);
}

#[tokio::test]
async fn a_tool_that_fails_changes_nothing_and_the_model_is_told() {
    let server = serve(r#"state = ["session"]"#, "").await;
    let reply = say(&server, "break mood").await;
    assert_eq!(reply.task()["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(reply.answer(), r#"{"error":"out of order"} with  "#);
}

#[tokio::test]
async fn state_outside_of_the_granted_scopes_is_not_written() {
    let server = serve(r#"state = ["session"]"#, "").await;
    assert_eq!(say(&server, "remember user:mood good").await.answer(), r#"{"result":"remembered"} with  "#);
    let server = serve("", "").await;
    assert_eq!(say(&server, "remember mood good").await.answer(), r#"{"result":"remembered"} with  "#);
    let server = serve(r#"state = ["user"]"#, "").await;
    assert_eq!(say(&server, "remember user:mood good").await.answer(), r#"{"result":"remembered"} with good "#);
}

#[tokio::test]
async fn a_long_running_tool_waits_for_the_response_of_the_client() {
    let server = serve(r#"long_running = ["book"]"#, "").await;
    let waiting = say(&server, "book flight").await;
    let status = &waiting.task()["status"];
    assert_eq!(status["state"], "TASK_STATE_INPUT_REQUIRED", "{}", waiting.text);
    let parts = &status["message"]["parts"];
    let id = parts[0]["data"]["id"].as_str().expect("the id of the call").to_owned();
    assert_eq!(parts[0]["data"], json!({"id": id, "name": "book", "args": {"what": "flight"}}));
    assert_eq!(parts[0]["metadata"], json!({"adk_type": "function_call", "adk_is_long_running": true}));
    assert_eq!(parts[1]["data"]["response"], json!({"result": "flight is asked for"}));
    let task = waiting.task()["id"].as_str().expect("an id").to_owned();

    let text_only = server.say("yes").field("taskId", &task).send().await.expect("a reply");
    assert_eq!(text_only.task()["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let parts = &text_only.task()["status"]["message"]["parts"];
    assert!(parts[0]["text"].as_str().is_some_and(|text| text.contains("function_response")), "{parts}");
    assert_eq!(parts[1]["data"]["id"], *id);

    let fresh = say(&server, "sum 1 1").await;
    assert_eq!(fresh.task()["status"]["state"], "TASK_STATE_COMPLETED");
    assert_ne!(fresh.task()["id"], *task);

    let message = json!({"messageId": "m", "role": "ROLE_USER", "taskId": task, "parts": [{
        "data": {"id": id, "name": "book", "response": {"seat": "7A"}}, "metadata": {"adk_type": "function_response"},
    }]});
    let resumed = server.call("SendMessage", json!({"message": message}).to_string()).send().await.expect("a reply");
    assert_eq!(resumed.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", resumed.text);
    assert_eq!((resumed.task()["id"].as_str(), resumed.context()), (Some(task.as_str()), "c"));
    assert_eq!(resumed.answer(), r#"{"seat":"7A"} with  "#);
}

#[tokio::test]
async fn a_trace_shows_the_call_of_the_tool() {
    let traceability = "[[extension]]\ncomponent = \"traceability\"\n[extension.grants]\nagent-steps = true";
    let server = serve("", traceability).await;
    let reply = server.say("sum 1 2").extensions(TRACE).send().await.expect("a reply");
    let steps = reply.task()["artifacts"][0]["metadata"][TRACE_KEY]["steps"].as_array().expect("steps").clone();
    let named = |step: &Value| {
        let name = step["step_action"]["tool_invocation"]["tool_name"].as_str().unwrap_or_default().to_owned();
        (step["additional_attributes"]["kind"].as_str().unwrap_or_default().to_owned(), name)
    };
    let steps: Vec<_> = steps.iter().map(named).collect();
    let expected = [("model", "scripted"), ("tool", "sum"), ("model", "scripted")];
    assert_eq!(steps, expected.map(|(kind, name)| (kind.to_owned(), name.to_owned())));
}

#[tokio::test]
async fn files_of_a_result_are_artifacts_of_the_session() {
    let server = serve("", "").await;
    let answer = say(&server, "draw it").await.answer().to_owned();
    assert!(answer.contains("[kept as artifact `draw.png`]") && answer.ends_with("with  a red dot"), "{answer}");
}

#[tokio::test]
async fn a_program_gets_the_variables_that_are_named_and_no_others() {
    let server = serve(r#"env = ["CARGO_PKG_NAME"]"#, "").await;
    assert!(say(&server, "env CARGO_PKG_NAME").await.answer().starts_with(r#"{"result":"annex-server"}"#));
    assert!(say(&server, "env CARGO_PKG_VERSION").await.answer().starts_with(r#"{"result":"not set"}"#));
    let refused = refusal(r#"env = ["ANNEX_NO_SUCH_VARIABLE"]"#).await;
    assert!(refused.contains("ANNEX_NO_SUCH_VARIABLE") && refused.contains("agent.mcp.env: "), "{refused}");
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_a_failure_of_the_tool() {
    let server = serve("timeout_seconds = 1", "").await;
    assert_eq!(say(&server, "sleep 30").await.answer(), r#"{"error":"the tool gave no result within 1s"} with  "#);
}

#[tokio::test]
async fn a_server_that_ends_is_started_again() {
    let server = serve("", "").await;
    assert!(say(&server, "end now").await.answer().starts_with(r#"{"error":"the tool "#));
    until("it comes back", async || say(&server, "sum 1 2").await.answer().starts_with(r#"{"total":3}"#)).await;
}

#[tokio::test]
async fn a_server_hears_that_the_task_of_a_call_was_cancelled() {
    let server = serve("", "").await;
    let folder = tempfile::tempdir().expect("a folder");
    let called = folder.path().join("called");
    let sleep = server.say(&format!("sleep 0.5 {}", called.display()));
    let mut events = sleep.streaming().open().await.expect("a stream");
    let task = events.next().await.expect("an event").expect("an event")["result"]["task"]["id"].clone();
    until("it is called", async || called.exists()).await;
    let canceled = server.call("CancelTask", json!({"id": task}).to_string()).send().await.expect("a reply");
    assert_eq!(canceled.body["result"]["status"]["state"], "TASK_STATE_CANCELED");
    until("it hears", async || say(&server, "cancelled yet").await.answer().starts_with(r#"{"result":"1"}"#)).await;
}

#[tokio::test]
async fn a_program_is_stopped_with_the_server() {
    let mut server = serve("", "").await;
    let answer = say(&server, "pid now").await.answer().to_owned();
    let pid = answer.split('"').nth(3).expect("a process id").to_owned();
    let runs = || std::process::Command::new("kill").args(["-0", &pid]).status().expect("kill runs").success();
    assert!(runs(), "{answer}");
    server.begin_shutdown();
    server.ended().await.expect("a good end");
    assert!(!runs());
}

#[tokio::test]
async fn only_the_tools_that_are_named_can_be_called() {
    let server = serve(r#"tools = ["sum"]"#, "").await;
    assert!(say(&server, "sum 1 2").await.answer().starts_with(r#"{"total":3}"#));
    assert!(say(&server, "env PATH").await.answer().starts_with(r#"{"error":"there is no tool `env`"}"#));
}

/// The credentials that an MCP server over HTTP has seen.
type SeenCredentials = Arc<Mutex<Vec<String>>>;

async fn answer(State(seen): State<SeenCredentials>, headers: HeaderMap, Json(request): Json<Value>) -> Response {
    let credentials = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    seen.lock().expect("a lock").push(credentials.to_owned());
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "far", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{"name": "sum", "inputSchema": {"type": "object"}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "from afar"}]}),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    Json(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).into_response()
}

#[tokio::test]
async fn a_server_may_be_reached_over_http_and_gets_the_token_that_it_wants() {
    let seen = SeenCredentials::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let router = Router::new().route("/mcp", post(answer)).with_state(Arc::clone(&seen));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let far = format!("tools = []\n[[agent.mcp]]\nname = \"far\"\nurl = {url:?}\ntoken_env = \"CARGO_PKG_NAME\"");
    let server = serve(&far, "").await;
    assert_eq!(say(&server, "sum 1 2").await.answer(), r#"{"result":"from afar"} with  "#);
    let seen = seen.lock().expect("a lock");
    assert!(seen.len() >= 3 && seen.iter().all(|credentials| credentials == "Bearer annex-server"), "{seen:?}");
}

#[tokio::test]
async fn what_cannot_be_used_keeps_the_server_from_starting() {
    let second = r#"
        [[agent.mcp]]
        name = "other"
    "#;
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/mcp_server.py");
    let again = format!("{second}\ncommand = \"python3\"\nargs = [{program:?}]\ntools = [\"sum\"]");
    let cases = [
        (r#"tools = ["sun"]"#, "MCP server `test` has no tool `sun`; it has: remember, break"),
        (r#"url = "http://127.0.0.1:1/""#, "MCP server `test` needs either `command` or `url`"),
        (r#"token_env = "X""#, "MCP server `test`: `token_env` does not belong to its `command`"),
        (r#"state = ["all"]"#, "\"all\" is not accepted; it takes `session`"),
        (again.as_str(), "tool `sum` is offered by MCP server `test` and by MCP server `other`"),
        (&format!("{second}\ncommand = \"/no/such/program\""), "MCP server `other` cannot be started: No such file"),
        (&format!("{second}\ncommand = \"true\""), "MCP server `other` cannot be started: connection closed"),
        (&format!("{second}\ncommand = \"ls\"\nargs = [\"/no/such/folder\"]"), "cannot be started: it said: ls: "),
        (&format!("{second}\nurl = \"http://127.0.0.1:1/\""), "MCP server `other` cannot be started"),
    ];
    for (mcp, expected) in cases {
        let refused = refusal(mcp).await;
        assert!(refused.contains(expected), "{refused}\nhas {expected}");
    }
}

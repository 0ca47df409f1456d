//! Every client on every binding can read the stored data. Messages with half of a surrogate pair, with numbers beyond
//! the range of a double, or with repeated keys in an object are refused. A task that gRPC cannot encode does not make
//! its whole list fail.

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_grpc::pb::extension::CallRequest;
use annex_grpc::pb::extension::extension_service_client::ExtensionServiceClient;
use annex_test_support::TestServer;
use prost_types::value::Kind;
use serde_json::Value;
use tonic::transport::Channel;
use tonic_types::StatusExt;

use crate::agent;

/// JSON that some parsers cannot read, with the path of the faulty value.
fn odd() -> [(String, &'static str); 4] {
    let twice = r#"{"k":1,"\u006b":{"k":2}}"#.to_owned();
    [(r#""\ud800""#.to_owned(), ""), ("9".repeat(400), ""), ("-1e999999".to_owned(), ""), (twice, ".k")]
}

/// Sends a body and returns the code, and the fields that the answer objects to.
async fn fields(server: &TestServer, path: &str, version: &str, body: String) -> (i64, Vec<String>) {
    let request = server.client().post(format!("{}{path}", server.url())).header("content-type", "application/json");
    let answer = request.header("a2a-version", version).body(body).send().await.expect("an answer");
    let answer: Value = answer.json().await.expect("JSON");
    let error = &answer["error"];
    // 1.0 has the list itself, 0.3 an object around it, and HTTP+JSON another name.
    let details = [&error["data"], &error["data"]["details"], &error["details"]];
    let details = details.into_iter().find_map(Value::as_array).expect("details");
    let violations = details[1]["fieldViolations"].as_array().expect("violations");
    let field = |violation: &Value| violation["field"].as_str().unwrap_or_default().to_owned();
    (error["code"].as_i64().expect("a code"), violations.iter().map(field).collect())
}

fn rpc(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
}

#[tokio::test]
async fn a_client_is_told_where_its_request_has_what_not_everybody_can_read() {
    let server = agent("Say something.", "[server]\na2a_0_3 = true").await;
    for (odd, inner) in odd() {
        let message = |role: &str, parts: &str, more: &str| {
            format!(r#"{{"message":{{"messageId":"m","role":"{role}",{parts}}}{more}}}"#)
        };
        for (parts, more, field) in [
            (
                format!(r#""parts":[{{"text":"x"}},{{"data":[1,{{"x":{odd}}}]}}]"#),
                String::new(),
                "message.parts[1].data[1].x",
            ),
            (
                format!(r#""parts":[{{"text":"x","metadata":{{"k":{odd}}}}}]"#),
                String::new(),
                "message.parts[0].metadata.k",
            ),
            (format!(r#""parts":[{{"text":"x"}}],"metadata":{{"a b":{odd}}}"#), String::new(), "message.metadata.a b"),
            (r#""parts":[{"text":"x"}]"#.to_owned(), format!(r#","metadata":{{"k":{odd}}}"#), "metadata.k"),
            (r#""parts":[{"text":"x"}]"#.to_owned(), format!(r#","unknown":{odd}"#), "unknown"),
        ] {
            let field = format!("{field}{inner}");
            let sent = message("ROLE_USER", &parts, &more);
            let streamed = fields(&server, "/a2a/jsonrpc", "1.0", rpc("SendStreamingMessage", &sent)).await;
            assert_eq!(streamed, (-32_602, vec![field.clone()]), "{sent}");
            let called = fields(&server, "/a2a/jsonrpc", "1.0", rpc("SendMessage", &sent)).await;
            assert_eq!(called, (-32_602, vec![field.clone()]), "{sent}");
            let posted = fields(&server, "/a2a/rest/message:send", "1.0", sent).await;
            assert_eq!(posted, (400, vec![field.clone()]));
            let older = message("user", &parts, &more);
            let called = fields(&server, "/a2a/jsonrpc", "0.3", rpc("message/send", &older)).await;
            assert_eq!(called, (-32_602, vec![field.clone()]), "{older}");
            let posted = fields(&server, "/a2a/rest/v1/message:send", "0.3", older).await;
            assert_eq!(posted, (400, vec![field.clone()]));
        }
        let method = fields(&server, "/a2a/jsonrpc", "1.0", rpc("some/method", &format!(r#"{{"p":{odd}}}"#))).await;
        assert_eq!(method, (-32_602, vec![format!("p{inner}")]));
    }
    let text = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"\udfff"}]}}"#;
    let called = fields(&server, "/a2a/jsonrpc", "1.0", rpc("SendMessage", text)).await;
    assert_eq!(called, (-32_602, vec!["message.parts[0].text".to_owned()]));
}

async fn channel(server: &TestServer) -> Channel {
    Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel")
}

fn versioned<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("ASCII"));
    request
}

#[tokio::test]
async fn parameters_that_travel_as_text_over_grpc_are_looked_at_too() {
    let server = agent("Say something.", "").await;
    let mut client = ExtensionServiceClient::new(channel(&server).await);
    for (odd, _) in odd() {
        let call = CallRequest { method: "some/method".to_owned(), params_json: format!(r#"{{"p":{odd}}}"#) };
        let refused = client.call(versioned(call)).await.expect_err("refused");
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
        assert_eq!(refused.get_details_bad_request().expect("details").field_violations[0].field, "params_json");
    }
}

#[tokio::test]
async fn a_task_that_grpc_cannot_carry_is_named_and_the_list_goes_on() {
    let server = agent("Say something.", "").await;
    let context = "one-conversation";
    let deep = format!("{}1{}", r#"{"a":"#.repeat(35), "}".repeat(35));
    for value in ["1", "9007199254740993", &deep] {
        let sent = server.say("prompt").context(context).metadata("n", value).send().await.expect("a reply");
        assert_eq!(sent.code(), 0, "{}", sent.text);
    }
    let mut client = A2aServiceClient::new(channel(&server).await);
    let list = pb::ListTasksRequest { context_id: context.to_owned(), ..pb::ListTasksRequest::default() };
    let listed = client.list_tasks(versioned(list)).await.expect("a list").into_inner();
    assert_eq!(listed.tasks.len(), 3);
    let reasons: Vec<Option<String>> = listed
        .tasks
        .iter()
        .map(|task| {
            assert!(!task.id.is_empty() && task.context_id == context);
            assert_eq!(task.status.as_ref().expect("a status").state(), pb::TaskState::Completed);
            let entry = task.metadata.as_ref()?.fields.get("annex/not-carried")?;
            match entry.kind.as_ref()? {
                Kind::StringValue(reason) => Some(reason.clone()),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    let [Some(nested), Some(integer), None] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert!(integer.starts_with("tasks[1].history[0].metadata.n: 9007199254740993 is an integer"), "{integer}");
    assert!(nested.starts_with("tasks[0].history[0].metadata.n") && nested.contains("nest deeper"), "{nested}");
    assert!(nested.ends_with("use JSON-RPC or HTTP+JSON"), "{nested}");
}

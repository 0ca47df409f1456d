//! The grants `caller` and `task-metadata` of an extension that is always active.

use annex_components::STEERING_GRANTS;
use annex_grpc::pb::extension::CallRequest;
use annex_grpc::pb::extension::extension_service_client::ExtensionServiceClient;
use annex_test_support::{Reply, TestServer};
use serde_json::{Value, json};

use super::callers::{EVE, SAM, approved, by, server, with};
use super::{TestRequest, WAYS, channel, say, script};
use crate::auth::{ADA, BOB, api_keys};
use crate::catalogue::approval;
use crate::output::STEERING;
use crate::push::receiver;

/// The key under which the extension answers.
const RESULT: &str = "steering/result";

/// The steering extension, always active, with this grant for the caller and these commands by hook.
fn steering(caller: &str, behaviour: &str) -> String {
    let component = annex_test_support::component("test-steering");
    format!(
        r#"
        [[extension]]
        component = {component:?}
        activate = "always"
        [extension.grants]
        caller = {caller}
        live-card = {{}}
        {STEERING_GRANTS}
        [extension.parameters]
        behaviour = {behaviour}
        "#
    )
}

const ALL: &str = r#"{ principal = true, claims = ["org", "absent"], headers = ["A2A-Version", "x-scope"] }"#;
const SHOWS: &str = r#"{ respond = "caller" }"#;

/// The tasks of a caller, newest first.
async fn tasks(server: &TestServer, said: TestRequest<'_>) -> Vec<Value> {
    let request = server.call("ListTasks", r#"{"includeArtifacts":true}"#);
    let request = match (said.key, said.token) {
        ("", "") => request,
        ("", token) => request.header("authorization", &format!("Bearer {token}")),
        (key, _) => request.header("x-api-key", key),
    };
    let listed = request.send().await.expect("a list");
    listed.body["result"]["tasks"].as_array().unwrap_or_else(|| panic!("no tasks: {}", listed.text)).clone()
}

fn shown(task: &Value) -> &str {
    task["artifacts"][0]["metadata"][RESULT].as_str().unwrap_or_else(|| panic!("nothing is shown: {task}"))
}

#[tokio::test]
async fn anonymous_and_authenticated_callers_are_told_apart_on_each_binding() {
    let (server, _folder) = server(&steering(ALL, SHOWS)).await;
    for way in WAYS {
        for (said, expected) in [
            (by(ADA), "Authenticated ada {} "),
            (with(EVE), r#"Authenticated https://issuer.example#eve {"org":"acme"} "#),
            (with(SAM), r#"Authenticated https://issuer.example#sam {"org":"globex"} "#),
        ] {
            let heard = say(&server, way, said).await;
            assert_eq!(heard.error, None, "{way:?}");
            let task = tasks(&server, said).await.remove(0);
            let version = if format!("{way:?}").starts_with("Older") { "0.3" } else { "1.0" };
            let expected = format!(r#"{expected}[("a2a-version", "{version}")]"#);
            assert!(shown(&task).ends_with(&expected), "{way:?}: {}", shown(&task));
        }
    }
    let open = script().with(&steering(ALL, SHOWS)).start().await.expect("the server starts");
    let reply = open.say("hi").header("authorization", "Bearer of-nobody").send().await.expect("a reply");
    assert!(shown(reply.task()).ends_with(r#"Anonymous nobody {} [("a2a-version", "1.0")]"#), "{}", reply.text);
}

/// What a method says about a caller with this header field, on each binding.
async fn called(server: &TestServer, header: (&'static str, &str)) -> [String; 3] {
    const METHOD: &str = "steering/caller";
    let (name, value) = header;
    let reply = server.call(METHOD, "{}").extensions(STEERING).header(name, value).send().await.expect("a reply");
    let by_jsonrpc = reply.body["result"].as_str().unwrap_or_else(|| panic!("no result: {}", reply.text)).to_owned();

    let url = format!("{}/a2a/rest/extensions/steering/{METHOD}", server.url());
    let request = server.client().post(url).json(&json!({})).header("a2a-version", "1.0").header(name, value);
    let answer = request.header("a2a-extensions", STEERING).send().await.expect("an answer");
    let by_http = answer.json().await.expect("a text");

    let mut request = tonic::Request::new(CallRequest { method: METHOD.to_owned(), params_json: "{}".to_owned() });
    for (name, value) in [("a2a-version", "1.0"), ("a2a-extensions", STEERING), header] {
        request.metadata_mut().insert(name, value.parse().expect("ASCII"));
    }
    let answer = ExtensionServiceClient::new(channel(server).await).call(request).await.expect("an answer");
    let by_grpc = serde_json::from_str(&answer.into_inner().result_json).expect("a text");
    [by_jsonrpc, by_http, by_grpc]
}

#[tokio::test]
async fn a_method_sees_the_caller_of_its_own_call_on_each_binding() {
    let with_method = format!("{}methods = [\"steering/caller\"]\n", steering(ALL, "{}"));
    let (server, _folder) = server(&with_method).await;
    let bearer = format!("Bearer {EVE}");
    for (header, expected) in [
        (("x-api-key", ADA), "Authenticated ada {} "),
        (("authorization", bearer.as_str()), r#"Authenticated https://issuer.example#eve {"org":"acme"} "#),
        (("x-api-key", BOB), "Authenticated bob {} "),
    ] {
        let expected = format!(r#"{expected}[("a2a-version", "1.0")]"#);
        for seen in called(&server, header).await {
            assert!(seen.ends_with(&expected), "{seen}");
        }
    }
}

#[tokio::test]
async fn an_extension_sees_only_the_header_fields_that_its_grant_names() {
    let (server, _folder) = server(&steering(r#"{ headers = ["x-scope"] }"#, SHOWS)).await;
    let said = server.say("hi").header("authorization", &format!("Bearer {EVE}"));
    let said = said.header("X-Scope", "one").header("x-scope", "two").header("x-other", "three");
    let reply = said.send().await.expect("a reply");
    let expected = r#"Authenticated nobody {} [("x-scope", "one"), ("x-scope", "two")]"#;
    assert!(shown(reply.task()).ends_with(expected), "{}", reply.text);
}

#[tokio::test]
async fn fields_beyond_the_limit_are_an_error_of_the_import_and_the_request_is_answered() {
    let (server, _folder) = server(&steering(r#"{ headers = ["x-scope"] }"#, SHOWS)).await;
    let said = server.say("hi").header("x-api-key", ADA).header("x-scope", &"a".repeat(9_000));
    let reply = said.send().await.expect("a reply");
    assert_eq!(shown(reply.task()), "error: the header fields have 9007 bytes; at most 8192 are shown");
}

#[tokio::test]
async fn one_caller_is_never_shown_to_the_turn_of_another() {
    let (server, _folder) = server(&steering(ALL, SHOWS)).await;
    let callers = [(by(ADA), "ada"), (by(BOB), "bob")];
    for _ in 0..3 {
        let both = callers.map(|(said, _)| say(&server, WAYS[0], said));
        futures::future::join_all(both).await;
    }
    for (said, name) in callers {
        let tasks = tasks(&server, said).await;
        assert_eq!(tasks.len(), 3);
        assert!(tasks.iter().all(|task| shown(task).contains(&format!(" {name} "))), "{tasks:?}");
    }
}

#[tokio::test]
async fn a_turn_that_is_made_again_has_its_owner_and_no_claims() {
    let both = approval("activate = \"always\"") + &steering(ALL, SHOWS);
    let (server, _folder) = server(&both).await;
    let said = server.say("hi").header("authorization", &format!("Bearer {EVE}"));
    let waits = said.send().await.expect("a reply");
    let task = approved(&server, &waits).await;
    assert!(shown(&task).ends_with("Earlier https://issuer.example#eve {} []"), "{}", shown(&task));
}

/// The values of the entry in each event of a stream that has one.
fn entries(events: &[Value]) -> Vec<(String, String)> {
    let entry = |event: &Value| {
        let update = &event["result"]["statusUpdate"];
        let state = update["status"]["state"].as_str()?.trim_start_matches("TASK_STATE_").to_owned();
        Some((state, update["metadata"][RESULT].as_str().unwrap_or("none").to_owned()))
    };
    events.iter().filter_map(entry).collect()
}

#[tokio::test]
async fn an_entry_that_an_extension_sets_comes_with_the_next_status_and_is_in_every_later_task() {
    let behaviour = r#"{ before-agent = "set", respond = "set" }"#;
    let (server, _folder) = server(&steering("{ principal = true }", behaviour)).await;
    for way in WAYS {
        let heard = say(&server, way, by(ADA)).await;
        assert_eq!(heard.error, None, "{way:?}");
    }
    let tasks = tasks(&server, by(ADA)).await;
    assert_eq!(tasks.len(), WAYS.len());
    for task in &tasks {
        assert_eq!(task["metadata"][RESULT], "respond", "{task}");
        let params = json!({"id": task["id"]}).to_string();
        let read = server.call("GetTask", params).header("x-api-key", ADA).send().await.expect("a task");
        assert_eq!(read.body["result"]["metadata"][RESULT], "respond", "{}", read.text);
    }
    let streamed = server.say("hi").header("x-api-key", ADA).streaming().open().await.expect("a stream");
    let entries = entries(&streamed.rest().await.expect("events"));
    let last = entries.last().expect("a status");
    assert_eq!((last.0.as_str(), last.1.as_str()), ("COMPLETED", "respond"), "{entries:?}");
}

#[tokio::test]
async fn a_push_notification_has_the_entry() {
    let behaviour = r#"{ respond = "set" }"#;
    let push = "[push]\nallow = [\"127.0.0.0/8\"]\n";
    let server = script().with(push).with(&steering("{ principal = true }", behaviour)).start().await;
    let server = server.expect("the server starts");
    let (url, mut received) = receiver().await;
    let params = json!({
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
        "configuration": {"taskPushNotificationConfig": {"url": url}}
    });
    let sent: Reply = server.call("SendMessage", params.to_string()).send().await.expect("a reply");
    assert_eq!(sent.task()["metadata"][RESULT], "respond", "{}", sent.text);
    loop {
        let (_, event) = received.recv().await.expect("an event");
        let update = &event["statusUpdate"];
        if update["status"]["state"] == "TASK_STATE_COMPLETED" {
            assert_eq!(update["metadata"][RESULT], "respond", "{event}");
            return;
        }
    }
}

#[tokio::test]
async fn grants_that_show_credentials_or_nothing_keep_the_server_from_starting() {
    let refused = async |more: &str, caller: &str| {
        let started = script().with(more).with(&steering(caller, "{}")).start().await;
        format!("{:#}", started.err().unwrap_or_else(|| panic!("{caller} is refused")))
    };
    let own_key = "[auth.api_key_header]\nname = \"x-own-key\"\n";
    let own_key = api_keys() + own_key;
    for name in ["Authorization", "proxy-authorization", "cookie", "Set-Cookie", "X-API-Key"] {
        for more in ["", own_key.as_str()] {
            let error = refused(more, &format!("{{ headers = [{name:?}] }}")).await;
            assert!(error.contains("grants.caller.headers") && error.contains("credentials"), "{name}: {error}");
        }
    }
    let error = refused(&own_key, "{ headers = [\"X-Own-Key\"] }").await;
    assert!(error.contains("grants.caller.headers") && error.contains("credentials"), "{error}");
    let many: Vec<String> = (0..17).map(|number| format!("n{number}")).collect();
    let headers = format!("{{ headers = {many:?} }}");
    let claims = format!("{{ claims = {many:?} }}");
    for (caller, expected) in [
        ("{}", "shows nothing; set principal = true, or list claims or headers"),
        ("{ hide = true }", "shows nothing; set principal = true, or list claims or headers"),
        ("{ claims = [\"org\", \"\"] }", "has an empty name; name claims as tokens have them"),
        ("{ headers = [\"a b\"] }", "\"a b\" is no name of a header field"),
        (headers.as_str(), "names 17; at most 16 are allowed"),
        (claims.as_str(), "names 17; at most 16 are allowed"),
    ] {
        let error = refused("", caller).await;
        assert!(error.contains(expected), "{caller}: {error}");
    }
}

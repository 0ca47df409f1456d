//! Push notifications: the registration on each binding, and the notifications that receivers get.

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::TestServer;
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::agent;

const PUSH: &str = "[push]\nallow = [\"127.0.0.0/8\"]";

type PushRequest = (HeaderMap, Value);

/// A receiver on a free port, with the notifications that it has received.
pub(crate) async fn receiver() -> (String, mpsc::UnboundedReceiver<PushRequest>) {
    async fn take(State(sender): State<mpsc::UnboundedSender<PushRequest>>, headers: HeaderMap, body: String) {
        sender.send((headers, serde_json::from_str(&body).expect("JSON"))).expect("the test listens");
    }
    let (sender, received) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
    let router = Router::new().route("/hook", post(take)).with_state(sender);
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, received)
}

fn message(text: &str, configuration: &Value) -> Value {
    json!({"message": {"messageId": uuid::Uuid::new_v4().to_string(), "role": "ROLE_USER", "parts": [{"text": text}]},
           "configuration": configuration})
}

async fn call(server: &TestServer, method: &str, params: &Value) -> Value {
    server.call(method, params.to_string()).send().await.expect("a reply").body
}

async fn slow_task(server: &TestServer) -> Value {
    let sent = call(server, "SendMessage", &message("slow", &json!({"returnImmediately": true}))).await;
    sent["result"]["task"]["id"].clone()
}

#[tokio::test]
async fn a_receiver_named_with_the_message_gets_each_event_in_order() {
    let server = agent("Say something.", PUSH).await;
    let (url, mut received) = receiver().await;
    let config = json!({"url": url, "token": "t0ken", "authentication": {"scheme": "Bearer", "credentials": "s3cret"}});
    let sent = call(&server, "SendMessage", &message("prompt", &json!({"taskPushNotificationConfig": config}))).await;
    let task = &sent["result"]["task"];
    let mut kinds = Vec::new();
    loop {
        let (headers, event) = received.recv().await.expect("an event");
        assert_eq!(headers["authorization"], "Bearer s3cret");
        assert_eq!(headers["x-a2a-notification-token"], "t0ken");
        assert_eq!(headers["content-type"], "application/a2a+json");
        let (kind, update) = event.as_object().expect("an object").iter().next().expect("one member");
        assert_eq!(update["taskId"], task["id"]);
        kinds.push(kind.clone());
        if update["status"]["state"] == "TASK_STATE_COMPLETED" {
            break;
        }
    }
    assert_eq!(kinds, ["statusUpdate", "artifactUpdate", "statusUpdate"]);
    let listed = call(&server, "ListTaskPushNotificationConfigs", &json!({"taskId": task["id"]})).await;
    assert_eq!(listed["result"]["configs"][0]["url"], url);
}

#[tokio::test]
async fn a_config_that_comes_later_gets_the_rest_and_a_deleted_one_nothing() {
    let server = agent("Say something.", PUSH).await;
    let (url, mut received) = receiver().await;
    let (deleted_url, mut nothing) = receiver().await;
    let id = slow_task(&server).await;
    for (name, url) in [("kept", &url), ("gone", &deleted_url)] {
        let config = json!({"taskId": id, "id": name, "url": url});
        let made = call(&server, "CreateTaskPushNotificationConfig", &config).await;
        assert_eq!((&made["result"]["id"], &made["result"]["taskId"]), (&json!(name), &id), "{made}");
    }
    for _ in 0..2 {
        let gone = call(&server, "DeleteTaskPushNotificationConfig", &json!({"taskId": id, "id": "gone"})).await;
        assert!(gone["result"].is_null() && gone.get("error").is_none(), "{gone}");
    }
    let read = |name: &str| json!({"taskId": id, "id": name});
    assert_eq!(call(&server, "GetTaskPushNotificationConfig", &read("kept")).await["result"]["url"], url);
    assert_eq!(call(&server, "GetTaskPushNotificationConfig", &read("gone")).await["error"]["code"], -32_001);
    loop {
        let (_, event) = received.recv().await.expect("an event");
        if event["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED" {
            break;
        }
    }
    // What was on its way before the deletion may have come, but not the end of the task.
    while let Ok((_, event)) = nothing.try_recv() {
        assert_ne!(event["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    }
}

#[tokio::test]
async fn configs_are_kept_per_task_by_page_and_on_each_binding() {
    let server = agent("Say something.", PUSH).await;
    let (url, _received) = receiver().await;
    let id = slow_task(&server).await;
    let task = id.as_str().expect("an id");
    let rest = format!("{}/a2a/rest/tasks/{task}/pushNotificationConfigs", server.url());
    let versioned = |request: reqwest::RequestBuilder| request.header("a2a-version", "1.0").send();
    let made = versioned(server.client().post(&rest).json(&json!({"id": "b", "url": url}))).await.expect("an answer");
    assert_eq!(made.status(), 200);
    let channel = tonic::transport::Channel::from_shared(server.url().to_owned()).expect("a URL");
    let mut client = A2aServiceClient::new(channel.connect().await.expect("a channel"));
    let mut request = tonic::Request::new(pb::TaskPushNotificationConfig {
        task_id: task.to_owned(),
        id: "a".to_owned(),
        url: url.clone(),
        ..pb::TaskPushNotificationConfig::default()
    });
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("ASCII"));
    client.create_task_push_notification_config(request).await.expect("made");
    let page = versioned(server.client().get(format!("{rest}?pageSize=1"))).await.expect("a page");
    let page: Value = page.json().await.expect("JSON");
    assert_eq!((&page["configs"][0]["id"], &page["nextPageToken"]), (&json!("a"), &json!("a")));
    let params = json!({"taskId": id, "pageToken": "a"});
    let rest_of_them = call(&server, "ListTaskPushNotificationConfigs", &params).await;
    assert_eq!(rest_of_them["result"]["configs"].as_array().expect("a list").len(), 1);
    let one: Value =
        versioned(server.client().get(format!("{rest}/b"))).await.expect("one").json().await.expect("JSON");
    assert_eq!(one["url"], url);
    let deleted = versioned(server.client().delete(format!("{rest}/b"))).await.expect("an answer");
    assert_eq!((deleted.status().as_u16(), deleted.text().await.expect("a body").as_str()), (200, "{}"));
}

#[tokio::test]
async fn targets_that_reach_into_the_network_are_refused_at_registration() {
    let server = agent("Say something.", "[push]").await;
    let id = slow_task(&server).await;
    for url in [
        "http://127.0.0.1/x",
        "http://localhost:8080/",
        "http://[::ffff:10.0.0.1]/",
        "http://169.254.169.254/",
        "ftp://a.example/",
        "x",
    ] {
        let refused = call(&server, "CreateTaskPushNotificationConfig", &json!({"taskId": id, "url": url})).await;
        assert_eq!(refused["error"]["code"], -32_602, "{url}: {refused}");
        assert_eq!(refused["error"]["data"][1]["fieldViolations"][0]["field"], "url");
        let configuration = json!({"taskPushNotificationConfig": {"url": url}});
        let refused = call(&server, "SendMessage", &message("prompt", &configuration)).await;
        let field = &refused["error"]["data"][1]["fieldViolations"][0]["field"];
        assert_eq!(field, "configuration.taskPushNotificationConfig.url", "{refused}");
    }
    let unknown = json!({"taskId": "nobody", "url": "http://127.0.0.1/"});
    assert_eq!(call(&server, "CreateTaskPushNotificationConfig", &unknown).await["error"]["code"], -32_001);
}

#[tokio::test]
async fn without_the_config_there_are_no_notifications_and_the_card_says_so() {
    for (more, expected) in [("", false), (PUSH, true)] {
        let server = agent("Say something.", more).await;
        let card: Value = server.get("/.well-known/agent-card.json").await.expect("a card").json().await.expect("JSON");
        assert_eq!(card["capabilities"]["pushNotifications"], expected);
        let params = json!({"taskId": "nobody"});
        let code = call(&server, "ListTaskPushNotificationConfigs", &params).await["error"]["code"].clone();
        assert_eq!(code, if expected { -32_001 } else { -32_003 });
    }
}

#[tokio::test]
async fn clients_of_0_3_register_in_their_own_shapes() {
    let server = agent("Say something.", PUSH).await;
    let (url, _received) = receiver().await;
    let id = slow_task(&server).await;
    let old = async |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).json(&body);
        request.send().await.expect("an answer").json::<Value>().await.expect("JSON")
    };
    let params = json!({"taskId": id, "pushNotificationConfig": {"id": "a", "url": url}});
    let set = old("tasks/pushNotificationConfig/set", params).await;
    assert_eq!(set["result"]["pushNotificationConfig"]["url"], url, "{set}");
    let first = old("tasks/pushNotificationConfig/get", json!({"id": id})).await;
    assert_eq!(first["result"]["pushNotificationConfig"]["id"], "a", "{first}");
    let listed = old("tasks/pushNotificationConfig/list", json!({"id": id})).await;
    assert_eq!(listed["result"].as_array().expect("a list").len(), 1);
    let path = format!("/a2a/rest/v1/tasks/{}/pushNotificationConfigs", id.as_str().expect("an id"));
    let listed: Value = server.get(&path).await.expect("an answer").json().await.expect("JSON");
    assert_eq!(listed["configs"].as_array().expect("a list").len(), 1, "{listed}");
    let deleted = old("tasks/pushNotificationConfig/delete", json!({"id": id, "pushNotificationConfigId": "a"})).await;
    assert!(deleted["result"].is_null() && deleted.get("error").is_none(), "{deleted}");
}

/// Reads a receiver's notifications until the end of its task.
async fn gets_events_of_1_0(received: &mut mpsc::UnboundedReceiver<PushRequest>) {
    loop {
        let (headers, event) = received.recv().await.expect("an event");
        assert_eq!(headers["content-type"], "application/a2a+json", "{event}");
        if event["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED" {
            return;
        }
    }
}

#[tokio::test]
async fn a_client_of_1_0_cannot_have_its_receiver_sent_what_0_3_sends() {
    let server = agent("Say something.", PUSH).await;
    let config = |url: &str| json!({"url": url, "annexReceiverIsV03": true});
    for is_rest in [false, true] {
        let (created_url, mut created) = receiver().await;
        let (named_url, mut named) = receiver().await;
        let task = slow_task(&server).await;
        let mut create = config(&created_url);
        create["taskId"] = task.clone();
        let send = message("prompt", &json!({"taskPushNotificationConfig": config(&named_url)}));
        let create_path = format!("tasks/{}/pushNotificationConfigs", task.as_str().expect("an id"));
        for (method, path, params) in
            [("CreateTaskPushNotificationConfig", &*create_path, &create), ("SendMessage", "message:send", &send)]
        {
            if is_rest {
                let request = server.client().post(format!("{}/a2a/rest/{path}", server.url())).json(params);
                let answer = request.header("a2a-version", "1.0").send().await.expect("an answer");
                assert_eq!(answer.status(), 200, "{path}");
            } else {
                let answer = call(&server, method, params).await;
                assert!(answer.get("result").is_some(), "{answer}");
            }
        }
        gets_events_of_1_0(&mut created).await;
        gets_events_of_1_0(&mut named).await;
    }
}

/// Registrations by a client of 0.3, over JSON-RPC and HTTP+JSON, with tasks in memory and in a file.
#[tokio::test]
async fn a_receiver_of_a_client_of_0_3_gets_tasks_of_0_3() {
    let folder = tempfile::tempdir().expect("a folder");
    let stored = format!("[tasks]\ndata_dir = {:?}", folder.path().join("data"));
    for tasks in ["", &stored] {
        let server = agent("Say something.", &format!("{PUSH}\n[server]\na2a_0_3 = true\n{tasks}")).await;
        let ((rpc_url, mut rpc), (rest_url, mut rest), (new_url, mut new)) =
            (receiver().await, receiver().await, receiver().await);
        let message =
            json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "prompt"}]});
        let params = json!({"message": message, "configuration": {"pushNotificationConfig": {"url": rpc_url, "token": "t0ken"}}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params});
        let sent =
            server.client().post(format!("{}/a2a/jsonrpc", server.url())).json(&body).send().await.expect("an answer");
        let sent: Value = sent.json().await.expect("JSON");
        let message = json!({"messageId": "n", "role": "ROLE_USER", "content": [{"text": "prompt"}]});
        let body =
            json!({"message": message, "configuration": {"blocking": true, "pushNotification": {"url": rest_url}}});
        let posted = server.client().post(format!("{}/a2a/rest/v1/message:send", server.url())).json(&body);
        assert_eq!(posted.send().await.expect("an answer").status(), 200);
        for (received, token) in [(&mut rpc, Some("t0ken")), (&mut rest, None)] {
            loop {
                let (headers, task) = received.recv().await.expect("an event");
                assert_eq!(headers["content-type"], "application/json");
                assert_eq!(headers.get("x-a2a-notification-token").map(|token| token.to_str().expect("ASCII")), token);
                assert_eq!(task["kind"], "task", "{task}");
                if task["status"]["state"] == "completed" {
                    assert_eq!(task["artifacts"][0]["parts"][0], json!({"kind": "text", "text": "Say something."}));
                    break;
                }
            }
        }
        // A receiver of 1.0 beside them gets what 1.0 sends, and clients are not shown which one it is.
        let config = json!({"taskPushNotificationConfig": {"url": new_url}});
        let answer = call(&server, "SendMessage", &self::message("prompt", &config)).await;
        let (headers, event) = new.recv().await.expect("an event");
        assert_eq!(headers["content-type"], "application/a2a+json");
        assert!(event.get("statusUpdate").is_some(), "{event}");
        for task in [&answer["result"]["task"]["id"], &sent["result"]["id"]] {
            let listed = call(&server, "ListTaskPushNotificationConfigs", &json!({"taskId": task})).await;
            let config = listed["result"]["configs"][0].as_object().expect("a config");
            assert!(config.keys().all(|key| ["id", "taskId", "url", "token"].contains(&key.as_str())), "{listed}");
        }
    }
}

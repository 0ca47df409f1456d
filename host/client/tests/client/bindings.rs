//! Each operation over each binding, against the real server.

use annex_client::{Agent, Binding, ClientConfig, ClientError, ExtensionMethod, ServiceParameters, StreamRoom};
use annex_protocol::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
    Json, JsonObject, ListTaskPushNotificationConfigsRequest, ListTasksRequest, PartContent, SendMessageResponse,
    StreamResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig, TaskState,
};
use annex_test_support::{STATE_INJECTION, STATE_KEY, TEST_EXTENSION, TestConfig, TestServer};
use futures::TryStreamExt;
use http::{HeaderName, HeaderValue};

use crate::support::{agent, by, chain, client, no_parameters, specialist, test_server, text};

/// The session state that a test sends. gRPC can carry its fraction, because 1.5 is exact as a double.
const STATE: &str = r#"{"user_info":{"name":"Ada","role":"Engineer","email":"ada@example.com"},"weight":1.5}"#;

const SCRIPT: &str = r#"
    [card.extended]
    description = "For those who are known"
    [push]
    allow = ["127.0.0.0/8"]
    [[auth.api_key]]
    principal = "ada"
    key_sha256 = "3bad7b5c311a7d0451b91248e64ec125f3cb1ff4af014693645a620a384d5fe1"
    [[agent.rule]]
    text = "ask"
    steps = [{ status = { state = "input-required", text = "Which one?" } }]
    [[agent.rule]]
    text = "answer"
    steps = [{ message = { parts = [{ text = "At once." }, { data = '{"count":42}' }, { raw = "AAEC" }] } }]
    [[agent.rule]]
    text = "count"
    steps = [{ message = { parts = [{ data = '{"count":9007199254740993}' }] } }]
    [[agent.rule]]
    text = "wait"
    steps = [{ status = { state = "working" } }, { wait_ms = 3_600_000 }]
    [[agent.rule]]
    text = "done"
    steps = [
      { artifact = { id = "a", name = "result", parts = [{ text = "one " }] } },
      { artifact = { id = "a", parts = [{ text = "two" }], append = true, last_chunk = true } },
      { status = { state = "completed", text = "Done." } },
    ]
"#;

/// Ada's API key. `SCRIPT` contains its digest.
const KEY: &str = "a-key-of-ada-0123456789";

/// A server whose agent plays a script. Only the caller Ada has access to the server.
async fn script() -> TestServer {
    TestConfig::script(SCRIPT).start().await.expect("a server")
}

fn ada() -> ServiceParameters {
    let mut parameters = ServiceParameters::default();
    parameters.set_field(HeaderName::from_static("x-api-key"), HeaderValue::from_static(KEY)).expect("a field");
    parameters
}

async fn task_of(agent: &Agent, words: &str) -> Task {
    match agent.send_message(ada(), text(words)).await.expect("an answer").value {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(message) => panic!("no task: {message:?}"),
    }
}

#[tokio::test]
async fn state_injection_works_the_same_on_each_binding() {
    let server = TestServer::start(&specialist()).await.expect("a server");
    let mut snapshots = Vec::new();
    for binding in Binding::ALL {
        let agent = agent(server.url(), binding).await;
        assert_eq!(agent.binding(), binding);
        let mut parameters = no_parameters();
        parameters.activate(STATE_INJECTION.into()).expect("a URI");
        let mut request = text("Who am I and what is my email?");
        request.message.metadata.insert(STATE_KEY.to_owned(), Json::parse(STATE.to_owned()).expect("JSON"));
        let answer = agent.send_message(parameters, request).await.expect("an answer");
        assert_eq!(answer.active, [STATE_INJECTION.into()], "{binding}");
        let SendMessageResponse::Task(task) = answer.value else { panic!("no task") };
        assert_eq!(task.status.state, TaskState::Completed, "{binding}");
        assert!(task.status.timestamp.is_some() && !task.history.is_empty());
        let snapshot = task.artifacts[0].metadata.get(STATE_KEY).expect("the state came back");
        snapshots.push(snapshot.to::<serde_json::Value>().expect("JSON"));
    }
    assert!(snapshots.iter().all(|snapshot| *snapshot == snapshots[0]), "{snapshots:?}");
}

#[tokio::test]
async fn errors_have_the_same_code_reason_and_details_on_each_binding() {
    let server = TestServer::start(&specialist()).await.expect("a server");
    let mut violations = Vec::new();
    for binding in Binding::ALL {
        let agent = agent(server.url(), binding).await;
        let naive = agent.send_message(no_parameters(), text("hello")).await.expect_err("refused");
        let naive = naive.agent().expect("an error of the agent");
        assert_eq!(
            (naive.code, naive.reason.as_deref()),
            (Some(-32008), Some("EXTENSION_SUPPORT_REQUIRED")),
            "{binding}"
        );
        assert!(naive.details[0].get().contains(STATE_INJECTION), "{binding}: {naive:?}");
        let mut parameters = no_parameters();
        parameters.activate(STATE_INJECTION.into()).expect("a URI");
        let mut request = text("hello");
        request
            .message
            .metadata
            .insert(STATE_KEY.to_owned(), Json::parse(r#"{"user_info":{}}"#.to_owned()).expect("JSON"));
        let invalid = agent.send_message(parameters, request).await.expect_err("refused");
        let invalid = invalid.agent().expect("an error of the agent").clone();
        assert_eq!(invalid.code, Some(-32602), "{binding}");
        violations.push(invalid.violations());
        let request = GetTaskRequest { id: "nowhere".into(), ..GetTaskRequest::default() };
        let missing = agent.get_task(no_parameters(), request).await.expect_err("no such task");
        assert_eq!(missing.agent().and_then(|error| error.code), Some(-32001), "{binding}");
    }
    assert!(violations[0].len() > 1 && violations.iter().all(|found| *found == violations[0]), "{violations:?}");
}

#[tokio::test]
async fn a_message_is_an_answer_with_all_kinds_of_parts() {
    let server = script().await;
    let mut answers = Vec::new();
    for binding in Binding::ALL {
        let answer = agent(server.url(), binding).await.send_message(ada(), text("answer")).await.expect("an answer");
        let SendMessageResponse::Message(message) = answer.value else { panic!("no message") };
        answers.push(message.parts);
    }
    assert!(answers.iter().all(|parts| *parts == answers[0] && parts.len() == 3), "{answers:?}");
}

#[tokio::test]
async fn tasks_are_streamed_read_and_listed() {
    let server = script().await;
    for binding in Binding::ALL {
        let agent = agent(server.url(), binding).await;
        let answer = agent.send_streaming_message(ada(), text("done")).await.expect("a stream");
        let events: Vec<StreamResponse> = answer.value.try_collect().await.expect("events");
        let StreamResponse::Task(first) = &events[0] else { panic!("{binding}: {:?}", events[0]) };
        let pieces = events.iter().filter(|event| matches!(event, StreamResponse::ArtifactUpdate(_))).count();
        let last = events.last();
        assert!(
            matches!(last, Some(StreamResponse::StatusUpdate(update)) if update.status.state == TaskState::Completed)
        );
        assert_eq!(pieces, 2, "{binding}");

        let get = GetTaskRequest { id: first.id.clone(), history_length: Some(0), ..GetTaskRequest::default() };
        let task = agent.get_task(ada(), get).await.expect("a task").value;
        assert_eq!((task.history.len(), task.artifacts[0].parts.len()), (0, 2), "{binding}");
        let list = ListTasksRequest {
            context_id: Some(first.context_id.clone()),
            status: TaskState::Completed,
            page_size: Some(1),
            include_artifacts: Some(true),
            ..ListTasksRequest::default()
        };
        let page = agent.list_tasks(ada(), list).await.expect("a page").value;
        assert_eq!((page.total_size, page.tasks[0].artifacts.len()), (1, 1), "{binding}");
    }
}

#[tokio::test]
async fn a_running_task_is_followed_and_canceled() {
    let server = script().await;
    for binding in Binding::ALL {
        let agent = agent(server.url(), binding).await;
        let mut streamed = agent.send_streaming_message(ada(), text("wait")).await.expect("a stream").value;
        let Some(StreamResponse::Task(task)) = streamed.try_next().await.expect("an event") else { panic!("no task") };
        let subscribe = SubscribeToTaskRequest { id: task.id.clone(), ..SubscribeToTaskRequest::default() };
        let mut followed = agent.subscribe_to_task(ada(), subscribe).await.expect("a stream").value;
        assert!(matches!(followed.try_next().await, Ok(Some(StreamResponse::Task(_)))), "{binding}");
        let cancel = CancelTaskRequest { id: task.id.clone(), ..CancelTaskRequest::default() };
        let canceled = agent.cancel_task(ada(), cancel.clone()).await.expect("a task").value;
        assert_eq!(canceled.status.state, TaskState::Canceled, "{binding}");
        followed.try_collect::<Vec<_>>().await.expect("the stream ends");
        streamed.try_collect::<Vec<_>>().await.expect("the stream ends");
        let again = agent.cancel_task(ada(), cancel).await.expect_err("it has ended");
        assert_eq!(again.agent().and_then(|error| error.code), Some(-32002), "{binding}");
    }
}

#[tokio::test]
async fn push_configs_are_made_read_and_deleted() {
    let server = script().await;
    for binding in Binding::ALL {
        let agent = agent(server.url(), binding).await;
        let task = task_of(&agent, "ask").await.id;
        let config = TaskPushNotificationConfig {
            task_id: Some(task.clone()),
            url: "http://127.0.0.1:8081/hook".to_owned(),
            ..TaskPushNotificationConfig::default()
        };
        let made = agent.create_push_config(ada(), config).await.expect("a config").value;
        let id = made.id.clone().expect("an id");
        let get = GetTaskPushNotificationConfigRequest { task_id: task.clone(), id: id.clone(), tenant: None };
        let read = agent.get_push_config(ada(), get).await.expect("a config").value;
        assert_eq!((&read.url, &read.id), (&made.url, &made.id), "{binding}");
        let list = ListTaskPushNotificationConfigsRequest { task_id: task.clone(), ..Default::default() };
        assert_eq!(agent.list_push_configs(ada(), list.clone()).await.expect("a page").value.configs.len(), 1);
        let delete = DeleteTaskPushNotificationConfigRequest { task_id: task, id, tenant: None };
        agent.delete_push_config(ada(), delete).await.expect("it is gone");
        assert!(agent.list_push_configs(ada(), list).await.expect("a page").value.configs.is_empty(), "{binding}");
    }
}

#[tokio::test]
async fn the_extended_card_is_the_same_on_each_binding() {
    let server = script().await;
    let mut cards = Vec::new();
    for binding in Binding::ALL {
        let agent = agent(server.url(), binding).await;
        let card = agent.get_extended_agent_card(ada()).await.expect("a card").value;
        assert_ne!(card.description, agent.card().description);
        cards.push(card);
        let nobody = agent.get_extended_agent_card(no_parameters()).await.expect_err("refused");
        assert_eq!(
            nobody.agent().and_then(|error| error.reason.as_deref()),
            Some("UNAUTHENTICATED"),
            "{binding}: {nobody}"
        );
    }
    assert!(cards.iter().all(|card| *card == cards[0]), "{cards:?}");
}

#[tokio::test]
async fn an_integer_that_no_double_is_equal_to_is_exact_or_refused() {
    let server = script().await;
    for binding in Binding::ALL {
        let agent = agent(server.url(), binding).await;
        let answered = agent.send_message(ada(), text("count")).await;
        let mut request = text("done");
        request.message.metadata.insert("n".to_owned(), Json::parse("9007199254740993".to_owned()).expect("JSON"));
        let sent = agent.send_message(ada(), request).await;
        if binding == Binding::Grpc {
            let error = answered.expect_err("refused").agent().expect("an error of the agent").clone();
            assert_eq!(error.code, Some(-32004));
            assert!(error.message.contains("message.parts[0].data.count: 9007199254740993 is"), "{}", error.message);
            assert!(matches!(sent, Err(ClientError::NotCarried { .. })), "{sent:?}");
            continue;
        }
        let SendMessageResponse::Message(message) = answered.expect("an answer").value else { panic!("no message") };
        let PartContent::Data(data) = &message.parts[0].content else { panic!("no data") };
        assert_eq!(data.get(), r#"{"count":9007199254740993}"#, "{binding}");
        let SendMessageResponse::Task(task) = sent.expect("an answer").value else { panic!("no task") };
        let kept = task.history.iter().find_map(|message| message.metadata.get("n"));
        assert_eq!(kept.map(Json::get), Some("9007199254740993"), "{binding}");
    }
}

#[tokio::test]
async fn an_agent_that_is_gone_is_unreachable_on_each_binding() {
    for binding in Binding::ALL {
        let mut server = script().await;
        let agent = agent(server.url(), binding).await;
        server.begin_shutdown();
        server.ended().await.expect("it stops");
        let error = agent.send_message(ada(), text("done")).await.expect_err("nobody");
        assert!(matches!(error, ClientError::Unreachable { .. }), "{binding}: {}", chain(&error));
    }
}

/// A server that answers `large` with 20,000 letters.
async fn of_large_answers() -> TestServer {
    let rule = format!(
        "[[agent.rule]]\ntext = \"large\"\nsteps = [{{ message = {{ parts = [{{ text = {:?} }}] }} }}]",
        "x".repeat(20_000)
    );
    TestConfig::script(SCRIPT).with(&rule).start().await.expect("a server")
}

#[tokio::test]
async fn streams_that_share_a_room_have_no_more_than_that_together_on_each_binding() {
    let server = of_large_answers().await;
    for binding in Binding::ALL {
        let agent = agent(server.url(), binding).await;
        let room = StreamRoom::new(30_000);
        let mut ends = Vec::new();
        for _ in 0..2 {
            let streamed = agent.send_streaming_message(ada().within(room.clone()), text("large")).await;
            ends.push(streamed.expect("a stream").value.try_collect::<Vec<_>>().await.err());
        }
        let [None, Some(error)] = ends.as_slice() else { panic!("{binding}: {ends:?}") };
        assert!(matches!(error, ClientError::TooLarge { max_bytes: 30_000, .. }), "{binding}: {}", chain(error));
    }
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_refused_on_each_binding() {
    let server = of_large_answers().await;
    for binding in Binding::ALL {
        let config = ClientConfig { max_bytes: 10_000, ..by(binding) };
        let agent = client(config).agent(server.url()).await.expect("an agent");
        let error = agent.send_message(ada(), text("large")).await.expect_err("too large");
        assert!(matches!(error, ClientError::TooLarge { max_bytes: 10_000, .. }), "{binding}: {}", chain(&error));
    }
}

fn method(name: &str) -> ExtensionMethod {
    ExtensionMethod { extension: "test".to_owned(), name: name.to_owned() }
}

#[tokio::test]
async fn methods_of_extensions_answer_and_stream_the_same_on_each_binding() {
    let server = test_server("parameters = { methods = [\"test/echo\", \"test/stream\"] }").await;
    let params = JsonObject::parse(r#"{"b":1.0,"a":9007199254740993}"#).expect("an object");
    for binding in Binding::ALL {
        let agent = agent(server.url(), binding).await;
        let mut parameters = no_parameters();
        parameters.activate(TEST_EXTENSION.into()).expect("a URI");
        let answer = agent.call_method(parameters.clone(), method("test/echo"), &params).await.expect("an answer");
        let expected = format!(r#"{{"operation":"test/echo","params":{}}}"#, params.to_json_string());
        assert_eq!((answer.value.get(), answer.active), (expected.as_str(), vec![TEST_EXTENSION.into()]), "{binding}");
        let streamed = agent.call_streaming_method(parameters, method("test/stream"), &JsonObject::new()).await;
        let results: Vec<Json> = streamed.expect("a stream").value.try_collect().await.expect("results");
        assert_eq!(results.iter().map(Json::get).collect::<Vec<_>>(), ["0", "1", "2"], "{binding}");
        let inactive = agent.call_method(no_parameters(), method("test/echo"), &params).await.expect_err("refused");
        assert_eq!(inactive.agent().and_then(|error| error.code), Some(-32008), "{binding}: {inactive}");
        let own = JsonObject::parse(r#"{"command":"reject"}"#).expect("an object");
        let mut parameters = no_parameters();
        parameters.activate(TEST_EXTENSION.into()).expect("a URI");
        let own = agent.call_method(parameters, method("test/echo"), &own).await.expect_err("refused");
        assert_eq!(own.agent().and_then(|error| error.code), Some(-32950), "{binding}: {own}");
    }
}

//! Components as interceptors of a client. The server has the same component as an extension.

use std::sync::{Arc, Mutex};

use annex_client::{Agent, Binding, ClientConfig, ClientError, ComponentInterceptor};
use annex_protocol::{GetTaskRequest, Json, JsonObject, SendMessageResponse};
use annex_runtime::{Grants, Installation, Limits, Runtime, RuntimeConfig, SessionStateGrant};
use annex_test_support::{COMMAND_KEY, STATE_INJECTION, TestServer, component};
use futures::TryStreamExt;

use crate::support::{Foreign, by, card, chain, client, no_parameters, ok, specialist, text};

type ToldValues = Arc<Mutex<Vec<String>>>;

/// The client's half of an extension, as an interceptor.
struct ClientHalf {
    /// The runtime that stops guests that loop.
    _runtime: Runtime,
    interceptor: Arc<ComponentInterceptor>,
    told: ToldValues,
}

fn installation(parameters: &str) -> Installation {
    Installation {
        grants: Grants { session_state: Some(SessionStateGrant::default()), ..Grants::default() },
        parameters: JsonObject::parse(parameters).expect("an object"),
        ..Installation::with_limits(Limits::standard())
    }
}

async fn half(component: &str, input: &str, parameters: &str) -> ClientHalf {
    let runtime = Runtime::new(&RuntimeConfig { instances: 4, ..RuntimeConfig::default() }).expect("a runtime");
    let bytes = std::fs::read(component).expect("a component");
    let extension = runtime.load(bytes, installation(parameters)).await.expect("an extension");
    let told = ToldValues::default();
    let notes = Arc::clone(&told);
    let tell = move |_: &_, json: Json| notes.lock().expect("no panic").push(json.get().to_owned());
    let input = Json::parse(input.to_owned()).expect("JSON");
    let interceptor = ComponentInterceptor::new(Arc::new(extension), Some(input), tell).expect("a client's half");
    ClientHalf { _runtime: runtime, interceptor: Arc::new(interceptor), told }
}

async fn agent(server: &str, binding: Binding, half: &ClientHalf) -> Agent {
    let config = ClientConfig { interceptors: vec![half.interceptor.clone()], ..by(binding) };
    client(config).agent(server).await.expect("an agent")
}

#[tokio::test]
async fn both_halves_of_state_injection_meet_on_each_binding() {
    let server = TestServer::start(&specialist()).await.expect("a server");
    let state = r#"{"user_info":{"name":"Ada","role":"Engineer","email":"ada@example.com"}}"#;
    for binding in Binding::ALL {
        let half = half(annex_components::STATE_INJECTION, state, "{}").await;
        let agent = agent(server.url(), binding, &half).await;
        let answer = agent.send_message(no_parameters(), text("Who am I and what is my email?")).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.active, [STATE_INJECTION.into()], "{binding}");
        let SendMessageResponse::Task(task) = answer.value else { panic!("no task") };
        let get = GetTaskRequest { id: task.id, ..GetTaskRequest::default() };
        agent.get_task(no_parameters(), get).await.expect("a task");
        let told = || half.told.lock().expect("no panic").clone();
        assert_eq!(told().len(), 1, "{binding}: one state, none for what was only read");
        let streamed = agent.send_streaming_message(no_parameters(), text("Who am I?")).await.expect("a stream");
        streamed.value.try_collect::<Vec<_>>().await.expect("events");
        assert!(told().len() > 1, "{binding}: the stream had a state too");
        for state in [told().first(), told().last()] {
            assert!(state.is_some_and(|state| state.contains("You are Ada")), "{binding}: {state:?}");
        }
    }
}

#[tokio::test]
async fn a_call_that_the_component_refuses_or_fails_is_not_sent() {
    for (command, expected) in [("violation", "/command"), ("trap", "trapped"), ("foreign-key", "does not own")] {
        let server = Foreign::start(&[&card("")]).await;
        let half = half(component("test-extension"), &format!(r#"{{"command":"{command}"}}"#), "{}").await;
        let agent = agent(&server.url, Binding::JsonRpc, &half).await;
        let error = agent.send_message(no_parameters(), text("x")).await.expect_err("refused");
        assert!(matches!(error, ClientError::Refused(_)) && chain(&error).contains(expected), "{}", chain(&error));
        assert_eq!(server.requests().len(), 1, "only the card was asked for");
    }
}

#[tokio::test]
async fn what_the_component_adds_never_replaces_what_is_there() {
    let server = Foreign::start(&[&card("")]).await;
    let half = half(component("test-extension"), "{}", "{}").await;
    let agent = agent(&server.url, Binding::JsonRpc, &half).await;
    let mut request = text("x");
    request.message.metadata.insert(COMMAND_KEY.to_owned(), Json::string("mine"));
    let error = agent.send_message(no_parameters(), request).await.expect_err("refused");
    assert!(chain(&error).contains("test/command") && chain(&error).contains("set already"), "{}", chain(&error));
    assert_eq!(server.requests().len(), 1, "only the card was asked for");
}

#[tokio::test]
async fn a_fault_on_the_way_back_takes_the_place_of_the_answer() {
    let message = r#"{"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}}"#;
    let server = Foreign::start(&[&card(""), &ok("application/json", message)]).await;
    let half = half(component("test-extension"), "{}", r#"{"behaviour":{"after":"trap"}}"#).await;
    let agent = agent(&server.url, Binding::JsonRpc, &half).await;
    let error = agent.send_message(no_parameters(), text("prompt")).await.expect_err("a fault");
    assert!(matches!(error, ClientError::AnswerRefused(_)) && chain(&error).contains("trap"), "{}", chain(&error));
}

#[tokio::test]
async fn a_component_without_the_hook_has_no_client_side() {
    let runtime = Runtime::new(&RuntimeConfig { instances: 1, ..RuntimeConfig::default() }).expect("a runtime");
    let bytes = std::fs::read(component("hello-extension")).expect("a component");
    let extension = runtime.load(bytes, installation("{}")).await.expect("an extension");
    let error = ComponentInterceptor::new(Arc::new(extension), None, |_, _| {}).expect_err("no hook");
    assert!(error.to_string().contains("does not export the hook `client`"), "{error}");
}

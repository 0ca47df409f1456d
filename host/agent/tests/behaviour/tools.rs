//! The template agent with tools: state, failures, and results that the client sends later.

use std::sync::Arc;

use annex_agent::{
    AgentError, AgentEvent, CallbackContext, Callbacks, Tool, ToolCall, ToolContext, ToolDeclaration, ToolError,
    ToolOutput, ToolResult, Tools, Turn,
};
use annex_protocol::{Json, Metadata, Part, PartContent, TaskId};
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Bench, short};
use crate::template_agent::timed;

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

type Act = fn(&mut ToolContext, &Json) -> Result<ToolOutput, ToolError>;

/// A tool made of one function.
pub(crate) struct Small {
    pub(crate) name: &'static str,
    pub(crate) act: Act,
}

#[async_trait]
impl Tool for Small {
    fn declaration(&self) -> ToolDeclaration {
        let description = format!("Does {}.", self.name);
        ToolDeclaration { name: self.name.to_owned(), description, parameters: json(r#"{"type":"object"}"#) }
    }

    fn origin(&self) -> &str {
        "the test"
    }

    fn is_long_running(&self) -> bool {
        self.name == "ask"
    }

    async fn call(&self, context: &mut ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        (self.act)(context, arguments)
    }
}

/// Sets the keys of its arguments.
fn set(context: &mut ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
    let values: Value = arguments.to().unwrap();
    for (key, value) in values.as_object().unwrap() {
        context.state.set(key.clone(), Json::from_serialize(value).unwrap());
    }
    Ok(ToolOutput::Done(json(r#"{"result":"done"}"#)))
}

fn fail(context: &mut ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
    let _ = set(context, arguments);
    Err(ToolError { message: "out of order".to_owned() })
}

fn ask(_: &mut ToolContext, _: &Json) -> Result<ToolOutput, ToolError> {
    Ok(ToolOutput::Pending(json(r#"{"status":"pending"}"#)))
}

pub(crate) fn tools() -> Tools {
    let small = |name, act| Arc::new(Small { name, act }) as Arc<dyn Tool>;
    Tools::new(vec![small("set", set), small("fail", fail), small("ask", ask)]).unwrap()
}

fn bench(instruction: &str, answers: &[&[&'static str]]) -> Bench {
    let mut bench = Bench::answering(instruction, Some("out"), answers);
    bench.agent.tools = tools();
    bench
}

fn response(id: &str, response: &str) -> Part {
    let mut metadata = Metadata::new();
    metadata.insert("adk_type".to_owned(), Json::string("function_response"));
    let data = json(&format!(r#"{{"id":"{id}","name":"ask","response":{response}}}"#));
    Part { metadata, ..Part::from(PartContent::Data(data)) }
}

fn said(text: &str) -> Vec<Part> {
    vec![Part::text(text)]
}

/// The data parts of the status message that asks for input, with their metadata.
fn asked(event: &AgentEvent) -> Vec<(Value, Value)> {
    let AgentEvent::Status { message: Some(message), .. } = event else { panic!("{event:?}") };
    let data = |part: &Part| match &part.content {
        PartContent::Data(data) => Some((data.to().unwrap(), part.metadata.to_json().unwrap().to().unwrap())),
        PartContent::Text(_) | PartContent::Raw(_) | PartContent::Url(_) => None,
    };
    message.parts.iter().filter_map(data).collect()
}

#[tokio::test]
async fn the_model_sees_what_a_tool_answered_and_the_state_that_it_set() {
    let bench = bench("Mood {mood?}.", &[&["Wait.", r#">set {"mood":"good","user:seen":1,"temp:t":2}"#], &["fine"]]);
    let (events, result) = bench.turn("hi", "{}").await;
    result.unwrap();
    assert_eq!(events, ["Working", "fine (false, true)"]);
    assert_eq!(bench.prompt(0).tools.len(), 3);
    assert_eq!((bench.prompt(0).instruction, bench.prompt(1).instruction), ("Mood .".into(), "Mood good.".into()));
    let call = ToolCall {
        id: "call_1".to_owned(),
        name: "set".to_owned(),
        arguments: json(r#"{"mood":"good","user:seen":1,"temp:t":2}"#),
        signatures: Vec::new(),
    };
    let result = ToolResult { id: call.id.clone(), name: call.name.clone(), response: json(r#"{"result":"done"}"#) };
    let called = Turn::Agent { text: "Wait.".to_owned(), calls: vec![call] };
    assert_eq!(bench.prompt(1).turns, [Turn::User("hi".to_owned()), called, Turn::Tools(vec![result])]);
    assert_eq!(bench.state().await, r#"{"mood":"good","out":"fine","user:seen":1}"#);
    let steps: Vec<_> = timed(&bench.steps).into_iter().map(|(step, _)| step["name"].clone()).collect();
    assert_eq!(steps, ["fixed", "set", "fixed"]);
}

#[tokio::test]
async fn what_a_tool_sets_and_then_fails_is_not_kept() {
    let bench = bench("I", &[&[r#">fail {"a":1}"#, r#">set {"b":2}"#], &["sorry"]]);
    bench.turn("hi", "{}").await.1.unwrap();
    assert_eq!(bench.state().await, r#"{"b":2,"out":"sorry"}"#);
    let Some(Turn::Tools(results)) = bench.prompt(1).turns.pop() else { panic!() };
    assert_eq!(results[0].response.get(), r#"{"error":"out of order"}"#);
    let failed = json!({"kind": "tool", "name": "fail", "error": "out of order"});
    assert!(timed(&bench.steps).contains(&(failed, true)));
}

#[tokio::test]
async fn of_tools_that_run_at_the_same_time_the_last_ones_value_stays() {
    let bench = bench("I", &[&[r#">set {"x":1,"y":1}"#, r#">set {"x":2}"#], &["ok"]]);
    bench.turn("hi", "{}").await.1.unwrap();
    assert_eq!(bench.state().await, r#"{"x":2,"y":1,"out":"ok"}"#);
}

#[tokio::test]
async fn a_call_that_cannot_be_made_is_a_result_with_an_error() {
    let bench = bench("I", &[&[">nothing {}", ">set []"], &["ok"]]);
    bench.turn("hi", "{}").await.1.unwrap();
    let Some(Turn::Tools(results)) = bench.prompt(1).turns.pop() else { panic!() };
    let errors: Vec<_> = results.iter().map(|result| result.response.get()).collect();
    assert_eq!(
        errors,
        [r#"{"error":"there is no tool `nothing`"}"#, r#"{"error":"the arguments are not a JSON object"}"#]
    );
}

#[tokio::test]
async fn calls_with_the_same_id_are_told_apart() {
    let bench = bench("I", &[&[r#">set {"a":1}"#], &[r#">set {"a":2}"#], &["ok"]]);
    bench.turn("hi", "{}").await.1.unwrap();
    let ids: Vec<_> = bench
        .prompt(2)
        .turns
        .iter()
        .filter_map(|turn| match turn {
            Turn::Tools(results) => Some(results[0].id.clone()),
            Turn::User(_) | Turn::Agent { .. } => None,
        })
        .collect();
    assert_eq!((ids.len(), ids[0].as_str()), (2, "call_0"));
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn what_was_said_before_a_call_is_replaced_by_the_answer() {
    let bench = bench("I", &[&["Let ", "me ", "see", ">set {}"], &["It ", "works"]]);
    let (events, _) = bench.turn("hi", "{}").await;
    let expected = ["Working", "Let  (false, false)", "me  (true, false)", "It  (false, false)", "works (true, true)"];
    assert_eq!(events, expected);
    assert_eq!(bench.state().await, r#"{"out":"It works"}"#);
}

#[tokio::test]
async fn a_model_that_only_calls_is_stopped() {
    let mut bench = bench("I", &[&[r#">set {"a":1}"#]]);
    bench.agent.max_tool_rounds = 2;
    let Err(AgentError::Failed { message }) = bench.turn("hi", "{}").await.1 else { panic!() };
    assert!(message.starts_with("The agent asked for tools again after 2 rounds of calls"), "{message}");
    assert_eq!(bench.model.prompts.lock().unwrap().len(), 3);
    assert_eq!(bench.state().await, r#"{"a":1}"#);
}

#[tokio::test]
async fn a_result_that_comes_later_ends_the_turn_and_the_response_goes_on_with_it() {
    let bench = bench("Hi {name?}", &[&["Asking.", r#">ask {"q":"ok?"}"#, r#">set {"s":1}"#], &["thanks"]]);
    let (events, result) = bench.events(bench.open().await, said("hi"), "{}").await;
    result.unwrap();
    assert_eq!(events.iter().map(short).collect::<Vec<_>>(), ["Working", "InputRequired"]);
    let call = json!({"id": "call_1", "name": "ask", "args": {"q": "ok?"}});
    let pending = json!({"id": "call_1", "name": "ask", "response": {"status": "pending"}});
    let long_running = |kind| json!({"adk_type": kind, "adk_is_long_running": true});
    let expected = [(call, long_running("function_call")), (pending, long_running("function_response"))];
    assert_eq!(asked(&events[1]), expected);
    assert_eq!(bench.state().await, r#"{"s":1}"#, "what ran at the same time is kept");

    let answer = vec![response("call_1", r#"{"answer":"yes"}"#), Part::text("go on")];
    let (events, result) = bench.turn_in(bench.open().await, answer, r#"{"name":"Ada"}"#).await;
    result.unwrap();
    assert_eq!(events, ["Working", "thanks (false, true)"]);
    assert_eq!(bench.prompt(1).instruction, "Hi Ada");
    let turns = bench.prompt(1).turns;
    let Turn::Tools(results) = &turns[2] else { panic!("{turns:?}") };
    assert_eq!(results[0].response.get(), r#"{"answer":"yes"}"#);
    assert_eq!(turns[3], Turn::User("go on".to_owned()));
}

#[tokio::test]
async fn without_the_response_the_task_goes_on_waiting_and_the_model_is_not_asked() {
    let bench = bench("I", &[&[">ask {}", ">ask {}"], &["thanks"]]);
    bench.turn("hi", "{}").await.1.unwrap();
    for parts in [said("yes"), vec![response("other", "1")], vec![response("call_1", "1")]] {
        let (events, result) = bench.events(bench.open().await, parts, "{}").await;
        result.unwrap();
        assert_eq!(events.iter().map(short).collect::<Vec<_>>(), ["InputRequired"]);
        assert_eq!(asked(&events[0])[0].0["id"], "call_0");
    }
    assert_eq!(bench.model.prompts.lock().unwrap().len(), 1);
    // The other result arrived with the previous message. A second one is read as the user's text.
    let parts = vec![response("call_0", "0"), response("call_1", "2")];
    bench.turn_in(bench.open().await, parts, "{}").await.1.unwrap();
    let turns = bench.prompt(1).turns;
    let Some(Turn::Tools(results)) = turns.iter().find(|turn| matches!(turn, Turn::Tools(_))) else { panic!() };
    let responses: Vec<_> = results.iter().map(|result| result.response.get()).collect();
    assert_eq!(responses, ["0", "1"]);
}

#[tokio::test]
async fn another_task_of_the_context_is_not_held_up_by_one_that_waits() {
    let mut bench = bench("I", &[&[">ask {}"], &["done"], &["thanks"]]);
    bench.turn("first", "{}").await.1.unwrap();
    bench.task = TaskId::new("other");
    // A response with the id of another task's call is not a result.
    let parts = vec![Part::text("second"), response("call_0", "1")];
    let (events, _) = bench.turn_in(bench.open().await, parts, "{}").await;
    assert_eq!(events, ["Working", "done (false, true)"]);
    let Turn::Tools(results) = &bench.prompt(1).turns[2] else { panic!() };
    assert_eq!(results[0].response.get(), r#"{"status":"pending"}"#);

    bench.task = TaskId::new("task");
    bench.turn_in(bench.open().await, vec![response("call_0", "7")], "{}").await.1.unwrap();
    let turns = bench.prompt(2).turns;
    // The call has moved after later messages, so that its result comes last.
    let Some(Turn::Tools(results)) = turns.last() else { panic!("{turns:?}") };
    assert_eq!(results[0].response.get(), "7");
    assert_eq!(turns.len(), 5, "{turns:?}");
}

/// Never answers.
struct EndlessTool;

#[async_trait]
impl Tool for EndlessTool {
    fn declaration(&self) -> ToolDeclaration {
        ToolDeclaration { name: "hang".to_owned(), description: String::new(), parameters: json("{}") }
    }

    fn origin(&self) -> &str {
        "the test"
    }

    async fn call(&self, context: &mut ToolContext, _: &Json) -> Result<ToolOutput, ToolError> {
        context.state.set("a", json("1"));
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_call_that_is_broken_off_changes_nothing_and_the_next_turn_knows() {
    let mut bench = bench("I", &[&[">hang {}"], &["ok"]]);
    bench.agent.tools = Tools::new(vec![Arc::new(EndlessTool)]).unwrap();
    let cancel = bench.cancel.clone();
    let (turn, ()) = tokio::join!(bench.turn("hi", "{}"), async {
        tokio::task::yield_now().await;
        cancel.cancel();
    });
    assert_eq!(turn.0, ["Working", "Canceled"]);
    assert_eq!(bench.state().await, "{}");

    bench.cancel = CancellationToken::new();
    bench.turn("again", "{}").await.1.unwrap();
    let Turn::Tools(results) = &bench.prompt(1).turns[2] else { panic!() };
    assert_eq!(results[0].response.get(), r#"{"error":"the call was broken off, and its outcome is unknown"}"#);
}

/// Replaces one tool, and adds to the result of the other.
struct AroundTools;

#[async_trait]
impl Callbacks for AroundTools {
    async fn before_tool(
        &self,
        context: &mut CallbackContext,
        call: &mut ToolCall,
    ) -> Result<Option<Json>, AgentError> {
        context.state.set("asked", Json::string(&call.name));
        if call.name == "set" {
            call.arguments = json(r#"{"a":7}"#);
        }
        Ok((call.name == "ask").then(|| json(r#"{"answer":"known"}"#)))
    }

    async fn after_tool(
        &self,
        context: &mut CallbackContext,
        call: &ToolCall,
        result: &Json,
    ) -> Result<Option<Json>, AgentError> {
        context.state.set(format!("result_of_{}", call.name), result.clone());
        Ok((call.name == "fail").then(|| json(r#"{"excuse":"later"}"#)))
    }
}

#[tokio::test]
async fn callbacks_may_change_a_call_take_its_place_and_change_its_result() {
    let mut bench = bench("I", &[&[r#">set {"a":1}"#, ">ask {}", r#">fail {"b":1}"#], &["ok"]]);
    bench.agent.callbacks = Some(Arc::new(AroundTools));
    bench.turn("hi", "{}").await.1.unwrap();
    let Some(Turn::Tools(results)) = bench.prompt(1).turns.pop() else { panic!() };
    let responses: Vec<_> = results.iter().map(|result| result.response.get()).collect();
    assert_eq!(responses, [r#"{"result":"done"}"#, r#"{"answer":"known"}"#, r#"{"excuse":"later"}"#]);
    let expected = json!({
        "asked": "fail", "a": 7, "out": "ok",
        "result_of_set": {"result": "done"}, "result_of_ask": {"answer": "known"},
        "result_of_fail": {"error": "out of order"},
    });
    assert_eq!(serde_json::from_str::<Value>(&bench.state().await).unwrap(), expected);
}

#[test]
fn two_tools_of_one_name_are_refused() {
    let small = || Arc::new(Small { name: "set", act: set }) as Arc<dyn Tool>;
    let error = Tools::new(vec![small(), small()]).unwrap_err();
    let expected = "tool `set` is offered by the test and by the test; leave it out of the `tools` of one of them";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn an_answer_that_asks_for_too_many_calls_fails_the_turn_and_none_is_made() {
    let calls = vec![r#">set {"called":1}"#; 65];
    let flood = bench("", &[&calls, &["done"]]);
    let (_, result) = flood.turn("hi", "{}").await;
    assert!(result.unwrap_err().to_string().contains("more than 64 calls of tools at once"));
    assert_eq!(flood.state().await, "{}");
    // A call count at the limit is allowed.
    let many = bench("", &[&calls[..64], &["done"]]);
    let (events, result) = many.turn("hi", "{}").await;
    result.unwrap();
    assert_eq!(events, ["Working", "done (false, true)"]);
}

#[tokio::test]
async fn a_turn_that_asks_for_too_many_calls_in_all_its_rounds_fails() {
    let calls = vec![">set {}"; 64];
    let mut bench = bench("", &[&calls]);
    bench.agent.max_tool_rounds = 1_000;
    let (_, result) = bench.turn("hi", "{}").await;
    assert!(result.unwrap_err().to_string().contains("320 calls of tools in one turn; at most 256"));
    assert_eq!(bench.model.prompts.lock().unwrap().len(), 5);
}

//! Runs of an agent and changes of state, compared with recorded behaviour of ADK. Differences on purpose are listed.

use std::sync::Arc;

use annex_agent::{
    AgentError, CallbackContext, Callbacks, ModelAnswer, Prompt, StateAccess, Tool, ToolContext, ToolError, ToolOutput,
    Tools,
};
use annex_conversation::{Event, StateDelta, USER_AUTHOR};
use annex_protocol::{Json, JsonObject};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;

use crate::support::Bench;
use crate::tools::{Small, json};

/// One observed run.
#[derive(Deserialize)]
struct Run {
    case: String,
    input: Input,
    expected: ReferenceOutcome,
}

#[derive(Deserialize)]
struct Input {
    initial_state: JsonObject,
    messages: Vec<String>,
}

#[derive(Deserialize)]
struct ReferenceOutcome {
    stored_state: Value,
    stored_event_deltas: Vec<Delta>,
    model_saw: Vec<RecordedPrompt>,
}

#[derive(Deserialize)]
struct Delta {
    author: String,
    state_delta: Value,
}

#[derive(Deserialize)]
struct RecordedPrompt {
    system_instruction: String,
}

/// The callback of a case, by name.
struct CaseCallback(&'static str);

#[async_trait]
impl Callbacks for CaseCallback {
    async fn before_agent(&self, context: &mut CallbackContext) -> Result<Option<String>, AgentError> {
        if self.0 != "before_agent_callback_skips" {
            return Ok(None);
        }
        context.state.set("skipped", json("true"));
        Ok(Some("skipped".to_owned()))
    }

    async fn after_agent(&self, context: &mut CallbackContext) -> Result<Option<String>, AgentError> {
        if self.0 == "after_agent_callback_state" {
            context.state.set("user:after", Json::string("A"));
        }
        Ok((self.0 == "replace").then(|| "instead".to_owned()))
    }

    async fn before_model(
        &self,
        context: &mut CallbackContext,
        prompt: &mut Prompt,
    ) -> Result<Option<String>, AgentError> {
        if self.0 == "before_model_callback_state" {
            context.state.set("bm", json("1"));
        }
        if self.0 == "change" {
            prompt.instruction.push_str(" Be {kind}.");
        }
        Ok((self.0 == "instead").then(|| "from the callback".to_owned()))
    }

    async fn after_model(&self, context: &mut CallbackContext, answer: &mut ModelAnswer) -> Result<(), AgentError> {
        if self.0 == "after_model_callback_state" {
            context.state.set("am", json("2"));
        }
        if self.0 == "change" {
            answer.text = answer.text.to_uppercase();
        }
        Ok(())
    }
}

fn set_x(context: &mut ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
    let x: Value = arguments.to().unwrap();
    let x = Json::from_serialize(&x["x"]).unwrap();
    context.state.set("tool_x", x.clone());
    context.state.set("user:ux", x);
    Ok(ToolOutput::Done(json(r#"{"ok":true}"#)))
}

fn add_pen(context: &mut ToolContext, _: &Json) -> Result<ToolOutput, ToolError> {
    let mut cart: Value = context.state.get("cart").unwrap().to().unwrap();
    cart["items"].as_array_mut().unwrap().push("pen".into());
    context.state.set("cart", Json::from_serialize(&cart).unwrap());
    Ok(ToolOutput::Done(json("{}")))
}

/// The agent of a case: instruction, output key and answers.
type Setup = (&'static str, &'static str, Option<&'static str>, &'static [&'static [&'static str]]);

const SETUPS: [Setup; 13] = [
    ("output_key_none", "I", None, &[&["hello"]]),
    ("output_key_skips_thought", "I", Some("out"), &[&["~think", "answer"]]),
    ("output_key_empty_text", "I", Some("out"), &[&[""]]),
    ("output_key_overwrites_each_turn", "I", Some("out"), &[&["v1"], &["v2"]]),
    ("instruction_injected", "Hi {name}", None, &[&["ok"]]),
    ("instruction_empty", "", None, &[&["ok"]]),
    ("after_agent_callback_state", "I", None, &[&["ok"]]),
    ("before_agent_callback_skips", "I", Some("out"), &[&["never"]]),
    ("before_model_callback_state", "{bm?}x", None, &[&["ok"]]),
    ("after_model_callback_state", "I", Some("out"), &[&["ok"]]),
    ("tool_context_state", "I", Some("out"), &[&[r#">set_x {"x":5}"#], &["fin"]]),
    ("parallel_tools_merge_delta", "I", None, &[&[r#">set_x {"x":5}"#, r#">set_x {"x":6}"#], &["fin"]]),
    ("tool_nested_mutation_persisted", "I", None, &[&[">add_pen {}"], &["fin"]]),
];

/// Recorded cases about features that Annex does not have.
const NOT_HERE: [(&str, &str); 5] = [
    ("output_schema_dict", "answers are text; an output schema is not configured"),
    ("output_schema_invalid", "answers are text; an output schema is not configured"),
    ("sequential_temp_visible", "a server has one agent; `temp:` is tested in template_agent"),
    ("static_plus_dynamic", "there is one instruction"),
    ("global_instruction", "there is one instruction"),
];

fn bench(&(case, instruction, output_key, answers): &Setup) -> Bench {
    let mut bench = Bench::answering(instruction, output_key, answers);
    bench.agent.name = "agent".into();
    bench.agent.callbacks = Some(Arc::new(CaseCallback(case)));
    let small = |name, act| Arc::new(Small { name, act }) as Arc<dyn Tool>;
    bench.agent.tools = Tools::new(vec![small("set_x", set_x), small("add_pen", add_pen)]).unwrap();
    bench
}

#[tokio::test]
async fn agents_run_as_in_adk_except_where_said() {
    let runs: Vec<Run> = serde_json::from_str(include_str!("../data/agent_runs.json")).unwrap();
    assert_eq!(runs.len(), SETUPS.len() + NOT_HERE.len());
    for Run { case, input, expected } in runs {
        let name = case.strip_prefix("agent/").unwrap();
        let Some(setup) = SETUPS.iter().find(|setup| setup.0 == name) else {
            assert!(NOT_HERE.iter().any(|(other, _)| *other == name), "{case}");
            continue;
        };
        let bench = bench(setup);
        let initial = input.initial_state.to_json_string();
        for (index, message) in input.messages.iter().enumerate() {
            // A session is created by its first event, so what ADK starts with comes with the first message.
            let delta = if index == 0 { initial.as_str() } else { "{}" };
            bench.turn(message, delta).await.1.unwrap();
        }
        let state: Value = serde_json::from_str(&bench.state().await).unwrap();
        assert_eq!(state, expected.stored_state, "{case}");
        let events = bench.open().await.history(100).await.unwrap();
        let deltas: Vec<_> = events.iter().map(|event| (&*event.author, object(event))).collect();
        let mut wanted: Vec<_> = expected
            .stored_event_deltas
            .iter()
            .map(|delta| (delta.author.as_str(), delta.state_delta.clone()))
            .collect();
        wanted[0].1 = serde_json::from_str(&initial).unwrap();
        assert_eq!(deltas, wanted, "{case}");
        let prompts = bench.model.prompts.lock().unwrap();
        assert_eq!(prompts.len(), expected.model_saw.len(), "{case}");
        for (prompt, saw) in prompts.iter().zip(&expected.model_saw) {
            // ADK tells the model its name as well.
            let instruction = saw.system_instruction.split("You are an agent.").next().unwrap().trim_end();
            assert_eq!(prompt.instruction, instruction, "{case}");
        }
    }
}

fn object(event: &Event) -> Value {
    serde_json::from_str(&JsonObject::from(event.state_delta.clone()).to_json_string()).unwrap()
}

#[tokio::test]
async fn a_callback_may_take_the_place_of_the_model_or_of_the_answer() {
    let answers: &[&[&str]] = &[&["a ", "b"]];
    let expected: [(&str, &[&str], &str, &str); 3] = [
        ("instead", &["Working", "from the callback (false, true)"], "from the callback", ""),
        ("change", &["Working", "a  (false, false)", "A B (false, true)"], "A B", "I Be {kind}."),
        ("replace", &["Working", "a  (false, false)", "instead (false, true)"], "instead", "I"),
    ];
    for (does, events, out, instruction) in expected {
        let mut bench = Bench::answering("I", Some("out"), answers);
        bench.agent.callbacks = Some(Arc::new(CaseCallback(does)));
        assert_eq!(bench.turn("hi", "{}").await.0, events);
        assert_eq!(bench.state().await, format!(r#"{{"out":"{out}"}}"#));
        let told = bench.model.prompts.lock().unwrap().first().map(|prompt| prompt.instruction.clone());
        assert_eq!(told.unwrap_or_default(), instruction);
    }
}

/// One observed use of a state.
#[derive(Deserialize)]
struct Use {
    case: String,
    input: Uses,
    expected: Results,
}

#[derive(Deserialize)]
struct Uses {
    value: JsonObject,
    delta: JsonObject,
    schema: Value,
    ops: Vec<Vec<Value>>,
}

#[derive(Deserialize)]
struct Results {
    results: Vec<Value>,
    final_delta: Value,
}

/// Applies one operation; `None` for an operation that Annex does not have.
fn apply(state: &mut StateAccess, operation: &[Value]) -> Option<Value> {
    let key = operation.get(1).and_then(Value::as_str).unwrap_or_default();
    let value = |json: Option<Json>| json.map(|json| json.to().unwrap());
    Some(match operation[0].as_str().unwrap() {
        "set" => {
            state.set(key, Json::from_serialize(&operation[2]).unwrap());
            Value::Null
        }
        "update" => {
            for (key, value) in operation[1].as_object().unwrap() {
                state.set(key.clone(), Json::from_serialize(value).unwrap());
            }
            Value::Null
        }
        "get" | "getitem" => value(state.get(key)).or_else(|| operation.get(2).cloned()).unwrap_or_default(),
        "has_delta" => Value::Bool(!state.changes().is_empty()),
        "to_dict" => serde_json::from_str(&state.all().to_json_string()).unwrap(),
        "keys" => state.all().keys().map(Value::from).collect(),
        // Values are not changed in place, and a default is given by the reader.
        "nested_set" | "nested_append" | "setdefault" => return None,
        other => panic!("{other}"),
    })
}

#[tokio::test]
async fn state_is_read_and_changed_as_in_adk() {
    let uses: Vec<Use> = serde_json::from_str(include_str!("../data/state_delta.json")).unwrap();
    let mut compared = 0;
    for Use { case, input, expected } in uses {
        // A schema of the state is the business of an extension.
        if !input.schema.is_null() {
            continue;
        }
        let bench = Bench::new("I", None, &["ok"]);
        let session = bench.open().await;
        let said = Event::new(USER_AUTHOR, "task", Vec::new(), StateDelta::from(input.value));
        session.append([said.into()]).await.unwrap();
        let mut state = StateAccess::new(session);
        input.delta.into_iter().for_each(|(key, value)| state.set(key, value));
        let results: Option<Vec<Value>> = input.ops.iter().map(|operation| apply(&mut state, operation)).collect();
        let Some(results) = results else { continue };
        assert_eq!(results, expected.results, "{case}");
        let delta: Value = serde_json::from_str(&JsonObject::from(state.changes().clone()).to_json_string()).unwrap();
        assert_eq!(delta, expected.final_delta, "{case}");
        compared += 1;
    }
    assert_eq!(compared, 9);
}

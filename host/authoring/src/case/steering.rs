//! The hook `steering` in a case: a call of the model, and then calls of tools.

use annex_protocol::{ExtensionUri, Json};
use annex_runtime::{
    Chain, Fault, MadeToolCall, ModelOutcome, ModelParameters, PlannedModelCall, PlannedToolCall, Remark, ToolOutcome,
};
use serde_json::{Value, json};
use toml::Table;

use super::file::{CallGiven, CaseError, CaseInputs, ModelGiven};
use super::outcome::{Outcome, state_name, value, without_empty};
use super::toml_json;

/// The server that offers the tools of a case.
const ORIGIN: &str = "tools";

/// The steps of a case, ready for the hook.
pub(super) struct Steps {
    model: PlannedModelCall,
    /// Each call with its result.
    calls: Vec<(PlannedToolCall, MadeToolCall)>,
}

/// How the agent goes on after its steps.
pub(super) enum Went {
    /// It answers.
    On,
    /// It does not answer: the task waits.
    Waiting,
    /// It does not answer: the task fails with this reason.
    Refused(String),
}

impl Steps {
    /// Reads the steps of a case. `uri` is the extension under test, for which a call may have waited.
    pub(super) fn of(given: &CaseInputs, uri: &ExtensionUri) -> Result<Self, CaseError> {
        let model = given.model.clone().unwrap_or_default();
        let calls = given.calls.iter().enumerate().map(|(place, call)| tool_call(call, place, uri));
        Ok(Self { model: model_call(model)?, calls: calls.collect::<Result<_, _>>()? })
    }

    /// Runs the hook for each step. As in a turn, all calls of tools are decided before the first of them is made.
    pub(super) async fn take(self, chain: &mut Chain, outcome: &mut Outcome) -> Result<Went, Fault> {
        if let Some(reason) = ask_model(chain, self.model, outcome).await? {
            return Ok(Went::Refused(reason));
        }
        let mut decided = Vec::new();
        for (call, made) in self.calls {
            decided.push(ask_tool(chain, call, made).await?);
        }
        let waits = decided.iter().any(|(_, shown)| shown.get("waits").is_some());
        for (made, mut shown) in decided {
            if let Some(made) = made {
                show_result(chain, made, &mut shown).await?;
            }
            outcome.steps.push(shown);
        }
        Ok(if waits { Went::Waiting } else { Went::On })
    }
}

/// True if the case has steps.
pub(super) fn has_steps(given: &CaseInputs) -> bool {
    given.model.is_some() || !given.calls.is_empty()
}

fn object(table: &Table, key: &str) -> Result<Json, CaseError> {
    Json::parse(toml_json::object(table).to_string()).map_err(|error| CaseError::wrong(key, error))
}

fn model_call(given: ModelGiven) -> Result<PlannedModelCall, CaseError> {
    let ModelGiven { round, name, lent, instruction, parameters, tools } = given;
    // By its text: user data is not read from a tree.
    let parameters: ModelParameters = serde_json::from_str(&toml_json::object(&parameters).to_string())
        .map_err(|error| CaseError::wrong("model.parameters", error))?;
    Ok(PlannedModelCall { round, model: name, lent, instruction, parameters, tools })
}

fn tool_call(
    given: &CallGiven,
    place: usize,
    uri: &ExtensionUri,
) -> Result<(PlannedToolCall, MadeToolCall), CaseError> {
    let arguments = object(&given.arguments, "calls.arguments")?;
    let output = given.result.as_ref().map_or_else(|| json!({}), toml_json::json);
    let output = Json::parse(output.to_string()).map_err(|error| CaseError::wrong("calls.result", error))?;
    let (id, name) = (format!("call-{}", place + 1), given.tool.clone());
    let call = PlannedToolCall {
        id: id.clone(),
        name: name.clone(),
        origin: given.origin.clone().unwrap_or_else(|| ORIGIN.to_owned()),
        arguments: arguments.clone(),
        waited_for: given.has_waited.then(|| uri.clone()).into_iter().collect(),
    };
    Ok((call, MadeToolCall { id, name, arguments, output, failed: given.failed }))
}

/// Runs `before-model`. Returns the reason if the extension refuses the call.
async fn ask_model(
    chain: &mut Chain,
    mut call: PlannedModelCall,
    outcome: &mut Outcome,
) -> Result<Option<String>, Fault> {
    let before = call.clone();
    let steered = chain.run_model_hooks(&mut call).await?;
    let reason = match steered.outcome {
        ModelOutcome::Made => None,
        ModelOutcome::Refused { reason, .. } => Some(reason),
    };
    outcome.steps.push(without_empty(json!({
        "model": call.model,
        "instruction": (call.instruction != before.instruction).then_some(&call.instruction),
        "parameters": (call.parameters != before.parameters).then(|| value(&call.parameters)),
        "refused": reason,
        "remarks": remarks(&steered.remarks),
    })));
    Ok(reason)
}

/// Runs `before-tool`. Returns the call if it is made, and the step for the outcome.
async fn ask_tool(
    chain: &mut Chain,
    mut call: PlannedToolCall,
    made: MadeToolCall,
) -> Result<(Option<MadeToolCall>, Value), Fault> {
    let steered = chain.run_tool_hooks(&mut call, &[]).await?;
    let mut shown = json!({
        "tool": call.name,
        "arguments": (call.arguments != made.arguments).then(|| value(&call.arguments)),
        "remarks": remarks(&steered.remarks),
    });
    let made = match steered.outcome {
        ToolOutcome::Made => Some(MadeToolCall { arguments: call.arguments, ..made }),
        ToolOutcome::Denied(text) => {
            add(&mut shown, "denied", text.into());
            None
        }
        ToolOutcome::Waits(wait) => {
            let waits = json!({
                "state": state_name(wait.state),
                "text": wait.text,
                "metadata": value(&wait.metadata),
            });
            add(&mut shown, "waits", without_empty(waits));
            None
        }
    };
    Ok((made, without_empty(shown)))
}

/// Runs `after-tool`, and adds its effects to the step.
async fn show_result(chain: &mut Chain, mut made: MadeToolCall, shown: &mut Value) -> Result<(), Fault> {
    let before = made.output.clone();
    let steered = chain.run_result_hooks(&mut made).await?;
    if made.output != before {
        add(shown, "result", value(&made.output));
    }
    if let Value::Array(more) = remarks(&steered.remarks)
        && !more.is_empty()
    {
        let mut all = shown.get("remarks").and_then(Value::as_array).cloned().unwrap_or_default();
        all.extend(more);
        add(shown, "remarks", all.into());
    }
    Ok(())
}

fn add(shown: &mut Value, key: &str, value: Value) {
    if let Some(members) = shown.as_object_mut() {
        members.insert(key.to_owned(), value);
    }
}

fn remarks(remarks: &[Remark]) -> Value {
    let shown = |remark: &Remark| {
        let remark = json!({ "parts": value(&remark.parts), "metadata": value(&remark.metadata) });
        without_empty(remark)
    };
    remarks.iter().map(shown).collect()
}

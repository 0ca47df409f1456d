//! Converts the recorded steps of the agent, and the tasks of a recorded read.

use annex_protocol::AgentExtension;
use annex_runtime::{MadeToolCall, PlannedModelCall, PlannedToolCall, RecordedTurn, StepInput, TaskToShow};
use toml::{Table, Value};

use super::GivenTurn;
use super::values::said;

impl GivenTurn {
    /// Adds the calls of the model and of tools. A case has one call of the model, before all calls of tools.
    pub(super) fn steps(&mut self, turn: &RecordedTurn) -> Result<(), String> {
        let mut models = 0;
        let mut calls: Vec<(&PlannedToolCall, Option<&MadeToolCall>)> = Vec::new();
        for step in &turn.steps {
            match &step.input {
                StepInput::Model(call) => {
                    if models == 0 {
                        self.set("model", model(call)?);
                    }
                    models += 1;
                }
                StepInput::Tool(call) => calls.push((call, None)),
                StepInput::ToolResult(made) => {
                    let open = calls.iter_mut().find(|(call, result)| call.id == made.id && result.is_none());
                    if let Some((_, result)) = open {
                        *result = Some(made);
                    }
                }
                _ => {}
            }
        }
        if models > 1 {
            self.remarks.push("The agent called the model several times. The case has the first call.");
        }
        if !calls.is_empty() {
            self.set("calls", calls.into_iter().map(call).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(())
    }
}

/// Converts a call of the model to `given.model`.
fn model(call: &PlannedModelCall) -> Result<Value, String> {
    let PlannedModelCall { round, model, lent, instruction, parameters, tools } = call;
    let texts = |texts: &[String]| Value::Array(texts.iter().map(|text| Value::from(text.as_str())).collect());
    let mut table = Table::from_iter([
        ("round".to_owned(), i64::from(*round).into()),
        ("name".to_owned(), model.as_str().into()),
        ("lent".to_owned(), texts(lent)),
        ("instruction".to_owned(), texts(instruction)),
        ("tools".to_owned(), texts(tools)),
    ]);
    table.insert("parameters".to_owned(), said(parameters, "the parameters of its model")?);
    Ok(Value::Table(table))
}

/// Converts a call of a tool with its result to an entry of `given.calls`.
fn call((call, made): (&PlannedToolCall, Option<&MadeToolCall>)) -> Result<Value, String> {
    let mut table = Table::from_iter([
        ("tool".to_owned(), call.name.as_str().into()),
        ("origin".to_owned(), call.origin.as_str().into()),
        ("arguments".to_owned(), said(&call.arguments, "the arguments of a tool")?),
    ]);
    if !call.waited_for.is_empty() {
        table.insert("has_waited".to_owned(), true.into());
    }
    if let Some(made) = made {
        table.insert("result".to_owned(), said(&made.output, "the result of a tool")?);
        if made.failed {
            table.insert("failed".to_owned(), true.into());
        }
    }
    Ok(Value::Table(table))
}

/// Converts a task that a reader was shown to an entry of `given.tasks`.
pub(super) fn shown_task(task: &TaskToShow) -> Result<Value, String> {
    let status = Table::from_iter([("state".to_owned(), task.state.name().into())]);
    let mut table = Table::from_iter([
        ("id".to_owned(), task.id.as_str().into()),
        ("contextId".to_owned(), task.context_id.as_str().into()),
        ("status".to_owned(), Value::Table(status)),
    ]);
    if !task.metadata.is_empty() {
        table.insert("metadata".to_owned(), said(&task.metadata, "the metadata of a task")?);
    }
    Ok(Value::Table(table))
}

/// Converts the entry of the extended card to `given.entry`.
pub(super) fn shown_entry(entry: &AgentExtension) -> Result<Value, String> {
    let mut table = Table::from_iter([("description".to_owned(), entry.description.as_str().into())]);
    if let Some(params) = &entry.params {
        table.insert("params".to_owned(), said(params, "the params of the entry on the card")?);
    }
    Ok(Value::Table(table))
}

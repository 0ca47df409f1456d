//! Decides which events get the trace, and creates the trace.

use std::collections::BTreeMap;

use annex_sdk::{Event, EventKind, Json, clock, json};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The URI in the published library. The text of the specification has a URI with another path.
pub const DEFAULT_URI: &str = "https://github.com/a2aproject/a2a-samples/extensions/traceability/v1";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Config")]
pub struct Parameters {
    /// The extension's URI.
    pub uri: String,
    /// The metadata key of the trace.
    pub key: String,
    /// True if the trace includes the parameters of calls to models, tools and agents.
    pub include_parameters: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    uri: Option<String>,
    key: Option<String>,
    #[serde(default)]
    include_parameters: bool,
}

impl From<Config> for Parameters {
    fn from(config: Config) -> Self {
        let uri = config.uri.unwrap_or_else(|| DEFAULT_URI.to_owned());
        let key = config.key.unwrap_or_else(|| {
            let (_, path) = uri.split_once("://").unwrap_or(("", &uri));
            format!("{path}/traceability")
        });
        Self { uri, key, include_parameters: config.include_parameters }
    }
}

/// True if the event gets the trace: a message, the last chunk of an artifact, or a status that ends the turn. Such a
/// status gets the trace if it has a message, or if no earlier event has the trace.
pub fn carries_trace(parameters: &Parameters, event: &Event, is_traced: bool) -> bool {
    let is_last = match event.kind {
        EventKind::Message => true,
        // An artifact in chunks has one trace, at its end, with all steps.
        EventKind::Artifact => event.last_chunk,
        EventKind::Status => ends_turn(event) && (event.has_message || !is_traced),
    };
    is_last && !event.present.contains(&parameters.key)
}

fn ends_turn(event: &Event) -> bool {
    // Only the non-terminal states are listed, so that every other one ends the turn.
    !matches!(event.task_state.as_deref(), None | Some("TASK_STATE_SUBMITTED" | "TASK_STATE_WORKING"))
}

/// Converts the host's record (JSON) to a ResponseTrace (JSON). The trace has the task's id, or the conversation's id
/// if it is about a message without a task.
///
/// # Errors
/// When the record does not have the contract's form.
pub fn response_trace(parameters: &Parameters, event: &Event, recorded: &str) -> Result<Json, String> {
    let recorded: Vec<RecordedStep<'_>> =
        serde_json::from_str(recorded).map_err(|error| format!("the recorded steps cannot be read: {error}"))?;
    let trace_id = event.task_id.as_deref().unwrap_or(&event.context_id);
    let steps = recorded.iter().enumerate().map(|(index, step)| step.traced(trace_id, index, parameters)).collect();
    json::text(&ResponseTrace { trace_id, steps })
}

/// A step in the host's record.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedStep<'a> {
    kind: String,
    name: String,
    start_time: String,
    end_time: Option<String>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    error: Option<String>,
    /// The ids of the step's span in the server's own traces.
    trace_id: Option<String>,
    span_id: Option<String>,
}

#[derive(Serialize)]
struct ResponseTrace<'a> {
    trace_id: &'a str,
    steps: Vec<Step<'a>>,
}

/// A step of the trace. Unknown fields are omitted. The cost of a step is never known.
#[derive(Serialize)]
struct Step<'a> {
    step_id: String,
    trace_id: &'a str,
    call_type: &'static str,
    step_action: StepAction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_tokens: Option<u64>,
    additional_attributes: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<u64>,
    start_time: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_time: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum StepAction<'a> {
    ToolInvocation {
        tool_name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parameters: Option<&'a RawValue>,
    },
    AgentInvocation {
        agent_name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        requests: Option<&'a RawValue>,
    },
}

impl<'a> RecordedStep<'a> {
    /// Converts a step. Turns of one task share a trace, so the id of a step contains the time when the step began.
    fn traced(&'a self, trace_id: &'a str, index: usize, parameters: &Parameters) -> Step<'a> {
        Step {
            step_id: format!("step-{}-{}", self.start_time, index + 1),
            trace_id,
            // The specification has two kinds of calls, and a model counts as a tool.
            call_type: if self.kind == "agent" { "AGENT" } else { "TOOL" },
            step_action: self.action(parameters),
            total_tokens: self.total_tokens(),
            additional_attributes: self.attributes(),
            latency: self.latency(),
            start_time: &self.start_time,
            end_time: self.end_time.as_deref(),
        }
    }

    fn action(&'a self, parameters: &Parameters) -> StepAction<'a> {
        // Parameters may contain data that the client must not see, so the operator decides.
        let called_with = self.parameters.filter(|_| parameters.include_parameters);
        if self.kind == "agent" {
            StepAction::AgentInvocation { agent_name: &self.name, requests: called_with }
        } else {
            StepAction::ToolInvocation { tool_name: &self.name, parameters: called_with }
        }
    }

    fn total_tokens(&self) -> Option<u64> {
        // If one count is known, the sum is shown; 0 would be wrong if neither is known.
        let known = self.input_tokens.is_some() || self.output_tokens.is_some();
        known.then(|| self.input_tokens.unwrap_or(0).saturating_add(self.output_tokens.unwrap_or(0)))
    }

    fn attributes(&self) -> BTreeMap<&'static str, String> {
        let tokens = |count: Option<u64>| count.map(|count| count.to_string());
        [
            ("kind", Some(self.kind.clone())),
            ("input_tokens", tokens(self.input_tokens)),
            ("output_tokens", tokens(self.output_tokens)),
            ("error", self.error.clone()),
            ("span_trace_id", self.trace_id.clone()),
            ("span_id", self.span_id.clone()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }

    /// The duration in milliseconds.
    fn latency(&self) -> Option<u64> {
        let start = clock::parse(&self.start_time)?;
        let end = clock::parse(self.end_time.as_deref()?)?;
        // The clock may have been set back in between.
        end.checked_sub(start)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const KEY: &str = "github.com/a2aproject/a2a-samples/extensions/traceability/v1/traceability";

    fn parameters(json: &str) -> Parameters {
        serde_json::from_str(json).unwrap()
    }

    fn event(kind: EventKind) -> Event {
        Event {
            kind,
            task_id: Some("t-1".to_owned()),
            context_id: "c-1".to_owned(),
            task_state: None,
            has_message: false,
            last_chunk: false,
            present: Vec::new(),
            payload: None,
        }
    }

    fn status(state: &str, has_message: bool) -> Event {
        Event { task_state: Some(format!("TASK_STATE_{state}")), has_message, ..event(EventKind::Status) }
    }

    fn trace(parameters_text: &str, recorded: &Value) -> Value {
        let text = response_trace(&parameters(parameters_text), &event(EventKind::Artifact), &recorded.to_string());
        serde_json::from_str(&text.unwrap()).unwrap()
    }

    #[test]
    fn the_key_follows_from_the_uri() {
        assert_eq!(parameters("{}").key, KEY);
        assert_eq!(parameters(r#"{"uri": "https://a.example/v2"}"#).key, "a.example/v2/traceability");
        assert_eq!(parameters(r#"{"key": "trace"}"#).key, "trace");
        assert!(serde_json::from_str::<Parameters>(r#"{"kee": "trace"}"#).is_err());
    }

    #[test]
    fn answers_and_the_last_chunks_of_artifacts_carry_the_trace() {
        let carries = |event: &Event| carries_trace(&parameters("{}"), event, true);
        assert!(carries(&event(EventKind::Message)));
        assert!(!carries(&event(EventKind::Artifact)));
        assert!(carries(&Event { last_chunk: true, ..event(EventKind::Artifact) }));
    }

    #[test]
    fn a_status_carries_it_when_it_ends_the_turn_and_says_something_or_is_the_only_one() {
        for state in ["COMPLETED", "FAILED", "CANCELED", "REJECTED", "INPUT_REQUIRED", "AUTH_REQUIRED"] {
            assert!(carries_trace(&parameters("{}"), &status(state, true), true), "{state}");
            assert!(carries_trace(&parameters("{}"), &status(state, false), false), "{state}");
            assert!(!carries_trace(&parameters("{}"), &status(state, false), true), "{state}");
        }
        for state in ["SUBMITTED", "WORKING"] {
            assert!(!carries_trace(&parameters("{}"), &status(state, true), false), "{state}");
        }
    }

    #[test]
    fn a_trace_that_the_agent_wrote_itself_stays() {
        let written = Event { present: vec![KEY.to_owned()], ..event(EventKind::Message) };
        assert!(!carries_trace(&parameters("{}"), &written, false));
    }

    #[test]
    fn a_model_is_a_tool_with_its_tokens_and_its_time() {
        let recorded = serde_json::json!([{
            "kind": "model", "name": "gemini", "startTime": "2026-11-20T09:41:07.250Z",
            "endTime": "2026-11-20T09:41:08.500Z", "inputTokens": 7, "outputTokens": 5, "parameters": {"a": 1}
        }]);
        let expected = serde_json::json!({"trace_id": "t-1", "steps": [{
            "step_id": "step-2026-11-20T09:41:07.250Z-1", "trace_id": "t-1", "call_type": "TOOL",
            "step_action": {"tool_invocation": {"tool_name": "gemini"}}, "total_tokens": 12,
            "additional_attributes": {"kind": "model", "input_tokens": "7", "output_tokens": "5"},
            "latency": 1250, "start_time": "2026-11-20T09:41:07.250Z", "end_time": "2026-11-20T09:41:08.500Z"
        }]});
        assert_eq!(trace("{}", &recorded), expected);
        let shown = trace(r#"{"include_parameters": true}"#, &recorded);
        assert_eq!(shown["steps"][0]["step_action"]["tool_invocation"]["parameters"]["a"], 1);
    }

    #[test]
    fn an_agent_is_an_invocation_of_an_agent_and_an_error_is_an_attribute() {
        let recorded = serde_json::json!([{
            "kind": "agent", "name": "billing", "startTime": "2026-11-20T09:41:07Z", "parameters": {"text": "hi"},
            "error": "it is away"
        }]);
        let step = &trace(r#"{"include_parameters": true}"#, &recorded)["steps"][0];
        assert_eq!(step["call_type"], "AGENT");
        let action = serde_json::json!({"agent_invocation": {"agent_name": "billing", "requests": {"text": "hi"}}});
        assert_eq!(step["step_action"], action);
        assert_eq!(step["additional_attributes"]["error"], "it is away");
        for unknown in ["end_time", "latency", "total_tokens", "cost", "parent_step_id"] {
            assert!(step.get(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn a_step_names_its_span_if_the_server_has_traces() {
        let recorded = serde_json::json!([{
            "kind": "model", "name": "gemini", "startTime": "2026-11-20T09:41:07Z",
            "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331"
        }]);
        let attributes = &trace("{}", &recorded)["steps"][0]["additional_attributes"];
        assert_eq!(attributes["span_trace_id"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(attributes["span_id"], "b7ad6b7169203331");
    }

    #[test]
    fn an_agent_that_did_nothing_has_an_empty_trace() {
        assert_eq!(trace("{}", &serde_json::json!([])), serde_json::json!({"trace_id": "t-1", "steps": []}));
        let message = Event { task_id: None, ..event(EventKind::Message) };
        let text = response_trace(&parameters("{}"), &message, "[]").unwrap();
        assert_eq!(text, r#"{"trace_id":"c-1","steps":[]}"#);
    }
}

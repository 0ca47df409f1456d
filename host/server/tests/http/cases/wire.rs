//! The A2A server of google-adk 2.13.0, in its older form and in the form of its own extension. Annex has neither form.

use std::sync::Arc;

use annex_agent::{TemplateAgent, Tool, ToolContext, ToolDeclaration, ToolError, ToolOutput, Tools};
use annex_protocol::Json;
use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    AGENT, Deviation, Placeholders, Recorder, StepAnswer, StoredSession, compare, outline, recorded, send, serve,
    sessions,
};

const CASES: &str = include_str!("../../data/a2a_wire.json");

/// The reason for which the older form is another one.
const TWICE: &str = "the older form says an answer twice, as the message of a status and as an artifact";
const CALLS: &str = "calls of tools and changes of state are the agent's own: the client gets the answer";
const WAITS: &str =
    "the model is not asked again before the client has answered, and a result that is not there yet is marked";

const DEVIATIONS: &[Deviation] = &[
    Deviation { case: "wire/basic_legacy", reason: TWICE, instead: &[("/answers/0/history", QUESTION)] },
    Deviation { case: "wire/stream_legacy", reason: TWICE, instead: &[("/answers/0", STREAMED)] },
    Deviation {
        case: "wire/template_missing_legacy",
        reason: TWICE,
        instead: &[(
            "/answers/0/history",
            r#"[{"contextId": "<uuid-1>", "messageId": "m1", "parts": [{"text": "hi"}], "role": "ROLE_USER", "taskId": "<uuid-2>"}]"#,
        )],
    },
    Deviation {
        case: "wire/model_exception",
        reason: "causes are for the log",
        instead: &[("/answers/0/says", r#"[{"text": "The agent failed; the server's log has the details under "}]"#)],
    },
    Deviation { case: "wire/state_delta_on_wire_new", reason: CALLS, instead: &[("/answers/0", STREAMED_FIN)] },
    Deviation { case: "wire/state_delta_on_wire_legacy", reason: CALLS, instead: &[("/answers/0", STREAMED_FIN)] },
    Deviation {
        case: "wire/input_required_followup_text_only",
        reason: WAITS,
        instead: &[
            ("/answers/0/artifacts", "[]"),
            ("/answers/0/says/1/metadata", PENDING),
            ("/answers/1/artifacts", "[]"),
            ("/answers/1/history/1/parts/1/metadata", PENDING),
            ("/answers/1/says", REMINDER_AND_CALL),
            ("/sessions/0/events", REMINDED),
        ],
    },
    Deviation {
        case: "wire/input_required_followup_no_context",
        reason: "the context of a task is known, so its result finds the call",
        instead: &[
            ("/answers/0/artifacts", "[]"),
            ("/answers/0/says/1/metadata", PENDING),
            ("/answers/1/state", r#""TASK_STATE_COMPLETED""#),
            ("/answers/1/says", "null"),
            ("/answers/1/history/1/parts/1/metadata", PENDING),
            ("/answers/1/history/2/contextId", r#""c""#),
            ("/answers/1/artifacts", r#"[{"parts": [{"text": "done"}], "extensions": [], "metadata": {}}]"#),
            ("/sessions", RESUMED),
        ],
    },
    Deviation {
        case: "wire/input_required_new_task_same_context",
        reason: WAITS,
        instead: &[
            ("/answers/0/artifacts", "[]"),
            ("/answers/0/says/1/metadata", PENDING),
            ("/sessions/0/events", LEFT_WAITING),
        ],
    },
    Deviation { case: "wire/unknown_extension_ignored", reason: TWICE, instead: &[("/answers/0/history", QUESTION)] },
    Deviation {
        case: "wire/message_extensions_only_no_header",
        reason: TWICE,
        instead: &[(
            "/answers/0/history",
            r#"[{"contextId": "<uuid-2>", "messageId": "m1", "parts": [{"text": "hi"}], "role": "ROLE_USER", "taskId": "<uuid-3>", "extensions": ["https://google.github.io/adk-docs/a2a/a2a-extension/"]}]"#,
        )],
    },
];

const QUESTION: &str = r#"[{"contextId": "<uuid-2>", "messageId": "m1", "parts": [{"text": "hi"}], "role": "ROLE_USER", "taskId": "<uuid-3>"}]"#;
const STREAMED: &str = r#"[{"state": "TASK_STATE_SUBMITTED", "says": null, "context": "<uuid-1>", "artifacts": [], "history": [{"contextId": "<uuid-1>", "messageId": "m1", "parts": [{"text": "hi"}], "role": "ROLE_USER", "taskId": "<uuid-2>"}]}, {"task": "<uuid-2>", "context": "<uuid-1>", "state": "TASK_STATE_WORKING", "says": null}, {"task": "<uuid-2>", "context": "<uuid-1>", "last": true, "artifact": {"parts": [{"text": "answer"}], "extensions": [], "metadata": {}}}, {"task": "<uuid-2>", "context": "<uuid-1>", "state": "TASK_STATE_COMPLETED", "says": null}]"#;
const STREAMED_FIN: &str = r#"[{"state": "TASK_STATE_SUBMITTED", "says": null, "context": "<uuid-1>", "artifacts": [], "history": [{"contextId": "<uuid-1>", "messageId": "m1", "parts": [{"text": "hi"}], "role": "ROLE_USER", "taskId": "<uuid-2>"}]}, {"task": "<uuid-2>", "context": "<uuid-1>", "state": "TASK_STATE_WORKING", "says": null}, {"task": "<uuid-2>", "context": "<uuid-1>", "last": true, "artifact": {"parts": [{"text": "fin"}], "extensions": [], "metadata": {}}}, {"task": "<uuid-2>", "context": "<uuid-1>", "state": "TASK_STATE_COMPLETED", "says": null}]"#;
const PENDING: &str = r#"{"adk_type": "function_response", "adk_is_long_running": true}"#;
const REMINDER_AND_CALL: &str = r#"[{"text": "This task waits for the results of the calls below. Send for each a data part with its `id`, its `name` and the result as `response`, and `\"adk_type\": \"function_response\"` in the metadata of the part."}, {"data": {"id": "call-1", "name": "ask", "args": {"q": "ok?"}}, "metadata": {"adk_type": "function_call", "adk_is_long_running": true}}]"#;
const REMINDED: &str = r#"[{"author": "user", "texts": ["hi"]}, {"author": "agent", "texts": []}, {"author": "agent", "texts": []}, {"author": "user", "texts": ["yes"]}, {"author": "agent", "texts": ["This task waits for the results of the calls below. Send for each a data part with its `id`, its `name` and the result as `response`, and `\"adk_type\": \"function_response\"` in the metadata of the part."]}]"#;
const RESUMED: &str = r#"[{"user_id": "A2A_USER_c", "session_id": "c", "state": {}, "events": [{"author": "user", "texts": ["hi"]}, {"author": "agent", "texts": []}, {"author": "agent", "texts": []}, {"author": "user", "texts": []}, {"author": "agent", "texts": ["done"]}]}]"#;
const LEFT_WAITING: &str = r#"[{"author": "user", "texts": ["hi"]}, {"author": "agent", "texts": []}, {"author": "agent", "texts": []}, {"author": "user", "texts": ["other"]}, {"author": "agent", "texts": ["done"]}]"#;

#[tokio::test]
async fn messages_are_answered_as_by_adk_but_for_the_deviations() {
    for case in recorded(CASES, 19, DEVIATIONS) {
        let folder = tempfile::tempdir().expect("a folder");
        let server = serve(folder.path(), agent(&case.case), "").await;
        let mut ids = Placeholders::default();
        let mut answers = Vec::new();
        let steps = case.input["steps"].as_array().expect("steps").iter();
        for (step, expected) in steps.zip(case.expected["steps"].as_array().expect("answers")) {
            let StepAnswer { body, echo } = send(&server, &ids.fill(step)).await;
            assert_eq!(echo, None, "{}: nothing is installed", case.case);
            ids.learn(&expected["body"], &body);
            for secret in ["app:secret", "user:k", "/etc/x"] {
                assert!(!body.to_string().contains(secret), "{}: {body}", case.case);
            }
            answers.push(outline(&body));
        }
        let kept: Vec<Value> = sessions(&server).await.iter().map(kept).collect();
        let seen = json!({"answers": answers, "sessions": kept});
        compare(&case.case, &seen, &of_adk(&ids.fill(&case.expected)), DEVIATIONS, &ids);
    }
}

/// The agent of a case. The recordings do not contain the agent, so this one is derived from its answers.
fn agent(case: &str) -> TemplateAgent {
    let ask = json!({"when": "^hi$", "call": [{"tool": "ask", "arguments": r#"{"q":"ok?"}"#}]});
    let (instruction, rules) = match case.split_once('/').expect("a group").1 {
        "template_missing_new" | "template_missing_legacy" => ("U={user_info}", json!([])),
        "model_exception" => return TemplateAgent::new(AGENT, "I", Recorder::broken()),
        name if name.starts_with("state_delta") => {
            let then = json!({"when": "", "after": "sd", "answer": "fin"});
            ("I", json!([then, {"when": "", "call": [{"tool": "sd"}]}]))
        }
        name if name.starts_with("input_required") => {
            let then = json!({"when": "", "after": "ask", "answer": "done"});
            ("I", json!([then, ask, {"when": "", "answer": "done"}]))
        }
        _ => ("I", json!([])),
    };
    let mut agent =
        TemplateAgent::new(AGENT, instruction, Recorder::with(json!({"fallback": "answer", "rules": rules})));
    agent.output_key = case.contains("state_delta").then(|| "out".to_owned());
    agent.tools = Tools::new(vec![Arc::new(SetState), Arc::new(Ask)]).expect("two tools");
    agent
}

fn declaration(name: &str) -> ToolDeclaration {
    let parameters = Json::parse(r#"{"type":"object"}"#.to_owned()).expect("JSON");
    ToolDeclaration { name: name.to_owned(), description: String::new(), parameters }
}

/// Sets keys of each scope.
struct SetState;

#[async_trait]
impl Tool for SetState {
    fn declaration(&self) -> ToolDeclaration {
        declaration("sd")
    }

    fn origin(&self) -> &str {
        "the test"
    }

    async fn call(&self, context: &mut ToolContext, _: &Json) -> Result<ToolOutput, ToolError> {
        for (key, value) in [("k", "1"), ("user:k", "2"), ("app:secret", "\"s\""), ("temp:t", "3")] {
            context.state.set(key, Json::parse(value.to_owned()).expect("JSON"));
        }
        Ok(ToolOutput::Done(Json::parse(r#"{"r":1}"#.to_owned()).expect("JSON")))
    }
}

/// Asks the client something.
struct Ask;

#[async_trait]
impl Tool for Ask {
    fn declaration(&self) -> ToolDeclaration {
        declaration("ask")
    }

    fn origin(&self) -> &str {
        "the test"
    }

    fn is_long_running(&self) -> bool {
        true
    }

    async fn call(&self, _: &mut ToolContext, _: &Json) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::Pending(Json::parse(r#"{"status":"pending"}"#.to_owned()).expect("JSON")))
    }
}

fn kept(session: &StoredSession) -> Value {
    let events = session.said().into_iter().map(|(author, texts)| json!({"author": author, "texts": texts}));
    let events: Vec<Value> = events.collect();
    json!({"user_id": session.user, "session_id": session.context, "state": session.own_state(), "events": events})
}

/// The recording, without what only ADK's events have.
fn of_adk(expected: &Value) -> Value {
    let answers: Vec<Value> =
        expected["steps"].as_array().expect("answers").iter().map(|step| outline(&step["body"])).collect();
    let mut sessions = expected["server_sessions"].clone();
    for session in sessions.as_array_mut().expect("sessions") {
        for event in session["events"].as_array_mut().expect("events") {
            event.as_object_mut().expect("an event").remove("custom_metadata");
        }
    }
    json!({"answers": answers, "sessions": sessions})
}

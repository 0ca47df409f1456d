//! The answers of other systems to the same messages (`tests/data/*.json`, recorded in November 2026), and the
//! deviations of Annex from these answers.
//!
//! Each case is played over JSON-RPC against a template agent, or against a server in front of a remote agent. Its
//! outcome is one JSON value: the answers, the prompts of the model, and the sessions. The outcome must equal the
//! recorded one, unless the case is a deviation with an outcome of its own. The comparison ignores names that the
//! server chooses, times, metadata of ADK (`adk_*`), and messages without parts, which the specification forbids.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use annex_agent::{Model, ModelError, ModelStream, Prompt, ScriptedModel, TemplateAgent};
use annex_test_support::{TestConfig, TestServer};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::installation::{TOKEN, admin};

mod article;
mod auth;
mod reference;
mod remote;
mod wire;

/// The name of the agent in all recordings.
const AGENT: &str = "agent";
/// The config without the card.
const CONFIG: &str = r#"
    [admin]
    token_file = "token"
    [sessions]
    hide = []
"#;
/// The text before the name of the variable, in a task whose agent's instruction needs one.
const MISSING: &str = "Context variable not found: `";
/// The text before the id of the error, in a task about which the log knows more.
const LOGGED: &str = "the server's log has the details under ";

/// One observation.
#[derive(Deserialize)]
struct Case {
    case: String,
    input: Value,
    expected: Value,
}

/// A case in which Annex deliberately differs.
struct Deviation {
    case: &'static str,
    reason: &'static str,
    /// The places of the recording that differ, as JSON pointers, each with the JSON of Annex. The JSON may contain the
    /// placeholders of the recording.
    instead: &'static [(&'static str, &'static str)],
}

/// Reads a recording, which has `count` cases.
fn recorded(text: &str, count: usize, deviations: &[Deviation]) -> Vec<Case> {
    let cases: Vec<Case> = serde_json::from_str(text).expect("cases");
    assert_eq!(cases.len(), count);
    for Deviation { case: name, .. } in deviations {
        assert!(cases.iter().any(|case| case.case == *name), "{name} is no case");
    }
    cases
}

/// Compares the outcome of a case with the recorded one, after applying the case's deviations.
fn compare(case: &str, seen: &Value, recorded: &Value, deviations: &[Deviation], ids: &Placeholders) {
    let mut wanted = recorded.clone();
    let mut reason = "as recorded";
    for deviation in deviations.iter().filter(|deviation| deviation.case == case) {
        reason = deviation.reason;
        for (place, instead) in deviation.instead {
            let instead: Value = serde_json::from_str(instead).expect("what is there instead");
            let there = wanted.pointer_mut(place).unwrap_or_else(|| unreachable!("{case}: nothing is at {place}"));
            let recorded = std::mem::replace(there, ids.fill(&instead));
            assert_ne!(*there, recorded, "{case} does not differ at {place}: {reason}");
        }
    }
    assert_eq!(*seen, wanted, "{case}, seen and wanted: {reason}");
}

/// A model that follows its script and records its prompts. Without a script every call fails.
struct Recorder {
    script: Option<ScriptedModel>,
    prompts: Mutex<Vec<Prompt>>,
}

impl Recorder {
    /// The script as in a config.
    fn with(script: Value) -> Arc<Self> {
        let script = serde_json::from_value(script).expect("a script");
        Arc::new(Self { script: Some(ScriptedModel::new(script).expect("a script")), prompts: Mutex::default() })
    }

    fn broken() -> Arc<Self> {
        Arc::new(Self { script: None, prompts: Mutex::default() })
    }

    fn prompts(&self) -> Vec<Prompt> {
        self.prompts.lock().expect("a lock").clone()
    }

    fn instructions(&self) -> Vec<String> {
        self.prompts().into_iter().map(|prompt| prompt.instruction).collect()
    }
}

#[async_trait]
impl Model for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }

    async fn stream(&self, prompt: Prompt) -> Result<ModelStream, ModelError> {
        self.prompts.lock().expect("a lock").push(prompt.clone());
        match &self.script {
            Some(script) => script.stream(prompt).await,
            None => Err(ModelError { model: self.name().to_owned(), source: "secret path /etc/x".into() }),
        }
    }
}

/// Starts the agent with its files in `folder`, the config extended by `more`.
async fn serve(folder: &Path, agent: TemplateAgent, more: &str) -> TestServer {
    fs::write(folder.join("token"), TOKEN).expect("a file");
    let config = TestConfig::without_agent().with(CONFIG).with(more);
    fs::write(folder.join("annex.toml"), config.toml()).expect("a file");
    TestServer::from_file(&folder.join("annex.toml"), Some(Arc::new(agent))).await.expect("a server")
}

/// The answer to one step.
struct StepAnswer {
    /// The answer, or the list of streamed answers.
    body: Value,
    /// The header `A2A-Extensions`.
    echo: Option<String>,
}

/// Sends the request of a step: `params`, `headers` and perhaps a `method`.
async fn send(server: &TestServer, request: &Value) -> StepAnswer {
    let method = request["method"].as_str().unwrap_or("SendMessage");
    let mut call = server.call(method, request["params"].to_string());
    for (name, value) in request["headers"].as_object().expect("headers") {
        call = call.header(name, value.as_str().expect("a text"));
    }
    if method == "SendStreamingMessage" {
        let stream = call.open().await.expect("a stream");
        let echo = stream.extensions.clone();
        return StepAnswer { body: stream.rest().await.expect("events").into(), echo };
    }
    let reply = call.send().await.expect("a reply");
    StepAnswer { body: reply.body, echo: reply.extensions }
}

/// The placeholders of a recording for the ids that a server makes, and the ids that this server made.
#[derive(Default)]
struct Placeholders(Vec<(String, String)>);

impl Placeholders {
    /// Learns the ids of the task of a step.
    fn learn(&mut self, recorded: &Value, answer: &Value) {
        let task = |body: &Value| body.get(0).unwrap_or(body)["result"]["task"].clone();
        let recorded = task(recorded);
        let own = task(answer);
        for field in ["id", "contextId"] {
            let (Some(recorded), Some(own)) = (recorded[field].as_str(), own[field].as_str()) else { continue };
            if recorded.starts_with("<uuid-") {
                self.0.push((recorded.to_owned(), own.to_owned()));
            }
        }
    }

    /// Puts them in the place of their placeholders.
    fn fill(&self, value: &Value) -> Value {
        let text = self.0.iter().fold(value.to_string(), |text, (placeholder, id)| text.replace(placeholder, id));
        serde_json::from_str(&text).expect("JSON")
    }
}

/// The part of an answer, or of each that was streamed, that is compared.
fn outline(answer: &Value) -> Value {
    if let Some(answers) = answer.as_array() {
        return answers.iter().map(outline).collect();
    }
    let error = &answer["error"];
    let result = &answer["result"];
    if let Some(code) = error.get("code") {
        let details = error["data"].as_array().into_iter().flatten();
        let violations = details.filter_map(|detail| detail["fieldViolations"].as_array()).flatten();
        let mut fields: Vec<&str> = violations.filter_map(|violation| violation["field"].as_str()).collect();
        fields.sort_unstable();
        return json!({"error": code, "fields": fields});
    }
    if let Some(update) = result.get("statusUpdate") {
        let status = &update["status"];
        let says = says(status);
        return json!({"task": update["taskId"], "context": update["contextId"], "state": status["state"], "says": says});
    }
    if let Some(update) = result.get("artifactUpdate") {
        let artifact = outline_of_artifact(&update["artifact"]);
        let is_last = &update["lastChunk"];
        return json!({"task": update["taskId"], "context": update["contextId"], "artifact": artifact, "last": is_last});
    }
    outline_of_task(&result["task"])
}

fn outline_of_task(task: &Value) -> Value {
    let list = |field: &str| task[field].as_array().cloned().unwrap_or_default();
    let history: Vec<Value> = list("history").iter().filter_map(outline_of_message).collect();
    let artifacts: Vec<Value> = list("artifacts").iter().map(outline_of_artifact).collect();
    let state = &task["status"]["state"];
    let says = says(&task["status"]);
    json!({"state": state, "says": says, "context": task["contextId"], "history": history, "artifacts": artifacts})
}

/// A message without the fields that differ between systems: messages of the user are unchanged, and messages of the
/// agent have only role and parts.
fn outline_of_message(message: &Value) -> Option<Value> {
    let parts = message.get("parts")?;
    Some(match message["role"] == "ROLE_USER" {
        true => message.clone(),
        false => json!({"role": message["role"], "parts": parts}),
    })
}

fn outline_of_artifact(artifact: &Value) -> Value {
    let mut metadata = artifact["metadata"].as_object().cloned().unwrap_or_else(Map::new);
    metadata.retain(|key, _| !key.starts_with("adk_"));
    let extensions = artifact.get("extensions").cloned().unwrap_or_else(|| json!([]));
    json!({"parts": artifact["parts"], "extensions": extensions, "metadata": metadata})
}

/// The parts of a status message. Ids of errors are removed, and the text about a missing variable is cut to the part
/// that all systems share.
fn says(status: &Value) -> Value {
    let parts = &status["message"]["parts"];
    let text = parts[0]["text"].as_str().unwrap_or_default();
    if let Some((variable, _)) = text.split_once(MISSING).and_then(|(_, rest)| rest.split_once('`')) {
        return json!([{"text": format!("{MISSING}{variable}`")}]);
    }
    match text.split_once(LOGGED) {
        Some((what, _)) => json!([{"text": format!("{what}{LOGGED}")}]),
        None => parts.clone(),
    }
}

/// A session as operators see it.
struct StoredSession {
    user: String,
    context: String,
    state: Map<String, Value>,
    events: Vec<Value>,
}

impl StoredSession {
    /// The keys that the session has for itself.
    fn own_state(&self) -> Map<String, Value> {
        let own = self.state.iter().filter(|(key, _)| !key.contains(':'));
        own.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Author and texts of each event.
    fn said(&self) -> Vec<(String, Vec<String>)> {
        let said = |event: &Value| {
            let parts = event["parts"].as_array().into_iter().flatten();
            let texts = parts.filter_map(|part| part["text"].as_str()).map(str::to_owned);
            (text(&event["author"]), texts.collect())
        };
        self.events.iter().map(said).collect()
    }
}

/// All sessions, the longest unchanged first.
async fn sessions(server: &TestServer) -> Vec<StoredSession> {
    let (_, list) = admin(server, "GET", "sessions", Value::Null).await;
    let mut sessions = Vec::new();
    for session in list["sessions"].as_array().expect("sessions") {
        let user = text(&session["user"]);
        let context = text(&session["context"]);
        let (_, shown) = admin(server, "GET", &format!("sessions/{context}?user={user}"), Value::Null).await;
        let (_, events) = admin(server, "GET", &format!("sessions/{context}/events?user={user}"), Value::Null).await;
        let state = shown["state"].as_object().expect("a state").clone();
        let events = events["events"].as_array().expect("events").clone();
        sessions.push(StoredSession { user, context, state, events });
    }
    sessions
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// The JSON that Annex writes for what ADK writes as Python does.
fn as_json(rendered: &str) -> String {
    let pairs = [("{'", "{\""), ("': '", "\":\""), ("', '", "\",\""), ("'}", "\"}")];
    pairs.iter().fold(rendered.to_owned(), |text, (python, json)| text.replace(python, json))
}

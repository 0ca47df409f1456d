//! The owners of sessions and tasks on google-adk's A2A server.
//!
//! On that server a header names the caller. In these tests callers have API keys. The keys of the recording are
//! principals, and an anonymous caller uses a server without authentication on the same files.

use annex_agent::TemplateAgent;
use serde_json::{Map, Value, json};

use super::{
    AGENT, Placeholders, Recorder, StepAnswer, StoredSession, compare, outline, recorded, send, serve, sessions,
};
use crate::auth::{ADA, BOB, api_keys};

const CASES: &str = include_str!("../../data/a2a_wire_auth.json");
/// The recorded users who are authenticated: who they are here, and their keys.
const CALLERS: [(&str, &str, &str); 2] = [("alice", "principal:ada", ADA), ("bob", "principal:bob", BOB)];
const STORE: &str = "[tasks]\ndata_dir = \"data\"\n";

#[tokio::test]
async fn sessions_and_tasks_belong_to_whom_they_belonged_in_adk() {
    for case in recorded(CASES, 3, &[]) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ids = Placeholders::default();
        let mut answers = Vec::new();
        let mut kept = Vec::new();
        let steps = case.input["steps"].as_array().expect("steps").iter();
        for (step, expected) in steps.zip(case.expected["steps"].as_array().expect("answers")) {
            let mut request = ids.fill(&step["request"]);
            let name = request["headers"]["x-user"].as_str().unwrap_or_default();
            let caller = CALLERS.iter().find(|(caller, ..)| *caller == name);
            if let Some((_, _, key)) = caller {
                request["headers"]["x-api-key"] = json!(key);
            }
            let model = Recorder::with(json!({"fallback": "answer"}));
            let mut agent = TemplateAgent::new(AGENT, "I", model);
            agent.output_key = Some("user:last".to_owned());
            let config = if caller.is_some() { format!("{STORE}{}", api_keys()) } else { STORE.to_owned() };
            let mut server = serve(folder.path(), agent, &config).await;
            let StepAnswer { body, .. } = send(&server, &request).await;
            ids.learn(&expected["body"], &body);
            answers.push(outline(&body));
            kept = sessions(&server).await;
            server.begin_shutdown();
            server.ended().await.expect("a clean end");
        }
        let seen = json!({"answers": answers, "sessions": counted(&kept), "user_state": user_state(&kept)});
        compare(&case.case, &seen, &of_adk(&ids.fill(&case.expected)), &[], &ids);
    }
}

fn counted(kept: &[StoredSession]) -> Vec<Value> {
    let session = |session: &StoredSession| {
        let events = session.events.len();
        json!({"user_id": session.user, "session_id": session.context, "n_events": events})
    };
    kept.iter().map(session).collect()
}

/// The keys that all sessions of a user share, by user.
fn user_state(kept: &[StoredSession]) -> Map<String, Value> {
    let own = |session: &StoredSession| {
        let keys = session.state.iter().filter_map(|(key, value)| Some((key.strip_prefix("user:")?, value.clone())));
        let keys: Map<String, Value> = keys.map(|(key, value)| (key.to_owned(), value)).collect();
        (session.user.clone(), Value::from(keys))
    };
    kept.iter().map(own).collect()
}

/// The recording, with the names that the users have here.
fn of_adk(expected: &Value) -> Value {
    let named = CALLERS.iter().fold(expected.to_string(), |text, (caller, principal, _)| {
        text.replace(&format!("\"{caller}\""), &format!("\"{principal}\""))
    });
    let expected: Value = serde_json::from_str(&named).expect("JSON");
    let answers: Vec<Value> =
        expected["steps"].as_array().expect("answers").iter().map(|step| outline(&step["body"])).collect();
    json!({"answers": answers, "sessions": expected["server_sessions"], "user_state": expected["user_state"]})
}

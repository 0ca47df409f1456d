//! State injection as google-adk 2.13.0 defines it: several turns, scopes and concurrent turns.

use annex_agent::TemplateAgent;
use annex_test_support::{Reply, TestServer};
use futures::future::join_all;
use serde_json::{Value, json};

use super::{
    AGENT, Case, Deviation, Placeholders, Recorder, StepAnswer, StoredSession, as_json, compare, outline, recorded,
    says, send, serve, sessions,
};

const CASES: &str = include_str!("../../data/state_injection_reference.json");
/// URI of the extension, which is its metadata key as well.
const URI: &str = "https://example.org/ext/session-state/v1";

/// With the scopes `user:` and `temp:` granted. `<state>` is the JSON pointer to the state.
const DEVIATIONS: &[Deviation] = &[
    APP_SCOPE,
    Deviation {
        case: "inject/conc_same_context_in_memory",
        reason: "turns of one context follow each other, so each answer comes after its question",
        instead: &[("/history", ONE_AFTER_THE_OTHER)],
    },
    Deviation {
        case: "inject/conc_same_context_database",
        reason: "turns of one context follow each other, so none is stale",
        instead: &[
            ("/observed/1", r#"{"state": "TASK_STATE_COMPLETED", "text": "re:p1", "says": null}"#),
            ("/history", ONE_AFTER_THE_OTHER),
        ],
    },
];

/// The deviations without granted scopes, which is the default. The first message is refused, so the second one does
/// not see the first one's state.
const DEVIATIONS_WITHOUT_SCOPES: &[Deviation] = &[
    APP_SCOPE,
    Deviation {
        case: "inject/temp_only_this_turn",
        reason: "scopes are granted by the operator",
        instead: &[
            ("/steps/0", r#"{"error": -32602, "fields": ["<state>/temp:tok"]}"#),
            ("/model_saw", r#"["T=[]"]"#),
            ("/sessions/0/event_deltas", r#"[["user", {}], ["agent", {}]]"#),
        ],
    },
    Deviation {
        case: "inject/user_scope_same_anonymous_user",
        reason: "scopes are granted by the operator",
        instead: &[
            ("/steps/0", r#"{"error": -32602, "fields": ["<state>/user:lang"]}"#),
            ("/model_saw", r#"["L=[]"]"#),
            ("/sessions", ONLY_THE_SECOND),
        ],
    },
];

const APP_SCOPE: Deviation = Deviation {
    case: "inject/app_scope_leaks",
    reason: "what all callers share is written with a grant only",
    instead: &[
        ("/steps/0", r#"{"error": -32602, "fields": ["<state>/app:banner"]}"#),
        ("/model_saw", r#"["B=[]"]"#),
        ("/sessions", ONLY_THE_SECOND),
    ],
};

const ONLY_THE_SECOND: &str =
    r#"[{"user_id": "A2A_USER_c2", "session_id": "c2", "state": {}, "event_deltas": [["user", {}], ["agent", {}]]}]"#;
const ONE_AFTER_THE_OTHER: &str = r#"[["user", ["warm"]], ["agent", ["re:warm"]], ["user", ["p0"]], ["agent", ["re:p0"]], ["user", ["p1"]], ["agent", ["re:p1"]]]"#;

#[tokio::test]
async fn injected_state_does_what_it_did_in_adk_but_for_the_deviations() {
    for case in recorded(CASES, 15, DEVIATIONS) {
        let (seen, recorded) = match case.input.get("steps") {
            Some(steps) => (play(&case, steps, r#"["user", "temp"]"#).await, in_turn(&case.expected)),
            None => (play_at_once(&case).await, at_once(&case.expected)),
        };
        compare(&case.case, &seen, &recorded, DEVIATIONS, &pointer());
    }
}

#[tokio::test]
async fn scopes_that_are_not_granted_are_refused_where_adk_took_them() {
    let cases = recorded(CASES, 15, DEVIATIONS_WITHOUT_SCOPES);
    let is_listed = |case: &&Case| DEVIATIONS_WITHOUT_SCOPES.iter().any(|other| other.case == case.case);
    for case in cases.iter().filter(is_listed) {
        let seen = play(case, &case.input["steps"], "[]").await;
        compare(&case.case, &seen, &in_turn(&case.expected), DEVIATIONS_WITHOUT_SCOPES, &pointer());
    }
}

fn pointer() -> Placeholders {
    Placeholders(vec![("<state>".to_owned(), format!("/message/metadata/{}", URI.replace('/', "~1")))])
}

fn extension(scopes: &str) -> String {
    format!(
        "[[extension]]\ncomponent = \"state-injection\"\n[extension.grants]\nsession-state = {{ read = true, scopes = \
         {scopes} }}\n[extension.parameters]\nuri = {URI:?}\nstate_key = {URI:?}"
    )
}

/// Plays the steps in order on a new server.
async fn play(case: &Case, steps: &Value, scopes: &str) -> Value {
    let Case { case, input, .. } = case;
    let folder = tempfile::tempdir().expect("a folder");
    let model = Recorder::with(json!({"fallback": "answer"}));
    let mut agent = TemplateAgent::new(AGENT, input["instruction"].as_str().expect("a text"), model.clone());
    agent.output_key = (case == "inject/output_key_then_template").then(|| "last".to_owned());
    let server = serve(folder.path(), agent, &extension(scopes)).await;
    let mut answers = Vec::new();
    for step in steps.as_array().expect("steps") {
        let StepAnswer { body, echo } = send(&server, step).await;
        let is_active = step["headers"]["A2A-Extensions"] == URI && body["result"].is_object();
        assert_eq!(echo.as_deref(), is_active.then_some(URI), "{case}");
        answers.push(short(&outline(&body)));
    }
    json!({"steps": answers, "model_saw": model.instructions(), "sessions": kept(&server).await})
}

/// State and message of a task, or the error.
fn short(outline: &Value) -> Value {
    match outline.get("error") {
        Some(_) => outline.clone(),
        None => json!({"state": outline["state"], "says": outline["says"][0]["text"]}),
    }
}

async fn kept(server: &TestServer) -> Value {
    let session = |session: StoredSession| {
        let deltas = session.events.iter().map(|event| {
            let delta = event.get("state_delta").cloned().unwrap_or_else(|| json!({}));
            json!([event["author"], delta])
        });
        let deltas: Vec<Value> = deltas.collect();
        json!({"user_id": session.user, "session_id": session.context, "state": session.state, "event_deltas": deltas})
    };
    sessions(server).await.into_iter().map(session).collect()
}

/// The recording of steps that followed each other.
fn in_turn(expected: &Value) -> Value {
    let step = |step: &Value| {
        let status = json!({"message": {"parts": [{"text": step["message"][0]}]}});
        json!({"state": step["state"], "says": says(&status)[0]["text"]})
    };
    let steps: Vec<Value> = expected["steps"].as_array().expect("steps").iter().map(step).collect();
    let saw = expected["model_saw"].as_array().expect("instructions").iter().filter_map(Value::as_str);
    json!({"steps": steps, "model_saw": saw.map(as_json).collect::<Vec<_>>(), "sessions": expected["sessions"]})
}

/// Plays two concurrent messages, after one that fills the caches.
async fn play_at_once(case: &Case) -> Value {
    let Case { case, input, .. } = case;
    let folder = tempfile::tempdir().expect("a folder");
    // An answer takes a while, so that the turns do meet.
    let rule = json!({"when": "(?<said>.+)", "answer": "re:{said}", "delay_ms": 50});
    let model = Recorder::with(json!({"fallback": "?", "rules": [rule]}));
    let agent = TemplateAgent::new(AGENT, "I", model.clone());
    let is_in_memory = input["backend"] == "in_memory";
    let server = serve(folder.path(), agent, if is_in_memory { "" } else { "[tasks]\ndata_dir = \"data\"" }).await;
    let is_same = input["same_context"].as_bool().expect("a truth value");
    server.say("warm").context("c").send().await.expect("a reply");
    let said = |number| {
        let context = if is_same { "c".to_owned() } else { format!("c{number}") };
        server.say(&format!("p{number}")).context(&context).send()
    };
    let answers = join_all((0..input["parallel_requests"].as_u64().expect("a number")).map(said)).await;
    let answer = |reply: anyhow::Result<Reply>| {
        let reply = reply.expect("a reply");
        let status = &reply.task()["status"];
        json!({"state": status["state"], "text": reply.answer(), "says": says(status)[0]["text"]})
    };
    // The model hears of turns that are over: a question each, and the answers between them.
    let mut heard: Vec<usize> = model.prompts().iter().map(|prompt| prompt.turns.len()).collect();
    heard.sort_unstable();
    assert_eq!(heard, if is_same { [1, 3, 5] } else { [1, 1, 1] }, "{case}");
    let mut history = Vec::new();
    for session in sessions(&server).await.iter().filter(|session| session.context == "c") {
        history = session.said();
    }
    // Who comes first is not decided, only that question and answer stay together.
    let mut turns: Vec<_> = history.chunks(2).collect();
    turns.sort_by_key(|turn| turn[0].1 != ["warm"]);
    turns[1..].sort();
    json!({"observed": answers.into_iter().map(answer).collect::<Vec<_>>(), "history": turns.concat()})
}

/// The recording of messages that came at the same time.
fn at_once(expected: &Value) -> Value {
    let answer =
        |answer: &Value| json!({"state": answer["state"], "text": answer["text"], "says": answer["message"][0]});
    let observed: Vec<Value> = expected["observed"].as_array().expect("answers").iter().map(answer).collect();
    json!({"observed": observed, "history": expected["history"]})
}

//! The article's sample of state injection, with its defects.

use annex_agent::TemplateAgent;
use annex_test_support::{STATE_INJECTION, STATE_KEY};
use serde_json::{Value, json};

use super::{
    AGENT, Case, Deviation, Placeholders, Recorder, StepAnswer, as_json, compare, outline, recorded, send, serve,
    sessions,
};
use crate::installation::CARD;

const CASES: &str = include_str!("../../data/article_extension.json");
/// The status message that the sample sends while it works.
const BUSY: &str = "Processing your question...";
/// The description with which the sample declares the extension.
const DESCRIPTION: &str = "Injects state into message metadata for ADK state synchronization.";

/// The answers to a request without the required extension, and to a request whose state is missing or not an object.
const NOT_ACTIVE: &str = r#"{"steps": [{"error": -32008, "fields": []}], "model_saw": []}"#;
const NO_STATE: &str = r#"{"steps": [{"error": -32602, "fields": ["<state>"]}], "model_saw": []}"#;

/// The deviations with a required extension, as the sample's card has it. `<key>` is the metadata key of the state, and
/// `<state>` is the JSON pointer to the state.
const DEVIATIONS: &[Deviation] = &[
    Deviation {
        case: "article/no_header_no_state",
        reason: "a required extension is enforced before there is a task",
        instead: &[("", NOT_ACTIVE)],
    },
    Deviation {
        case: "article/header_no_state",
        reason: "state that the schema requires is missed before there is a task, not by the template",
        instead: &[("", NO_STATE)],
    },
    Deviation {
        case: "article/state_no_header",
        reason: "a required extension is enforced before there is a task",
        instead: &[("", NOT_ACTIVE)],
    },
    Deviation {
        case: "article/state_no_header_optional_var",
        reason: "a required extension is enforced, whatever the template needs",
        instead: &[("", NOT_ACTIVE)],
    },
    Deviation {
        case: "article/missing_required_field",
        reason: "what the schema does not allow is refused, not only logged",
        instead: &[("", r#"{"steps": [{"error": -32602, "fields": ["<state>/user_info"]}], "model_saw": []}"#)],
    },
    Deviation {
        case: "article/scope_escalation_app_user",
        reason: "scopes are granted by the operator, and a refused request leaves nothing behind",
        instead: &[
            (
                "/steps/0",
                r#"{"error": -32602, "fields": ["<state>/app:banner", "<state>/temp:t", "<state>/user:role"]}"#,
            ),
            (
                "/steps/1/artifacts/0/metadata",
                r#"{"<key>": {"user_info": {"email": "l@example.com", "name": "Lukasz", "role": "AI Specialist"}}}"#,
            ),
            (
                "/model_saw",
                r#"["U={\"email\":\"l@example.com\",\"name\":\"Lukasz\",\"role\":\"AI Specialist\"} A= R="]"#,
            ),
        ],
    },
    Deviation {
        case: "article/null_state",
        reason: "state that is no object is refused, not taken for none",
        instead: &[("", NO_STATE)],
    },
    Deviation {
        case: "article/integer_becomes_float",
        reason: "numbers stay as they were sent",
        instead: &[
            (
                "/steps/0/history/0/metadata",
                r#"{"<key>": {"age": 30, "big": 12345678901234567890, "ratio": 0.5, "user_info": {"email": "l@example.com", "name": "Lukasz", "role": "AI Specialist"}}}"#,
            ),
            (
                "/steps/0/artifacts/0/metadata",
                r#"{"<key>": {"age": 30, "big": 12345678901234567890, "ratio": 0.5, "user_info": {"email": "l@example.com", "name": "Lukasz", "role": "AI Specialist"}}}"#,
            ),
            ("/model_saw", r#"["A=30 R=0.5 B=12345678901234567890"]"#),
        ],
    },
    Deviation {
        case: "article/second_turn_with_state",
        reason: "the sample calls a function that its session service does not have",
        instead: &[
            ("/steps/1/state", r#""TASK_STATE_COMPLETED""#),
            ("/steps/1/says", "null"),
            (
                "/steps/1/artifacts",
                r#"[{"parts": [{"text": "answer"}], "extensions": ["<uri>"], "metadata": {"<key>": {"user_info": {"email": "b@x", "name": "Bob", "role": "R"}}}}]"#,
            ),
            (
                "/model_saw",
                r#"["U={\"email\":\"l@example.com\",\"name\":\"Lukasz\",\"role\":\"AI Specialist\"}", "U={\"email\":\"b@x\",\"name\":\"Bob\",\"role\":\"R\"}"]"#,
            ),
        ],
    },
    Deviation {
        case: "article/uri_case",
        reason: "another spelling is another extension, so the required one is missing",
        instead: &[("", NOT_ACTIVE)],
    },
    Deviation {
        case: "article/uri_v2",
        reason: "another version is another extension, so the required one is missing",
        instead: &[("", NOT_ACTIVE)],
    },
    Deviation {
        case: "article/key_with_https",
        reason: "state under another key is no state, and the schema requires some",
        instead: &[("", NO_STATE)],
    },
    Deviation {
        case: "article/state_in_request_metadata",
        reason: "state may stand in the metadata of the request, too",
        instead: &[
            ("/steps/0/state", r#""TASK_STATE_COMPLETED""#),
            ("/steps/0/says", "null"),
            (
                "/steps/0/artifacts",
                r#"[{"parts": [{"text": "answer"}], "extensions": ["<uri>"], "metadata": {"<key>": {"user_info": {"email": "l@example.com", "name": "Lukasz", "role": "AI Specialist"}}}}]"#,
            ),
            ("/model_saw", r#"["U={\"email\":\"l@example.com\",\"name\":\"Lukasz\",\"role\":\"AI Specialist\"}"]"#),
        ],
    },
    Deviation {
        case: "article/template_injection_value",
        reason: "the format of the schema counts, and `e` is no email address",
        instead: &[("", r#"{"steps": [{"error": -32602, "fields": ["<state>/user_info/email"]}], "model_saw": []}"#)],
    },
];

/// With the extension optional, which is how the sample treats it.
const DEVIATIONS_WHEN_OPTIONAL: &[Deviation] = &[Deviation {
    case: "article/state_no_header_optional_var",
    reason: "an extension that is not active does not answer",
    instead: &[("/steps/0/artifacts/0/extensions", "[]"), ("/steps/0/artifacts/0/metadata", "{}")],
}];

#[tokio::test]
async fn the_articles_requests_are_answered_as_recorded_but_for_the_deviations() {
    for case in recorded(CASES, 16, DEVIATIONS) {
        check(&case, true, DEVIATIONS).await;
    }
}

#[tokio::test]
async fn without_being_required_the_extension_fails_where_the_articles_does() {
    let is_not_active = |case: &&Case| {
        DEVIATIONS.iter().any(|deviation| deviation.case == case.case && deviation.instead == [("", NOT_ACTIVE)])
    };
    let cases = recorded(CASES, 16, DEVIATIONS_WHEN_OPTIONAL);
    let cases: Vec<&Case> = cases.iter().filter(is_not_active).collect();
    assert_eq!(cases.len(), 5);
    for case in cases {
        check(case, false, DEVIATIONS_WHEN_OPTIONAL).await;
    }
}

async fn check(case: &Case, is_required: bool, deviations: &[Deviation]) {
    let mut names = Placeholders(vec![
        ("<key>".to_owned(), STATE_KEY.to_owned()),
        ("<state>".to_owned(), format!("/message/metadata/{}", STATE_KEY.replace('/', "~1"))),
        ("<uri>".to_owned(), STATE_INJECTION.to_owned()),
    ]);
    let seen = play(case, is_required, &mut names).await;
    compare(&case.case, &seen, &of_sample(&names.fill(&case.expected)), deviations, &names);
}

/// Plays a case on a server of its own.
async fn play(case: &Case, is_required: bool, names: &mut Placeholders) -> Value {
    let Case { case, input, expected } = case;
    let folder = tempfile::tempdir().expect("a folder");
    let model = Recorder::with(json!({"fallback": "answer"}));
    let agent = TemplateAgent::new(AGENT, input["instruction"].as_str().expect("a text"), model.clone());
    let server = serve(folder.path(), agent, &extension(&input["schema"], is_required)).await;
    if let Some(declared) = expected.get("card_extensions") {
        let card: Value = server.get(CARD).await.expect("a card").json().await.expect("JSON");
        assert_eq!(card["capabilities"]["extensions"], *declared, "{case}");
    }
    let mut steps = Vec::new();
    let mut contexts = Vec::new();
    let answers = expected["steps"].as_array().expect("answers");
    for (step, expected) in input["steps"].as_array().expect("steps").iter().zip(answers) {
        let StepAnswer { body, echo } = send(&server, step).await;
        names.learn(&expected["body"], &body);
        let is_active = names_it(step) && body["result"].is_object();
        assert_eq!(echo.as_deref(), is_active.then_some(STATE_INJECTION), "{case}");
        if body["result"].is_object() {
            contexts.push(step["params"]["message"]["contextId"].as_str().unwrap_or_default().to_owned());
        }
        steps.push(outline(&body));
    }
    contexts.dedup();
    let kept: Vec<String> = sessions(&server).await.into_iter().map(|session| session.context).collect();
    assert_eq!(kept, contexts, "{case}: a refused message makes no session");
    json!({"steps": steps, "model_saw": model.instructions()})
}

/// True if the request names the extension by exactly its URI.
fn names_it(step: &Value) -> bool {
    let header = step["headers"]["A2A-Extensions"].as_str().unwrap_or_default();
    header.split(',').any(|uri| uri.trim() == STATE_INJECTION)
}

fn extension(schema: &Value, is_required: bool) -> String {
    format!(
        "[[extension]]\ncomponent = \"state-injection\"\nrequired = {is_required}\n[extension.grants]\nsession-state = {{ \
         read = true }}\n[extension.parameters]\ndescription = {DESCRIPTION:?}\nstate_schema = '{schema}'"
    )
}

/// The recorded answers, without the words that belong to the sample and not to the extension.
fn of_sample(expected: &Value) -> Value {
    let step = |step: &Value| {
        let mut body = step["body"].clone();
        if let Some(history) = body["result"]["task"]["history"].as_array_mut() {
            history.retain(|message| message["parts"][0]["text"] != BUSY);
        }
        outline(&body)
    };
    let steps: Vec<Value> = expected["steps"].as_array().expect("steps").iter().map(step).collect();
    let saw = expected["model_saw"].as_array().expect("instructions").iter().filter_map(Value::as_str);
    json!({"steps": steps, "model_saw": saw.map(as_json).collect::<Vec<_>>()})
}

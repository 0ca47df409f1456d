//! The model that follows a script.

use std::time::Duration;

use annex_agent::{Model, ModelEvent, Prompt, ScriptConfig, ScriptError, ScriptedModel, Speaker, Turn};
use futures::StreamExt;

fn model(script: &str) -> ScriptedModel {
    ScriptedModel::new(serde_json::from_str(script).unwrap()).unwrap()
}

fn error(script: &str) -> String {
    let config: ScriptConfig = serde_json::from_str(script).unwrap();
    let error: ScriptError = ScriptedModel::new(config).unwrap_err();
    error.to_string()
}

async fn answer(model: &ScriptedModel, instruction: &str, text: &str) -> Vec<String> {
    let turns = vec![
        Turn { speaker: Speaker::User, text: "who am I?".to_owned() },
        Turn { speaker: Speaker::Agent, text: "You told me.".to_owned() },
        Turn { speaker: Speaker::User, text: text.to_owned() },
    ];
    let prompt = Prompt { instruction: instruction.to_owned(), turns };
    let stream = model.stream(prompt).await.unwrap();
    let text = |event| match event {
        ModelEvent::Text(text) => text,
        ModelEvent::Tokens(tokens) => unreachable!("a script counts nothing: {tokens:?}"),
    };
    stream.map(|event| text(event.unwrap())).collect().await
}

const SCRIPT: &str = r#"{
    "rules": [
        {"when": "(?i)who am i", "extract": {"name": "name: (\\w+)", "role": "role: (\\w+)"},
         "answer": "You are {name}, {role}. {\"json\": 1} {}"},
        {"when": "(?i)who am i", "answer": "I do not know."},
        {"when": "count", "answer": "żółw 12", "chunks": 3}
    ],
    "fallback": "Ask me who you are."
}"#;

#[tokio::test]
async fn the_first_rule_that_matches_with_all_its_pieces_answers() {
    let model = model(SCRIPT);
    let known = answer(&model, "name: Ada role: analyst", "Who am I?").await;
    assert_eq!(known, [r#"You are Ada, analyst. {"json": 1} {}"#]);
    assert_eq!(answer(&model, "name: Ada", "who am I?").await, ["I do not know."]);
    assert_eq!(answer(&model, "name: Ada role: analyst", "hello").await, ["Ask me who you are."]);
}

#[tokio::test]
async fn an_answer_is_cut_between_characters() {
    let model = model(SCRIPT);
    assert_eq!(answer(&model, "", "count").await, ["żó", "łw", " 12"]);
    let many = r#"{"rules": [{"when": "", "answer": "ab", "chunks": 9}], "fallback": ""}"#;
    assert_eq!(answer(&self::model(many), "", "x").await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn each_piece_is_delayed() {
    let model = model(r#"{"rules": [{"when": "", "answer": "abc", "chunks": 3, "delay_ms": 50}], "fallback": ""}"#);
    let start = tokio::time::Instant::now();
    assert_eq!(answer(&model, "", "x").await, ["a", "b", "c"]);
    assert_eq!(start.elapsed(), Duration::from_millis(150));
}

#[test]
fn a_wrong_script_is_refused_with_the_number_of_the_rule() {
    let cases = [
        (r#"{"when": "(", "answer": ""}"#, "rule 2: `when` is not a regular expression"),
        (
            r#"{"when": "", "extract": {"n": "a+"}, "answer": ""}"#,
            "rule 2: `extract.n` has 0 capture groups, one is needed",
        ),
        (
            r#"{"when": "", "extract": {"n": "(a)"}, "answer": "{n} {m}"}"#,
            "rule 2: the answer has `{m}`, but `extract` has no `m`",
        ),
    ];
    for (rule, expected) in cases {
        let script = format!(r#"{{"rules": [{{"when": "", "answer": ""}}, {rule}], "fallback": ""}}"#);
        assert_eq!(error(&script), expected);
    }
    let unknown = serde_json::from_str::<ScriptConfig>(r#"{"fallback": "", "rule": []}"#);
    assert!(unknown.unwrap_err().to_string().contains("unknown field `rule`"));
}

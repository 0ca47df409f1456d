//! The model that follows a script.

use std::time::Duration;

use annex_agent::{Model, ModelEvent, Prompt, ScriptConfig, ScriptError, ScriptedModel, ToolResult, Turn};
use annex_protocol::Json;
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
    said(model, instruction, text, None).await
}

/// The pieces of the answer, and `tool arguments` for each call. `result`, if any, is the last turn of the prompt.
async fn said(model: &ScriptedModel, instruction: &str, text: &str, result: Option<ToolResult>) -> Vec<String> {
    let mut turns = vec![
        Turn::User("who am I?".to_owned()),
        Turn::Agent { text: "You told me.".to_owned(), calls: Vec::new() },
        Turn::User(text.to_owned()),
    ];
    turns.extend(result.map(|result| Turn::Tools(vec![result])));
    let prompt = Prompt { instruction: instruction.to_owned(), turns, ..Prompt::default() };
    let stream = model.stream(prompt).await.unwrap();
    let text = |event| match event {
        ModelEvent::Text(text) => text,
        ModelEvent::Call(call) => format!("{} {} {}", call.id, call.name, call.arguments.get()),
        other => unreachable!("a script neither thinks nor counts: {other:?}"),
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

const TOOLS: &str = r#"{
    "rules": [
        {"when": "add (?<a>\\d+) for (?<who>.+)", "extract": {"b": "b=(\\d+)"}, "answer": "Wait.",
         "call": [{"tool": "sum", "arguments": "{\"a\": {a}, \"b\": {b}, \"who\": \"{who}\"}"}, {"tool": "now"}]},
        {"when": "add", "after": "sum", "extract_result": {"sum": "\"sum\":(\\d+)"}, "answer": "It is {sum}."},
        {"when": "add", "after": "sum", "answer": "I cannot add."}
    ],
    "fallback": "?"
}"#;

#[tokio::test]
async fn a_rule_calls_tools_with_pieces_and_another_answers_from_the_result() {
    let model = model(TOOLS);
    let called = said(&model, "b=3", "add 2 for \"A\"", None).await;
    assert_eq!(called, ["Wait.", r#"call-1 sum {"a": 2, "b": 3, "who": "\"A\""}"#, "call-2 now {}"]);
    let result = |response: &str| {
        let response = Json::parse(response.to_owned()).unwrap();
        Some(ToolResult { id: "call-1".to_owned(), name: "sum".to_owned(), response })
    };
    assert_eq!(said(&model, "b=3", "add 2 for A", result(r#"{"sum":5}"#)).await, ["It is 5."]);
    assert_eq!(said(&model, "b=3", "add 2 for A", result(r#"{"error":"no"}"#)).await, ["I cannot add."]);
    assert_eq!(said(&model, "b=3", "else", result("{}")).await, ["?"]);
}

#[tokio::test]
async fn an_answer_is_cut_between_characters() {
    let model = model(SCRIPT);
    assert_eq!(answer(&model, "", "count").await, ["żó", "łw", " 12"]);
    let many = r#"{"rules": [{"when": "", "answer": "ab", "chunks": 9}], "fallback": ""}"#;
    assert_eq!(answer(&self::model(many), "", "x").await, ["a", "b"]);
}

#[tokio::test]
async fn a_rule_whose_answer_would_be_too_long_does_not_apply() {
    let answer_of = |times: usize| {
        let script = serde_json::json!({"rules": [{"when": "^(?<said>.*)$", "answer": "{said}".repeat(times)}], "fallback": "no"});
        model(&script.to_string())
    };
    let long = "x".repeat(1 << 20);
    assert_eq!(answer(&answer_of(4), "", &long).await.concat().len(), 4 << 20);
    assert_eq!(answer(&answer_of(5), "", &long).await, ["no"]);
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
            "rule 2: `answer` has `{m}`, but nothing extracts `m`",
        ),
        (r#"{"when": ""}"#, "rule 2: it needs `answer` or `call`"),
        (r#"{"when": "", "answer": "", "extract_result": {"n": "(a)"}}"#, "rule 2: `extract_result` needs `after`"),
        (
            r#"{"when": "", "call": [{"tool": "t", "arguments": "[]"}]}"#,
            "rule 2: the arguments of `t` are not a JSON object",
        ),
        (
            r#"{"when": "", "call": [{"tool": "t", "arguments": "{\"a\": {b}}"}]}"#,
            "rule 2: `call.arguments` has `{b}`, but nothing extracts `b`",
        ),
    ];
    for (rule, expected) in cases {
        let script = format!(r#"{{"rules": [{{"when": "", "answer": ""}}, {rule}], "fallback": ""}}"#);
        assert_eq!(error(&script), expected);
    }
    let unknown = serde_json::from_str::<ScriptConfig>(r#"{"fallback": "", "rule": []}"#);
    assert!(unknown.unwrap_err().to_string().contains("unknown field `rule`"));
}

//! Templates, compared with recorded behaviour of ADK. Differences on purpose are listed.

use std::collections::{BTreeMap, HashMap};

use annex_agent::{TemplateError, check_template, render, unclosed_placeholder};
use annex_protocol::{Json, JsonObject};
use serde::Deserialize;

/// One recorded case: ADK renders `input` to `expected`.
#[derive(Deserialize)]
struct Case {
    case: String,
    input: Input,
    expected: ExpectedResult,
}

#[derive(Deserialize)]
struct Input {
    template: String,
    state: JsonObject,
    #[serde(default)]
    artifacts: HashMap<String, String>,
}

impl Input {
    fn value(&self, key: &str) -> Option<Json> {
        match key.strip_prefix("artifact.") {
            Some(name) => self.artifacts.get(name).map(|text| Json::string(text)),
            None => self.state.get(key).cloned(),
        }
    }
}

#[derive(Deserialize)]
struct ExpectedResult {
    output: Option<String>,
    error_message: Option<String>,
}

const JSON: &str = "values other than strings are JSON, not Python";
const BRACES: &str = "a placeholder takes as many closing braces as it has opening ones";
const NO_SERVICE: &str = "a session always keeps artifacts: there is none of that name";

/// The cases in which Annex differs: the case, the reason, and its result.
const DEVIATIONS: [(&str, &str, Result<&str, &str>); 10] = [
    ("nested_json_like", BRACES, Ok(r#"{"k": 1}"#)),
    ("val_nested", JSON, Ok(r#"{"a":{"b":[1,2,{"c":null}]},"t":true,"f":false}"#)),
    ("val_list", JSON, Ok(r#"[1,"two",3.5,null,true]"#)),
    ("val_true", JSON, Ok("true")),
    ("val_dict_unicode", JSON, Ok(r#"{"k":"żółć 日本"}"#)),
    ("val_dict_both_quotes", JSON, Ok(r#"{"k":"it's \"q\""}"#)),
    ("val_dict_newline", JSON, Ok(r#"{"k":"a\nb\t\\"}"#)),
    ("val_dict_with_brace_tail", JSON, Ok(r#"{"a":"{w}"} W"#)),
    ("artifact_no_service", NO_SERVICE, Err("Artifact not found: `x`.")),
    ("artifact_no_service_optional", NO_SERVICE, Ok("A:")),
];

/// An error of ADK in Annex's words: without the agent's name, and with one text changed.
fn in_our_words(adk: &str) -> String {
    let text = adk.replace(" in agent 'specialist_agent'", "");
    match text.strip_prefix("Artifact '").and_then(|rest| rest.strip_suffix("' not found.")) {
        Some(name) => format!("Artifact not found: `{name}`."),
        None => text,
    }
}

#[test]
fn templates_render_as_in_adk_except_where_said() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../data/templating.json")).unwrap();
    let mut deviations: BTreeMap<_, _> =
        DEVIATIONS.into_iter().map(|(case, reason, result)| (format!("tmpl/{case}"), (reason, result))).collect();
    for Case { case, input, expected } in cases {
        let adk = expected.output.ok_or_else(|| in_our_words(&expected.error_message.unwrap_or_default()));
        let ours = render(&input.template, |key| input.value(key)).map_err(|error| error.to_string());
        match deviations.remove(&case) {
            Some((reason, wanted)) => {
                let wanted = wanted.map(str::to_owned).map_err(str::to_owned);
                assert_eq!(ours, wanted, "{case}: {reason}");
            }
            None => assert_eq!(ours, adk, "{case}"),
        }
    }
    assert!(deviations.is_empty(), "no such cases: {deviations:?}");
}

fn check(template: &str, expected: Result<&str, &str>) {
    let state = JsonObject::parse(
        r#"{"name":"Ada","user:name":"Lovelace","none":null,"number":1.0,"big":9007199254740993,"info":{"z":1,"a":[]},
            "tricky":"{name} } ${name}","名前":"N"}"#,
    )
    .unwrap();
    let rendered = render(template, |key| state.get(key).cloned()).map_err(|error| error.to_string());
    assert_eq!(rendered.as_deref().map_err(String::as_str), expected, "{template}");
}

#[test]
fn a_placeholder_takes_only_the_braces_that_it_opened() {
    check(r#"{"key": {name}}"#, Ok(r#"{"key": Ada}"#));
    check(r#"{"a": {"b": {{name}}}}"#, Ok(r#"{"a": {"b": Ada}}"#));
    check("{name}}} tail", Ok("Ada}} tail"));
    check("{{name}} and {{{name}}}", Ok("Ada and Ada"));
}

#[test]
fn what_names_no_state_key_stays() {
    let texts = [
        "",
        "{}",
        "{{}}",
        "}{",
        "{",
        "}",
        "{ }",
        "{?}",
        "{name??}",
        "{User:name}",
        "{a.b}",
        "{x²}",
        "{user:a:b}",
        "${name}",
        "${{name}}",
        r"\{name}",
        r#"body { color: red; } {"a": 1, "b": [1, 2]}"#,
    ];
    for text in texts {
        check(text, Ok(text));
    }
}

#[test]
fn values_are_inserted_once_and_unchanged() {
    check("{tricky}|{number}|{big}|{info}|{none}|", Ok(r#"{name} } ${name}|1.0|9007199254740993|{"z":1,"a":[]}||"#));
    check("{名前}{ user:name }{name?}", Ok("NLovelaceAda"));
}

#[test]
fn literal_braces_can_be_written() {
    check("{literal:name} {literal:} {literal: a b? }", Ok("{name} {} { a b?}"));
    check("{{literal:name}} {name}", Ok("{name} Ada"));
    check(r#"{"{literal:name}": {name}} ${literal:x}"#, Ok(r#"{"{name}": Ada} ${literal:x}"#));
}

#[test]
fn the_first_missing_variable_ends_it_and_scopes_do_not_stand_in_for_each_other() {
    check("{name} {app:name} {other}", Err("Context variable not found: `app:name`."));
    check("{app:name?}{other?}", Ok(""));
}

#[test]
fn a_placeholder_that_is_not_closed_is_found_and_other_braces_are_text() {
    for (template, expected) in [
        ("Answer {user_info", Some("user_info")),
        ("Answer {user_info about {name}.", Some("user_info")),
        ("{name} and {user:role", Some("user:role")),
        ("{artifact.note? is {", Some("artifact.note?")),
        ("{name} {name?} {{name}} {artifact.a b}", None),
        ("{\"a\": {\"b\": 1", None),
        ("fn f() { return", None),
        ("${name \\{name {", None),
        ("name}", None),
    ] {
        assert_eq!(unclosed_placeholder(template), expected, "{template}");
        // It stays text.
        if let Some(name) = expected {
            let rendered = render(template, |_| Some(Json::string("")));
            assert!(rendered.is_ok_and(|text| text.contains(&format!("{{{name}"))), "{template}");
        }
    }
    assert_eq!(unclosed_placeholder(&"{{a} ".repeat(200_000)), None);
}

#[test]
fn a_template_of_many_braces_takes_linear_time() {
    let literal = "{- ".repeat(200_000) + &"}".repeat(200_000);
    assert!(render(&literal, |_| None).is_ok_and(|text| text == literal));
    let variables = "{a}".repeat(200_000);
    assert!(render(&variables, |_| Some(Json::string("b"))).is_ok_and(|text| text == "b".repeat(200_000)));
}

#[test]
fn a_template_that_would_be_too_long_with_its_values_is_refused() {
    let lookup = |_: &str| Some(Json::string(&"x".repeat(1 << 20)));
    assert_eq!(render(&"{name}".repeat(4), lookup).unwrap().len(), 4 << 20);
    assert_eq!(render(&"{name}".repeat(5), lookup), Err(TemplateError::TooLong { limit: 4 << 20 }));
}

#[test]
fn a_template_that_asks_for_too_much_is_refused_before_it_is_rendered() {
    let refused = |template: String| check_template(&template).unwrap_err().to_string();
    assert!(check_template(&"{name}".repeat(1_000)).is_ok());
    assert!(refused("{name}".repeat(1_001)).contains("1001 variables; at most 1000"));
    let artifacts: String = (0..65).map(|number| format!("{{artifact.f{number}}}")).collect();
    assert!(refused(artifacts).contains("65 artifacts; at most 64"));
    assert!(check_template(&"{literal:x} {} {a.b}".repeat(2_000)).is_ok(), "nothing is looked up for these");
}

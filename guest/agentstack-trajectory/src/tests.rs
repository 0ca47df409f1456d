//! Tests the extension as a host calls it.

use annex_sdk::testing::{self, Host};
use annex_sdk::{ModelVerdict, Remark, ToolCall, ToolResult, ToolVerdict};
use serde_json::{Value, json};

use crate::{Trajectory, URI};

fn host(parameters: &str) -> Host {
    Host::new().parameters(parameters)
}

fn step(remark: Option<Remark>) -> Value {
    let remark = remark.unwrap();
    assert_eq!(remark.parts, [r#"{"text":""}"#]);
    let [(key, step)] = remark.metadata.as_slice() else { panic!("one entry: {remark:?}") };
    assert_eq!(key, URI);
    serde_json::from_str(step).unwrap()
}

#[test]
fn each_step_has_the_fields_of_the_published_sdk() {
    let host = host("{}");
    let (verdict, model) = host.before_model::<Trajectory>(testing::model_call()).unwrap();
    assert_eq!(verdict, ModelVerdict::Pass);
    assert_eq!(step(model), json!({"title": "Calls the model default", "content": null, "group_id": null}));
    let call = ToolCall { id: "call-1".to_owned(), ..testing::tool_call("search") };
    let (verdict, tool) = host.before_tool::<Trajectory>(call).unwrap();
    assert_eq!(verdict, ToolVerdict::Pass);
    assert_eq!(step(tool), json!({"title": "Calls the tool search", "content": null, "group_id": "call-1"}));
    let made = ToolResult { id: "call-1".to_owned(), ..testing::tool_result("search", r#"{"secret":1}"#) };
    let (output, result) = host.after_tool::<Trajectory>(made).unwrap();
    assert_eq!(output, None);
    let expected = json!({"title": "Calls the tool search", "content": "The tool has answered.", "group_id": "call-1"});
    assert_eq!(step(result), expected);
}

#[test]
fn arguments_and_results_are_shown_only_where_the_parameter_says_so() {
    let host = host(r#"{"include_content": true, "models": false}"#);
    assert_eq!(host.before_model::<Trajectory>(testing::model_call()).unwrap().1, None);
    let call = ToolCall { arguments: r#"{"a":"```\n"}"#.to_owned(), ..testing::tool_call("search") };
    let content = step(host.before_tool::<Trajectory>(call).unwrap().1)["content"].as_str().unwrap().to_owned();
    assert_eq!(content, "**Arguments**\n\n````json\n{\"a\":\"```\\n\"}\n````");
    let made = ToolResult { failed: true, ..testing::tool_result("search", r#""no""#) };
    let content = step(host.after_tool::<Trajectory>(made).unwrap().1)["content"].as_str().unwrap().to_owned();
    assert!(content.ends_with("**Error**\n\n```json\n\"no\"\n```"), "{content}");
}

#[test]
fn a_step_of_any_size_fits_into_a_remark() {
    let host = host(r#"{"include_content": true}"#);
    for filler in ["\"", "ü", "`"] {
        let output = annex_sdk::json::string(&filler.repeat(100_000));
        let made = ToolResult { arguments: format!(r#"{{"a":{output}}}"#), ..testing::tool_result("search", output) };
        let made = ToolResult { name: filler.repeat(1000), id: filler.repeat(1000), ..made };
        let remark = host.after_tool::<Trajectory>(made).unwrap().1.unwrap();
        let bytes: usize = remark.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(bytes <= 16 << 10, "{filler}: {bytes}");
    }
}

#[test]
fn a_call_that_has_waited_is_not_shown_twice() {
    let call = ToolCall { has_waited: true, ..testing::tool_call("search") };
    assert_eq!(host("{}").before_tool::<Trajectory>(call).unwrap(), (ToolVerdict::Pass, None));
}

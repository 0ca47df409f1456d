//! Limits on a tenant's script: on memory before compilation, and on time before a search.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annex_agent::{CpuTime, Model, Prompt, ScriptConfig, ScriptedModel, TemplateAgent, Turn, counted};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::support::Bench;

/// A pattern whose automaton must remember each `a` of the last hundred letters.
const COSTLY: &str = "[ab]*a[ab]{100}[xy]";

fn compiled(script: Value) -> Result<ScriptedModel, String> {
    let config: ScriptConfig = serde_json::from_value(script).unwrap();
    ScriptedModel::new(config).map_err(|error| error.to_string())
}

fn rules(patterns: impl IntoIterator<Item = String>) -> Result<ScriptedModel, String> {
    let rules: Vec<Value> = patterns.into_iter().map(|when| json!({"when": when, "answer": ""})).collect();
    compiled(json!({"rules": rules, "fallback": "none"}))
}

fn prompt(text: String) -> Prompt {
    Prompt { turns: vec![Turn::User(text)], ..Prompt::default() }
}

/// Letters for which the tables of a search never repeat an entry.
fn letters(count: usize) -> String {
    let mut number = 12_345_u64;
    let letter = |_| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if number >> 63 == 0 { 'a' } else { 'b' }
    };
    (0..count).map(letter).collect()
}

fn counting_in(nanos: Arc<AtomicU64>) -> CpuTime {
    CpuTime::new(move |time| {
        nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    })
}

#[test]
fn the_patterns_of_a_script_are_bounded_one_by_one_and_together() {
    let cases = [
        (rules(["x".repeat(1_025)]), "rule 1: `when` has 1025 bytes; at most 1024 are allowed"),
        (
            rules(["x".to_owned(), "a{1000000}".to_owned()]),
            "rule 2: `when` takes more than 262144 bytes when it is compiled",
        ),
        (rules(vec!["x".to_owned(); 101]), "its rules have 101 patterns together; at most 100 are allowed"),
        (rules(vec!["x".repeat(1_000); 9]), "its rules have 9000 bytes of patterns together; at most 8192 are allowed"),
        (
            rules(vec![r"\w{4}".to_owned(); 100]),
            "`when` takes too much when it is compiled, with the patterns before it",
        ),
    ];
    for (script, expected) in cases {
        let error = script.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    rules((0..100).map(|number| format!("(?i)hello {number}"))).unwrap();
    rules((0..10).map(|number| format!("(?i)my name is (\\w+) {number}"))).unwrap();
    let rule = |more: Value| {
        let mut rule = json!({"when": "x", "answer": "y"});
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        compiled(json!({"rules": [rule], "fallback": ""}))
    };
    assert_eq!(rule(json!({"chunks": 1_001})).unwrap_err(), "rule 1: `chunks` is 1001; at most 1000 are allowed");
    let call = vec![json!({"tool": "t"}); 65];
    assert_eq!(rule(json!({ "call": call })).unwrap_err(), "rule 1: `call` is 65; at most 64 are allowed");
}

#[test]
fn a_script_of_a_stranger_keeps_no_more_than_leaves_room_for_those_of_all_others() {
    let compiled = |patterns: usize, scripts: usize| {
        let rules: Vec<Value> = (0..patterns).map(|number| json!({"when": number.to_string(), "answer": ""})).collect();
        let config: ScriptConfig = serde_json::from_value(json!({"rules": rules, "fallback": "none"})).unwrap();
        ScriptedModel::new(config.for_one_of(scripts)).map_err(|error| error.to_string())
    };
    compiled(5, 1_000).unwrap();
    let error = compiled(100, 1_000).unwrap_err();
    assert!(error.contains("`when` takes too much when it is compiled, with the patterns before it"), "{error}");
    compiled(100, 10).unwrap();
}

#[tokio::test]
async fn what_a_search_would_take_too_long_for_is_refused_before_it_begins_and_the_user_hears_why() {
    let model = rules(["[ab]*a[ab]{3000}c".to_owned()]).unwrap();
    let bench = Bench::new("", None, &[]);
    let agent = TemplateAgent { model: Arc::new(model), ..bench.agent.clone() };
    let bench = Bench { agent, ..bench };
    let (_, result) = bench.turn(&letters(1_000_000), "{}").await;
    let error = result.unwrap_err().to_string();
    assert_eq!(error, "The message is too long for the rules of this agent. Send a shorter one.");
    let (events, result) = bench.turn("a", "{}").await;
    result.unwrap();
    assert_eq!(events, ["Working", "none (false, true)"]);
}

#[tokio::test]
async fn an_answer_that_takes_long_holds_up_no_other_and_counts_and_ends_with_whoever_waits_for_it() {
    let model = rules((0..30).map(|_| COSTLY.to_owned())).unwrap();
    let took = Arc::new(AtomicU64::new(0));
    let time = counting_in(Arc::clone(&took));
    let asked = model.clone();
    let long = Box::pin(async move { asked.stream(prompt(letters(20_000))).await.map(drop) });
    let long = tokio::spawn(counted(Some(time), long));
    // One thread serves both.
    tokio::task::yield_now().await;
    let other = rules(["^b".to_owned()]).unwrap();
    assert_eq!(other.stream(prompt("b".to_owned())).await.unwrap().count().await, 1);
    assert!(!long.is_finished());
    long.abort();
    // The abandoned thread finishes its current pattern, and its time still counts.
    while Arc::strong_count(&took) > 1 {
        tokio::task::yield_now().await;
    }
    assert!(took.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn all_that_an_agent_does_on_a_thread_counts() {
    let took = Arc::new(AtomicU64::new(0));
    let work = async {
        std::thread::sleep(Duration::from_millis(1));
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(1));
    };
    counted(Some(counting_in(Arc::clone(&took))), Box::pin(work)).await;
    assert!(took.load(Ordering::Relaxed) >= 2_000_000);
}

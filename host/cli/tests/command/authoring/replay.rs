//! `annex replay`, with recordings made by hand.

use std::fs;

use annex_components::{HELLO_EXTENSION, TEST_CAPABILITIES, TEST_EXTENSION, TIMESTAMP};
use anyhow::Result;
use serde_json::{Value, json};

use super::{Project, check_refused};
use crate::support::Run;

const TIMESTAMP_URI: &str = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1";
const STAMP: &str = "github.com/a2aproject/a2a-samples/extensions/timestamp/v1/timestamp";
const TEST_URI: &str = "https://annex.example/test/v1";
const TASK: &str = "0197f9c2-7c1e-7d8a-b0a5-2f2b3f6c9a11";
const CONTEXT: &str = "0197f9c2-7c1e-7d8a-b0a5-000000000000";

fn head(uri: &str, settings: &Value) -> Value {
    json!({ "recording": { "version": 1, "uri": uri, "name": "tried", "component_version": "0.1.0",
        "digest": "sha256:00", "at": "2026-01-01T00:00:00Z", "settings": settings } })
}

fn end(turns: u64) -> Value {
    json!({ "end": { "turns": turns, "left_out": 0, "reason": "turns" } })
}

fn turn(uri: &str, steps: &Value) -> Value {
    json!({ "turn": { "at": "2026-01-01T00:00:01Z", "operation": "SendMessage", "context_id": CONTEXT,
        "requested": [uri], "steps": steps } })
}

fn request(metadata: &Value, result: &Value) -> Value {
    let message = json!({ "messageId": "m-1", "role": "ROLE_USER", "parts": [], "contextId": CONTEXT });
    json!({ "input": { "request": { "message": message, "metadata": metadata } }, "result": result })
}

fn artifact(calls: &Value, result: &Value) -> Value {
    json!({ "input": { "event": { "artifactUpdate": { "taskId": TASK, "contextId": CONTEXT,
        "artifact": { "artifactId": "a", "parts": [] } } } }, "calls": calls, "result": result,
        "times": [{ "hook": "response", "micros": 7 }] })
}

fn completed(result: &Value) -> Value {
    json!({ "input": { "event": { "statusUpdate": { "taskId": TASK, "contextId": CONTEXT,
        "status": { "state": "TASK_STATE_COMPLETED" } } } }, "result": result })
}

/// A turn of the timestamp extension. The extension reads the time `seconds` and returns `stamp`.
fn stamped(seconds: u64, stamp: &str) -> Value {
    let calls = json!([{ "time": { "seconds": seconds, "nanoseconds": 0 } }]);
    turn(
        TIMESTAMP_URI,
        &json!([
            request(&json!({}), &json!({ "active": {} })),
            artifact(&calls, &json!({ "adds": { STAMP: stamp } })),
            completed(&json!({ "adds": {} })),
        ]),
    )
}

/// The lines of a recording of the timestamp extension, with two turns.
fn stamps() -> Vec<Value> {
    let settings = json!({ "grants": { "clock": true } });
    let turns = [stamped(1_893_456_000, "2030-01-01T00:00:00.000Z"), stamped(0, "1970-01-01T00:00:00.000Z")];
    [vec![head(TIMESTAMP_URI, &settings)], turns.to_vec(), vec![end(2)]].concat()
}

/// The lines of a recording of the test extension, with one turn. `behaviour` is a parameter of the extension.
fn tested(behaviour: &Value) -> Vec<Value> {
    let settings = json!({ "parameters": { "behaviour": behaviour } });
    let added = json!({ "adds": { "test/response": "artifact" } });
    let steps = json!([request(&json!({}), &json!({ "active": {} })), artifact(&json!([]), &added)]);
    vec![head(TEST_URI, &settings), turn(TEST_URI, &steps), end(1)]
}

/// A project with a built component, and with the recording `turns.jsonl`.
fn project(component: &str, settings: &str, lines: &[Value]) -> Result<Project> {
    let project = Project::built(component, settings)?;
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    project.write("turns.jsonl", &text)?;
    Ok(project)
}

fn replay(project: &Project, component: &str, more: &[&str]) -> Result<Run> {
    project.run(&[&["replay", "turns.jsonl", component], more].concat())
}

#[test]
fn the_version_that_was_recorded_agrees_with_itself() -> Result<()> {
    let project = project(TIMESTAMP, "", &stamps())?;
    let run = replay(&project, TIMESTAMP, &[])?;
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{}", run.out);
    assert!(run.out.contains("turns 2, agreed 2, failed 0, with unanswered questions 0\n"), "{}", run.out);
    assert!(run.out.contains("\nresponse              7 "), "the time of a call, recorded and now: {}", run.out);
    let json: Value = serde_json::from_str(&replay(&project, TIMESTAMP, &["--json"])?.out)?;
    assert_eq!((&json["turns"], &json["agreed"], &json["examples"]), (&json!(2), &json!(2), &json!([])));
    assert_eq!(
        (&json["costs"]["response"]["calls_before"], &json["costs"]["response"]["calls"]),
        (&2.into(), &4.into())
    );
    Ok(())
}

#[test]
fn a_version_that_misbehaves_differs_and_the_place_is_shown() -> Result<()> {
    let project = project(TEST_EXTENSION, "", &tested(&json!({})))?;
    let agrees = replay(&project, TEST_EXTENSION, &[])?;
    assert_eq!(agrees.code, Some(0), "{}{}", agrees.out, agrees.err);
    for (behaviour, kind, failed, place, is) in [
        ("{ validate = \"trap\" }", "verdict", 1, "step 1, request", "{\"failed\":{\"kind\":\"trap\""),
        ("{ validate = \"delta\" }", "delta", 0, "step 1, request", "{\"test\":\"delta\"}"),
        ("{ respond = \"none\" }", "metadata", 0, "step 2, event", "{}"),
    ] {
        project.write("settings.toml", &format!("parameters = {{ behaviour = {behaviour} }}\n"))?;
        let run = replay(&project, TEST_EXTENSION, &["--settings", "settings.toml"])?;
        check_refused(&run, 5, &["error: 1 of 1 turns differ"]);
        for expected in [
            format!("agreed 0, failed {failed},"),
            format!("turns that differ, by kind: {kind} 1\n"),
            format!("  {place}: {kind}\n"),
            format!("    is   {is}"),
        ] {
            assert!(run.out.contains(&expected), "{expected}: {}", run.out);
        }
        let json = replay(&project, TEST_EXTENSION, &["--settings", "settings.toml", "--json"])?;
        assert_eq!(json.code, Some(5));
        assert_eq!(serde_json::from_str::<Value>(&json.out)?["differ"][kind], 1);
    }
    Ok(())
}

#[test]
fn what_the_recording_hides_is_told_from_a_change() -> Result<()> {
    let mut lines = stamps();
    // Hidden in what the extension has made of the first turn, and in what it was given in the second.
    lines[1]["turn"]["steps"][1]["result"] = json!({ "adds": { STAMP: "[hidden]" } });
    lines[2]["turn"]["steps"][0]["input"]["request"]["metadata"] = json!({ "password": "[hidden]" });
    lines[2]["turn"]["steps"][1]["result"] = json!({ "adds": { STAMP: "another" } });
    let run = replay(&project(TIMESTAMP, "", &lines)?, TIMESTAMP, &[])?;
    check_refused(&run, 5, &["1 of 2 turns differ"]);
    for expected in [
        "agreed 1,",
        "1 of them may differ because the recording hides something that the extension was given\n",
        "values that the recording hides, which were not compared: 1\n",
        ", in which something is hidden\n",
    ] {
        assert!(run.out.contains(expected), "{expected}: {}", run.out);
    }
    Ok(())
}

#[test]
fn a_question_that_the_recording_cannot_answer_is_shown() -> Result<()> {
    let mut lines = stamps();
    for step in lines[1]["turn"]["steps"].as_array_mut().into_iter().flatten() {
        step["calls"] = json!([]);
    }
    let run = replay(&project(TIMESTAMP, "", &lines)?, TIMESTAMP, &[])?;
    check_refused(&run, 5, &["1 of 2 turns differ"]);
    assert!(run.out.contains("asked, and not in the recording\n  in 1 of 2 turns: the time\n"), "{}", run.out);
    Ok(())
}

#[test]
fn a_recording_that_was_broken_off_is_played_with_a_note() -> Result<()> {
    let mut lines = stamps();
    lines.pop();
    let project = project(TIMESTAMP, "", &lines)?;
    let run = replay(&project, TIMESTAMP, &[])?;
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.err.contains("the recording has no end"), "{}", run.err);
    Ok(())
}

/// The settings of a recording may come from an untrusted person, so they must not name secrets of this machine.
#[test]
fn a_replayed_component_has_no_secret_of_this_machine() -> Result<()> {
    let secrets = json!({ "KEY": { "file": "/etc/hostname" }, "MISSING": { "file": "/nowhere/at-all" } });
    let commands = json!({ "test/capability": [{ "secret": "KEY" }, { "secret": "MISSING" }] });
    let stand_in = "a stand-in, because a case has no secrets but its own";
    let uri = "https://annex.example/capabilities/v1";
    let result = json!({ "active": { "delta": { "results": [stand_in, stand_in] } } });
    let grants = json!({ "clock": true, "random": true, "keyvalue": {}, "task": true, "tasks": true, "agent-steps": true,
        "task-resumption": true, "http": { "allow": [{ "methods": ["GET"], "host": "api.example.com", "path": "/" }] }, "secrets": secrets });
    let lines = [head(uri, &json!({ "grants": grants })), turn(uri, &json!([request(&commands, &result)])), end(1)];
    let run = replay(&project(TEST_CAPABILITIES, "", &lines)?, TEST_CAPABILITIES, &[])?;
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    Ok(())
}

#[test]
fn the_turns_of_a_recording_become_cases_that_pass() -> Result<()> {
    let project = project(TIMESTAMP, "[settings.grants]\nclock = true\n", &stamps())?;
    let run = replay(&project, TIMESTAMP, &["--to-cases", "cases"])?;
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.err.contains("2 cases in cases"), "{}", run.err);
    let tested = project.run(&["test"])?;
    assert_eq!(tested.out.lines().last(), Some("2 passed, 0 failed"), "{}", tested.out);
    let case = project.read("cases/turn-001.toml")?;
    assert!(case.starts_with("# Turn 1 of a recording of tried 0.1.0\n"), "{case}");
    for expected in ["clock = 2030-01-01T00:00:00Z", "artifactId = \"a\"", "\"2030-01-01T00:00:00.000Z\""] {
        assert!(case.contains(expected), "{expected}: {case}");
    }
    assert!(!case.contains(TASK) && !case.contains(CONTEXT), "{case}");
    Ok(())
}

#[test]
fn a_case_is_never_overwritten_and_none_is_left_half_written() -> Result<()> {
    let project = project(TIMESTAMP, "", &stamps())?;
    project.write("cases/turn-002.toml", "mine")?;
    let run = replay(&project, TIMESTAMP, &["--to-cases", "cases"])?;
    check_refused(&run, 1, &["cases/turn-002.toml is there already, and no case was written"]);
    assert_eq!(super::files_below(&project.path("cases"), &[])?, ["turn-002.toml"]);
    assert_eq!(project.read("cases/turn-002.toml")?, "mine");

    project.write("turns.jsonl", &(project.read("turns.jsonl")?.replace("{\"end\"", "{\"ned\"")))?;
    let run = replay(&project, TIMESTAMP, &["--to-cases", "more/cases"])?;
    check_refused(&run, 1, &["line 4: "]);
    assert!(!project.path("more/cases").exists());
    Ok(())
}

#[test]
fn a_turn_in_which_the_component_fails_becomes_a_case_that_expects_nothing_yet() -> Result<()> {
    let settings = "parameters = { behaviour = { validate = \"trap\" } }\n";
    let project = project(TEST_EXTENSION, "[settings.parameters]\nbehaviour = {}\n", &tested(&json!({})))?;
    project.write("settings.toml", settings)?;
    let run = replay(&project, TEST_EXTENSION, &["--settings", "settings.toml", "--to-cases", "cases"])?;
    check_refused(
        &run,
        5,
        &["turn-001.toml expects nothing yet, because the component fails in it: ", "trapped in state"],
    );
    assert!(!project.read("cases/turn-001.toml")?.contains("[expect"));
    // The version that does not fail says what is to come of it.
    assert_eq!(project.run(&["test", "--update"])?.code, Some(0));
    Ok(())
}

#[test]
fn a_turn_that_no_case_can_hold_is_left_out_with_its_reason() -> Result<()> {
    let mut lines = stamps();
    lines[1]["turn"]["resumed"] = true.into();
    let run = replay(&project(TIMESTAMP, "", &lines)?, TIMESTAMP, &["--to-cases", "cases"])?;
    for expected in ["turn 1 is no case: its task is resumed", "1 cases in cases"] {
        assert!(run.err.contains(expected), "{expected}: {}", run.err);
    }
    Ok(())
}

#[test]
fn each_mistake_is_named_with_its_place_and_the_way_out() -> Result<()> {
    let project = project(TIMESTAMP, "", &stamps())?;
    let recording = project.read("turns.jsonl")?;
    let none = project.run(&["replay", "nowhere.jsonl", TIMESTAMP])?;
    check_refused(&none, 1, &["cannot read the recording nowhere.jsonl; `annex record` makes one", "No such file"]);
    for (text, component, expected) in [
        ("hello\n".to_owned(), TIMESTAMP, &["turns.jsonl is not a recording", "`annex record` makes one"][..]),
        (
            recording.replace("\"version\":1", "\"version\":9"),
            TIMESTAMP,
            &["has version 9", "reads version 1", "record again"],
        ),
        (
            recording.replacen("{\"turn\":", "{\"turn\":[],\"x\":", 1),
            TIMESTAMP,
            &["turns.jsonl, line 2: ", "record again"],
        ),
        (recording.clone(), HELLO_EXTENSION, &[TIMESTAMP_URI, "and the component is https://"]),
        (recording.replace("{\"clock\":true}", "{}"), TIMESTAMP, &["--settings", "does not load", "clock"]),
        (recording.replace("{\"clock\":true}", "7"), TIMESTAMP, &["the settings"]),
    ] {
        project.write("turns.jsonl", &text)?;
        check_refused(&replay(&project, component, &[])?, 1, expected);
    }
    project.write("turns.jsonl", &recording)?;
    let run = replay(&project, "nowhere.wasm", &[])?;
    check_refused(&run, 1, &["cannot read nowhere.wasm", "`annex build` makes it"]);
    let run = replay(&project, TIMESTAMP, &["--settings", "nowhere.toml"])?;
    check_refused(&run, 1, &["cannot read nowhere.toml"]);
    Ok(())
}

/// A recording contains untrusted texts, which must not control the terminal.
#[test]
fn what_steers_a_terminal_is_shown_escaped() -> Result<()> {
    let mut lines = stamps();
    lines[0]["recording"]["component_version"] = "\u{1b}[31m".into();
    lines[1]["turn"]["context_id"] = "\u{202e}x".into();
    lines[1]["turn"]["steps"][1]["result"] = json!({ "adds": { STAMP: "\u{202e}" } });
    let project = project(TIMESTAMP, "", &lines)?;
    let run = replay(&project, TIMESTAMP, &["--to-cases", "cases"])?;
    assert!(!run.out.contains(['\u{1b}', '\u{202e}']) && run.out.contains("\\u{202e}"), "{}", run.out);
    assert!(!fs::read_to_string(project.path("cases/turn-001.toml"))?.contains('\u{1b}'));
    Ok(())
}

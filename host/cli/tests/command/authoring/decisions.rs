//! `annex test`: cases of extensions that see the caller, answer in the agent's place, revise what goes out, steer the
//! agent's steps, add to reads, or change their entry on the card.

use annex_components::TEST_STEERING;
use anyhow::Result;

use super::Project;

const GRANTS: &str = r#"
[settings.grants]
answer = true
rewrite-answer = true
agent-steps = { steer = true }
reads = true
live-card = {}
task-metadata = true
keyvalue = {}
caller = { principal = true, claims = ["org"], headers = ["x-scope"] }
"#;
/// The extension in the message or artifact that it has made or revised.
const BY: &str = r#"extensions = ["https://annex.example/steering/v1"]"#;

/// Asserts that a case has the outcome `expect`. `behaviour` is a parameter of the extension.
#[track_caller]
fn check(behaviour: &str, given: &str, expect: &str) -> Result<()> {
    check_with(&format!("behaviour = {behaviour}"), given, expect)
}

/// Asserts that a case with these parameters has the outcome `expect`.
#[track_caller]
fn check_with(parameters: &str, given: &str, expect: &str) -> Result<()> {
    let project = Project::built(TEST_STEERING, GRANTS)?;
    let case = format!("[given]\nparameters = {{ {parameters} }}\n{given}\n\n[expect]\n{}", expect.replace("BY", BY));
    project.write("cases/a.toml", &case)?;
    let run = project.run(&["test"])?;
    assert_eq!((run.code, run.out.lines().last()), (Some(0), Some("1 passed, 0 failed")), "{}{}", run.out, run.err);
    Ok(())
}

#[test]
fn the_caller_of_a_case_is_shown_as_far_as_the_grant_shows_it() -> Result<()> {
    let given = r#"hook = "message"
caller = { principal = "ada", claims = { org = "acme", level = 3 }, headers = { X-Scope = ["a", "b"], x-other = "c" } }"#;
    let expect = r#"active = true
log = ['info: check: Presence::Authenticated ada {"org":"acme"} [("x-scope", "a"), ("x-scope", "b")]']
"#;
    check(r#"{ check = "caller" }"#, given, expect)?;
    let earlier = "hook = \"message\"\ncaller = { presence = \"earlier\", principal = \"ada\" }";
    check(r#"{ check = "caller" }"#, earlier, "active = true\nlog = [\"info: check: Presence::Earlier ada {} []\"]\n")?;
    let nobody = "active = true\nlog = [\"info: check: Presence::Anonymous nobody {} []\"]\n";
    check(r#"{ check = "caller" }"#, "hook = \"message\"", nobody)
}

#[test]
fn entries_of_the_task_are_an_effect_of_a_case() -> Result<()> {
    let expect = r#"active = true
log = ["info: check: set", "info: begin: set"]
task_metadata = { "steering/command" = 1, "steering/result" = "check" }

[[expect.events]]
artifact = "Hello, world!"

[[expect.events]]
state = "completed"
"#;
    check(r#"{ check = "set", begin = "set-other" }"#, "", expect)
}

#[test]
fn an_answer_in_the_agents_place_takes_the_place_of_its_events() -> Result<()> {
    let expect = r#"active = true

[[expect.events]]
artifact = "ANSWERED"
BY

[[expect.events]]
state = "completed"
"#;
    check(r#"{ before-agent = "answer", revise = "upper" }"#, "answer = [{ state = \"failed\" }]", expect)?;
    // `hook` runs that hook alone, so no other hook changes the answer.
    let alone = expect.replace("ANSWERED", "answered");
    check(r#"{ before-agent = "answer", revise = "upper" }"#, "hook = \"reply\"", &alone)?;
    let waits = r#"active = true

[[expect.events]]
state = "input-required"
message = "Go on?"
BY
"#;
    check(r#"{ before-agent = "wait" }"#, "hook = \"reply\"", waits)?;
    check(r#"{ before-agent = "ok" }"#, "hook = \"reply\"", "active = true\n")
}

#[test]
fn the_chunks_of_an_answer_are_held_back_and_joined_or_refused() -> Result<()> {
    let chunk = |text: &str, rest: &str| {
        format!(
            "{{ event = {{ artifactUpdate = {{ {rest}, artifact = {{ artifactId = \"a\", parts = [{{ text = \"{text}\" \
             }}] }} }} }} }}"
        )
    };
    let chunks = [chunk("one ", "append = false"), chunk("two ", "append = true"), chunk("three", "append = true")];
    let given = format!("answer = [{}, {{ state = \"completed\" }}]", chunks.join(", "));
    let joined = r#"active = true

[[expect.events]]
artifact = "one two three"

[[expect.events]]
state = "completed"
"#;
    check(r#"{ revise = "hold" }"#, &given, joined)?;
    let refused = r#"active = true

[[expect.events]]
state = "failed"
message = "revise was told to refuse"
"#;
    check(r#"{ revise = "refuse" }"#, &given, refused)
}

#[test]
fn parts_that_are_not_a_single_text_are_shown() -> Result<()> {
    let expect = r#"active = true

[[expect.events]]
artifact = "Hello, world!"
parts = [{ text = "Hello, world!" }, { text = "added" }]
BY
"#;
    check(r#"{ revise = "add" }"#, "hook = \"output\"\nanswer = [{ artifact = \"Hello, world!\" }]", expect)
}

#[test]
fn the_steps_of_the_agent_are_shown_as_the_extension_leaves_them() -> Result<()> {
    let given = r#"hook = "steering"
model = { lent = ["default", "small"], instruction = ["Be short."] }
calls = [{ tool = "sum", arguments = { a = 1 }, result = 3 }, { tool = "delete" }]"#;
    let expect = r#"active = true

[[expect.steps]]
model = "small"

[[expect.steps]]
tool = "sum"
result = { changed = true }

[[expect.steps]]
tool = "delete"
denied = "delete was denied"
"#;
    let behaviour = r#"{ before-model = "lent-model", before-tool = "deny-tool delete", after-tool = "change" }"#;
    check(behaviour, given, expect)?;
    let instructed = r#"active = true

[[expect.steps]]
model = "default"
instruction = ["Be short.", "Be kind."]

[[expect.steps]]
tool = "sum"
arguments = { a = 2 }

[[expect.steps]]
tool = "delete"
arguments = { a = 2 }
"#;
    check(r#"{ before-model = "change Be kind.", before-tool = 'change {"a":2}' }"#, given, instructed)?;
    let remarked = r#"active = true

[[expect.steps]]
model = "default"
remarks = [{ parts = [{ text = "a remark" }], metadata = { "steering/result" = true } }]
"#;
    check(r#"{ before-model = "own-key" }"#, "hook = \"steering\"", remarked)
}

#[test]
fn a_call_that_waits_or_a_model_that_is_refused_keeps_the_agent_from_its_answer() -> Result<()> {
    let waits = r#"active = true

[[expect.steps]]
model = "default"

[[expect.steps]]
tool = "sum"
waits = { state = "input-required", text = "May sum be called?" }
"#;
    check(r#"{ before-tool = "wait" }"#, "calls = [{ tool = \"sum\" }]", waits)?;
    let passes = r#"active = true

[[expect.steps]]
model = "default"

[[expect.steps]]
tool = "sum"

[[expect.events]]
artifact = "Hello, world!"

[[expect.events]]
state = "completed"
"#;
    check(r#"{ before-tool = "wait" }"#, "calls = [{ tool = \"sum\", has_waited = true }]", passes)?;
    let refused = r#"active = true

[[expect.steps]]
model = "default"
refused = "not today"

[[expect.events]]
state = "failed"
message = "not today"
"#;
    check(r#"{ before-model = "refuse not today" }"#, "model = {}", refused)
}

#[test]
fn tasks_are_shown_with_what_the_extension_adds_or_left_out() -> Result<()> {
    let given = r#"hook = "reads"
[[given.tasks]]
id = "a"
contextId = "c"
status.state = "TASK_STATE_WORKING"
metadata = { "steering/command" = "leave-out" }

[[given.tasks]]
id = "b"
contextId = "c"
status.state = "TASK_STATE_WORKING"
metadata = { "steering/command" = "count" }"#;
    let left_out = "info: reads: 1 of 2 tasks are left out; the reason for the first one: it was told to";
    let expect = format!(
        r#"active = true
log = ["{left_out}"]

[[expect.tasks]]
id = "a"
left_out = true

[[expect.tasks]]
id = "b"
metadata = {{ "steering/result" = 2 }}
"#
    );
    check_with("payload = false", given, &expect)?;
    let seen = r#"active = true

[[expect.tasks]]
id = "b"
metadata = { "steering/result" = "GetTask: b in c, TASK_STATE_COMPLETED, []" }
"#;
    let one = r#"hook = "reads"
operation = "GetTask"
tasks = [{ id = "b", contextId = "c", status = { state = "TASK_STATE_COMPLETED" } }]"#;
    check_with("reads = \"seen\"", one, seen)
}

#[test]
fn the_entry_of_the_extended_card_is_shown_with_what_the_extension_changes() -> Result<()> {
    let given = r#"hook = "extended-card"
caller = { principal = "ada" }
entry = { description = "It steers.", params = { n = 1 } }"#;
    let expect = r#"active = true
log = ["info: show-entry: Presence::Authenticated ada {} []"]

[expect.card]
params = { shown = "Presence::Authenticated ada {} []" }
"#;
    check_with("entry = \"caller\"", given, expect)?;
    let seen = r#"active = true

[expect.card]
params = { shown = 'GetExtendedAgentCard: It steers., Some("{\"n\":1}")' }
"#;
    check_with("entry = \"seen\"", given, seen)?;
    check_with("entry = \"same\"", given, "active = true\n")?;
    let described = "active = true\n\n[expect.card]\ndescription = \"For you alone.\"\n";
    check_with("entry = \"describe\"", "hook = \"extended-card\"", described)
}

#[test]
fn the_entry_on_the_card_holds_for_the_seconds_of_the_declaration() -> Result<()> {
    let live = r#"live = { description = "Now open.", params = { open = true }, seconds = 30 }"#;
    let expect = r#"
[expect.card]
description = "Now open."
params = { open = true }
seconds = 30
"#;
    check_with(live, "hook = \"live-card\"", expect)
}

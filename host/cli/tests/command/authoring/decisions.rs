//! `annex test`: cases of extensions that see the caller, answer in the agent's place or revise what goes out.

use annex_components::TEST_STEERING;
use anyhow::Result;

use super::Project;

const GRANTS: &str = r#"
[settings.grants]
answer = true
rewrite-answer = true
task-metadata = true
caller = { principal = true, claims = ["org"], headers = ["x-scope"] }
"#;
/// The extension in the message or artifact that it has made or revised.
const BY: &str = r#"extensions = ["https://annex.example/steering/v1"]"#;

/// Asserts that a case has the outcome `expect`. `behaviour` is a parameter of the extension.
#[track_caller]
fn check(behaviour: &str, given: &str, expect: &str) -> Result<()> {
    let project = Project::built(TEST_STEERING, GRANTS)?;
    let case = format!(
        "[given]\nparameters = {{ behaviour = {behaviour} }}\n{given}\n\n[expect]\n{}",
        expect.replace("BY", BY)
    );
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
artifact = "one "
parts = [{ text = "one " }, { text = "two " }, { text = "three" }]

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

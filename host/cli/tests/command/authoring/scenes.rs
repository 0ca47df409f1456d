//! `annex test`: the inputs that a case can give an extension, and the results that a case can check.

use annex_components::{TEST_CAPABILITIES, TEST_EXTENSION, TIMESTAMP};
use anyhow::Result;

use super::Project;

const GRANTS: &str = r#"
[settings.grants]
clock = true
random = true
http = { allow = [{ methods = ["GET"], host = "api.example.com", path = "/" }] }
keyvalue = {}
task = true
tasks = true
task-resumption = true
agent-steps = true
"#;

/// Asserts that `component` passes the case.
#[track_caller]
fn check(component: &str, settings: &str, case: &str) -> Result<()> {
    let project = Project::built(component, settings)?;
    project.write("cases/a.toml", case)?;
    let run = project.run(&["test"])?;
    assert_eq!((run.code, run.out.lines().last()), (Some(0), Some("1 passed, 0 failed")), "{}{}", run.out, run.err);
    Ok(())
}

/// Asserts that a turn of the test extension has the outcome `expect`. `behaviour` is a parameter of the extension.
#[track_caller]
fn check_told(behaviour: &str, given: &str, expect: &str) -> Result<()> {
    check(
        TEST_EXTENSION,
        "",
        &format!("[given]\nparameters = {{ behaviour = {behaviour} }}\n{given}\n[expect]\n{expect}"),
    )
}

#[test]
fn the_clock_stands_at_the_time_of_the_case() -> Result<()> {
    let commands = r#"metadata = { "test/capability" = ["time", { sleep = 20 }, "time"] }"#;
    check(
        TEST_CAPABILITIES,
        GRANTS,
        &format!(
            "[given]\nhook = \"state\"\nclock = 2030-01-02T03:04:05Z\n{commands}\n[expect]\nactive = true\n\
             delta.results = [\"Ok(1893553445s)\", \"slept false\", \"Ok(1893553445s)\"]\n"
        ),
    )
}

#[test]
fn the_clock_of_a_case_without_one_is_the_same_each_time() -> Result<()> {
    let commands = r#"metadata = { "test/capability" = ["time", { random = 8 }] }"#;
    let expect = "active = true\ndelta.results = [\"Ok(1767225600s)\", \"8\"]\n";
    check(TEST_CAPABILITIES, GRANTS, &format!("[given]\nhook = \"state\"\n{commands}\n[expect]\n{expect}"))
}

#[test]
fn each_read_of_the_clock_takes_the_next_time_of_the_case() -> Result<()> {
    let given = r#"hook = "state"
clock = [2030-01-02T03:04:05Z, 2030-01-02T03:04:07Z]
random = "000102"
metadata = { "test/capability" = ["time", "time", "time", { random = 2 }] }"#;
    let expect = r#"delta.results = ["Ok(1893553445s)", "Ok(1893553447s)", "Ok(1893553447s)", "2"]"#;
    check(TEST_CAPABILITIES, GRANTS, &format!("[given]\n{given}\n\n[expect]\nactive = true\n{expect}\n"))
}

#[test]
fn an_answer_can_be_any_event_as_a_table_or_as_json() -> Result<()> {
    let event = r#"{ artifactUpdate = { artifact = { parts = [{ data = { n = 1 } }, { text = "one" }] } } }"#;
    check_told(
        "{ respond = \"payload\" }, payload = true",
        &format!("answer = [{{ event = {event} }}]\n"),
        r#"active = true

[[expect.events]]
artifact = "one"
extensions = ["https://annex.example/test/v1"]

[expect.events.metadata."test/response".artifactUpdate]
taskId = "task-1"
contextId = "context-1"
artifact = { artifactId = "artifact-1", parts = [{ data = { n = 1 } }, { text = "one" }] }
"#,
    )?;
    let json = r#"{"message": {"parts": [{"data": null}, {"text": "two"}]}}"#;
    let state = r#"{ statusUpdate = { status = { state = "TASK_STATE_WORKING", message = { parts = [] } } } }"#;
    check_told(
        "{}",
        &format!("answer = [{{ event = {state} }}, {{ event = '{json}' }}]\n"),
        r#"active = true

[[expect.events]]
state = "working"
message = ""
extensions = ["https://annex.example/test/v1"]
metadata = { "test/response" = "status" }

[[expect.events]]
message = "two"
extensions = ["https://annex.example/test/v1"]
metadata = { "test/response" = "message" }
"#,
    )
}

#[test]
fn requests_are_answered_from_the_case_or_fail() -> Result<()> {
    check(
        TEST_CAPABILITIES,
        GRANTS,
        r#"
[given]
hook = "state"

[given.metadata]
"test/capability" = [
  { http = { method = "GET", url = "https://api.example.com/users" } },
  { http = { method = "GET", url = "https://api.example.com/users" } },
  { http = { method = "GET", url = "https://api.example.com/users" } },
  { http = { method = "GET", url = "https://api.example.com/none" } },
  { http = { method = "GET", url = "https://other.example/" } },
]

[[given.http]]
request = "GET https://api.example.com/users"
body = "Ada"

[[given.http]]
request = "GET https://api.example.com/users"
status = 503
headers = { retry-after = "1" }
body = "later"

[expect]
active = true
log = ["warn: http: GET https://other.example/ was not sent: no rule of its grant allows it"]
requests = [
  "GET https://api.example.com/users",
  "GET https://api.example.com/users",
  "GET https://api.example.com/users",
  "GET https://api.example.com/none",
]
delta.results = [
  "200 Ada",
  "503 later",
  "503 later",
  "error: the request failed: ErrorCode::DestinationUnavailable",
  "error: the request failed: ErrorCode::HttpRequestDenied",
]
"#,
    )
}

#[test]
fn keys_are_there_before_and_shown_after() -> Result<()> {
    check(
        TEST_CAPABILITIES,
        GRANTS,
        r#"
[given]
hook = "state"
keys = { lasting = { a = "1" }, context = { count = "40" }, task = { t = "x" } }

[given.metadata]
"test/capability" = [
  { get = "a" },
  { delete = "a" },
  { set = ["b", "2"] },
  { in = ["context", { increment = ["count", 2] }] },
  { in = ["task", "list"] },
]

[expect]
active = true
delta.results = ["1", "ok", "ok", "42", "t"]
keys = { lasting = { b = "2" }, context = { count = "42" }, task = { t = "x" } }
"#,
    )
}

#[test]
fn tasks_steps_and_lines_of_the_log_are_those_of_the_case() -> Result<()> {
    check(
        TEST_CAPABILITIES,
        GRANTS,
        r#"
[given]
hook = "state"
tasks = [{ id = "t1", contextId = "c", status = { state = "TASK_STATE_WORKING" } }]
steps = [{ kind = "model" }]
metadata = { "test/capability" = ["task", { tasks = "{}" }, { resume = "task-9" }, "steps", { print = ["a line"] }] }

[expect]
active = true
log = ["info: stdout: a line"]
resumed = ["task-9"]
delta.results = [
  '{"id":"task-1","contextId":"context-1","status":{"state":"TASK_STATE_WORKING"}}',
  '{"tasks":[{"id":"t1","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}],"nextPageToken":"","pageSize":50,"totalSize":1}',
  "ok",
  '[{"kind":"model"}]',
  "ok",
]
"#,
    )
}

#[test]
fn a_method_has_a_result_several_or_a_refusal() -> Result<()> {
    let methods = "[settings.parameters]\nmethods = [\"test.echo\", \"test.stream\"]\n";
    check(
        TEST_EXTENSION,
        methods,
        "[given.method]\nname = \"test.echo\"\nparams = { text = \"x\" }\n\n[expect.result]\noperation = \
         \"test.echo\"\nparams = { text = \"x\" }\n",
    )?;
    check(TEST_EXTENSION, methods, "[given.method]\nname = \"test.stream\"\n\n[expect]\nresults = [0, 1, 2]\n")?;
    check(
        TEST_EXTENSION,
        methods,
        "[given.method]\nname = \"test.other\"\n\n[expect.refused]\ncode = -32601\nmessage = \"method `test.other` does not \
         exist; A2A 1.0 methods are called like SendMessage or GetTask\"\n",
    )
}

#[test]
fn the_half_of_a_client_adds_to_its_request() -> Result<()> {
    let key = "github.com/a2aproject/a2a-samples/extensions/timestamp/v1/timestamp";
    check(
        TIMESTAMP,
        "[settings.grants]\nclock = true\n",
        &format!(
            "[given]\nclock = \"2030-01-02T03:04:05Z\"\n\n[given.client]\nagent = \
             \"https://agent.example\"\n\n[expect.addition]\nactivate = true\n\n[expect.addition.message]\n{key:?} = \
             \"2030-01-02T03:04:05.000Z\"\n"
        ),
    )
}

#[test]
fn an_interruption_lets_the_task_wait() -> Result<()> {
    check_told(
        "{ begin = \"interrupt\" }",
        "",
        r#"active = true

[[expect.events]]
state = "input-required"
message = "Go on?"
extensions = ["https://annex.example/test/v1"]
metadata = { "test/response" = "interrupt" }
"#,
    )
}

#[test]
fn a_task_that_waited_goes_on_by_the_next_message() -> Result<()> {
    let given = "hook = \"transition\"\nwaits_in = \"input-required\"\nanswer = [{ state = \"completed\" }]\n";
    check_told("{ begin = \"first\" }", given, "active = true\nevents = [{ state = \"completed\" }]\n")
}

#[test]
fn a_veto_ends_the_turn_before_the_agent_or_the_task_at_its_end() -> Result<()> {
    check_told("{ begin = \"veto\" }", "", "active = true\nrejected = \"begin was told to veto\"\n")?;
    check_told(
        "{ change = \"veto\" }",
        "hook = \"transition\"\nanswer = [{ state = \"completed\" }]\n",
        r#"active = true

[[expect.events]]
state = "failed"
message = "change was told to veto"
"#,
    )
}

#[test]
fn a_refusal_is_shown_as_the_client_gets_it() -> Result<()> {
    check_told(
        "{ validate = \"reject\" }",
        "",
        "refused = { code = -32950, message = \"validate was told to refuse\", data = { hook = \"validate\" } }\n",
    )
}

#[test]
fn a_trap_is_shown_with_its_hook_and_its_cause() -> Result<()> {
    let project = Project::built(TEST_EXTENSION, "")?;
    // The numbers of the functions behind the cause change with each build of the extension.
    for (behaviour, hook, cause) in [
        ("{ validate = \"trap\" }", "state", "wasm trap: wasm `unreachable` instruction executed"),
        ("{ begin = \"trap\" }", "transition", "wasm trap: wasm `unreachable` instruction executed"),
    ] {
        project.write("cases/a.toml", &format!("[given]\nparameters = {{ behaviour = {behaviour} }}\n\n[expect]\n"))?;
        let run = project.run(&["test"])?;
        assert_eq!((run.code, run.out.lines().last()), (Some(5), Some("0 passed, 1 failed")), "{}", run.err);
        let expected = format!("    fault: extension https://annex.example/test/v1 trapped in {hook}: {cause}");
        assert!(run.out.contains(&expected), "{expected}: {}", run.out);
    }
    project.write("cases/a.toml", "[given]\nparameters = { behaviour = { validate = \"panic\" } }\n\n[expect]\n")?;
    let run = project.run(&["test"])?;
    assert!(run.out.contains("    log:   error: panic: validate was told to panic, at "), "{}", run.out);
    Ok(())
}

#[test]
fn a_limit_and_a_broken_contract_are_faults() -> Result<()> {
    let uri = "https://annex.example/test/v1";
    check_told(
        "{ validate = \"loop\" }",
        "",
        &format!("fault = \"extension {uri} reached its CPU time limit in state\"\n"),
    )?;
    check_told(
        "{ check = \"rewrite\" }",
        "",
        &format!(
            "fault = \"extension {uri} broke the contract in message: it rewrites the message without the grant \
             rewrite-message\"\n"
        ),
    )
}

/// The settings of a project may come from an untrusted person, so they must not name secrets of this machine.
#[test]
fn a_component_under_test_has_no_secret_of_this_machine() -> Result<()> {
    let secrets = "\n[settings.grants.secrets]\nKEY = { file = \"/etc/hostname\" }\nOTHER = { env = \"PATH\" }\n";
    let missing = "MISSING = { file = \"/nowhere/at-all\" }\n";
    let case = "[given]\nhook = \"state\"\nsecrets = { KEY = \"of the case\" }\n\
                metadata = { \"test/capability\" = [{ secret = \"KEY\" }, { secret = \"OTHER\" }, { secret = \"MISSING\" }] }\n\
                [expect]\nactive = true\ndelta.results = [\"of the case\", STAND_IN, STAND_IN]\n";
    let stand_in = "\"a stand-in, because a case has no secrets but its own\"";
    check(TEST_CAPABILITIES, &format!("{GRANTS}{secrets}{missing}"), &case.replace("STAND_IN", stand_in))
}

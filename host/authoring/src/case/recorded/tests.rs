use serde_json::{Value as Json, json};

use super::*;

const URI: &str = "https://a.example/v1";
const TASK_ID: &str = "0197f9c2-7c1e-7d8a-b0a5-2f2b3f6c9a11";
const CONTEXT_ID: &str = "0197f9c2-7c1e-7d8a-b0a5-000000000000";

/// A turn with these steps. `more` has further fields of the turn.
#[expect(clippy::needless_pass_by_value, reason = "each caller writes the JSON in its place")]
fn turn(steps: Json, more: Json) -> RecordedTurn {
    let mut turn = json!({
        "at": "2026-02-03T04:05:06Z",
        "operation": "SendMessage",
        "requested": [URI],
        "context_id": CONTEXT_ID,
        "steps": steps,
    });
    let fields = turn.as_object_mut().unwrap();
    fields.extend(more.as_object().cloned().unwrap_or_default());
    serde_json::from_str(&turn.to_string()).unwrap()
}

fn request(message: Json) -> Json {
    let mut message = message;
    message["messageId"] = "m-1".into();
    message["role"] = "ROLE_USER".into();
    json!({ "input": { "request": { "message": message, "metadata": {} } }, "result": { "active": {} } })
}

fn hello() -> Json {
    request(json!({ "parts": [{ "text": "Hi" }] }))
}

/// A turn in which the extension calls the host.
fn calling(calls: Json) -> RecordedTurn {
    let mut step = hello();
    step["calls"] = calls;
    turn(json!([step]), json!({}))
}

/// Checks the inputs that a turn is converted to.
#[track_caller]
fn check(turn: &RecordedTurn, expected: &str) {
    let converted = given(turn, &ExtensionUri::from(URI)).unwrap();
    let expected: Table = toml::from_str(expected).unwrap();
    assert_eq!(converted.given, expected, "{}", converted.given);
}

/// The reason why a turn cannot be a case.
#[track_caller]
fn reason(turn: &RecordedTurn) -> String {
    given(turn, &ExtensionUri::from(URI)).unwrap_err()
}

#[test]
fn a_message_and_the_answer_of_the_agent_become_those_of_the_case() {
    let steps = json!([
        hello(),
        { "input": { "begin": { "task_id": TASK_ID, "context_id": CONTEXT_ID, "waits_in": "TASK_STATE_INPUT_REQUIRED" } },
          "result": { "agrees": {} } },
        { "input": { "event": { "artifactUpdate": { "taskId": TASK_ID, "contextId": CONTEXT_ID,
            "artifact": { "artifactId": "a", "parts": [{ "data": { "of": TASK_ID } }] } } } },
          "result": { "adds": {} } },
        { "input": { "change": { "current": "TASK_STATE_WORKING", "update": { "taskId": TASK_ID,
            "contextId": CONTEXT_ID, "status": { "state": "TASK_STATE_COMPLETED" } } } },
          "result": { "agrees": {} } },
        { "input": { "event": { "statusUpdate": { "taskId": TASK_ID, "contextId": CONTEXT_ID,
            "status": { "state": "TASK_STATE_COMPLETED" }, "metadata": { "of": "the extension" } } } },
          "result": { "adds": {} } },
    ]);
    check(
        &turn(steps, json!({ "operation": "SendStreamingMessage", "requested": [URI, "https://b.example/v1"] })),
        r#"
        message = "Hi"
        operation = "SendStreamingMessage"
        requested = ["https://a.example/v1", "https://b.example/v1"]
        waits_in = "input-required"
        clock = 2026-02-03T04:05:06Z
        answer = [
            { event.artifactUpdate.artifact = { artifactId = "a", parts = [{ data = { of = "task-1" } }] } },
            { state = "completed" },
        ]
        "#,
    );
}

#[test]
fn no_answer_follows_a_beginning_that_stops_the_turn() {
    let steps = json!([
        hello(),
        { "input": { "begin": { "task_id": TASK_ID, "context_id": CONTEXT_ID } },
          "result": { "interrupts": { "state": "TASK_STATE_INPUT_REQUIRED", "text": "Go on?" } } },
        { "input": { "event": { "statusUpdate": { "taskId": TASK_ID, "contextId": CONTEXT_ID,
            "status": { "state": "TASK_STATE_INPUT_REQUIRED" } } } },
          "result": { "adds": {} } },
    ]);
    check(&turn(steps, json!({})), "message = \"Hi\"\nclock = 2026-02-03T04:05:06Z\nanswer = []");
}

#[test]
fn the_steps_of_the_agent_become_a_call_of_the_model_and_calls_of_tools() {
    let model = |round: u32| {
        json!({ "input": { "model": { "round": round, "model": "small", "lent": ["default", "small"],
            "instruction": ["Be short."], "parameters": { "seed": 7 }, "tools": ["sum"] } },
          "result": { "steers": { "verdict": "passes" } } })
    };
    let call = json!({ "id": "c-1", "name": "sum", "origin": "math", "arguments": { "a": 1 } });
    let made = json!({ "id": "c-1", "name": "sum", "arguments": { "a": 2 }, "output": { "total": 3 }, "failed": true });
    let steps = json!([
        hello(),
        model(0),
        { "input": { "tool": call }, "result": { "steers": { "verdict": { "changes_arguments": { "a": 2 } } } } },
        { "input": { "tool_result": made }, "result": { "steers": { "verdict": "passes" } } },
        model(1),
    ]);
    let recorded = turn(steps, json!({}));
    check(
        &recorded,
        r#"
        message = "Hi"
        clock = 2026-02-03T04:05:06Z
        answer = []
        model = { round = 0, name = "small", lent = ["default", "small"], instruction = ["Be short."], parameters.seed = 7, tools = ["sum"] }
        calls = [{ tool = "sum", origin = "math", arguments = { a = 1 }, result = { total = 3 }, failed = true }]
        "#,
    );
    let remarks = given(&recorded, &ExtensionUri::from(URI)).unwrap().remarks;
    assert_eq!(remarks, ["The agent called the model several times. The case has the first call."]);
}

#[test]
fn a_recorded_read_becomes_a_case_of_its_hook() {
    let task = json!({ "id": "t-7", "context_id": "c-7", "state": "TASK_STATE_WORKING", "metadata": { "k": [1] } });
    let steps = json!([{ "input": { "read": { "tasks": [task] } }, "result": { "shows": ["unchanged"] } }]);
    check(
        &turn(steps, json!({ "operation": "ListTasks" })),
        r#"
        hook = "reads"
        operation = "ListTasks"
        clock = 2026-02-03T04:05:06Z
        tasks = [{ id = "t-7", contextId = "c-7", status = { state = "TASK_STATE_WORKING" }, metadata = { k = [1] } }]
        "#,
    );
}

#[test]
fn a_recorded_read_of_the_extended_card_becomes_a_case_of_its_hook() {
    let entry = json!({ "uri": URI, "description": "It greets.", "required": false, "params": { "n": 1 } });
    let steps = json!([{ "input": { "extended_card": entry }, "result": { "shows_entry": "unchanged" } }]);
    check(
        &turn(steps, json!({ "operation": "GetExtendedAgentCard" })),
        r#"
        hook = "extended-card"
        clock = 2026-02-03T04:05:06Z
        entry = { description = "It greets.", params = { n = 1 } }
        "#,
    );
}

#[test]
fn the_caller_of_a_turn_becomes_that_of_the_case() {
    let with = |caller: Json| turn(json!([hello()]), json!({ "caller": caller }));
    let rest = "message = \"Hi\"\nclock = 2026-02-03T04:05:06Z\nanswer = []\n";
    let ada = json!({ "presence": "authenticated", "principal": "ada", "claims": { "org": "acme" },
                      "headers": [["x-scope", "a"], ["x-scope", "b"]] });
    let expected = "principal = \"ada\", claims = { org = \"acme\" }, headers = { x-scope = [\"a\", \"b\"] }";
    check(&with(ada), &format!("{rest}caller = {{ {expected} }}"));
    let earlier = "presence = \"earlier\", principal = \"ada\"";
    check(&with(json!({ "presence": "earlier", "principal": "ada" })), &format!("{rest}caller = {{ {earlier} }}"));
    check(&with(json!({ "presence": "authenticated" })), &format!("{rest}caller.presence = \"authenticated\""));
    check(&with(json!({ "presence": "anonymous" })), rest);
}

#[test]
fn the_answer_is_the_agents_and_not_what_the_extension_made_of_it() {
    let artifact = |text: &str| {
        json!({ "artifactUpdate": { "taskId": TASK_ID, "contextId": CONTEXT_ID, "append": true,
                "artifact": { "artifactId": "a", "parts": [{ "text": text }] } } })
    };
    let status = json!({ "taskId": TASK_ID, "contextId": CONTEXT_ID, "status": { "state": "TASK_STATE_COMPLETED" } });
    let steps = json!([
        hello(),
        { "input": { "reply": { "message": { "messageId": "m-1", "role": "ROLE_USER", "parts": [] } } },
          "result": { "agrees": {} } },
        { "input": { "output": artifact("one") }, "result": "holds" },
        { "input": { "output": artifact("two") }, "result": { "revises": { "parts": [{ "text": "ONETWO" }] } } },
        { "input": { "event": artifact("ONETWO") }, "result": { "adds": {} } },
        { "input": { "change": { "current": "TASK_STATE_WORKING", "update": status } }, "result": { "agrees": {} } },
        { "input": { "output": { "statusUpdate": status } }, "result": { "agrees": {} } },
        { "input": { "event": { "statusUpdate": status } }, "result": { "adds": {} } },
    ]);
    let chunk = |text: &str| {
        format!(
            "{{ event.artifactUpdate = {{ append = true, artifact = {{ artifactId = \"a\", parts = [{{ text = \"{text}\" \
             }}] }} }} }}"
        )
    };
    let rest = "message = \"Hi\"\nclock = 2026-02-03T04:05:06Z\n";
    let answer = [chunk("one"), chunk("two"), "{ state = \"completed\" }".to_owned()].join(", ");
    check(&turn(steps, json!({})), &format!("{rest}answer = [{answer}]"));

    let released = |parts: Json| {
        json!({ "artifactUpdate": { "taskId": TASK_ID, "contextId": CONTEXT_ID, "append": true, "lastChunk": true,
                "artifact": { "artifactId": "a", "parts": parts } } })
    };
    let steps = json!([
        hello(),
        { "input": { "output": artifact("one") }, "result": "holds" },
        { "input": { "change": { "current": "TASK_STATE_WORKING", "update": status } }, "result": { "agrees": {} } },
        { "input": { "output": released(json!([])) }, "result": { "agrees": {} } },
        { "input": { "event": released(json!([{ "text": "one" }])) }, "result": { "adds": {} } },
        { "input": { "output": { "statusUpdate": status } }, "result": { "agrees": {} } },
        { "input": { "event": { "statusUpdate": status } }, "result": { "adds": {} } },
    ]);
    let answer = [chunk("one"), "{ state = \"completed\" }".to_owned()].join(", ");
    check(&turn(steps, json!({})), &format!("{rest}answer = [{answer}]"));

    let answered = json!({ "answers": { "state": "TASK_STATE_COMPLETED", "parts": [{ "text": "x" }] } });
    let steps = json!([
        hello(),
        { "input": { "reply": { "message": { "messageId": "m-1", "role": "ROLE_USER", "parts": [] } } },
          "result": answered },
        { "input": { "output": { "statusUpdate": status } }, "result": { "agrees": {} } },
    ]);
    check(&turn(steps, json!({})), &format!("{rest}answer = []"));
}

#[test]
fn ids_are_found_within_texts_where_they_cannot_be_a_part_of_a_word() {
    let text = |text: String| request(json!({ "parts": [{ "text": text }], "contextId": "a" }));
    let keys = json!({ "context_id": "a", "task_id": TASK_ID,
        "keys": [{ "bucket": "task", "key": "of", "value": { "text": format!("[{TASK_ID}]") } },
                 { "bucket": "", "key": "a", "value": { "text": "a banana" } }] });
    check(
        &turn(json!([text(format!("a task {TASK_ID}"))]), keys),
        r#"
        message = "a task task-1"
        keys = { task.of = "[task-1]", lasting.context-1 = "a banana" }
        clock = 2026-02-03T04:05:06Z
        answer = []
        "#,
    );
}

#[test]
fn the_answers_of_the_host_become_those_of_the_case() {
    let calls = json!([
        { "time": { "seconds": 1, "nanoseconds": 2_000_000 } },
        { "time": { "seconds": 3, "nanoseconds": 0 } },
        { "time": { "seconds": 3, "nanoseconds": 7 } },
        { "random": { "hex": "ff00" } },
        { "random": { "text": "A" } },
        { "http": { "request": "GET https://x.example/", "body": { "text": "" }, "answer": {
            "status": 404, "headers": [["vary", "a"], ["vary", "b"]], "body": { "text": "none" } } } },
        { "http": { "request": "GET https://y.example/", "body": { "text": "" } } },
        { "tasks": { "request": "{}", "answer": { "tasks": [{ "id": "t", "status": { "state": "TASK_STATE_WORKING" } }],
            "nextPageToken": "", "pageSize": 50, "totalSize": 1 } } },
        { "keys": { "bucket": "", "skip": 0, "keys": ["listed"] } },
        { "resume": { "task_id": "t" } },
    ]);
    let converted = given(&calling(calls.clone()), &ExtensionUri::from(URI)).unwrap();
    assert_eq!(converted.remarks, ["Keys that the extension listed and did not read are empty in the case."]);
    check(
        &calling(calls),
        r#"
        message = "Hi"
        clock = [1970-01-01T00:00:01.002Z, 1970-01-01T00:00:03Z]
        random = "ff0041"
        keys = { lasting.listed = "" }
        tasks = [{ id = "t", status.state = "TASK_STATE_WORKING" }]
        http = [{ request = "GET https://x.example/", status = 404, headers = { vary = "a, b" }, body = "none" }]
        answer = []
        "#,
    );
}

#[test]
fn a_call_of_a_method_becomes_that_of_the_case() {
    let call = |params: Json| {
        let steps = json!([{ "input": { "call": { "params": params } }, "result": { "value": 1 } }]);
        turn(steps, json!({ "operation": "a.search" }))
    };
    let expected = "clock = 2026-02-03T04:05:06Z\nmethod = { name = \"a.search\", params = { n = 1 } }";
    check(&call(json!({ "n": 1 })), expected);
    assert_eq!(reason(&call(json!([1]))), "its parameters are no object");
}

#[test]
fn a_case_has_the_session_as_it_was_at_first_and_says_so() {
    let mut steps = [
        hello(),
        json!({ "input": { "event": { "message": { "messageId": "x", "role": "ROLE_AGENT",
        "contextId": CONTEXT_ID, "parts": [{ "text": "x" }] } } }, "result": { "adds": {} } }),
    ];
    steps[0]["session"] = json!({ "n": 1 });
    steps[1]["session"] = json!({ "n": 2 });
    let converted = given(&turn(json!(steps), json!({})), &ExtensionUri::from(URI)).unwrap();
    assert_eq!(converted.given["session"].to_string(), "{ n = 1 }");
    assert_eq!(converted.remarks.len(), 1, "{:?}", converted.remarks);
}

#[test]
fn a_turn_that_no_case_can_hold_is_left_out_with_its_reason() {
    let hex = json!({ "keys": [{ "bucket": "", "key": "k", "value": { "hex": "ff" } }] });
    let http = |request: &str, answer: Option<Json>| {
        let mut call = json!({ "request": request, "body": { "text": "" } });
        if let Some(body) = answer {
            call["answer"] = json!({ "status": 200, "body": body });
        }
        json!({ "http": call })
    };
    let tasks = |answer: Json| json!([{ "tasks": { "request": "{}", "answer": answer } }]);
    let page = json!({ "tasks": [], "nextPageToken": "x", "pageSize": 1, "totalSize": 2 });
    for (turn, expected) in [
        (turn(json!([hello()]), json!({ "resumed": true })), "is resumed"),
        (turn(json!([]), json!({})), "neither a message nor a read nor a call"),
        (turn(json!([hello()]), hex), "the key \"k\" has no text"),
        (turn(json!([request(json!({ "parts": [{ "data": null }] }))]), json!({})), "TOML cannot say its message"),
        (calling(json!([http("GET https://x.example/?k=(secret)", None)])), "has a secret"),
        (calling(json!([http("GET /", None), http("GET /", Some(json!({ "text": "" })))])), "failed another time"),
        (calling(json!([http("GET /", Some(json!({ "hex": "ff" })))])), "is no text"),
        (calling(tasks(page)), "further pages"),
        (calling(json!([{ "tasks": { "request": "{", "error": "no" } }])), "was refused"),
        (calling(json!([{ "resume": { "task_id": "t", "error": "no" } }])), "could not be resumed"),
    ] {
        let found = reason(&turn);
        assert!(found.contains(expected), "{expected}: {found}");
    }
}

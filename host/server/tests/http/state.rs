//! Session state: injected, validated, merged, returned.

use annex_test_support::{COMMAND_KEY, Reply, STATE_INJECTION, STATE_KEY, TEST_EXTENSION, TestConfig, TestServer};
use serde_json::json;

use crate::{ADA, QUESTION, agent, specialist, state_injection};

const READ: &str = "session-state = { read = true }";

/// The JSON pointer of violations of the injected state.
fn pointer(rest: &str) -> String {
    format!("/message/metadata/{}{rest}", STATE_KEY.replace('/', "~1"))
}

async fn prompt(server: &TestServer, context: &str, state: Option<&str>) -> Reply {
    let request = server.say("prompt").context(context);
    let request = match state {
        Some(state) => request.state(state),
        None => request.extensions(STATE_INJECTION),
    };
    request.send().await.expect("a reply")
}

#[tokio::test]
async fn the_agent_answers_from_injected_state_and_returns_it_updated() {
    let server = specialist("").await;
    let reply = server.say(QUESTION).state(ADA).id("\"seven\"").send().await.expect("a reply");
    assert_eq!(reply.body["id"], "seven");
    assert_eq!(reply.task()["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(reply.answer(), "You are Ada and your email is ada@example.com.");
    assert_eq!(reply.returned_state()["user_info"]["email"], "ada@example.com");
    assert_eq!(reply.returned_state()["last_answer"], reply.answer());
}

/// The same server with kept instances: no user sees another user's state, neither directly nor through missing data.
#[tokio::test]
async fn kept_instances_serve_one_conversation_after_the_other() {
    let config = include_str!("../../../../examples/specialist/annex.toml");
    let config = config.replacen("required = true", "required = true\ninstances = \"kept\"\ninstance_turns = 3", 1);
    assert!(config.contains("kept"));
    let server = TestServer::start(&config).await.expect("the specialist starts");
    for name in ["Ada", "Grace", "Edsger", "Barbara", "Tony"] {
        let refused = server.say(QUESTION).extensions(STATE_INJECTION).send().await.expect("a reply");
        assert_eq!(refused.violations(), [pointer("")], "the state of the turn before is not there");
        let state = ADA.replace("Ada", name);
        let reply = server.say(QUESTION).state(&state).send().await.expect("a reply");
        assert_eq!(reply.answer(), format!("You are {name} and your email is ada@example.com."));
        assert_eq!(reply.returned_state()["user_info"]["name"], name);
    }
}

#[tokio::test]
async fn an_activated_call_without_state_names_the_missing_key() {
    let server = specialist("").await;
    let reply = server.say(QUESTION).extensions(STATE_INJECTION).send().await.expect("a reply");
    assert_eq!(reply.code(), -32_602);
    assert_eq!(reply.violations(), [pointer("")]);
    assert!(reply.text.contains("is required"), "{}", reply.text);
    // Nothing of the refused call is left: the same context starts clean.
    let reply = server.say(QUESTION).context("c").extensions(STATE_INJECTION).send().await.expect("a reply");
    assert_eq!(reply.code(), -32_602);
    let reply = server.say(QUESTION).context("c").state(ADA).send().await.expect("a reply");
    assert_eq!(reply.code(), 0, "{}", reply.text);
}

#[tokio::test]
async fn an_activated_call_without_state_runs_with_the_stored_one() {
    let server = specialist("").await;
    let first = server.say(QUESTION).state(ADA).send().await.expect("a reply");
    let second =
        server.say(QUESTION).context(first.context()).extensions(STATE_INJECTION).send().await.expect("a reply");
    assert_eq!(second.answer(), "You are Ada and your email is ada@example.com.");
    assert_eq!(second.context(), first.context());
}

#[tokio::test]
async fn each_violation_is_named_by_pointer_and_the_stored_state_stays() {
    let server = specialist("").await;
    let first = server.say(QUESTION).state(ADA).send().await.expect("a reply");
    let cases = [
        (r#"{"user_info":{"name":"Eve","role":"x"}}"#, vec!["/user_info"]),
        (r#"{"user_info":{"name":7,"role":"x","email":"e@example.com"}}"#, vec!["/user_info/name"]),
        (r#"{"user_info":{"name":"Eve","role":"x","email":"e@example.com","age":1}}"#, vec!["/user_info"]),
        (r#"{"user_info":{"name":"Eve","role":"x","email":"not-an-email"}}"#, vec!["/user_info/email"]),
        (r#"{"user_info":{"name":7,"role":8,"email":"e@example.com"}}"#, vec!["/user_info/name", "/user_info/role"]),
        (r#"{"user_info":null}"#, vec!["/user_info"]),
        ("\"text\"", vec![""]),
        ("[]", vec![""]),
        ("null", vec![""]),
    ];
    for context in ["fresh", first.context()] {
        for (state, pointers) in &cases {
            let reply = server.say(QUESTION).context(context).state(state).send().await.expect("a reply");
            assert_eq!(reply.code(), -32_602, "{state}: {}", reply.text);
            let mut violations = reply.violations();
            violations.sort();
            assert_eq!(violations, pointers.iter().map(|rest| pointer(rest)).collect::<Vec<_>>(), "{state}");
        }
    }
    let after =
        server.say(QUESTION).context(first.context()).extensions(STATE_INJECTION).send().await.expect("a reply");
    assert_eq!(after.returned_state()["user_info"]["name"], "Ada");
}

#[tokio::test]
async fn a_key_that_comes_twice_is_refused_at_any_depth() {
    let server = specialist("").await;
    let user = r#"{"name":"Ada","role":"x","email":"a@example.com"}"#;
    let twice = [
        (format!(r#"{{"user_info":{user},"a":1,"a":2}}"#), "a"),
        (format!(r#"{{"user_info":{{"x":1}},"user_info":{user}}}"#), "user_info"),
        (
            r#"{"user_info":{"name":"<evil>","name":"Ada","role":"x","email":"a@example.com"}}"#.to_owned(),
            "user_info.name",
        ),
    ];
    for (state, key) in twice {
        let reply = server.say(QUESTION).state(&state).send().await.expect("a reply");
        let place = format!("message.metadata.{STATE_KEY}.{key}");
        assert_eq!((reply.code(), reply.violations()), (-32_602, vec![place]), "{state}: {}", reply.text);
    }
}

#[tokio::test]
async fn later_state_replaces_key_by_key_and_null_is_a_value() {
    let server = agent("N={name?} L={lang?} O={o?}", &state_injection(READ)).await;
    let turns = [
        (Some(r#"{"name":"Ana","o":{"x":1,"y":2}}"#), r#"N=Ana L= O={"x":1,"y":2}"#),
        (Some(r#"{"lang":"pl"}"#), r#"N=Ana L=pl O={"x":1,"y":2}"#),
        (Some(r#"{"o":{"x":9}}"#), r#"N=Ana L=pl O={"x":9}"#),
        (Some("{}"), r#"N=Ana L=pl O={"x":9}"#),
        (None, r#"N=Ana L=pl O={"x":9}"#),
        (Some(r#"{"name":null}"#), r#"N= L=pl O={"x":9}"#),
    ];
    for (state, expected) in turns {
        let reply = prompt(&server, "c", state).await;
        assert_eq!(reply.answer(), expected, "{state:?}: {}", reply.text);
    }
    let reply = prompt(&server, "c", Some("{}")).await;
    assert_eq!(reply.returned_state()["name"], json!(null));
}

#[tokio::test]
async fn scopes_need_a_grant_each_and_reach_no_other_context() {
    let server = agent("B={app:b?} L={user:l?} T={temp:t?}", &state_injection(READ)).await;
    for key in ["app:b", "user:l", "temp:t"] {
        let reply = prompt(&server, "c", Some(&format!(r#"{{"ok":1,"{key}":"evil"}}"#))).await;
        assert_eq!(reply.code(), -32_602, "{key}");
        assert_eq!(reply.violations(), [pointer(&format!("/{key}"))]);
    }
    let other = prompt(&server, "other", Some(r#"{"a":1}"#)).await;
    assert_eq!(other.answer(), "B= L= T=");

    let granted = state_injection(r#"session-state = { read = true, scopes = ["user", "temp"] }"#);
    let server = agent("L={user:l?} T={temp:t?}", &granted).await;
    let reply = prompt(&server, "c", Some(r#"{"a":1,"user:l":"pl","temp:t":"s3cr3t"}"#)).await;
    assert_eq!(reply.answer(), "L=pl T=s3cr3t");
    assert_eq!(reply.returned_state(), &json!({"a": 1, "last_answer": "L=pl T=s3cr3t"}), "scopes do not leave");
    assert_eq!(prompt(&server, "c", None).await.answer(), "L=pl T=", "temp: lives for one turn");
    assert_eq!(prompt(&server, "other", Some("{}")).await.answer(), "L= T=", "an anonymous user is one per context");
}

#[tokio::test]
async fn an_extension_without_a_grant_writes_the_conversations_own_keys_and_no_others() {
    let server = agent("T={test?} U={user:test?}", &crate::test_extension("")).await;
    let command =
        |command: &str| server.say("prompt").context("c").extensions(TEST_EXTENSION).metadata(COMMAND_KEY, command);
    let written = command("\"delta\"").send().await.expect("a reply");
    assert_eq!(written.answer(), "T=delta U=", "{}", written.text);
    let refused = command("\"scope-escalation\"").send().await.expect("a reply");
    assert_ne!(refused.code(), 0, "{}", refused.text);
    assert_eq!(prompt(&server, "c", None).await.answer(), "T=delta U=");
}

#[tokio::test]
async fn a_key_that_nobody_can_read_is_the_clients_fault_and_the_extension_goes_on() {
    let server = agent("N={name?}", &state_injection(READ)).await;
    // More often than a failing extension is put up with.
    for key in ["\\u202eeman", "name\\n", "na\\u200bme", "\\u0000", "name\\u2028", "\\u009b2J"].repeat(2) {
        let reply = prompt(&server, "c", Some(&format!(r#"{{"name":"Eve","{key}":1}}"#))).await;
        assert_eq!(reply.code(), -32_602, "{key}: {}", reply.text);
        assert!(reply.text.contains("the state key"), "{}", reply.text);
        assert!(!reply.text.contains(['\u{202e}', '\u{200b}', '\u{2028}', '\u{9b}']), "{}", reply.text);
    }
    assert_eq!(prompt(&server, "c", Some(r#"{"name":"Ada"}"#)).await.answer(), "N=Ada");
    assert_eq!(prompt(&server, "c", Some(&format!(r#"{{"{}":1}}"#, "k".repeat(601)))).await.code(), -32_602);
}

#[tokio::test]
async fn numbers_and_key_order_survive() {
    let server = agent("{big} {float} {order}", &state_injection(READ)).await;
    let state = r#"{"order":{"z":1,"a":2,"m":[1.0,1e2]},"big":9007199254740993,"float":0.30000000000000004,"huge":123456789012345678901234567890}"#;
    let reply = prompt(&server, "c", Some(state)).await;
    assert_eq!(reply.answer(), r#"9007199254740993 0.30000000000000004 {"z":1,"a":2,"m":[1.0,1e2]}"#);
    let returned = format!("{}{}", &state[..state.len() - 1], ",\"last_answer\":");
    assert!(reply.text.contains(&returned), "{}", reply.text);
    let task = server.call("GetTask", format!(r#"{{"id":{}}}"#, reply.task()["id"])).send().await.expect("a task");
    assert!(task.text.contains(state), "{}", task.text);
}

#[tokio::test]
async fn pretty_printed_state_fits_one_event_line() {
    let server = specialist("").await;
    let pretty = ADA.replace(',', ",\n  ");
    let events = server.say(QUESTION).state(&pretty).streaming().open().await.expect("a stream");
    assert_eq!(events.rest().await.expect("events").len(), 4);
}

#[tokio::test]
async fn state_is_also_found_in_the_request_and_under_the_uri() {
    let server = specialist("").await;
    let message = r#""messageId":"m","role":"ROLE_USER","parts":[{"text":"who am i"}]"#;
    let params = [
        format!(r#"{{"message":{{{message}}},"metadata":{{"{STATE_KEY}":{ADA}}}}}"#),
        format!(r#"{{"message":{{{message},"metadata":{{"{STATE_INJECTION}":{ADA}}}}}}}"#),
    ];
    for params in params {
        let reply = server.call("SendMessage", params).extensions(STATE_INJECTION).send().await.expect("a reply");
        assert_eq!(reply.answer(), "You are Ada and your email is ada@example.com.", "{}", reply.text);
    }
}

#[tokio::test]
async fn a_caller_changes_no_state_under_the_names_of_frameworks() {
    let server = agent("S={stateDelta?}{name?}{user:name?}{app:all?}", &state_injection(READ)).await;
    let delta = r#"{"name":"Eve","user:name":"Eve","app:all":"Eve"}"#;
    let actions = format!(r#"{{"stateDelta":{delta},"state_delta":{delta}}}"#);
    let prompt = || {
        let plain = ["stateDelta", "state_delta", "adk_state_delta"].map(|key| (key, delta));
        let entries = plain.into_iter().chain([("actions", actions.as_str()), ("adk_actions", &actions)]);
        entries.fold(server.say("prompt").context("c"), |request, (key, value)| request.metadata(key, value))
    };
    let cases = [
        (prompt(), "S="),
        (prompt().extensions(STATE_INJECTION), "S="),
        (prompt().state(r#"{"name":"Ada"}"#), "S=Ada"),
        (prompt(), "S=Ada"),
    ];
    for (request, expected) in cases {
        let reply = request.send().await.expect("a reply");
        assert_eq!(reply.answer(), expected, "{}", reply.text);
    }
}

#[tokio::test]
async fn too_much_state_is_a_limit_error_that_writes_nothing() {
    let server = agent("N={name?}", &state_injection(READ)).await;
    let large = format!(r#"{{"name":"{}"}}"#, "x".repeat(300 << 10));
    let reply = prompt(&server, "c", Some(&large)).await;
    assert_eq!(reply.code(), -32_602);
    assert!(reply.text.contains("262144 bytes"), "{}", reply.text);
    let deep = format!("{{\"name\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000));
    let reply = prompt(&server, "c", Some(&deep)).await;
    assert_eq!(reply.code(), -32_600, "{}", reply.text);
    assert!(reply.text.contains("nest deeper than 40 levels"), "{}", reply.text);
    let reply = prompt(&server, "clean", Some("{}")).await;
    assert_eq!(reply.answer(), "N=");
}

#[tokio::test]
async fn the_deepest_state_is_returned_in_each_turn() {
    let server = agent("N={n?}", &state_injection(READ)).await;
    let deepest = format!("{{\"n\":{}{}}}", "[".repeat(35), "]".repeat(35));
    for state in [&deepest, "{}"] {
        let reply = prompt(&server, "c", Some(state)).await;
        assert_eq!(reply.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", reply.text);
        assert!(reply.text.contains(&deepest[1..deepest.len() - 1]), "{}", reply.text);
    }
}

#[tokio::test]
async fn a_missing_variable_fails_the_task_by_name_and_a_later_turn_can_supply_it() {
    let server = agent("N={name}", &state_injection(READ)).await;
    let failed = server.say("prompt").context("c").send().await.expect("a reply");
    assert_eq!(failed.task()["status"]["state"], "TASK_STATE_FAILED");
    let text = failed.task()["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("Context variable not found: `name`."), "{text}");
    let fixed = prompt(&server, "c", Some(r#"{"name":"Ana"}"#)).await;
    assert_eq!(fixed.answer(), "N=Ana");
}

#[tokio::test]
async fn parallel_turns_on_one_context_follow_each_other() {
    let server = agent("seen={last_answer?}", &state_injection(READ)).await;
    let turn = |text: &'static str| server.say(text).context("c").extensions(STATE_INJECTION).metadata(STATE_KEY, "{}");
    let mut slow = turn("slow").streaming().open().await.expect("a stream");
    slow.next().await.expect("an event");
    // The first turn runs, so the second one waits for it and sees its answer.
    let (prompt, slow) = tokio::join!(turn("prompt").send(), slow.rest());
    let prompt = prompt.expect("a reply");
    let slow = slow.expect("events");
    assert_eq!(prompt.answer(), "seen=one two three four", "{}", prompt.text);
    assert_eq!(slow.last().expect("an end")["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(prompt.task()["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_schema_whose_work_has_no_bound_is_refused_at_load() {
    let schema = r##"state_schema = '{"properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}'"##;
    let extension = format!("{}\n[extension.parameters]\n{schema}", state_injection(READ));
    let started = TestConfig::template("i").with(&extension).start().await;
    let Err(error) = started else { panic!("the server started") };
    assert!(format!("{error:#}").contains("recursive schemas are not supported"), "{error:#}");
}

#[tokio::test]
async fn a_key_list_narrows_what_is_returned() {
    let server = agent("N={name?}", &state_injection(r#"session-state = { read = true, keys = ["name"] }"#)).await;
    let reply = prompt(&server, "c", Some(r#"{"name":"Ana","secret":1}"#)).await;
    assert_eq!(reply.returned_state(), &json!({"name": "Ana"}));
}

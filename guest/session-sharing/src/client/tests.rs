use annex_sdk::Violation;
use serde_json::{Value, json};

use super::*;
use crate::server;
use crate::testing::Keys;

const AGENT: &str = "https://remote.example/.well-known/agent-card.json";
const GOOD: &str = "TASK_STATE_COMPLETED";

/// A program that calls an agent. Each side has its own keys.
#[derive(Default)]
struct Program {
    client: Keys,
    server: Keys,
}

/// A call before its answer.
struct PendingCall {
    call: Call,
    shared: Value,
    /// The shared texts before the message's text, or the error code of the agent's refusal.
    heard: Result<Vec<String>, i32>,
}

fn said(seq: u64, author: &str, text: &str) -> Value {
    let role = if author == "user" { "user" } else { "agent" };
    json!({"seq": seq, "author": author, "role": role, "parts": [{"text": text}]})
}

fn outgoing(input: &Value, context: Option<&str>) -> Outgoing {
    Outgoing {
        operation: "SendMessage".to_owned(),
        agent: AGENT.to_owned(),
        declaration: Some(format!(r#"{{"params": {}}}"#, Parameters::default().card_params().unwrap())),
        input: Some(input.to_string()),
        message: Some(json!({"messageId": "m", "contextId": context, "parts": [{"text": "now"}]}).to_string()),
    }
}

impl Program {
    fn call(&self, input: &Value, context: Option<&str>) -> Result<PendingCall, Rejection> {
        let parameters = Parameters::default();
        let (addition, call) = before(&parameters, &outgoing(input, context), &self.client)?;
        let [entry] = addition.metadata.as_slice() else { unreachable!("{addition:?}") };
        let shared: Value = serde_json::from_str(&entry.value).unwrap();
        let message = json!({"parts": [{"text": "now"}], "metadata": {entry.key.as_str(): shared}}).to_string();
        let heard = match server::check(&parameters, &message, &self.server) {
            Ok(taken) => {
                let (mut taken, rewrites) = taken.unwrap();
                assert!(taken.note(&self.server));
                Ok(rewrites.into_iter().flat_map(|rewrite| rewrite.replacement).map(|part| text(&part)).collect())
            }
            Err(Rejection::Error(error)) => Err(error.code),
            Err(other) => unreachable!("{other:?}"),
        };
        Ok(PendingCall { call: call.unwrap(), shared, heard })
    }

    /// Answers with the task in this state. A successful state acknowledges the shared events.
    fn answer(&self, mut made: PendingCall, state: &str, context: &str) -> Result<Option<Json>, String> {
        let Call { mode, peer, revision, up_to, .. } = &made.call;
        let received = Acknowledgement::of(*mode, peer, *revision, *up_to).write().unwrap();
        let key = Parameters::default().received_key();
        let metadata = if is_good_end(state) { vec![(key, received)] } else { Vec::new() };
        let event = json!({"task": {"id": "t", "contextId": context, "status": {"state": state}}}).to_string();
        let incoming = Incoming { active: true, event, metadata };
        after(&Parameters::default(), &mut made.call, &incoming, &self.client)
    }

    /// Runs a successful turn. Returns the metadata that the agent received.
    fn turn(&self, input: &Value, context: Option<&str>) -> Value {
        let made = self.call(input, context).unwrap_or_else(|refusal| unreachable!("{refusal:?}"));
        assert!(made.heard.is_ok(), "{:?}", made.heard);
        let shared = made.shared.clone();
        assert!(self.answer(made, GOOD, "c").unwrap().is_some());
        shared
    }
}

fn text(part: &str) -> String {
    serde_json::from_str::<Value>(part).unwrap()["text"].as_str().unwrap().to_owned()
}

fn seqs(shared: &Value) -> Vec<u64> {
    shared["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

/// A conversation of `count` events, the last of which is the message.
fn input(count: u64) -> Value {
    let events: Vec<Value> =
        (1..=count).map(|seq| said(seq, if seq == count { "user" } else { "root" }, "x")).collect();
    json!({"peer": "ada", "events": events, "current": count})
}

fn violation(refusal: Result<PendingCall, Rejection>) -> Violation {
    match refusal {
        Err(Rejection::Violations(mut violations)) => violations.remove(0),
        Err(Rejection::Error(error)) => unreachable!("{error:?}"),
        Ok(made) => unreachable!("{}", made.shared),
    }
}

#[test]
fn the_first_message_shares_everything_and_later_ones_what_is_newer() {
    let program = Program::default();
    let first = program.turn(&input(3), None);
    assert_eq!((seqs(&first), &first["base"], &first["upTo"]), (vec![1, 2], &json!(0), &json!(3)));
    let second = program.turn(&input(6), Some("c"));
    assert_eq!((seqs(&second), &second["base"], &second["upTo"]), (vec![4, 5], &json!(3), &json!(6)));
}

#[test]
fn a_lost_context_id_shares_everything_and_the_agent_leaves_out_what_it_has() {
    let program = Program::default();
    program.turn(&input(3), None);
    let made = program.call(&input(6), None).unwrap();
    assert_eq!(seqs(&made.shared), [1, 2, 3, 4, 5]);
    // A call without a context begins a new one at the agent. If the agent has the conversation nevertheless, no event
    // is added twice.
    assert_eq!(made.heard.unwrap().len(), 1 + 2 + 1, "the preamble, two events, the message");
}

#[test]
fn a_conversation_that_the_agent_has_lost_is_shared_again_with_the_next_call() {
    let program = Program::default();
    program.turn(&input(3), None);
    let lost = Program { server: Keys::default(), ..program };
    let refused = lost.call(&input(6), Some("c")).unwrap();
    assert_eq!(refused.heard, Err(server::UNKNOWN_CONTEXT));
    let again = lost.turn(&input(6), Some("c"));
    assert_eq!((seqs(&again), &again["base"]), (vec![1, 2, 3, 4, 5], &json!(0)));
    assert_eq!(seqs(&lost.turn(&input(8), Some("c"))), [7]);
}

#[test]
fn a_failed_turn_leaves_the_boundary_and_its_events_come_once() {
    let program = Program::default();
    program.turn(&input(3), None);
    let failing = program.call(&input(6), Some("c")).unwrap();
    assert_eq!(failing.heard.as_ref().unwrap().len(), 1 + 2 + 1);
    assert_eq!(program.answer(failing, "TASK_STATE_FAILED", "c"), Ok(None));
    let again = program.call(&input(6), Some("c")).unwrap();
    assert_eq!(seqs(&again.shared), [4, 5]);
    assert_eq!(again.heard, Ok(Vec::new()), "the agent has them already");
}

#[test]
fn a_call_that_nothing_came_back_of_is_followed_by_everything() {
    let program = Program::default();
    program.turn(&input(3), None);
    program.call(&input(6), Some("c")).unwrap();
    let again = program.call(&input(6), Some("c")).unwrap();
    assert_eq!(seqs(&again.shared), [1, 2, 3, 4, 5]);
    assert_eq!(again.heard, Ok(Vec::new()), "the agent has them already");
}

#[test]
fn a_message_that_was_answered_is_not_sent_again() {
    let program = Program::default();
    program.turn(&input(3), None);
    assert_eq!(violation(program.call(&input(3), Some("c"))).pointer, "/current");
}

#[test]
fn an_acknowledgement_of_something_else_moves_nothing() {
    let program = Program::default();
    let made = program.call(&input(3), None).unwrap();
    let others = [
        Acknowledgement::of(Mode::Delta, "ada", 0, 2),
        Acknowledgement::of(Mode::Delta, "bob", 0, 3),
        Acknowledgement::of(Mode::Delta, "ada", 1, 3),
        Acknowledgement::of(Mode::Full, "ada", 0, 3),
    ];
    let mut values: Vec<String> = others.iter().map(|other| other.write().unwrap()).collect();
    values.extend(["null", "{}", "\"received\""].map(str::to_owned));
    let key = Parameters::default().received_key();
    let metadata: Vec<(String, String)> = values.into_iter().map(|value| (key.clone(), value)).collect();
    let event = json!({"task": {"contextId": "c", "status": {"state": GOOD}}}).to_string();
    let mut call = made.call.clone();
    let told = after(&Parameters::default(), &mut call, &Incoming { active: true, event, metadata }, &program.client);
    assert_eq!(told, Ok(None));
    // An acknowledgement in an unsuccessful turn does not move the boundary either.
    let received = Acknowledgement::of(Mode::Delta, "ada", 0, 3).write().unwrap();
    let event = json!({"statusUpdate": {"contextId": "c", "status": {"state": "TASK_STATE_FAILED"}}}).to_string();
    let incoming = Incoming { active: true, event, metadata: vec![(key, received)] };
    assert_eq!(after(&Parameters::default(), &mut call, &incoming, &program.client), Ok(None));
    assert_eq!(seqs(&program.call(&input(3), Some("c")).unwrap().shared), [1, 2]);
}

#[test]
fn an_answer_in_another_context_ends_the_call_and_moves_nothing() {
    let program = Program::default();
    program.turn(&input(3), None);
    let made = program.call(&input(6), Some("c")).unwrap();
    assert!(program.answer(made, GOOD, "other").is_err());
    assert_eq!(seqs(&program.call(&input(6), Some("c")).unwrap().shared), [1, 2, 3, 4, 5]);
}

#[test]
fn the_answer_tells_the_program_where_the_conversation_stands() {
    let program = Program::default();
    let made = program.call(&input(3), None).unwrap();
    assert_eq!(program.answer(made, GOOD, "c"), Ok(Some(r#"{"contextId":"c","received":3}"#.to_owned())));
}

#[test]
fn events_that_were_removed_need_a_new_revision() {
    let program = Program::default();
    program.turn(&input(6), None);
    assert_eq!(violation(program.call(&input(4), Some("c"))).pointer, "/events");
    let mut compacted = input(4);
    compacted["revision"] = json!(1);
    assert_eq!(seqs(&program.turn(&compacted, Some("c"))), [1, 2, 3]);
    assert_eq!(violation(program.call(&input(9), Some("c"))).pointer, "/revision");
}

#[test]
fn two_peers_of_one_agent_have_boundaries_of_their_own() {
    let program = Program::default();
    program.turn(&input(3), None);
    let mut bobs = input(3);
    bobs["peer"] = json!("bob");
    assert_eq!(seqs(&program.turn(&bobs, Some("c"))), [1, 2]);
}

#[test]
fn the_full_mode_shares_everything_each_time() {
    let program = Program::default();
    let mut full = input(3);
    full["mode"] = json!("full");
    for _ in 0..2 {
        let made = program.call(&full, Some("c")).unwrap();
        assert_eq!(seqs(&made.shared), [1, 2]);
        assert_eq!(made.heard.as_ref().unwrap().len(), 1 + 2 + 1);
        assert_eq!(program.answer(made, GOOD, "c"), Ok(None));
    }
}

#[test]
fn nothing_leaves_for_an_agent_that_does_not_declare_the_extension() {
    let all = outgoing(&input(3), None);
    let cases = [
        Outgoing { declaration: None, ..all.clone() },
        Outgoing { input: None, ..all.clone() },
        Outgoing { operation: "GetTask".to_owned(), message: None, ..all },
    ];
    for call in cases {
        let (addition, call) = before(&Parameters::default(), &call, &Keys::default()).unwrap();
        assert!(!addition.activate && addition.metadata.is_empty() && call.is_none());
    }
}

#[test]
fn what_the_agent_would_not_take_is_not_sent() {
    let mut call = outgoing(&input(4), None);
    call.declaration = Some(r#"{"params": {"maxEvents": 2}}"#.to_owned());
    match before(&Parameters::default(), &call, &Keys::default()) {
        Err(Rejection::Violations(violations)) => {
            assert_eq!(violations[0].pointer, "/events");
            assert!(violations[0].message.contains("summary"), "{violations:?}");
        }
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn in_doubt_what_is_newer_goes_alone_when_everything_is_too_much() {
    let program = Program::default();
    program.turn(&input(150), None);
    assert_eq!(violation(program.call(&input(400), Some("c"))).pointer, "/events");
    assert_eq!(seqs(&program.call(&input(202), Some("c")).unwrap().shared).len(), 51, "a refusal leaves no doubt");
    assert_eq!(seqs(&program.call(&input(202), Some("c")).unwrap().shared).len(), 51, "201 are too many");
    assert_eq!(seqs(&program.call(&input(201), Some("c")).unwrap().shared).len(), 200);
}

#[test]
fn without_keys_everything_is_shared_each_time() {
    let program = Program::default();
    program.client.is_broken.set(true);
    for _ in 0..2 {
        let made = program.call(&input(3), Some("c")).unwrap();
        assert_eq!(seqs(&made.shared), [1, 2]);
        assert!(program.answer(made, GOOD, "c").unwrap().is_some());
    }
}

/// Compares the extension with recorded conversations of google-adk 2.13.0.
mod recorded {
    use super::*;

    const CASES: &str = include_str!("remote_delta.json");
    /// The name of the remote agent in the cases.
    const REMOTE: &str = "remote";
    /// The beginning of the preamble, which google-adk repeats before each event and this extension does not.
    const PREAMBLE: &str = "For context:";

    fn event(number: usize, recorded: &Value) -> Value {
        let author = recorded["author"].as_str().unwrap();
        let mut event = said(number as u64 + 1, author, "");
        event["parts"] = recorded["parts"].clone();
        event["stateDelta"] = recorded["state_delta"].clone();
        if author == REMOTE {
            event["agent"] = json!(AGENT);
        }
        event
    }

    /// The input for the user's last message in `events`.
    fn input(events: &[Value]) -> Value {
        let current = events.iter().rev().find(|event| event["role"] == "user").unwrap()["seq"].clone();
        json!({"peer": "app/user/sess-1", "events": events, "current": current})
    }

    /// Plays a recorded conversation. Each recorded answer of the remote agent becomes a call with that answer.
    fn play(case: &Value) -> (Vec<String>, Option<String>) {
        let program = Program::default();
        let mut context = None::<String>;
        let recorded = case["input"]["events"].as_array().unwrap();
        let events: Vec<Value> =
            recorded.iter().enumerate().map(|(number, recorded)| event(number, recorded)).collect();
        for (number, recorded) in recorded.iter().enumerate() {
            let answer = &recorded["custom_metadata"];
            let Some(answered) = answer["a2a:context_id"].as_str() else { continue };
            let made = program.call(&input(&events[..number]), context.as_deref()).unwrap();
            let state = match answer["a2a:response"]["status"]["state"].as_str() {
                None => GOOD,
                Some(_) => "TASK_STATE_INPUT_REQUIRED",
            };
            assert!(program.answer(made, state, answered).unwrap().is_some());
            context = Some(answered.to_owned());
        }
        let made = program.call(&input(&events), context.as_deref()).unwrap();
        let mut heard = made.heard.unwrap();
        heard.pop();
        (heard, context)
    }

    /// The shared texts before the message's text. Texts of the remote agent are quoted, whereas google-adk sends them
    /// like texts of the user.
    fn expected(case: &Value) -> Vec<String> {
        let own: Vec<&str> = case["input"]["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["author"] == REMOTE)
            .filter_map(|event| event["parts"][0]["text"].as_str())
            .collect();
        let mut is_introduced = false;
        let mut texts = Vec::new();
        let (_, before) = case["expected"]["parts"].as_array().unwrap().split_last().unwrap();
        for part in before {
            let text = part["text"].as_str().unwrap();
            if text.starts_with(PREAMBLE) && is_introduced {
                continue;
            }
            let is_own = own.contains(&text);
            if is_own && !is_introduced {
                texts.push(PREAMBLE.to_owned());
            }
            is_introduced |= is_own || text.starts_with(PREAMBLE);
            let quoted = || {
                format!("[{REMOTE}] said:\n<<<BEGIN_QUOTED_AGENT_CONTENT>>>\n{text}\n<<<END_QUOTED_AGENT_CONTENT>>>")
            };
            texts.push(if is_own { quoted() } else { text.to_owned() });
        }
        texts
    }

    #[test]
    fn the_agent_hears_what_google_adk_would_have_told_it() {
        let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
        // Without a message nothing is sent, and the program chooses the context id of a new conversation.
        let of_others = ["remote/empty_history", "remote/forward_session_id_namespaced"];
        let mut count = 0;
        for case in cases.iter().filter(|case| !of_others.contains(&case["case"].as_str().unwrap())) {
            let (heard, context) = play(case);
            let expected = expected(case);
            assert_eq!(heard.len(), expected.len(), "{case}: {heard:?}");
            for (heard, expected) in heard.iter().zip(&expected) {
                assert!(heard == expected || expected == PREAMBLE && heard.starts_with(PREAMBLE), "{case}: {heard}");
            }
            assert_eq!(context.as_deref(), case["expected"]["context_id"].as_str(), "{case}");
            count += 1;
        }
        assert_eq!(count, 12);
    }
}

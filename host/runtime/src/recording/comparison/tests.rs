use annex_protocol::Timestamp;

use super::*;
use crate::recording::KnownKey;
use crate::recording::host_call::Octets;
use crate::recording::step::RecordedStep;
use crate::turn_view::TurnIds;

fn turn(calls: Vec<HostCall>, result: StepResult) -> RecordedTurn {
    let step = RecordedStep {
        input: StepInput::Next,
        session: None,
        task: None,
        agent_steps: None,
        calls,
        result,
        times: Vec::new(),
    };
    RecordedTurn {
        at: Timestamp::from_millis(0),
        operation: "SendMessage".to_owned(),
        ids: TurnIds::default(),
        context_id: None,
        task_id: None,
        requested: Vec::new(),
        resumed: false,
        caller: None,
        keys: vec![KnownKey { bucket: String::new(), key: "k".to_owned(), value: None }],
        steps: vec![step],
        scopes: Vec::new(),
    }
}

fn set(value: &str) -> HostCall {
    HostCall::Set { bucket: String::new(), key: "k".to_owned(), value: Octets::Text(value.to_owned()) }
}

#[test]
fn keys_differ_by_their_final_values_and_not_by_the_way_of_writing() {
    let mut comparison = Comparison::default();
    let was = turn(vec![set("1"), set("2")], StepResult::Ends);
    assert!(comparison.add(&was, &turn(vec![set("2")], StepResult::Ends), Vec::new()));
    let counted = HostCall::Increment { bucket: String::new(), key: "k".to_owned(), by: 2, value: 2 };
    assert!(comparison.add(&was, &turn(vec![counted], StepResult::Ends), Vec::new()));
    assert!(!comparison.add(&was, &turn(vec![set("3")], StepResult::Ends), Vec::new()));
    assert_eq!(comparison.differ.get("keys"), Some(&1));
}

#[test]
fn a_turn_that_was_too_much_to_be_noted_does_not_agree() {
    let was = turn(Vec::new(), StepResult::Ends);
    let is = RecordedTurn::at(was.at, TurnIds::default());
    let mut comparison = Comparison::default();
    assert!(!comparison.add(&was, &is, Vec::new()));
    assert_eq!(comparison.differ.get("steps"), Some(&1));
    let mut whole = Comparison::default();
    whole.merge(comparison.clone());
    whole.merge(comparison);
    assert_eq!((whole.turns, whole.differ.get("steps"), whole.examples.len()), (2, Some(&2), 2));
}

#[test]
fn stacks_make_no_difference_between_two_failures_of_one_kind() {
    let failed =
        |reason: &str| turn(Vec::new(), StepResult::Failed { kind: "trap".to_owned(), reason: reason.to_owned() });
    assert!(Comparison::default().add(&failed("at a"), &failed("at b"), Vec::new()));
}

#[test]
fn json_objects_are_compared_regardless_of_order() {
    let value = |text: &str| turn(Vec::new(), StepResult::Value(annex_protocol::Json::parse(text.to_owned()).unwrap()));
    assert!(Comparison::default().add(&value(r#"{"a":1,"b":2}"#), &value(r#"{"b":2,"a":1}"#), Vec::new()));
    assert!(!Comparison::default().add(&value("1"), &value("2"), Vec::new()));
}

#[test]
fn bytes_that_are_no_text_come_back_as_they_were() {
    for bytes in [&b"text"[..], &[0xff, 0x00, 0x10], b""] {
        let json = serde_json::to_string(&Octets::from(bytes)).unwrap();
        assert_eq!(serde_json::from_str::<Octets>(&json).unwrap().bytes(), bytes, "{json}");
    }
}

#[test]
fn hidden_values_are_counted_and_distinguished_from_changes() {
    let result = |text: &str| StepResult::Value(annex_protocol::Json::parse(text.to_owned()).unwrap());
    let mut comparison = Comparison::default();
    let read =
        HostCall::Get { bucket: String::new(), key: "k".to_owned(), value: Some(Octets::Text("[hidden]".into())) };
    let was = turn(vec![read, set("[hidden]")], result(r#"{"a":1,"pin":"[hidden]"}"#));
    assert!(comparison.add(&was, &turn(vec![set("x")], result(r#"{"a":1,"pin":4711}"#)), Vec::new()));
    assert_eq!((comparison.not_compared, comparison.differ_hidden), (2, 0));
    assert!(!comparison.add(&was, &turn(vec![set("x")], result(r#"{"a":2,"pin":4711}"#)), Vec::new()));
    assert_eq!(comparison.differ_hidden, 1, "the value that it has read is hidden");
    let plain = turn(vec![set("[hidden]")], result(r#"{"a":1,"pin":"[hidden]"}"#));
    assert!(!comparison.add(&plain, &turn(vec![set("x")], result(r#"{"a":2,"pin":1}"#)), Vec::new()));
    assert_eq!(comparison.differ_hidden, 1, "it was given nothing that is hidden");
    assert_eq!(comparison.examples.iter().map(|example| example.hidden).collect::<Vec<_>>(), [true, false]);
}

//! Forms and their values.

use annex_sdk::testing;
use annex_sdk::{Beginning, Entry, Location, MetadataEntry, Rejection, Waiting};
use serde_json::{Value, json};

use super::host;
use crate::Agentstack;
use crate::parameters::Kind;

fn form() -> Value {
    json!({
        "title": "About you",
        "fields": [
            {"id": "name", "type": "text", "label": "Name", "required": true},
            {"id": "birth", "type": "date", "label": "Birth"},
            {"id": "photo", "type": "file", "label": "Photo", "accept": ["image/png"]},
            {"id": "colour", "type": "singleselect", "label": "Colour", "options": [{"id": "red", "label": "Red"}]},
            {"id": "tags", "type": "multiselect", "label": "Tags", "options": [{"id": "a", "label": "A"}]},
            {"id": "ok", "type": "checkbox", "label": "OK", "content": "OK", "required": true},
            {"id": "more", "type": "checkbox_group", "label": "More",
             "fields": [{"id": "x", "type": "checkbox", "label": "X", "content": "X"}]},
        ],
    })
}

fn filled() -> Value {
    json!({
        "name": {"type": "text", "value": "Ada"},
        "birth": {"type": "date", "value": "1815-12-10"},
        "photo": {"type": "file", "value": [{"uri": "https://a.example/p", "name": null, "mime_type": "image/png"}]},
        "colour": {"type": "singleselect", "value": "red"},
        "tags": {"type": "multiselect", "value": ["a"]},
        "ok": {"type": "checkbox", "value": true},
        "more": {"type": "checkbox_group", "value": {"x": null}},
    })
}

fn entry(kind: Kind, value: &Value) -> Vec<MetadataEntry> {
    vec![MetadataEntry { location: Location::Message, key: kind.uri().to_owned(), value: value.to_string() }]
}

fn sent(parameters: &Value, kind: Kind, value: &Value) -> Result<Option<Value>, Vec<String>> {
    match host(parameters).validate::<Agentstack>(testing::request(), entry(kind, value)) {
        Ok(delta) => Ok(delta.map(|delta| serde_json::from_str(&delta).unwrap())),
        Err(Rejection::Violations(list)) => {
            Err(list.into_iter().map(|one| format!("{} {}", one.pointer, one.message)).collect())
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn values_of_a_form_become_session_state_without_their_types() {
    let parameters = json!({"extension": "form", "initial_form": form()});
    let values = json!({"form_fulfillments": {"initial_form": {"values": filled()}}});
    let expected = json!({"form": {
        "name": "Ada", "birth": "1815-12-10",
        "photo": [{"uri": "https://a.example/p", "name": null, "mime_type": "image/png"}],
        "colour": "red", "tags": ["a"], "ok": true, "more": {"x": null},
    }});
    assert_eq!(sent(&parameters, Kind::Form, &values), Ok(Some(expected)));
    assert_eq!(sent(&parameters, Kind::Form, &json!({"form_fulfillments": {}})), Ok(None));
}

#[test]
fn settings_have_their_own_key_and_both_published_forms() {
    let group = json!({"id": "g", "type": "checkbox_group", "label": "G", "fields": [{"id": "x", "label": "X"}]});
    let parameters = json!({
        "extension": "form",
        "settings_form": {"fields": [group]},
    });
    let values = json!({"form_fulfillments": {"settings_form": {"values": {
        "g": {"type": "checkbox_group", "value": {"x": true}},
    }}}});
    assert_eq!(sent(&parameters, Kind::Form, &values), Ok(Some(json!({"settings": {"g": {"x": true}}}))));
    let select =
        json!({"id": "s", "type": "single_select", "label": "S", "options": [{"value": "fast", "label": "F"}]});
    let parameters = json!({"extension": "settings", "settings": {"fields": [group, select]}, "settings_key": "how"});
    let values = json!({"values": {
        "g": {"type": "checkbox_group", "values": {"x": {"value": true}}},
        "s": {"type": "single_select", "value": "fast"},
    }});
    assert_eq!(sent(&parameters, Kind::Settings, &values), Ok(Some(json!({"how": {"g": {"x": true}, "s": "fast"}}))));
}

#[test]
fn values_that_do_not_fit_are_named_by_pointer() {
    let parameters = json!({"extension": "form-request", "form": form()});
    let base = "/message/metadata/https:~1~1a2a-extensions.agentstack.beeai.dev~1ui~1form_request~1v1";
    for (pointer, value, expected) in [
        ("/name", json!({"type": "text", "value": 1}), "has a value"),
        ("/name", json!({"type": "date", "value": "x"}), "is not of the type \"text\""),
        ("/name", json!({"type": "text", "value": ""}), "is required"),
        ("/ok", json!({"type": "checkbox", "value": false}), "is required"),
        ("/colour", json!({"type": "singleselect", "value": "blue"}), "has a value"),
        ("/tags", json!({"type": "multiselect", "value": ["a", "b"]}), "has a value"),
        ("/photo", json!({"type": "file", "value": [{"name": "p"}]}), "has a value"),
        ("/more", json!({"type": "checkbox_group", "value": {"y": true}}), "the box \"y\""),
        ("/more", json!({"type": "checkbox_group", "value": {"x": 1}}), "neither true nor false"),
        ("/other", json!({"type": "text", "value": "x"}), "does not have"),
    ] {
        let mut values = filled();
        values[pointer.trim_start_matches('/')] = value;
        let violations = sent(&parameters, Kind::FormRequest, &json!({"values": values})).unwrap_err();
        let [violation] = violations.as_slice() else { panic!("{pointer}: {violations:?}") };
        assert!(violation.starts_with(&format!("{base}/values{pointer} ")), "{violation}");
        assert!(violation.contains(expected), "{violation}");
    }
    for (value, expected) in [(json!([]), "is not an object"), (json!({}), "/values is not an object")] {
        let violations = sent(&parameters, Kind::FormRequest, &value).unwrap_err();
        assert!(violations[0].contains(expected), "{violations:?}");
    }
    let unknown = json!({"form_fulfillments": {"settings_form": {"values": {}}}});
    let parameters = json!({"extension": "form", "initial_form": form()});
    assert!(sent(&parameters, Kind::Form, &unknown).unwrap_err()[0].contains("does not have"));
}

#[test]
fn a_new_task_waits_for_its_form_and_runs_with_the_values() {
    let host = host(&json!({"extension": "form-request", "form": form()}));
    let begin = |waits_in: Option<&str>| {
        let beginning = Beginning { waits_in: waits_in.map(str::to_owned), ..testing::beginning() };
        host.begin::<Agentstack>(testing::request(), beginning).unwrap()
    };
    assert_eq!(host.validate::<Agentstack>(testing::request(), Vec::new()), Ok(None));
    let Entry::Interrupt(asked) = begin(None) else { panic!("the agent runs") };
    assert_eq!((asked.waiting, asked.text.as_str()), (Waiting::Input, "About you"));
    assert_eq!(asked.metadata, [(Kind::FormRequest.uri().to_owned(), form().to_string())]);
    assert_eq!(begin(Some("TASK_STATE_INPUT_REQUIRED")), Entry::Proceed);
    let values = entry(Kind::FormRequest, &json!({"values": filled()}));
    assert!(host.validate::<Agentstack>(testing::request(), values).unwrap().is_some());
    assert_eq!(begin(None), Entry::Proceed);
}

#[test]
fn one_message_has_one_form() {
    let host = host(&json!({"extension": "form-request", "form": form()}));
    let mut twice = entry(Kind::FormRequest, &json!({"values": filled()}));
    twice.push(MetadataEntry { location: Location::Request, ..twice[0].clone() });
    let Err(Rejection::Violations(list)) = host.validate::<Agentstack>(testing::request(), twice) else {
        panic!("both are taken")
    };
    assert!(list[0].message.contains("twice"), "{list:?}");
}

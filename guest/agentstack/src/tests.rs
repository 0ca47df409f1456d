//! Tests the extension as a host calls it.

mod forms;
mod secrets;

use annex_sdk::testing::{self, Host};
use annex_sdk::{Event, EventKind, Patch, Ruling, StateChange};
use serde_json::{Value, json};

use crate::Agentstack;
use crate::parameters::Kind;

fn host(parameters: &Value) -> Host {
    Host::new().parameters(parameters.to_string())
}

fn citation() -> Host {
    host(&json!({"extension": "citation"}))
}

fn chunk(id: &str, text: &str, append: bool) -> Event {
    let artifact = json!({"artifactId": id, "parts": [{"text": text}]});
    let payload = json!({"artifactUpdate": {"taskId": "task-1", "artifact": artifact, "append": append}});
    Event { payload: Some(payload.to_string()), ..testing::event(EventKind::Artifact) }
}

fn message(text: &str) -> Event {
    let payload = json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}});
    Event { payload: Some(payload.to_string()), ..testing::event(EventKind::Message) }
}

/// The citations of a patch: start, end, URL and title of each.
fn citations(patch: Option<Patch>) -> Vec<(u64, u64, String, Option<String>)> {
    let Some(patch) = patch else { return Vec::new() };
    let [(key, value)] = patch.metadata.as_slice() else { panic!("one entry: {patch:?}") };
    assert_eq!(key, Kind::Citation.uri());
    let value: Value = serde_json::from_str(value).unwrap();
    let text = |one: &Value| one.as_str().map(str::to_owned);
    let one = |one: &Value| {
        let index = |name: &str| one[name].as_u64().unwrap();
        (index("start_index"), index("end_index"), text(&one["url"]).unwrap(), text(&one["title"]))
    };
    value["citations"].as_array().unwrap().iter().map(one).collect()
}

fn cited(start: u64, end: u64, url: &str, title: &str) -> (u64, u64, String, Option<String>) {
    (start, end, url.to_owned(), Some(title.to_owned()).filter(|title| !title.is_empty()))
}

#[test]
fn the_parameter_decides_about_the_uri() {
    let form = json!({"fields": [{"id": "a", "type": "text"}]});
    let settings = json!({"fields": [{"id": "a", "type": "single_select", "options": [{"value": "x"}]}]});
    for (parameters, end) in [
        (json!({"extension": "citation"}), "ui/citation/v1"),
        (json!({"extension": "agent-detail", "detail": {}}), "ui/agent-detail/v1"),
        (json!({"extension": "error"}), "ui/error/v1"),
        (json!({"extension": "form", "initial_form": form}), "services/form/v1"),
        (json!({"extension": "form-request", "form": form}), "ui/form_request/v1"),
        (json!({"extension": "settings", "settings": settings}), "ui/settings/v1"),
        (json!({"extension": "secrets", "secret_demands": {"default": {"name": "Key"}}}), "auth/secrets/v1"),
    ] {
        let uri = host(&parameters).descriptor::<Agentstack>().unwrap().uri;
        assert_eq!(uri, format!("https://a2a-extensions.agentstack.beeai.dev/{end}"));
    }
}

#[test]
fn parameters_that_cannot_work_stop_the_load() {
    let form = json!({"fields": [{"id": "a", "type": "text"}]});
    let with = |fields: Value| json!({"extension": "form", "initial_form": {"fields": fields}});
    for (parameters, expected) in [
        (json!({"extension": "agent-detail"}), "`detail` is missing"),
        (json!({"extension": "form"}), "`initial_form` or `settings_form` is missing"),
        (json!({"extension": "error", "form": form}), "`form` belongs to another extension"),
        (json!({"extension": "secrets"}), "`secret_demands` is missing"),
        (json!({"extension": "secrets", "secret_demands": {"a-b": {"name": "Key"}}}), "the key \"a-b\""),
        (json!({"extension": "form", "initial_form": form, "form_key": "settings"}), "are the same"),
        (json!({"extension": "form", "settings_form": form}), "checkbox_group, singleselect"),
        (with(json!([{"id": "a", "type": "number"}])), "has the type \"number\""),
        (with(json!([{"id": "a", "type": "text"}, {"id": "a", "type": "date"}])), "two fields with the id \"a\""),
        (with(json!([{"id": "a", "type": "singleselect"}])), "has no `options`"),
        (with(json!([{"id": "a", "type": "checkbox_group"}])), "has no `fields`"),
        (with(json!([{"type": "text"}])), "missing field `id`"),
    ] {
        let error = host(&parameters).descriptor::<Agentstack>().unwrap_err();
        assert!(error.contains(expected), "{parameters}: {error}");
    }
}

#[test]
fn the_card_has_what_the_published_sdk_reads() {
    let declared = |parameters: Value| {
        let params = host(&parameters).declare::<Agentstack>().unwrap().params;
        params.map(|params| serde_json::from_str::<Value>(&params).unwrap())
    };
    assert_eq!(declared(json!({"extension": "citation"})), None);
    assert_eq!(declared(json!({"extension": "error"})), Some(json!({"include_stacktrace": false})));
    let detail = json!({"interaction_mode": "single-turn", "tools": [{"name": "search", "description": "Searches"}]});
    assert_eq!(declared(json!({"extension": "agent-detail", "detail": detail})), Some(detail));
    let form = json!({"title": "You", "fields": [{"id": "name", "type": "text", "label": "Name"}]});
    let demands = json!({"form_demands": {"initial_form": form, "settings_form": null}});
    assert_eq!(declared(json!({"extension": "form", "initial_form": form})), Some(demands));
}

#[test]
fn links_of_an_answer_are_citations() {
    let host = citation();
    let text = "Sée [Ada](https://a.example/x?y=1), [](http://b.example) and [c](ftp://c.example) [d] (e) [f][g].";
    let expected = [cited(4, 34, "https://a.example/x?y=1", "Ada"), cited(36, 56, "http://b.example", "")];
    assert_eq!(citations(host.respond::<Agentstack>(message(text)).unwrap()), expected);
    assert_eq!(host.respond::<Agentstack>(message("no [link] (here)")).unwrap(), None);
}

#[test]
fn a_link_across_chunks_is_found_at_its_place_in_the_artifact() {
    let whole = "a [b](https://c.example/d) [e](https://f.example)";
    let expected = [cited(2, 26, "https://c.example/d", "b"), cited(27, 49, "https://f.example", "e")];
    for cut in (0..whole.len()).filter(|cut| whole.is_char_boundary(*cut)) {
        let host = citation();
        let id = format!("artifact-{cut}");
        let (first, second) = whole.split_at(cut);
        host.respond::<Agentstack>(chunk(&id, first, false)).unwrap();
        let patch = host.respond::<Agentstack>(chunk(&id, second, true)).unwrap();
        assert_eq!(citations(patch), expected, "{cut}");
        // A chunk that begins the artifact again replaces its text.
        assert_eq!(host.respond::<Agentstack>(chunk(&id, "again", false)).unwrap(), None);
    }
}

#[test]
fn hostile_texts_cost_little_and_find_nothing() {
    let host = citation();
    for (number, text) in ["[", "[]", "[a](", "[a](https://", "[a](https://x "].into_iter().enumerate() {
        let text = text.repeat(20_000);
        let id = format!("hostile-{number}");
        assert_eq!(host.respond::<Agentstack>(chunk(&id, &text, false)).unwrap(), None, "{number}");
        assert_eq!(host.respond::<Agentstack>(chunk(&id, &text, true)).unwrap(), None, "{number}");
    }
    let many = "[a](https://b.example)".repeat(1000);
    assert_eq!(citations(host.respond::<Agentstack>(message(&many)).unwrap()).len(), 100);
}

#[test]
fn a_failed_task_has_an_error_and_no_other_task_has() {
    let host = host(&json!({"extension": "error", "title": "Failure"}));
    let failed = |message: Option<&str>| StateChange {
        message: message.map(|text| json!({"parts": [{"text": text}]}).to_string()),
        ..testing::change("TASK_STATE_FAILED")
    };
    for (message, expected) in [(Some("no model"), "no model"), (None, "The agent has failed.")] {
        let Ruling::Annotate(entries) = host.change::<Agentstack>(failed(message)).unwrap() else { panic!("no error") };
        let [(key, error)] = entries.as_slice() else { panic!("one entry: {entries:?}") };
        assert_eq!(key, Kind::Error.uri());
        let expected =
            json!({"error": {"title": "Failure", "message": expected}, "stack_trace": null, "context": null});
        assert_eq!(serde_json::from_str::<Value>(error).unwrap(), expected);
    }
    assert_eq!(host.change::<Agentstack>(testing::change("TASK_STATE_COMPLETED")), Ok(Ruling::Pass));
    let other = citation();
    assert_eq!(other.change::<Agentstack>(failed(Some("no model"))), Ok(Ruling::Pass));
}

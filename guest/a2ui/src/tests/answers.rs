use annex_sdk::testing;
use annex_sdk::{EventKind, Patch, Replacement, Verdict};
use serde_json::{Value, json};

use super::{BASIC, capabilities, host, message, part, pointers, refusal, revise, revise_status, surface};
use crate::A2ui;

/// A host with a client that has the basic catalogue.
fn ready(parameters: &Value) -> testing::Host {
    let host = host(parameters);
    assert!(pointers(&host, &message(&json!([{"text": "x"}]), &capabilities("0.9.1"))).is_empty());
    host
}

fn text(text: &Value) -> Value {
    json!({"component": "Text", "text": text})
}

#[test]
fn an_answer_that_fits_is_left_and_has_the_uri() {
    let host = ready(&json!({}));
    let respond = || host.respond::<A2ui>(testing::event(EventKind::Artifact)).unwrap();
    assert_eq!(revise(&host, &json!([{"text": "x"}, part(&surface("s", &text(&json!("x"))))])), Verdict::Leave);
    assert_eq!(respond(), Some(Patch { metadata: Vec::new() }));
    assert_eq!(revise(&host, &json!([{"text": "x"}, {"data": {"version": "v9"}}])), Verdict::Leave);
    assert_eq!(respond(), None);
}

#[test]
fn a_refusal_names_the_part_and_the_place() {
    let host = ready(&json!({}));
    let reason = refusal(revise(&host, &json!([{"text": "x"}, part(&surface("s", &text(&json!(7))))])));
    let place = "part 1 of the answer does not fit at /data/1/updateComponents/components/0/text: ";
    assert!(reason.contains(place), "{reason}");
    let unknown = refusal(revise(&host, &json!([part(&surface("s", &json!({"component": "Script"})))])));
    assert!(unknown.ends_with("/components/0/component: the catalogue has no component Script"), "{unknown}");
    let call =
        json!({"component": "TextField", "label": "x", "checks": [{"condition": {"call": "sudo"}, "message": "x"}]});
    let call = refusal(revise(&host, &json!([part(&surface("s", &call))])));
    assert!(call.ends_with("/checks/0/condition/call: the catalogue has no function sudo"), "{call}");
    let none = refusal(revise(&host, &json!([{"text": "x", "mediaType": "application/a2ui+json"}])));
    assert!(none.contains("part 0") && none.contains("a list of messages"), "{none}");
}

#[test]
fn nothing_of_a_refused_answer_is_noted() {
    let host = ready(&json!({}));
    refusal(revise(&host, &json!([part(&surface("s", &text(&json!(7))))])));
    assert_eq!(revise(&host, &json!([part(&surface("s", &text(&json!("x"))))])), Verdict::Leave);
    let again = refusal(revise(&host, &json!([part(&surface("s", &text(&json!("x"))))])));
    assert!(again.contains("there is a surface s already"), "{again}");
}

#[test]
fn what_does_not_fit_is_dropped_and_the_rest_of_the_part_stays() {
    let host = ready(&json!({"invalid": "drop"}));
    let mut messages = surface("s", &text(&json!(7)));
    messages[0]["createSurface"]["sendDataModel"] = json!(true);
    let mut mixed = part(&messages);
    mixed["metadata"]["other"] = json!(1);
    let parts = json!([{"text": "x"}, mixed, part(&json!([{"version": "v0.7"}]))]);
    let Verdict::Replace(replaced) = revise(&host, &parts) else { panic!("it is left") };
    let [some, none]: [Replacement; 2] = replaced.try_into().unwrap();
    let kept: Value = serde_json::from_str(&some.parts[0]).unwrap();
    assert_eq!((some.part, some.parts.len(), kept["data"].as_array().unwrap().len()), (1, 1, 1));
    assert_eq!(kept["data"][0], messages[0]);
    assert_eq!(kept["metadata"], json!({"mimeType": "application/a2ui+json", "other": 1}));
    assert_eq!((none.part, none.parts.len()), (2, 0));
    assert!(none.dropped.is_some());
    assert!(
        host.log().iter().any(|line| line.contains("/data/1/updateComponents/components/0/text")),
        "{:?}",
        host.log()
    );
}

#[test]
fn the_content_of_a_failed_task_is_dropped_because_it_cannot_be_refused() {
    let host = ready(&json!({}));
    let parts = json!([part(&json!({"version": "v0.7"}))]);
    refusal(revise_status(&host, "TASK_STATE_WORKING", &parts));
    assert!(matches!(revise_status(&host, "TASK_STATE_FAILED", &parts), Verdict::Replace(_)));
}

#[test]
fn surfaces_outlive_the_turn() {
    let host = ready(&json!({}));
    let update = |surface: &str| {
        let body = json!({"surfaceId": surface, "components": [{"id": "root", "component": "Text", "text": "x"}]});
        json!([part(&json!({"version": "v0.9", "updateComponents": body}))])
    };
    let delete = json!([part(&json!([{"version": "v0.9.1", "deleteSurface": {"surfaceId": "s"}}]))]);
    assert!(refusal(revise(&host, &update("s"))).contains("no surface s was created"));
    assert_eq!(revise(&host, &json!([part(&surface("s", &text(&json!("x"))))])), Verdict::Leave);
    assert_eq!(host.value(testing::Bucket::Context, "surface:s").as_deref(), Some(BASIC.as_bytes()));
    assert_eq!(revise(&host, &update("s")), Verdict::Leave);
    assert_eq!(revise(&host, &delete), Verdict::Leave);
    assert!(refusal(revise(&host, &update("s"))).contains("no surface s was created"));
}

#[test]
fn an_own_catalogue_is_checked_and_one_without_document_is_not() {
    let own = json!({
        "catalogId": "https://example.com/own.json",
        "components": {"Badge": {
            "type": "object",
            "allOf": [{"$ref": "common_types.json#/$defs/ComponentCommon"}],
            "properties": {"component": {"const": "Badge"}, "level": {"enum": ["gold"]}},
            "required": ["component", "level"],
            "unevaluatedProperties": false,
        }},
    });
    let ids = ["https://example.com/own.json", "https://example.com/other.json"];
    let host = host(&json!({"catalogs": [own], "supported_catalogs": ids}));
    let offer = json!({"a2uiClientCapabilities": {"v0.9.1": {"supportedCatalogIds": ids}}});
    assert!(pointers(&host, &message(&json!([{"text": "x"}]), &offer)).is_empty());
    let sent = |surface_id: &str, catalogue: &str, component: &Value| {
        let mut messages = surface(surface_id, component);
        messages[0]["createSurface"]["catalogId"] = json!(catalogue);
        revise(&host, &json!([part(&messages)]))
    };
    let badge = |level: &str| json!({"component": "Badge", "level": level});
    assert_eq!(sent("a", ids[0], &badge("gold")), Verdict::Leave);
    assert!(refusal(sent("b", ids[0], &badge("tin"))).contains("/components/0/level: is none of gold"));
    assert!(refusal(sent("c", ids[0], &text(&json!("x")))).contains("no component Text"));
    assert_eq!(sent("d", ids[1], &badge("tin")), Verdict::Leave);
    assert!(refusal(sent("e", BASIC, &text(&json!("x")))).contains("does not offer the catalogue"));
}

#[test]
fn the_catalogue_of_a_client_is_checked() {
    let host = host(&json!({"accepts_inline_catalogs": true}));
    let inline = json!({
        "catalogId": "inline",
        "components": {"Chart": {"type": "object", "properties": {"points": {"type": "array"}}, "required": ["points"]}},
        "functions": [{
            "name": "sum",
            "parameters": {"type": "object", "properties": {"of": {"type": "array"}}, "required": ["of"]},
            "returnType": "number",
        }],
    });
    let offer = json!({"a2uiClientCapabilities": {"v0.9": {"supportedCatalogIds": [], "inlineCatalogs": [inline]}}});
    assert!(pointers(&host, &message(&json!([{"text": "x"}]), &offer)).is_empty());
    let sent = |name: &str, component: &Value| {
        let mut messages = surface(name, component);
        messages[0]["createSurface"]["catalogId"] = json!("inline");
        revise(&host, &json!([part(&messages)]))
    };
    assert_eq!(sent("a", &json!({"component": "Chart", "points": [1]})), Verdict::Leave);
    assert!(refusal(sent("b", &json!({"component": "Chart"}))).ends_with("lacks points"));
}

#[test]
fn a_component_of_1_0_may_have_a_catalogue_of_its_own() {
    let host = host(&json!({"version": "1.0"}));
    let (basic, other) = (super::basic("1.0"), "https://example.com/other.json");
    let offer = json!({"a2uiRendererCapabilities": {"v1.0": {"supportedCatalogIds": [basic, other]}}});
    assert!(pointers(&host, &message(&json!([{"text": "x"}]), &offer)).is_empty());
    let sent = |surface: &str, component: &Value| {
        let body = json!({"surfaceId": surface, "catalogId": basic, "components": [component]});
        revise(&host, &json!([part(&json!([{"version": "v1.0", "createSurface": body}]))]))
    };
    let badge = |id: &str| json!({"id": "root", "component": "Badge", "catalogId": id, "level": "gold"});
    assert_eq!(sent("a", &badge(other)), Verdict::Leave);
    assert!(refusal(sent("b", &badge(basic))).contains("no component Badge"));
    assert!(refusal(sent("c", &badge("https://example.com/none.json"))).contains("/components/0/catalogId"));
}

#[test]
fn without_a_message_of_the_client_the_catalogues_of_the_agent_count() {
    let host = host(&json!({}));
    assert_eq!(revise(&host, &json!([part(&surface("s", &text(&json!("x"))))])), Verdict::Leave);
}

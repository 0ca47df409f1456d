use annex_sdk::testing;
use serde_json::{Value, json};

use super::{BASIC, basic, capabilities, host, message, part, pointers, revise, surface};
use crate::A2ui;

fn text() -> Value {
    json!([{"text": "x"}])
}

#[test]
fn the_card_has_the_catalogues_and_each_version_its_keys() {
    let declared = |parameters: &Value| host(parameters).declare::<A2ui>().unwrap().params.unwrap();
    let params: Value = serde_json::from_str(&declared(&json!({}))).unwrap();
    assert_eq!(params, json!({"supportedCatalogIds": [BASIC], "acceptsInlineCatalogs": false}));
    let own = json!({"catalogs": [{"catalogId": "own", "components": {}}], "accepts_inline_catalogs": true});
    let params: Value = serde_json::from_str(&declared(&own)).unwrap();
    assert_eq!(params, json!({"supportedCatalogIds": ["own"], "acceptsInlineCatalogs": true}));
    let keys = |version: &str| host(&json!({"version": version})).descriptor::<A2ui>().unwrap().metadata_keys;
    assert_eq!(keys("0.8"), ["a2uiClientCapabilities"]);
    assert_eq!(keys("0.9"), ["a2uiClientCapabilities", "a2uiClientDataModel"]);
    assert_eq!(keys("1.0"), ["a2uiRendererCapabilities", "a2uiRendererDataModel"]);
    assert!(host(&json!({"version": "0.7"})).descriptor::<A2ui>().is_err());
}

#[test]
fn capabilities_are_needed_unless_the_operator_says_otherwise() {
    assert_eq!(pointers(&host(&json!({})), &message(&text(), &json!({}))), ["/message/metadata"]);
    assert!(pointers(&host(&json!({"require_capabilities": false})), &message(&text(), &json!({}))).is_empty());
}

#[test]
fn capabilities_of_1_0_are_taken_under_both_keys() {
    let host = host(&json!({"version": "1.0"}));
    let own = json!({"v1.0": {"supportedCatalogIds": [basic("1.0")]}});
    for key in ["a2uiRendererCapabilities", "a2uiClientCapabilities"] {
        assert!(pointers(&host, &message(&text(), &json!({ key: own }))).is_empty(), "{key}");
    }
    let both = json!({"a2uiRendererCapabilities": {"v2.0": {}}, "a2uiClientCapabilities": own});
    assert!(pointers(&host, &message(&text(), &both)).is_empty());
}

#[test]
fn capabilities_of_0_8_may_stand_below_their_version() {
    let host = host(&json!({"version": "0.8"}));
    let own = json!({"supportedCatalogIds": [basic("0.8")]});
    assert!(pointers(&host, &message(&text(), &json!({"a2uiClientCapabilities": {"v0.8": own}}))).is_empty());
}

#[test]
fn a_message_of_another_version_is_left_alone_unless_it_names_the_uri() {
    let host = host(&json!({}));
    let other = message(&text(), &json!({"a2uiClientCapabilities": {"v0.7": {}}}));
    assert!(pointers(&host, &other).is_empty());
    // Nothing of its answer is checked.
    let answer = json!([part(&surface("s", &json!({"component": "Script"})))]);
    assert_eq!(revise(&host, &answer), annex_sdk::Verdict::Leave);
    let uri = "https://a2ui.org/a2a-extension/a2ui/v0.9.1".to_owned();
    let request = annex_sdk::Request { requested: vec![uri.clone()], ..testing::request() };
    assert!(host.check::<A2ui>(request, other.as_str()).is_err());
    let mut named: Value = serde_json::from_str(&other).unwrap();
    named["extensions"] = json!([uri]);
    assert_eq!(pointers(&host, &named.to_string()), ["/message/metadata/a2uiClientCapabilities"]);
}

#[test]
fn one_offered_catalogue_must_be_one_that_the_agent_uses() {
    let host = host(&json!({}));
    let offer = |ids: Value| json!({"a2uiClientCapabilities": {"v0.9": {"supportedCatalogIds": ids}}});
    let at = "/message/metadata/a2uiClientCapabilities/v0.9";
    assert_eq!(pointers(&host, &message(&text(), &offer(json!(["x"])))), [format!("{at}/supportedCatalogIds")]);
    assert_eq!(pointers(&host, &message(&text(), &offer(json!([7])))), [format!("{at}/supportedCatalogIds/0")]);
    assert!(pointers(&host, &message(&text(), &offer(json!(["x", BASIC])))).is_empty());
    let newer = "https://a2ui.org/specification/v0_9_1/catalogs/basic/catalog.json";
    assert!(pointers(&host, &message(&text(), &offer(json!([newer])))).is_empty());
}

#[test]
fn catalogues_of_clients_need_the_parameter() {
    let inline = json!({"supportedCatalogIds": [], "inlineCatalogs": [{"catalogId": "own"}]});
    let sent = message(&text(), &json!({"a2uiClientCapabilities": {"v0.9": inline}}));
    let at = "/message/metadata/a2uiClientCapabilities/v0.9/inlineCatalogs";
    assert_eq!(pointers(&host(&json!({})), &sent), [at]);
    assert!(pointers(&host(&json!({"accepts_inline_catalogs": true})), &sent).is_empty());
    let mut large =
        json!({"supportedCatalogIds": [], "inlineCatalogs": [{"catalogId": "own", "x": "x".repeat(70_000)}]});
    let sent = |inline: &Value| message(&text(), &json!({"a2uiClientCapabilities": {"v0.9": inline}}));
    let host = host(&json!({"accepts_inline_catalogs": true}));
    assert_eq!(pointers(&host, &sent(&large)), [at]);
    large["inlineCatalogs"] = json!([{"components": {}}]);
    assert_eq!(pointers(&host, &sent(&large)), [format!("{at}/0")]);
}

#[test]
fn the_data_model_and_all_parts_are_checked_at_once() {
    let mut metadata = capabilities("0.9.1");
    metadata["a2uiClientDataModel"] = json!({"version": "v0.9", "surfaces": {"s": 7}});
    let parts = json!([
        {"text": "x"},
        part(&json!({"version": "v0.9", "action": {}})),
        {"data": [7], "mediaType": "Application/JSON+a2ui; charset=utf-8"},
        {"url": "https://example.com", "mediaType": "application/a2ui+json"},
        {"data": [7]},
    ]);
    let found = pointers(&host(&json!({})), &message(&parts, &metadata));
    let expected = [
        "/message/metadata/a2uiClientDataModel/surfaces/s",
        "/message/parts/1/data/action",
        "/message/parts/2/data/0",
        "/message/parts/3",
    ];
    assert_eq!(found, expected);
    metadata["a2uiClientDataModel"] = json!({"version": "v1.0", "surfaces": {}});
    let found = pointers(&host(&json!({})), &message(&text(), &metadata));
    assert_eq!(found, ["/message/metadata/a2uiClientDataModel/version"]);
}

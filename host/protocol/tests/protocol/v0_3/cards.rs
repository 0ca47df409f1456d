//! Cards of 0.3, and 1.0 cards that merging must not change.

use annex_protocol::AgentCard;
use annex_protocol::v0_3::{self, MergedAgentCard};

use super::responses::input;

fn card(interfaces: &[&str]) -> AgentCard {
    let interface = |version: &&str| {
        format!(r#"{{"url":"https://u/{version}","protocolBinding":"JSONRPC","protocolVersion":"{version}"}}"#)
    };
    let interfaces = interfaces.iter().map(interface).collect::<Vec<_>>().join(",");
    serde_json::from_str(&format!(r#"{{"name":"n","supportedInterfaces":[{interfaces}]}}"#)).unwrap()
}

#[test]
fn a_card_without_an_interface_of_0_3_stays_as_it_is() {
    let mut card: AgentCard = input("card");
    card.supported_interfaces.truncate(1);
    assert!(v0_3::AgentCard::of(&card).is_none());
    let merged = serde_json::to_value(MergedAgentCard::from(&card)).unwrap();
    assert_eq!(merged, serde_json::to_value(&card).unwrap());
}

#[test]
fn a_merged_card_is_still_the_card_of_1_0() {
    let card: AgentCard = input("card");
    let merged = serde_json::to_string(&MergedAgentCard::from(&card)).unwrap();
    assert_eq!(serde_json::from_str::<AgentCard>(&merged).unwrap(), card);
}

#[test]
fn the_first_interface_of_0_3_is_the_main_one() {
    let main = |interfaces: &[&str]| {
        let card = card(interfaces);
        let card = serde_json::to_value(v0_3::AgentCard::of(&card)?).unwrap();
        let text = |field: &str| card[field].as_str().unwrap().to_owned();
        Some((text("url"), text("protocolVersion")))
    };
    let found = |url: &str, version: &str| Some((url.to_owned(), version.to_owned()));
    assert_eq!(main(&["1.0", "0.3", "0.3.1"]), found("https://u/0.3", "0.3.0"));
    assert_eq!(main(&["0.3.1", "0.3"]), found("https://u/0.3.1", "0.3.1"));
    for other in ["", "1.0", "0.30", "0.2.6", "10.3"] {
        assert_eq!(main(&[other]), None, "{other}");
    }
}

#[test]
fn the_extended_card_is_announced_only_when_there_is_one() {
    for (declared, expected) in [(None, None), (Some(false), None), (Some(true), Some(true))] {
        let mut card = card(&["0.3"]);
        card.capabilities.extended_agent_card = declared;
        let card = serde_json::to_value(v0_3::AgentCard::of(&card).unwrap()).unwrap();
        assert_eq!(card.get("supportsAuthenticatedExtendedCard").and_then(serde_json::Value::as_bool), expected);
    }
}

//! Secrets that a client sends.

use annex_sdk::testing;
use annex_sdk::{Entry, Location, MetadataEntry, Rejection, Waiting};
use serde_json::{Value, json};

use super::host;
use crate::Agentstack;
use crate::parameters::Kind;

fn parameters() -> Value {
    let demands =
        json!({"github": {"name": "GitHub token", "description": "Reads issues"}, "jira": {"name": "Jira key"}});
    json!({"extension": "secrets", "secret_demands": demands})
}

fn entry(value: &Value) -> Vec<MetadataEntry> {
    let (location, key) = (Location::Message, Kind::Secrets.uri().to_owned());
    vec![MetadataEntry { location, key, value: value.to_string() }]
}

#[test]
fn the_agent_runs_once_a_message_has_all_secrets() {
    let both = json!({"secret_fulfillments": {"github": {"secret": "g-1"}, "jira": {"secret": "j-1"}}});
    let one = json!({"secret_fulfillments": {"github": {"secret": "g-1"}}});
    let keys = json!({"temp:secret_github": "g-1", "temp:secret_jira": "j-1"});
    let half = json!({"temp:secret_github": "g-1"});
    for (metadata, expected, runs) in [
        (Vec::new(), None, false),
        (entry(&json!({})), None, false),
        (entry(&one), Some(half), false),
        (entry(&both), Some(keys), true),
    ] {
        let host = host(&parameters());
        let delta = host.validate::<Agentstack>(testing::request(), metadata).unwrap();
        let delta = delta.map(|delta| serde_json::from_str::<Value>(&delta).unwrap());
        assert_eq!(delta, expected);
        let begun = host.begin::<Agentstack>(testing::request(), testing::beginning()).unwrap();
        if runs {
            assert!(matches!(begun, Entry::Proceed), "{begun:?}");
            continue;
        }
        let Entry::Interrupt(asked) = begun else { panic!("the agent runs: {begun:?}") };
        assert_eq!(
            (asked.waiting, asked.text.as_str()),
            (Waiting::Authorization, "The agent needs a secret: GitHub token, Jira key.")
        );
        let [(key, demands)] = asked.metadata.as_slice() else { panic!("one entry: {asked:?}") };
        assert_eq!(key, Kind::Secrets.uri());
        let demands: Value = serde_json::from_str(demands).unwrap();
        assert_eq!(demands["secret_demands"]["github"], json!({"name": "GitHub token", "description": "Reads issues"}));
    }
}

#[test]
fn a_refusal_does_not_repeat_a_secret() {
    let of = |fulfillments: Value| json!({"secret_fulfillments": fulfillments});
    for (value, expected) in [
        (json!("s3cret"), "is not an object"),
        (of(json!("s3cret")), "/secret_fulfillments is not an object"),
        (of(json!({"other": {"secret": "s3cret"}})), "/other is a secret that the agent does not need"),
        (of(json!({"jira": "s3cret"})), "/jira/secret is no text, or is empty"),
        (of(json!({"jira": {"secret": ["s3cret"]}})), "/jira/secret is no text, or is empty"),
        (of(json!({"jira": {"secret": ""}})), "/jira/secret is no text, or is empty"),
    ] {
        match host(&parameters()).validate::<Agentstack>(testing::request(), entry(&value)) {
            Err(Rejection::Violations(list)) => {
                let shown = format!("{} {}", list[0].pointer, list[0].message);
                assert!(shown.ends_with(expected) && !shown.contains("s3cret"), "{value}: {shown}");
            }
            other => panic!("{value}: {other:?}"),
        }
    }
}

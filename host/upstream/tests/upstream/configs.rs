//! Faults of a config, each reported with its key.

use std::time::Duration;

use annex_upstream::{Credentials, UpstreamConfig};
use serde_json::json;

use crate::bench::{config, mapping};

type Change<'a> = &'a dyn Fn(&mut UpstreamConfig);

#[test]
fn a_value_that_cannot_be_used_is_named_by_its_key() {
    let credentials = |header: &str| Some(Credentials { header: header.to_owned(), env: "UNUSED".to_owned() });
    let cases: [(Change<'_>, &str); 13] = [
        (&|config| config.connect = Duration::ZERO, "connect_seconds must be at least 1"),
        (&|config| config.idle = Duration::ZERO, "idle_seconds must be at least 1"),
        (&|config| config.start = Duration::ZERO, "start_seconds must be at least 1"),
        (&|config| config.refresh = Duration::ZERO, "refresh_seconds must be at least 1"),
        (&|config| config.pause = Duration::ZERO, "pause_seconds must be at least 1"),
        (&|config| config.max_answer_bytes = 0, "max_answer_bytes must be at least 1"),
        (
            &|config| config.allow_hosts = vec!["http://b.example/a2a".to_owned()],
            "allow_hosts has \"http://b.example/a2a\", which is no host; write a name or name:port",
        ),
        (
            &|config| config.state = mapping(json!({"send": "text-part"})),
            "state.template is missing: the text in front",
        ),
        (&|config| config.headers_forward = vec!["a b".to_owned()], "is not the name of a header field"),
        (&|config| config.headers_forward = vec!["A2A-Version".to_owned()], "is set by the protocol itself"),
        (
            &|config| {
                config.credentials = credentials("x-key");
                config.headers_forward = vec!["X-Key".to_owned()];
            },
            "headers_forward has \"X-Key\", which `credentials` sets already",
        ),
        (&|config| config.credentials = credentials("host"), "credentials.header has \"host\""),
        (&|config| config.credentials = credentials("x\r\ny"), "is not the name of a header field"),
    ];
    config("http://agent.example").check().unwrap();
    for (change, expected) in cases {
        let mut config = config("http://agent.example");
        change(&mut config);
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_keys_of_a_mapping_belong_together() {
    let cases = [
        (json!({"send": "data-part"}), "state.key"),
        (json!({"send": "text-part"}), "state.template"),
        (json!({"send": "data-part", "key": "k", "template": "t"}), "state.template"),
        (json!({"receive": "data-part"}), "state.receive_key"),
        (json!({"receive_key": "k"}), "state.receive_key"),
        (json!({"keys": ["a"]}), "state.keys"),
        (json!({"send": "text-part", "template": "t", "keys": ["a"]}), "state.keys"),
    ];
    for (table, key) in cases {
        let state = mapping(table.clone());
        let error = UpstreamConfig { state, ..config("http://agent.example") }.check().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{key} ")), "{table}: {error}");
    }
    let one_key_for_both = mapping(json!({"send": "data-part", "key": "k", "receive": "data-part"}));
    UpstreamConfig { state: one_key_for_both, ..config("http://agent.example") }.check().unwrap();
}

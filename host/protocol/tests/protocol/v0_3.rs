//! A2A 0.3: requests of its official Python client, and answers that this client parses (`v0_3/fixtures/README.md`).

mod cards;
mod errors;
mod hostile;
mod recorded;
mod responses;
mod rest;
mod round_trips;

use annex_protocol::{A2aError, FieldViolation, Json};

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

/// The violations of a request that must be refused, as `field: description`.
fn violations<T: std::fmt::Debug>(result: Result<T, A2aError>) -> Vec<String> {
    match result {
        Err(A2aError::InvalidParams { violations }) => violations.iter().map(FieldViolation::to_string).collect(),
        other => panic!("must be refused: {other:?}"),
    }
}

fn message(part: &str) -> Json {
    json(&format!(r#"{{"message":{{"kind":"message","messageId":"m","role":"user","parts":[{part}]}}}}"#))
}

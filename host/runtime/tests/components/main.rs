//! The crate as used by the server, with real components: loading, refusing and isolating.
#![cfg(test)]

mod bombs;
mod cache;
mod callers;
mod capabilities;
mod card;
mod chain;
mod client_call;
mod compiler;
mod contract;
mod earlier;
mod egress;
mod extended_card;
mod failures;
mod hostile;
mod incidents;
mod inspection;
mod installing;
mod kept;
mod keyvalue;
mod limits;
mod live_card;
mod manifests;
mod messages;
mod metadata;
mod methods;
mod metrics;
mod output;
mod peer;
mod pool;
mod reads;
mod recording;
mod refusals;
mod reply;
mod schemas;
mod secrets;
mod steering;
mod support;
mod traces;
mod transitions;
mod turn_view;
mod wasi;

annex_runtime::compile_in_tests!();

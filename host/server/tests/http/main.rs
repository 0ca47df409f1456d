//! The server over HTTP with the real components: each row of what clients see.
#![cfg(test)]

mod access;
mod activate;
mod activation;
mod admin;
mod agents;
mod audit;
mod auth;
mod bad_input;
mod bindings;
mod budgets;
mod card;
mod cases;
mod catalogue;
mod config;
mod connections;
mod console;
mod console_pages;
mod console_requests;
mod cors;
mod crowd;
mod denied;
mod deploy;
mod documents;
mod durable;
mod extended_card;
mod extension_folder;
mod failures;
mod faults;
mod files;
mod forgotten;
mod grants;
mod hostile;
mod incidents;
mod installation;
mod interrupted;
mod life;
mod lifecycle;
mod live_card;
mod locked;
mod methods;
mod metrics;
mod names;
mod output;
mod pages;
mod parameters;
mod profiles;
mod prometheus;
mod push;
mod readable;
mod reads;
mod receipts;
mod receivers;
mod recordings;
mod references;
mod reloading;
mod repeats;
mod reply;
mod requests;
mod rest;
mod scoped_keys;
mod script_agent;
mod session_views;
mod sessions;
mod sharing;
mod state;
mod steering;
mod streams;
mod taken_up;
mod task_limits;
mod tasks;
mod tenants;
mod three_ways;
mod tls;
mod tools;
mod traces;
mod transitions;
mod turn_services;
mod typos;
mod upstream;
mod v0_3;
mod waiting;

annex_runtime::compile_in_tests!();

use annex_test_support::{TestConfig, TestServer};

/// A valid state for the specialist's schema.
const ADA: &str = r#"{"user_info":{"name":"Ada","role":"Engineer","email":"ada@example.com"}}"#;
const QUESTION: &str = "Who am I and what is my email?";

/// The specialist of the examples, its config extended by `more`.
async fn specialist(more: &str) -> TestServer {
    let config = include_str!("../../../../examples/specialist/annex.toml");
    TestServer::start(&format!("{config}\n{more}")).await.expect("the specialist starts")
}

/// An agent whose instruction needs nothing, with the extensions of `extensions`.
async fn agent(instruction: &str, extensions: &str) -> TestServer {
    let config = TestConfig::template(instruction).set("agent.output_key", "last_answer").with(extensions);
    config.start().await.expect("the agent starts")
}

/// State injection without a schema and with the grants of `grants`.
fn state_injection(grants: &str) -> String {
    format!(
        r#"
        [[extension]]
        component = "state-injection"
        [extension.grants]
        {grants}
        "#
    )
}

/// The extension that misbehaves on command.
fn test_extension(more: &str) -> String {
    format!("[[extension]]\ncomponent = {:?}\n{more}", annex_test_support::component("test-extension"))
}

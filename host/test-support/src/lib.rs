//! Tests only: a real server on a free port, its config, requests, and waiting.

mod config;
pub mod mandates;
mod request;
mod server;
mod wait;

pub use config::TestConfig;
pub use request::{Events, Reply, Request};
pub use server::TestServer;
pub use wait::until;

/// URI of the state-injection extension.
pub const STATE_INJECTION: &str = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1";
/// Metadata key of the state of [`STATE_INJECTION`].
pub const STATE_KEY: &str = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state";
/// URI of the timestamp extension.
pub const TIMESTAMP: &str = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1";
/// URI of the extension that misbehaves on command.
pub const TEST_EXTENSION: &str = "https://annex.example/test/v1";
/// Metadata key of the commands of [`TEST_EXTENSION`].
pub const COMMAND_KEY: &str = "test/command";

/// File name of a test component, such as `test-extension`.
///
/// # Panics
/// No test component has this name.
#[must_use]
pub fn component(name: &str) -> &'static str {
    match name {
        "test-extension" => annex_components::TEST_EXTENSION,
        "test-capabilities" => annex_components::TEST_CAPABILITIES,
        "hello-extension" => annex_components::HELLO_EXTENSION,
        other => unreachable!("no component is named {other}"),
    }
}

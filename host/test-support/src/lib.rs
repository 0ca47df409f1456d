//! Support for tests: a real server on a free port, its config, requests to the server, a collector of
//! traces, an OCI registry, and waiting for a condition.

pub mod collector;
mod config;
pub mod mandates;
mod registry;
mod request;
mod server;
mod wait;

pub use config::TestConfig;
pub use registry::TestRegistry;
pub use request::{Events, Reply, Request};
pub use server::TestServer;
pub use wait::until;

/// The URI of the state-injection extension.
pub const STATE_INJECTION: &str = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1";
/// The metadata key under which [`STATE_INJECTION`] takes and returns state.
pub const STATE_KEY: &str = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state";
/// The URI of the timestamp extension.
pub const TIMESTAMP: &str = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1";
/// The URI of the test extension, which misbehaves on command.
pub const TEST_EXTENSION: &str = "https://annex.example/test/v1";
/// The metadata key under which [`TEST_EXTENSION`] takes its commands.
pub const COMMAND_KEY: &str = "test/command";

/// The path of a test component, such as `test-extension`.
///
/// # Panics
/// No test component has this name.
#[must_use]
pub fn component(name: &str) -> &'static str {
    match name {
        "test-extension" => annex_components::TEST_EXTENSION,
        "test-steering" => annex_components::TEST_STEERING,
        "test-capabilities" => annex_components::TEST_CAPABILITIES,
        "hello-extension" => annex_components::HELLO_EXTENSION,
        other => unreachable!("no component is named {other}"),
    }
}

//! For tests only: a real server on a free port, and requests to it.

mod request;
mod server;

pub use request::{Events, Reply, Request};
pub use server::TestServer;

/// URI of the state-injection extension.
pub const STATE_INJECTION: &str =
    "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1";
/// Metadata key of its state.
pub const STATE_KEY: &str = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state";
/// URI of the timestamp extension.
pub const TIMESTAMP: &str = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1";
/// URI of the extension that misbehaves on command.
pub const TEST_EXTENSION: &str = "https://annex.example/test/v1";
/// Metadata key of its commands.
pub const COMMAND_KEY: &str = "test/command";

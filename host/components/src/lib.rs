//! The components that are built from this repository: the shipped extensions, and those that tests and examples use.
//!
//! The build script makes them. The shipped ones also lie in `components/` beside the `annex` executable.

use std::path::Path;

/// Takes session state from the client and gives it back.
pub const STATE_INJECTION: &str = concat!(env!("OUT_DIR"), "/state-injection.wasm");
/// Adds the time to what goes out.
pub const TIMESTAMP: &str = concat!(env!("OUT_DIR"), "/timestamp.wasm");
/// Takes along what the agent has not heard of a conversation.
pub const SESSION_SHARING: &str = concat!(env!("OUT_DIR"), "/session-sharing.wasm");
/// Misbehaves on command: `guest/test-extension/README.md`.
pub const TEST_EXTENSION: &str = concat!(env!("OUT_DIR"), "/test-extension.wasm");
/// Uses what it is granted, on command, and is built for WASI: `guest/test-capabilities/README.md`.
pub const TEST_CAPABILITIES: &str = concat!(env!("OUT_DIR"), "/test-capabilities.wasm");
/// The smallest extension: `examples/hello-extension`.
pub const HELLO_EXTENSION: &str = concat!(env!("OUT_DIR"), "/hello-extension.wasm");

/// The shipped components: name and absolute path.
pub fn shipped() -> [(&'static str, &'static Path); 3] {
    [
        ("state-injection", Path::new(STATE_INJECTION)),
        ("timestamp", Path::new(TIMESTAMP)),
        ("session-sharing", Path::new(SESSION_SHARING)),
    ]
}

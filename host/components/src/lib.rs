//! The components that are built from this repository: shipped extensions, and those for tests and examples.
//!
//! The build script builds them. It also copies the shipped ones to `components/` next to the `annex` executable.

use std::path::Path;

/// Receives session state from the client and returns it.
pub const STATE_INJECTION: &str = concat!(env!("OUT_DIR"), "/state-injection.wasm");
/// Adds a timestamp to outgoing messages and artifacts.
pub const TIMESTAMP: &str = concat!(env!("OUT_DIR"), "/timestamp.wasm");
/// Declares which standards the agent meets.
pub const COMPLIANCE_BADGE: &str = concat!(env!("OUT_DIR"), "/compliance-badge.wasm");
/// Accepts messages whose data parts match a schema.
pub const STRICT_PARTS: &str = concat!(env!("OUT_DIR"), "/strict-parts.wasm");
/// Refuses messages with the number of a payment card.
pub const PAYMENT_CARDS: &str = concat!(env!("OUT_DIR"), "/payment-cards.wasm");
/// Adds a trace of the agent's steps to its answers.
pub const TRACEABILITY: &str = concat!(env!("OUT_DIR"), "/traceability.wasm");
/// Receives a client's statements about itself and its user, signed if the agent relies on these.
pub const SECURE_PASSPORT: &str = concat!(env!("OUT_DIR"), "/secure-passport.wasm");
/// Marks the status of a task that generates an image.
pub const GENERATING_IMAGE: &str = concat!(env!("OUT_DIR"), "/generating-image.wasm");
/// Routes intents according to the announcements of squads.
pub const AGENT_GATEWAY_PROTOCOL: &str = concat!(env!("OUT_DIR"), "/agent-gateway-protocol.wasm");
/// Searches the caller's tasks.
pub const TASK_HISTORY: &str = concat!(env!("OUT_DIR"), "/task-history.wasm");
/// Lets tasks wait for an authorization.
pub const IN_TASK_AUTHORIZATION: &str = concat!(env!("OUT_DIR"), "/in-task-authorization.wasm");
/// Sends the agent the events of a conversation that are new to the agent.
pub const SESSION_SHARING: &str = concat!(env!("OUT_DIR"), "/session-sharing.wasm");
/// Checks the mandates of agent payments.
pub const AP2: &str = concat!(env!("OUT_DIR"), "/ap2.wasm");
/// Misbehaves on command: `guest/test-extension/README.md`.
pub const TEST_EXTENSION: &str = concat!(env!("OUT_DIR"), "/test-extension.wasm");
/// Uses each granted capability on command. Built for WASI: `guest/test-capabilities/README.md`.
pub const TEST_CAPABILITIES: &str = concat!(env!("OUT_DIR"), "/test-capabilities.wasm");
/// The smallest extension: `examples/hello-extension`.
pub const HELLO_EXTENSION: &str = concat!(env!("OUT_DIR"), "/hello-extension.wasm");

/// The shipped components: name and absolute path.
pub fn shipped() -> Vec<(&'static str, &'static Path)> {
    let shipped = [
        ("state-injection", STATE_INJECTION),
        ("timestamp", TIMESTAMP),
        ("compliance-badge", COMPLIANCE_BADGE),
        ("strict-parts", STRICT_PARTS),
        ("payment-cards", PAYMENT_CARDS),
        ("traceability", TRACEABILITY),
        ("secure-passport", SECURE_PASSPORT),
        ("generating-image", GENERATING_IMAGE),
        ("agent-gateway-protocol", AGENT_GATEWAY_PROTOCOL),
        ("task-history", TASK_HISTORY),
        ("in-task-authorization", IN_TASK_AUTHORIZATION),
        ("session-sharing", SESSION_SHARING),
        ("ap2", AP2),
    ];
    shipped.into_iter().map(|(name, path)| (name, Path::new(path))).collect()
}

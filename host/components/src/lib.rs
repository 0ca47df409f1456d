//! The components that are built from this repository: the shipped extensions, and those that tests and examples use.
//!
//! The build script makes them. The shipped ones also lie in `components/` beside the `annex` executable.

use std::path::Path;

/// Takes session state from the client and gives it back.
pub const STATE_INJECTION: &str = concat!(env!("OUT_DIR"), "/state-injection.wasm");
/// Adds the time to what goes out.
pub const TIMESTAMP: &str = concat!(env!("OUT_DIR"), "/timestamp.wasm");
/// Declares which standards the agent meets.
pub const COMPLIANCE_BADGE: &str = concat!(env!("OUT_DIR"), "/compliance-badge.wasm");
/// Takes messages whose data parts match a schema.
pub const STRICT_PARTS: &str = concat!(env!("OUT_DIR"), "/strict-parts.wasm");
/// Refuses messages with the number of a payment card.
pub const PAYMENT_CARDS: &str = concat!(env!("OUT_DIR"), "/payment-cards.wasm");
/// Adds what the agent did to its answers.
pub const TRACEABILITY: &str = concat!(env!("OUT_DIR"), "/traceability.wasm");
/// Takes what the client says of itself, signed.
pub const SECURE_PASSPORT: &str = concat!(env!("OUT_DIR"), "/secure-passport.wasm");
/// Marks the status of a task that generates an image.
pub const GENERATING_IMAGE: &str = concat!(env!("OUT_DIR"), "/generating-image.wasm");
/// Routes intents by what squads announce.
pub const AGENT_GATEWAY_PROTOCOL: &str = concat!(env!("OUT_DIR"), "/agent-gateway-protocol.wasm");
/// Searches the caller's tasks.
pub const TASK_HISTORY: &str = concat!(env!("OUT_DIR"), "/task-history.wasm");
/// Lets tasks wait for an authorization.
pub const IN_TASK_AUTHORIZATION: &str = concat!(env!("OUT_DIR"), "/in-task-authorization.wasm");
/// Takes along what the agent has not heard of a conversation.
pub const SESSION_SHARING: &str = concat!(env!("OUT_DIR"), "/session-sharing.wasm");
/// Checks the mandates of agent payments.
pub const AP2: &str = concat!(env!("OUT_DIR"), "/ap2.wasm");
/// Misbehaves on command: `guest/test-extension/README.md`.
pub const TEST_EXTENSION: &str = concat!(env!("OUT_DIR"), "/test-extension.wasm");
/// Uses what it is granted, on command, and is built for WASI: `guest/test-capabilities/README.md`.
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

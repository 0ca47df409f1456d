//! The paths of the components that are built from this repository: shipped extensions, and components for tests and
//! examples.
//!
//! The build script builds all components, and adds the manifest of their project, if there is one. It also copies the
//! shipped extensions to `components/` next to the `annex` executable.

use std::path::Path;

/// The path of the component that receives session state from the client and returns it.
pub const STATE_INJECTION: &str = concat!(env!("OUT_DIR"), "/state-injection.wasm");
/// The path of the component that adds a timestamp to outgoing messages and artifacts.
pub const TIMESTAMP: &str = concat!(env!("OUT_DIR"), "/timestamp.wasm");
/// The path of the component that declares which standards the agent meets.
pub const COMPLIANCE_BADGE: &str = concat!(env!("OUT_DIR"), "/compliance-badge.wasm");
/// The path of the component that accepts only messages whose data parts match a schema.
pub const STRICT_PARTS: &str = concat!(env!("OUT_DIR"), "/strict-parts.wasm");
/// The path of the component that refuses messages with the number of a payment card.
pub const PAYMENT_CARDS: &str = concat!(env!("OUT_DIR"), "/payment-cards.wasm");
/// The path of the component that adds a trace of the agent's steps to its answers.
pub const TRACEABILITY: &str = concat!(env!("OUT_DIR"), "/traceability.wasm");
/// The path of the component that receives statements of a client about the client and its user. If the agent requires
/// trusted statements, the client signs the statements.
pub const SECURE_PASSPORT: &str = concat!(env!("OUT_DIR"), "/secure-passport.wasm");
/// The path of the component that marks the status of a task while the task generates an image.
pub const GENERATING_IMAGE: &str = concat!(env!("OUT_DIR"), "/generating-image.wasm");
/// The path of the component that routes intents according to the announcements of squads.
pub const AGENT_GATEWAY_PROTOCOL: &str = concat!(env!("OUT_DIR"), "/agent-gateway-protocol.wasm");
/// The path of the component that searches the caller's tasks.
pub const TASK_HISTORY: &str = concat!(env!("OUT_DIR"), "/task-history.wasm");
/// The path of the component that lets tasks wait for an authorization.
pub const IN_TASK_AUTHORIZATION: &str = concat!(env!("OUT_DIR"), "/in-task-authorization.wasm");
/// The path of the component that sends the agent the events of a conversation that are new to the agent.
pub const SESSION_SHARING: &str = concat!(env!("OUT_DIR"), "/session-sharing.wasm");
/// The path of the component that checks the mandates of agent payments.
pub const AP2: &str = concat!(env!("OUT_DIR"), "/ap2.wasm");
/// The path of the component that lets tasks wait for a payment by x402.
pub const X402: &str = concat!(env!("OUT_DIR"), "/x402.wasm");
/// The path of the component that checks user interfaces of A2UI.
pub const A2UI: &str = concat!(env!("OUT_DIR"), "/a2ui.wasm");
/// The path of the component that lets calls of tools and results wait for an approval.
pub const APPROVAL: &str = concat!(env!("OUT_DIR"), "/approval.wasm");
/// The path of the component with the extensions of agentstack that need no import.
pub const AGENTSTACK: &str = concat!(env!("OUT_DIR"), "/agentstack.wasm");
/// The path of the component that shows each step of the agent to clients of agentstack.
pub const AGENTSTACK_TRAJECTORY: &str = concat!(env!("OUT_DIR"), "/agentstack-trajectory.wasm");
/// The path of the component that lets tasks wait for an authorization by OAuth, for clients of agentstack.
pub const AGENTSTACK_OAUTH: &str = concat!(env!("OUT_DIR"), "/agentstack-oauth.wasm");
/// The path of the component that answers clients of Google's ADK in the form of ADK's own servers.
pub const ADK_INTEGRATION: &str = concat!(env!("OUT_DIR"), "/adk-integration.wasm");
/// The path of the component that misbehaves on command. `guest/test-extension/README.md` lists the commands.
pub const TEST_EXTENSION: &str = concat!(env!("OUT_DIR"), "/test-extension.wasm");
/// The path of the component that steers turns on command, by hooks that need grants. `guest/test-steering/README.md`
/// lists the commands.
pub const TEST_STEERING: &str = concat!(env!("OUT_DIR"), "/test-steering.wasm");
/// The path of the component that uses each granted capability on command. It is built for WASI.
/// `guest/test-capabilities/README.md` lists the commands.
pub const TEST_CAPABILITIES: &str = concat!(env!("OUT_DIR"), "/test-capabilities.wasm");
/// The path of the component of the smallest extension, `examples/hello-extension`.
pub const HELLO_EXTENSION: &str = concat!(env!("OUT_DIR"), "/hello-extension.wasm");
/// The paths of the components in `examples/authors`, each with the name of its folder.
pub const AUTHORS_EXAMPLES: [(&str, &str); 3] = [
    ("redact", concat!(env!("OUT_DIR"), "/redact-extension.wasm")),
    ("cache", concat!(env!("OUT_DIR"), "/cache-extension.wasm")),
    ("acme", concat!(env!("OUT_DIR"), "/acme-extension.wasm")),
];

/// The grants that [`TEST_STEERING`] needs, as TOML, but for `caller` and `live-card`, which have settings.
pub const STEERING_GRANTS: &str = "agent-steps = { steer = true }\nanswer = true\nkeyvalue = {}\nreads = true\n\
                                   rewrite-answer = true\ntask-metadata = true";

/// The shipped components: the name and the absolute path of each.
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
        ("x402", X402),
        ("a2ui", A2UI),
        ("approval", APPROVAL),
        ("agentstack", AGENTSTACK),
        ("agentstack-trajectory", AGENTSTACK_TRAJECTORY),
        ("agentstack-oauth", AGENTSTACK_OAUTH),
        ("adk-integration", ADK_INTEGRATION),
    ];
    shipped.into_iter().map(|(name, path)| (name, Path::new(path))).collect()
}

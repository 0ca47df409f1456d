//! Errors of the crate, by their cause: the operator ([`LoadError`]), the guest ([`Fault`]) or the client
//! ([`HookError::Refused`]).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use annex_protocol::{A2aError, ExtensionUri};
use uuid::Uuid;

use crate::confinement::grants::GrantNeeded;
use crate::confinement::limits::{LimitReached, MAX_HELD_ARTIFACTS, MAX_HELD_CHUNKS};
use crate::digest::Digest;
use crate::hook::Hook;
use crate::load::source::Source;
use crate::observation::trap::Trap;

/// Why a runtime cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The engine rejected its settings.
    #[error("cannot set up the WebAssembly engine")]
    Engine(#[source] Source),
    /// The thread of the epoch ticker could not be started.
    #[error("cannot start the epoch ticker")]
    Ticker(#[source] std::io::Error),
    /// The engine does not stop a guest that loops.
    #[error("a guest that loops is not stopped: the epoch does not tick, so no CPU limit would work")]
    NotStopped,
}

/// Why a component cannot be installed. A failed installation changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is larger than [`MAX_COMPONENT_BYTES`](crate::MAX_COMPONENT_BYTES).
    #[error("the component has {size} bytes; this host loads at most {limit}")]
    TooLarge {
        /// Size of the file in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The file is not a component.
    #[error("not a WebAssembly component: {reason}")]
    NotAComponent {
        /// The kind of file, or the parser's error.
        reason: String,
    },
    /// The component exports no `annex:extension/descriptor`.
    #[error("the component exports no annex:extension/descriptor, so it is not an Annex extension")]
    NoDescriptor,
    /// The component is built for an unsupported contract version.
    #[error("the component is built for annex:extension@{found}; this host runs {}", supported.join(", "))]
    Contract {
        /// Version in the component.
        found: String,
        /// Versions that this host supports.
        supported: &'static [&'static str],
    },
    /// The component exports a hook that the contract does not define.
    #[error("the component exports {name}, which annex:extension does not define")]
    UnknownHook {
        /// Name of the export.
        name: String,
    },
    /// The component exports both `card` and `live-card`.
    #[error("the component exports both card and live-card, which declare the same entry; export one of them")]
    TwoCards,
    /// The component imports an interface that this host does not offer.
    #[error("the component imports {name}, which this host does not offer")]
    UnknownImport {
        /// Name of the import.
        name: String,
    },
    /// The manifest that the component's project has put into the component is too large, or says something else than
    /// the component.
    #[error("the manifest in the component (section annex:manifest): {reason}")]
    Manifest {
        /// The difference, and how to fix it.
        reason: String,
    },
    /// The component needs a grant that the operator did not give.
    #[error(
        "{needs} needs a grant: add `{grant}` to this extension's [extension.grants] in the config, or to [grants] in a \
         file of its settings"
    )]
    NotGranted {
        /// The import, the hook or the descriptor that needs the grant.
        needs: String,
        /// The grant in the config's syntax.
        grant: GrantNeeded,
    },
    /// The component needs grants that the operator has not accepted.
    #[error(
        "the component needs grants that annex.lock does not list as accepted: {grants}; to accept them, run: annex lock \
         CONFIG --accept {grants}"
    )]
    NotAccepted {
        /// The names of the grants, separated by commas.
        grants: String,
    },
    /// Instances of the component cannot be kept, although `instances = "kept"` asks for it.
    #[error("instances of the component cannot be kept: {reason}; leave out instances = \"kept\"")]
    Unkeepable {
        /// The state that cannot be reset between turns.
        reason: String,
    },
    /// A secret has the same name as a parameter.
    #[error("the secret {name} has the name of a parameter; rename one of them")]
    SharedName {
        /// The name that the secret and the parameter share.
        name: String,
    },
    /// The HTTP client for the extension's requests cannot be created.
    #[error("cannot set up the client for its HTTP requests")]
    HttpClient(#[source] Source),
    /// The compiler rejected the component.
    #[error("cannot compile the component {digest}")]
    Compile {
        /// Digest of the component.
        digest: Digest,
        /// The compiler's error.
        #[source]
        source: Source,
    },
    /// The component exceeds a limit on its structure.
    #[error("the component has {found} {what}; this host compiles at most {limit}")]
    TooComplex {
        /// The kind of part that was counted, such as `functions`.
        what: Cow<'static, str>,
        /// The count at which counting stopped.
        found: u64,
        /// The limit for this kind of part.
        limit: u64,
    },
    /// Compiling took too long.
    #[error(
        "compiling the component {digest} took longer than {} s; try again, or raise runtime.compile_seconds",
        limit.as_secs_f64()
    )]
    CompileTime {
        /// Digest of the component.
        digest: Digest,
        /// The time that compiling may take.
        limit: Duration,
    },
    /// Compiling needed too much memory.
    #[error(
        "compiling the component {digest} takes more than {limit} bytes of memory; raise runtime.compile_memory_bytes \
         if it is worth it"
    )]
    CompileMemory {
        /// Digest of the component.
        digest: Digest,
        /// The limit in bytes.
        limit: u64,
    },
    /// The compiling process could not be started.
    #[error("cannot start a process that compiles components")]
    CompilerStart {
        /// The reason, and how to fix it.
        #[source]
        reason: Source,
    },
    /// The compiling process made a forbidden system call.
    #[error(
        "the process that compiled the component {digest} was killed, because it made a system call that compiling does \
         not need"
    )]
    CompilerForbidden {
        /// Digest of the component.
        digest: Digest,
    },
    /// The compiling process ended without an answer.
    #[error("the process that compiled the component {digest} crashed: {how}")]
    CompilerCrash {
        /// Digest of the component.
        digest: Digest,
        /// How the process ended, such as its signal.
        how: String,
    },
    /// The compiling process gave an invalid answer.
    #[error("the process that compiled the component {digest} gave an invalid answer: {reason}")]
    CompilerAnswer {
        /// Digest of the component.
        digest: Digest,
        /// The fault in the answer.
        reason: String,
    },
    /// Types of imports or exports differ from the contract.
    #[error("the component does not fit the contract")]
    Link(#[source] Source),
    /// The type of an exported function differs from the contract.
    #[error("its {} in annex:extension/{} has another type than the contract says", hook.functions().join(" or "), hook.name())]
    ExportType {
        /// The hook with the function.
        hook: Hook,
        /// Position in the type, with the expected and the found type.
        #[source]
        source: Source,
    },
    /// A hook failed in the self-test.
    #[error("the self-test failed")]
    SelfTest(#[source] Fault),
    /// The extension rejects its parameters, or its descriptor or card entry is invalid.
    #[error("{reason}")]
    Description {
        /// The extension's message, or the violated rule.
        reason: String,
    },
    /// The operator's parameters violate the descriptor's schema.
    #[error("extension.parameters{pointer}: {reason}{}", accepted(pointer, reason, schema))]
    Parameters {
        /// JSON pointer into the parameters.
        pointer: String,
        /// The fault at that position.
        reason: String,
        /// The schema as JSON.
        schema: String,
    },
    /// The extension's entry on the card is too large.
    #[error("the entry of {uri} on the card has {size} bytes; at most {limit} are allowed, params and description")]
    CardEntry {
        /// The extension.
        uri: ExtensionUri,
        /// Size of the entry as JSON, in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The card entries of all installed extensions are too large.
    #[error(
        "with {uri} the entries of all extensions on the card have {size} bytes; at most {limit} are allowed, and the \
         largest is that of {largest}"
    )]
    CardEntries {
        /// The extension whose entry made the total exceed the limit.
        uri: ExtensionUri,
        /// Size of all entries as JSON, in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
        /// The extension with the largest entry.
        largest: ExtensionUri,
    },
    /// Two installed extensions have the same URI.
    #[error("two installed extensions have the URI {uri}")]
    Duplicate {
        /// The URI that both extensions have.
        uri: ExtensionUri,
    },
    /// Two installed extensions own the same metadata key.
    #[error(
        "the extensions {uri} and {other} both own the metadata key {key:?}; a key belongs to one component, and its extensions all have the grant forget-metadata, or none has it"
    )]
    SharedKey {
        /// The extension that comes later in the order of the installed extensions.
        uri: ExtensionUri,
        /// The extension that comes earlier in the order of the installed extensions.
        other: ExtensionUri,
        /// The key that both extensions own.
        key: String,
    },
    /// Two installed extensions have a method with the same name.
    #[error("the extensions {uri} and {other} both have the method {name}")]
    SharedMethod {
        /// The extension that comes later in the order of the installed extensions.
        uri: ExtensionUri,
        /// The extension that comes earlier in the order of the installed extensions.
        other: ExtensionUri,
        /// Name of the method.
        name: String,
    },
    /// Two installed extensions with methods have the same name, which is part of the HTTP paths of their methods.
    #[error("the extensions {uri} and {other} are both called {name:?}, and both have methods")]
    SharedPath {
        /// The extension that comes later in the order of the installed extensions.
        uri: ExtensionUri,
        /// The extension that comes earlier in the order of the installed extensions.
        other: ExtensionUri,
        /// The name that both extensions have.
        name: String,
    },
    /// Extensions depend on each other in a circle.
    #[error("extensions depend on each other in a circle: {}", ring(uris))]
    Cycle {
        /// The circle: each extension depends on the next, the last on the first.
        uris: Vec<ExtensionUri>,
    },
    /// A dependency is missing, or is installed after the extension.
    #[error("extension {uri} depends on {needs}, which must be installed and stand before it in the config")]
    Dependency {
        /// The dependent extension.
        uri: ExtensionUri,
        /// The dependency that is missing or is installed later.
        needs: ExtensionUri,
    },
    /// A required extension depends on an extension that may be skipped.
    #[error("extension {uri} is required and depends on {needs}, which on_failure = \"skip\" lets requests go without")]
    SkippedDependency {
        /// The dependent extension.
        uri: ExtensionUri,
        /// The dependency that may be skipped.
        needs: ExtensionUri,
    },
    /// A dependency is active for fewer callers than the extension.
    #[error(
        "extension {uri} depends on {needs}, whose `allow` leaves out callers that {uri} is for; give both the same `allow`"
    )]
    NarrowDependency {
        /// The dependent extension.
        uri: ExtensionUri,
        /// The dependency with the narrower list of callers.
        needs: ExtensionUri,
    },
}

/// Lists the parameter names that the schema accepts, if an unknown name was rejected. Empty otherwise.
fn accepted(pointer: &str, reason: &str, schema: &str) -> String {
    if !pointer.is_empty() || !reason.contains(" unexpected)") {
        return String::new();
    }
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap_or_default();
    let properties = schema.get("properties").and_then(serde_json::Value::as_object);
    let names: Vec<&String> = properties.into_iter().flat_map(|properties| properties.keys()).take(MAX_NAMES).collect();
    annex_text::instead(reason.split('\'').nth(1).unwrap_or_default(), &names, "it takes")
}

/// Maximum number of parameter names in the list.
const MAX_NAMES: usize = 64;

fn ring(uris: &[ExtensionUri]) -> String {
    let uris: Vec<&str> = uris.iter().chain(uris.first()).map(ExtensionUri::as_str).collect();
    uris.join(" needs ")
}

/// A failure of a guest: a trap, an exceeded limit, an error or a broken contract. The client only gets an error id.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The guest trapped.
    #[error("extension {uri} trapped in {hook}")]
    Trapped {
        /// The extension.
        uri: ExtensionUri,
        /// Error id in the extension's log lines.
        error_id: Uuid,
        /// The hook that was called.
        hook: Hook,
        /// The trap, with the guest's stack.
        #[source]
        source: Trap,
    },
    /// The guest exceeded a limit.
    #[error("extension {uri} reached its {limit} in {hook}")]
    LimitReached {
        /// The extension.
        uri: ExtensionUri,
        /// Error id in the extension's log lines.
        error_id: Uuid,
        /// The hook that was called.
        hook: Hook,
        /// The exceeded limit.
        limit: LimitReached,
    },
    /// The guest returned an error from a hook that must not fail.
    #[error("extension {uri} failed in {hook}: {message}")]
    Failed {
        /// The extension.
        uri: ExtensionUri,
        /// Error id in the extension's log lines.
        error_id: Uuid,
        /// The hook that was called.
        hook: Hook,
        /// The guest's error message.
        message: String,
    },
    /// The guest returned an invalid value.
    #[error("extension {uri} broke the contract in {hook}: {reason}")]
    BrokeContract {
        /// The extension.
        uri: ExtensionUri,
        /// Error id in the extension's log lines.
        error_id: Uuid,
        /// The hook that was called.
        hook: Hook,
        /// The violation, with the path of the invalid value.
        reason: String,
    },
    /// No instance became free in time.
    #[error("no instance for extension {uri} became free in time")]
    Overloaded {
        /// The extension.
        uri: ExtensionUri,
    },
    /// The extension has its maximum number of concurrent turns, and none ended in time.
    #[error("extension {uri} serves {turns} turns already, as many as limits.turns allows")]
    Busy {
        /// The extension.
        uri: ExtensionUri,
        /// Maximum number of concurrent turns.
        turns: u32,
    },
    /// The extension is quarantined after consecutive failures.
    #[error("extension {uri} is quarantined; the next trial is in {} ms", next_trial.as_millis())]
    Quarantined {
        /// The extension.
        uri: ExtensionUri,
        /// Time until the next trial.
        next_trial: Duration,
    },
    /// The operator has taken the extension out of service.
    #[error("extension {uri} is out of service: {reason}")]
    Revoked {
        /// The extension.
        uri: ExtensionUri,
        /// The reason of the operator.
        reason: Arc<str>,
    },
    /// An outgoing event is larger than the extension's limit.
    #[error("an event of {size} bytes exceeds limits.input_bytes of extension {uri}, which is {limit}")]
    EventTooLarge {
        /// The extension.
        uri: ExtensionUri,
        /// Size of the event as JSON, in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The extension would hold back more chunks of the answer than it may.
    #[error(
        "extension {uri} would hold back too much: at most limits.input_bytes, {MAX_HELD_ARTIFACTS} artifacts, and \
         {MAX_HELD_CHUNKS} chunks of each"
    )]
    HoldsTooMuch {
        /// The extension.
        uri: ExtensionUri,
    },
}

/// Maximum length of [`Fault::text`], in bytes.
const MAX_TEXT: usize = 4 << 10;

impl Fault {
    /// The fault and its cause as one printable line of at most 4 KiB. It may contain text of the guest.
    #[must_use]
    pub fn text(&self) -> String {
        let text = match self {
            // The stack is for the log only.
            Self::Trapped { source, .. } => format!("{self}: {source}"),
            _ => self.to_string(),
        };
        annex_text::line_within(&text, MAX_TEXT)
    }

    /// The extension.
    #[must_use]
    pub fn uri(&self) -> &ExtensionUri {
        match self {
            Self::Trapped { uri, .. }
            | Self::LimitReached { uri, .. }
            | Self::Failed { uri, .. }
            | Self::BrokeContract { uri, .. }
            | Self::Overloaded { uri }
            | Self::Busy { uri, .. }
            | Self::Quarantined { uri, .. }
            | Self::Revoked { uri, .. }
            | Self::EventTooLarge { uri, .. }
            | Self::HoldsTooMuch { uri } => uri,
        }
    }

    /// The error id that the client gets and the extension's log lines have. `None` if the guest did not run.
    #[must_use]
    pub fn error_id(&self) -> Option<Uuid> {
        match self {
            Self::Trapped { error_id, .. }
            | Self::LimitReached { error_id, .. }
            | Self::Failed { error_id, .. }
            | Self::BrokeContract { error_id, .. } => Some(*error_id),
            Self::Overloaded { .. }
            | Self::Busy { .. }
            | Self::Quarantined { .. }
            | Self::Revoked { .. }
            | Self::EventTooLarge { .. }
            | Self::HoldsTooMuch { .. } => None,
        }
    }

    /// True if the guest caused the failure. False for an overload of the host, and for an answer of the agent that is
    /// too large.
    pub(crate) fn is_of_guest(&self) -> bool {
        match self {
            Self::Trapped { .. } | Self::LimitReached { .. } | Self::Failed { .. } | Self::BrokeContract { .. } => true,
            Self::Overloaded { .. } | Self::Busy { .. } | Self::Quarantined { .. } | Self::Revoked { .. } => false,
            // The agent produced the events.
            Self::EventTooLarge { .. } | Self::HoldsTooMuch { .. } => false,
        }
    }
}

/// Why the hooks stopped a request.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The client's mistake, with text for the client.
    #[error(transparent)]
    Refused(#[from] A2aError),
    /// A failure of an extension.
    #[error(transparent)]
    Fault(#[from] Fault),
}

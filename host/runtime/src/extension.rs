//! One installed extension: a component that passed every check, with what the operator decided about it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use annex_protocol::{AgentExtension, ExtensionUri, Json, JsonObject};
use annex_schema::{Budget, Schemas, Workers};
use wasmtime::component::InstancePre;

use crate::bindings::Hooks;
use crate::breaker::{Breaker, Health};
use crate::contract::Events;
use crate::digest::Digest;
use crate::engine::Slots;
use crate::grants::Grants;
use crate::hook::Hook;
use crate::imports::http::Sender;
use crate::keyvalue::{KeyValueStore, Scope, Space};
use crate::limits::Limits;
use crate::log;
use crate::log_tail::{LogLine, LogTail};
use crate::method::Method;
use crate::metrics::{ExtensionMetrics, Meters, Registry};
use crate::store::HostState;

/// What the operator decides about a component when it is installed.
#[derive(Clone, Debug)]
pub struct Installation {
    /// What it may do.
    pub grants: Grants,
    /// What it may use.
    pub limits: Limits,
    /// Its parameters, checked against its own schema.
    pub parameters: JsonObject,
    /// Whether requests that do not activate it are refused.
    pub required: bool,
    /// What its failure does to a request. Required extensions must not be skipped.
    pub on_failure: OnFailure,
}

/// What becomes of a request when an extension fails it: traps, overruns a limit, breaks the contract, is quarantined or
/// overloaded. That an extension refuses a request is its verdict and no failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The request is refused, or its task fails.
    #[default]
    Reject,
    /// The request goes on without the extension, which does not count as active.
    Skip,
}

/// What every store of the extension shares. Nothing in it can be changed by a guest, but for the validators that it
/// had compiled.
pub(crate) struct Profile {
    pub(crate) uri: ExtensionUri,
    pub(crate) grants: Grants,
    pub(crate) limits: Limits,
    pub(crate) parameters: ParameterTexts,
    /// The metadata keys that the extension owns; none before it has said so.
    pub(crate) metadata_keys: Vec<String>,
    pub(crate) schemas: Schemas,
    /// The last lines that the component wrote.
    pub(crate) log: LogTail,
    /// What is counted, shared with the other versions of the URI.
    pub(crate) meters: Arc<Meters>,
    /// Its keys in the store of the host that outlive turns.
    pub(crate) space: Space,
    pub(crate) services: Services,
}

/// What the host does for an extension outside of its store.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) keyvalue: Arc<dyn KeyValueStore>,
    /// `None` without the grant.
    pub(crate) http: Option<Arc<Sender>>,
    pub(crate) metrics: Arc<Registry>,
    pub(crate) validators: Validators,
    /// Whose keys it sees; empty where there are no tenants.
    pub(crate) tenant: Arc<str>,
}

/// Bytes of validators that all extensions of a process may keep.
const KEPT_BY_ALL: usize = 64 << 20;
/// Bytes of the validators of methods that one tenant may have installed.
const PINNED_BY_TENANT: usize = 32 << 20;
/// Bytes of validators that the extensions of one tenant may keep.
const KEPT_BY_TENANT: usize = 24 << 20;

/// The host's work with JSON Schemas: its bounds, over the process and for one tenant.
#[derive(Clone)]
pub(crate) struct Validators {
    all: Arc<Budget>,
    tenant: Arc<Budget>,
    /// Those of methods, which are the operator's choice and are not dropped for others.
    pinned: Arc<Budget>,
    workers: Workers,
}

impl Default for Validators {
    fn default() -> Self {
        let all = Budget::new(KEPT_BY_ALL);
        let pinned = Budget::new(PINNED_BY_TENANT);
        Self { tenant: all.part(KEPT_BY_TENANT), all, pinned, workers: Workers::default() }
    }
}

impl Validators {
    /// Those of another tenant.
    pub(crate) fn of_tenant(&self) -> Self {
        let pinned = Budget::new(PINNED_BY_TENANT);
        let (all, workers) = (Arc::clone(&self.all), self.workers.clone());
        Self { tenant: self.all.part(KEPT_BY_TENANT), all, pinned, workers }
    }

    pub(crate) fn pinned(&self) -> &Arc<Budget> {
        &self.pinned
    }

    /// Those of one extension.
    fn of_extension(&self) -> Schemas {
        Schemas::new(&self.tenant, self.workers.clone())
    }
}

/// The parameters in the forms that a guest can ask for.
pub(crate) struct ParameterTexts {
    /// All of them as one JSON object.
    pub(crate) text: String,
    /// Each by itself: a string as it is, anything else as JSON text.
    pub(crate) plain: BTreeMap<String, String>,
}

impl ParameterTexts {
    fn of(parameters: &JsonObject) -> Self {
        let plain = |value: &Json| value.to::<String>().unwrap_or_else(|_| value.get().to_owned());
        let plain = parameters.iter().map(|(key, value)| (key.to_owned(), plain(value))).collect();
        Self { text: parameters.to_json_string(), plain }
    }
}

impl Profile {
    pub(crate) fn new(uri: ExtensionUri, installation: &Installation, services: Services) -> Self {
        Self {
            space: Space { extension: uri.clone(), scope: Scope::lasting(&services.tenant) },
            meters: services.metrics.of(&uri),
            schemas: services.validators.of_extension(),
            services,
            uri,
            grants: installation.grants.clone(),
            limits: installation.limits,
            parameters: ParameterTexts::of(&installation.parameters),
            metadata_keys: Vec::new(),
            log: LogTail::default(),
        }
    }

    /// A guest's words as the operator may see them: one line, without secrets.
    pub(crate) fn words(&self, text: &str) -> String {
        log::shown(self, text, self.limits.log_line)
    }
}

/// What a component says about itself, checked.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// The extension's URI, which is its version too.
    pub uri: ExtensionUri,
    /// A short name.
    pub name: String,
    /// The component's own version.
    pub version: String,
    /// One sentence for the card.
    pub description: String,
    /// JSON Schema of its parameters, as text.
    pub parameter_schema: Option<String>,
    /// The metadata keys that it may read and write.
    pub metadata_keys: Vec<String>,
    /// URIs that must be active with it.
    pub depends_on: Vec<ExtensionUri>,
    /// The outgoing events that it wants to see.
    pub events: Events,
    /// Whether it wants those events as JSON.
    pub payload: bool,
}

/// An installed extension, ready to serve turns.
pub struct Extension {
    pub(crate) descriptor: Descriptor,
    pub(crate) profile: Arc<Profile>,
    pub(crate) card: AgentExtension,
    /// Bytes of that as JSON.
    pub(crate) card_bytes: usize,
    pub(crate) methods: Vec<Method>,
    pub(crate) program: Program,
    pub(crate) exported: Vec<Hook>,
    pub(crate) digest: Digest,
    pub(crate) size: usize,
    pub(crate) load_time: Duration,
    pub(crate) compiled: bool,
    pub(crate) on_failure: OnFailure,
    pub(crate) breaker: Breaker,
    /// Room for the turns that it serves at once.
    pub(crate) turns: Slots,
}

/// The linked component: instantiating it is all that is left to do for a turn.
pub(crate) struct Program {
    pub(crate) component: InstancePre<HostState>,
    pub(crate) hooks: Hooks,
    pub(crate) slots: Slots,
}

impl Extension {
    /// The URI by which clients activate it.
    #[must_use]
    pub fn uri(&self) -> &ExtensionUri {
        &self.descriptor.uri
    }

    /// What it says about itself.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Whether the operator requires it.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.card.required
    }

    /// What its failure does to a request.
    #[must_use]
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    pub(crate) fn may_be_skipped(&self) -> bool {
        self.on_failure == OnFailure::Skip && !self.is_required()
    }

    /// How it does: whether it is quarantined, and its failures.
    #[must_use]
    pub fn health(&self) -> Health {
        self.breaker.health()
    }

    /// Its entry on the Agent Card, made once at load.
    #[must_use]
    pub fn card(&self) -> &AgentExtension {
        &self.card
    }

    /// The methods that it adds to those of A2A.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    pub(crate) fn has_method(&self, name: &str) -> bool {
        self.methods.iter().any(|method| method.name == name)
    }

    /// The hooks that the component has.
    #[must_use]
    pub fn hooks(&self) -> &[Hook] {
        &self.exported
    }

    /// What it may do.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.profile.grants
    }

    /// Whether it may do exactly this, with these secrets.
    #[must_use]
    pub fn has_grants(&self, grants: &Grants) -> bool {
        self.profile.grants == *grants
    }

    /// What it may use.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.profile.limits
    }

    /// The last lines that it wrote, the oldest first.
    #[must_use]
    pub fn log(&self) -> Vec<LogLine> {
        self.profile.log.lines()
    }

    /// What its calls cost and how they ended.
    #[must_use]
    pub fn metrics(&self) -> ExtensionMetrics {
        self.profile.meters.read(&self.exported)
    }

    /// SHA-256 of the component file.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Bytes of the component file.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Time from the file's bytes to a passed self-test.
    #[must_use]
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// Whether loading compiled it, rather than taking it from the compile cache.
    #[must_use]
    pub fn was_compiled(&self) -> bool {
        self.compiled
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Extension");
        shown.field("uri", self.uri()).field("digest", &self.digest).finish_non_exhaustive()
    }
}

//! One installed extension: a component that passed every check, with what the operator decided about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use annex_keyvalue::KeyValueStore;
use annex_protocol::{AgentExtension, ExtensionUri};

use crate::confinement::breaker::{Breaker, Health};
use crate::confinement::grants::Grants;
use crate::confinement::limits::Limits;
use crate::confinement::profile::Profile;
use crate::confinement::slots::Slots;
use crate::contract::Events;
use crate::digest::Digest;
use crate::hook::Hook;
use crate::load::descriptor::Descriptor;
use crate::load::installation::OnFailure;
use crate::load::method::Method;
use crate::load::program::Program;
use crate::load::selection::Selection;
use crate::observation::log_tail::LogLine;
use crate::observation::metrics::ExtensionMetrics;
use crate::recording::slot::ObserverSlot;
use crate::recording::{Attention, TurnObserver};

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
    pub(crate) settings: Digest,
    pub(crate) size: usize,
    pub(crate) load_time: Duration,
    pub(crate) compiled: bool,
    pub(crate) selection: Selection,
    pub(crate) on_failure: OnFailure,
    pub(crate) breaker: Breaker,
    /// Room for the turns that it serves at once.
    pub(crate) turns: Slots,
    /// The observer of its turns, if there is one.
    pub(crate) observer: ObserverSlot,
}

impl Extension {
    /// The URI by which clients activate it.
    #[must_use]
    pub fn uri(&self) -> &ExtensionUri {
        &self.descriptor.uri
    }

    /// Its description of itself.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// True when the operator requires it.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.card.required
    }

    /// The requests that it is active for.
    #[must_use]
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The effect of its failure on a request.
    #[must_use]
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    pub(crate) fn may_be_skipped(&self) -> bool {
        // The card says that no request goes without a required extension, whatever happens to it.
        self.on_failure == OnFailure::Skip && !self.is_required()
    }

    /// Its health: whether it is quarantined, and its failures.
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

    /// Its grants.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.profile.grants
    }

    /// True when it has exactly these grants, with these secrets.
    #[must_use]
    pub fn has_grants(&self, grants: &Grants) -> bool {
        self.profile.grants == *grants
    }

    /// Its limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.profile.limits
    }

    /// The last lines that it wrote, the oldest first.
    #[must_use]
    pub fn log(&self) -> Vec<LogLine> {
        self.profile.log.lines()
    }

    /// The costs and the outcomes of its calls.
    #[must_use]
    pub fn metrics(&self) -> ExtensionMetrics {
        self.profile.meters.read(&self.exported)
    }

    /// The time in which its calls ran on a thread: the sum of [`HookMetrics::busy`](crate::HookMetrics::busy), which costs
    /// less to read than all numbers.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.profile.meters.busy()
    }

    /// From now on `observer` is told what it does in turns that begin. Returns false when another one is told already.
    #[must_use]
    pub fn observe(&self, observer: Arc<dyn TurnObserver>) -> bool {
        self.observer.set(observer)
    }

    /// Nobody is told any more. Turns that run are noted to their end.
    pub fn end_observation(&self) {
        self.observer.clear();
    }

    /// The questions that it is asked in turns, and the data that it is shown.
    #[must_use]
    pub fn attention(&self) -> Attention {
        let hooks = &self.program.hooks;
        Attention {
            metadata_keys: self.descriptor.metadata_keys.clone(),
            message: hooks.has(Hook::Message),
            transition: hooks.has(Hook::Transition),
            events: if hooks.has(Hook::Response) { self.descriptor.events } else { Events::default() },
            payload: self.descriptor.payload,
        }
    }

    /// The store of its keys.
    #[must_use]
    pub fn key_store(&self) -> &Arc<dyn KeyValueStore> {
        &self.profile.services.keyvalue
    }

    /// Text in which its secrets are replaced, also as JSON and URLs write them.
    #[must_use]
    pub fn without_secrets(&self, text: &str) -> String {
        self.profile.without_encoded_secrets(text)
    }

    /// SHA-256 of the component file.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// A digest of the operator's decisions about it, without the values of secrets. It is the same in all processes of one
    /// version of the software.
    #[must_use]
    pub fn settings(&self) -> Digest {
        self.settings
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

    /// True when loading compiled it: its code was neither in use nor in the compile cache.
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

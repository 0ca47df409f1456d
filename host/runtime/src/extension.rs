//! An installed extension: a component that passed all checks, with the operator's settings for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use annex_keyvalue::KeyValueStore;
use annex_protocol::ExtensionUri;

use crate::card_slot::CardSlot;
use crate::confinement::breaker::{Breaker, Health};
use crate::confinement::grants::Grants;
use crate::confinement::limits::Limits;
use crate::confinement::profile::Profile;
use crate::confinement::slots::Slots;
use crate::contract::Events;
use crate::digest::Digest;
use crate::error::{Fault, LoadError};
use crate::hook::{Hook, HookSet};
use crate::load::descriptor::Descriptor;
use crate::load::installation::OnFailure;
use crate::load::method::Method;
use crate::load::program::Program;
use crate::load::selection::Selection;
use crate::observation::log_tail::LogLine;
use crate::observation::metrics::ExtensionMetrics;
use crate::recording::observer_slot::ObserverSlot;
use crate::recording::{Attention, TurnObserver};

/// An installed extension, ready to serve turns.
pub struct Extension {
    pub(crate) descriptor: Descriptor,
    pub(crate) profile: Arc<Profile>,
    /// The entry on the Agent Card.
    pub(crate) card: CardSlot,
    pub(crate) required: bool,
    pub(crate) methods: Vec<Method>,
    pub(crate) program: Program,
    pub(crate) exported: Vec<Hook>,
    /// The hooks in `exported`.
    pub(crate) hook_set: HookSet,
    pub(crate) digest: Digest,
    pub(crate) settings: Digest,
    pub(crate) size: usize,
    pub(crate) load_time: Duration,
    pub(crate) compiled: bool,
    pub(crate) selection: Selection,
    pub(crate) on_failure: OnFailure,
    pub(crate) breaker: Breaker,
    /// Limits the concurrent turns of the extension.
    pub(crate) turns: Slots,
    /// The observer of the extension's turns, if there is one.
    pub(crate) observer: ObserverSlot,
}

impl Extension {
    /// The URI by which clients activate the extension.
    #[must_use]
    pub fn uri(&self) -> &ExtensionUri {
        &self.descriptor.uri
    }

    /// The component's descriptor.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// True if the operator requires the extension.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// The requests that the extension is active for.
    #[must_use]
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The effect of a failure of the extension on a request.
    #[must_use]
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    pub(crate) fn may_be_skipped(&self) -> bool {
        // The card promises that no request skips a required extension.
        self.on_failure == OnFailure::Skip && !self.is_required()
    }

    /// The extension's failures and quarantine.
    #[must_use]
    pub fn health(&self) -> Health {
        self.breaker.health()
    }

    /// Takes the extension out of service until [`reinstate`](Self::reinstate). No hook of the extension is called any
    /// more: requests are refused, or skip the extension, as [`OnFailure`] says. A turn that has begun loses the
    /// extension at its next hook. A hook that runs now ends by itself, or at its time limit.
    pub fn revoke(&self, reason: &str) {
        if self.breaker.revoke(reason) {
            let (uri, digest, tenant) = (self.uri(), self.digest, &*self.profile.services.tenant);
            tracing::warn!(extension = %uri, %digest, tenant, "out of service: {reason}");
        }
    }

    /// Puts the extension back into service after [`revoke`](Self::revoke).
    pub fn reinstate(&self) {
        if self.breaker.reinstate() {
            let (uri, digest, tenant) = (self.uri(), self.digest, &*self.profile.services.tenant);
            tracing::warn!(extension = %uri, %digest, tenant, "in service again");
        }
    }

    /// Checks that the extension is not revoked.
    ///
    /// # Errors
    /// [`Fault::Revoked`].
    pub fn check_in_service(&self) -> Result<(), Fault> {
        match self.breaker.revocation() {
            Some(reason) => Err(Fault::Revoked { uri: self.uri().clone(), reason }),
            None => Ok(()),
        }
    }

    /// Checks that the operator has accepted the grants that the component declares. `accepted` has their names.
    ///
    /// # Errors
    /// [`LoadError::NotAccepted`].
    pub fn check_accepted(&self, accepted: &[String]) -> Result<(), LoadError> {
        self.program.code.inspection.check_accepted(accepted)
    }

    /// The methods that the extension adds to the methods of A2A.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    pub(crate) fn has_method(&self, name: &str) -> bool {
        self.methods.iter().any(|method| method.name == name)
    }

    /// The hooks that the component exports.
    #[must_use]
    pub fn hooks(&self) -> &[Hook] {
        &self.exported
    }

    /// The extension's grants.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.profile.grants
    }

    /// True if the extension has exactly these grants and secrets.
    #[must_use]
    pub fn has_grants(&self, grants: &Grants) -> bool {
        self.profile.grants == *grants
    }

    /// The extension's limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.profile.limits
    }

    /// The extension's last log lines, oldest first.
    #[must_use]
    pub fn log(&self) -> Vec<LogLine> {
        self.profile.log.lines()
    }

    /// Metrics of the extension's calls.
    #[must_use]
    pub fn metrics(&self) -> ExtensionMetrics {
        self.profile.meters.read(&self.exported)
    }

    /// Thread time of all calls: the sum of [`HookMetrics::busy`](crate::HookMetrics::busy), which is cheaper to read
    /// than all metrics.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.profile.meters.busy()
    }

    /// Sets the observer for turns that begin from now on. Returns false if another observer is set.
    #[must_use]
    pub fn observe(&self, observer: Arc<dyn TurnObserver>) -> bool {
        self.observer.set(observer)
    }

    /// Removes the observer. The observer still receives the turns that are running now.
    pub fn end_observation(&self) {
        self.observer.clear();
    }

    /// The events and data that the extension receives.
    #[must_use]
    pub fn attention(&self) -> Attention {
        let hooks = &self.program.hooks;
        Attention {
            metadata_keys: self.descriptor.metadata_keys.clone(),
            message: hooks.has(Hook::Message),
            transition: hooks.has(Hook::Transition),
            reply: hooks.has(Hook::Reply),
            steering: hooks.has(Hook::Steering),
            output: if hooks.has(Hook::Output) { self.descriptor.events } else { Events::default() },
            events: if hooks.has(Hook::Response) { self.descriptor.events } else { Events::default() },
            payload: self.descriptor.payload,
        }
    }

    /// The key-value store.
    #[must_use]
    pub fn key_store(&self) -> &Arc<dyn KeyValueStore> {
        &self.profile.services.keyvalue
    }

    /// Text with the extension's secrets replaced, including their JSON and URL encodings.
    #[must_use]
    pub fn without_secrets(&self, text: &str) -> String {
        self.profile.without_encoded_secrets(text)
    }

    /// SHA-256 of the component file.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Digest of the operator's settings, without the values of secrets. It is the same in all processes that run the
    /// same version of Annex.
    #[must_use]
    pub fn settings(&self) -> Digest {
        self.settings
    }

    /// Size of the component file in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Time from reading the file to the passed self-test.
    #[must_use]
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// True if loading compiled the component. False if its code was already in use, or came from the compile cache.
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

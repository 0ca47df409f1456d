//! One extension's part of a turn: whether it may run, its instance, its hooks, and what they may leave behind.

use std::mem;
use std::sync::Arc;

use annex_protocol::{A2aError, FieldViolation, Json, JsonObject, StreamResponse};
use tokio::sync::OwnedSemaphorePermit;
use wasmtime::Store;
use wasmtime::component::Instance as ComponentInstance;

use super::TurnRequest;
use crate::bindings::v0_1::annex::extension::types;
use crate::bindings::v0_1::exports::annex::extension::activation::Decision;
use crate::breaker::Admission;
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::Hook;
use crate::instance::Instance;
use crate::metrics::{Verdict, Watch};
use crate::outgoing;
use crate::store::{HostState, TurnReaders};

pub(super) struct Member {
    pub(super) extension: Arc<Extension>,
    instance: Slot,
    readers: TurnReaders,
    admission: Admission,
    /// The call that has just ended, until its result is looked at.
    watch: Option<Watch>,
    /// One of the turns that the extension serves at once.
    _turn: OwnedSemaphorePermit,
}

/// A member's instance.
enum Slot {
    /// No hook has run yet.
    Idle,
    Running(Instance),
    /// A hook failed or was broken off, or the member was left out. It takes no further part in the turn.
    Out,
}

impl Member {
    /// Runs the hooks of the way in. Returns the member and its state delta, or `None` when it stays inactive.
    pub(super) async fn enter(
        extension: &Arc<Extension>,
        request: &TurnRequest<'_>,
        seen: &types::Request,
        readers: TurnReaders,
    ) -> Result<Option<(Self, JsonObject)>, HookError> {
        let mut member = Self::admit(extension, readers).await?;
        let entered = member.run_way_in(request, seen).await;
        if let Err(HookError::Fault(fault)) = &entered {
            member.fail(fault);
        }
        Ok(entered?.map(|delta| (member, delta)))
    }

    /// Nothing of a quarantined extension is run, and none waits for it.
    async fn admit(extension: &Arc<Extension>, readers: TurnReaders) -> Result<Self, Fault> {
        let (uri, profile) = (|| extension.uri().clone(), &extension.profile);
        let admission = extension.breaker.admit().map_err(|next_trial| {
            profile.meters.add_quarantined_turn();
            Fault::Quarantined { uri: uri(), next_trial }
        })?;
        let turn = extension.turns.take(&profile.meters).await.ok_or_else(|| {
            profile.meters.add_busy_turn();
            Fault::Busy { uri: uri(), turns: profile.limits.turns }
        })?;
        let extension = Arc::clone(extension);
        Ok(Self { extension, instance: Slot::Idle, readers, admission, watch: None, _turn: turn })
    }

    async fn run_way_in(
        &mut self,
        request: &TurnRequest<'_>,
        seen: &types::Request,
    ) -> Result<Option<JsonObject>, HookError> {
        let activated = self.activate(seen).await;
        if !self.counted(Hook::Activation, activated)? {
            return Ok(None);
        }
        let validated = self.validate(request, seen).await;
        self.counted(Hook::State, validated).map(Some)
    }

    /// Counts the call of the hook that has just ended by what came of it. What was refused before the call counts too.
    fn counted<T, E>(&mut self, hook: Hook, result: Result<T, E>) -> Result<T, E>
    where
        for<'a> Verdict<'a>: From<&'a E>,
    {
        let refused = || result.is_err().then(|| Watch::new(&self.extension, hook));
        if let Some(watch) = self.watch.take().or_else(refused) {
            watch.end(&result.as_ref().map_or_else(Verdict::from, |_| Verdict::Passed));
        }
        result
    }

    /// Whether it takes no further part in the turn.
    pub(super) fn is_out(&self) -> bool {
        matches!(self.instance, Slot::Out)
    }

    /// Takes no further part in the turn, through no fault of its own.
    pub(super) fn leave(&mut self) {
        if let Slot::Running(_) = mem::replace(&mut self.instance, Slot::Out) {
            self.extension.breaker.succeeded(self.admission);
        }
    }

    /// Its instance is dropped with its store, and it takes no further part in the turn.
    fn fail(&mut self, fault: &Fault) {
        self.instance = Slot::Out;
        if fault.is_of_guest() {
            self.extension.breaker.failed(self.admission, fault);
        }
    }

    /// Lets it add its metadata to an event. After a failure it takes no further part in the turn.
    pub(super) async fn respond(&mut self, event: &mut StreamResponse) -> Result<(), Fault> {
        let responded = self.add_to(event).await;
        let responded = self.counted(Hook::Response, responded);
        if let Err(fault) = &responded {
            self.fail(fault);
        }
        responded
    }

    /// Runs one hook and measures it.
    async fn call<T>(
        &mut self,
        hook: Hook,
        body: impl AsyncFnOnce(&mut Store<HostState>, &ComponentInstance) -> wasmtime::Result<T>,
    ) -> Result<T, Fault> {
        let mut watch = Watch::new(&self.extension, hook);
        let called = watch.run(self.run(hook, body)).await;
        self.watch = Some(watch);
        called
    }

    /// Runs one hook in the member's instance, which is started by the first. A hook that fails or is broken off
    /// leaves no instance behind.
    async fn run<T>(
        &mut self,
        hook: Hook,
        body: impl AsyncFnOnce(&mut Store<HostState>, &ComponentInstance) -> wasmtime::Result<T>,
    ) -> Result<T, Fault> {
        let mut instance = match mem::replace(&mut self.instance, Slot::Out) {
            Slot::Running(instance) => instance,
            Slot::Idle | Slot::Out => {
                let readers = Some(self.readers.clone());
                Instance::start(&self.extension.program, &self.extension.profile, readers, hook).await?
            }
        };
        let value = instance.call(hook, body).await?;
        self.instance = Slot::Running(instance);
        Ok(value)
    }

    async fn activate(&mut self, seen: &types::Request) -> Result<bool, HookError> {
        let extension = Arc::clone(&self.extension);
        let Some(indices) = &extension.program.hooks.activation else { return Ok(true) };
        let decided = self
            .call(Hook::Activation, async |store, component| {
                indices.load(&mut *store, component)?.call_activate(store, seen).await
            })
            .await?;
        match decided {
            Ok(Decision::Active) => Ok(true),
            Ok(Decision::Inactive) if extension.is_required() => {
                Err(self.broke(Hook::Activation, "it stays inactive although it is required").into())
            }
            Ok(Decision::Inactive) => Ok(false),
            Err(error) => Err(self.own_error(Hook::Activation, error)?.into()),
        }
    }

    async fn validate(&mut self, request: &TurnRequest<'_>, seen: &types::Request) -> Result<JsonObject, HookError> {
        let extension = Arc::clone(&self.extension);
        let Some(indices) = &extension.program.hooks.state else { return Ok(JsonObject::new()) };
        let metadata = self.own_metadata(request)?;
        let validated = self
            .call(Hook::State, async |store, component| {
                indices.load(&mut *store, component)?.call_validate(store, seen, &metadata).await
            })
            .await?;
        match validated {
            Ok(None) => Ok(JsonObject::new()),
            Ok(Some(delta)) => Ok(self.check_delta(&delta)?),
            Err(types::Rejection::Error(error)) => Err(self.own_error(Hook::State, error)?.into()),
            Err(types::Rejection::Violations(violations)) if violations.is_empty() => {
                Err(self.broke(Hook::State, "it refused the request without naming a violation").into())
            }
            Err(types::Rejection::Violations(violations)) => {
                let violations = violations
                    .into_iter()
                    .map(|violation| FieldViolation { field: violation.pointer, description: violation.message });
                Err(A2aError::InvalidParams { violations: violations.collect() }.into())
            }
        }
    }

    /// The metadata under the keys that the extension owns; it sees no other.
    fn own_metadata(&self, request: &TurnRequest<'_>) -> Result<Vec<types::MetadataEntry>, A2aError> {
        let mut entries = Vec::new();
        let mut left = self.extension.profile.limits.input;
        let places = [
            (types::Location::Message, request.message, "/message/metadata/"),
            (types::Location::Request, request.request, "/metadata/"),
        ];
        for (location, metadata, pointer) in places {
            for key in &self.extension.descriptor.metadata_keys {
                let Some(value) = metadata.get(key) else { continue };
                left = left.checked_sub(value.get().len()).ok_or_else(|| self.too_large(pointer, key))?;
                entries.push(types::MetadataEntry { location, key: key.clone(), value: value.get().to_owned() });
            }
        }
        Ok(entries)
    }

    fn too_large(&self, place: &str, key: &str) -> A2aError {
        let field = format!("{place}{}", key.replace('~', "~0").replace('/', "~1"));
        let (uri, limit) = (self.extension.uri(), self.extension.profile.limits.input);
        let description = format!("extension {uri} takes at most {limit} bytes of metadata per request");
        A2aError::InvalidParams { violations: vec![FieldViolation { field, description }] }
    }

    fn check_delta(&self, delta: &str) -> Result<JsonObject, Fault> {
        let delta = JsonObject::parse(delta)
            .map_err(|error| self.broke(Hook::State, &format!("the delta is not a JSON object: {error}")))?;
        let forbidden = delta.keys().find(|key| !self.extension.profile.grants.may_write_key(key));
        match forbidden {
            Some(key) => Err(self.broke(Hook::State, &format!("the delta writes `{key}` without a grant for it"))),
            None => Ok(delta),
        }
    }

    /// An extension may answer with an error of its own, never with one that the protocol owns.
    fn own_error(&self, hook: Hook, error: types::ExtensionError) -> Result<A2aError, Fault> {
        let core = (-32_768..=-32_600).contains(&error.code) || (-32_099..=-32_000).contains(&error.code);
        if core {
            return Err(self.broke(hook, &format!("it forged the core error code {}", error.code)));
        }
        let data = error.data.map(Json::parse).transpose();
        let data = data.map_err(|reason| self.broke(hook, &format!("the error's data is not JSON: {reason}")))?;
        Ok(A2aError::Extension { uri: self.extension.uri().clone(), code: error.code, message: error.message, data })
    }

    async fn add_to(&mut self, event: &mut StreamResponse) -> Result<(), Fault> {
        let extension = Arc::clone(&self.extension);
        let Some(indices) = &extension.program.hooks.response else { return Ok(()) };
        let Some(seen) = outgoing::seen_event(event, &extension.descriptor) else { return Ok(()) };
        if self.is_out() {
            return Ok(());
        }
        self.check_size(seen.payload.as_deref())?;
        let patch = self
            .call(Hook::Response, async |store, component| {
                indices.load(&mut *store, component)?.call_respond(store, &seen).await
            })
            .await?;
        let patch = patch.map_err(|message| self.failed(Hook::Response, &message))?;
        let Some(patch) = patch else { return Ok(()) };
        let shown = match &mut self.instance {
            Slot::Running(instance) => instance.take_shown(),
            Slot::Idle | Slot::Out => None,
        };
        outgoing::apply_patch(event, &extension.descriptor, patch.metadata, shown)
            .map_err(|reason| self.broke(Hook::Response, &reason))
    }

    fn check_size(&self, payload: Option<&str>) -> Result<(), Fault> {
        let (size, limit) = (payload.map_or(0, str::len), self.extension.profile.limits.input);
        match size > limit {
            true => Err(Fault::EventTooLarge { uri: self.extension.uri().clone(), size, limit }),
            false => Ok(()),
        }
    }

    fn broke(&self, hook: Hook, reason: &str) -> Fault {
        Fault::BrokeContract { uri: self.extension.uri().clone(), hook, reason: self.extension.profile.words(reason) }
    }

    fn failed(&self, hook: Hook, message: &str) -> Fault {
        Fault::Failed { uri: self.extension.uri().clone(), hook, message: self.extension.profile.words(message) }
    }
}

/// What ran to the end without a fault went well. What was broken off tells nothing.
impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
    }
}

//! The active extensions of one turn, called in order on the way in and in reverse order on the way out.

use std::sync::Arc;

use annex_protocol::{
    A2aError, ContextId, ExtensionUri, FieldViolation, Json, JsonObject, Metadata, StreamResponse, TaskId,
};

use wasmtime::Store;
use wasmtime::component::Instance as ComponentInstance;

use crate::bindings::v0_1::annex::extension::types;
use crate::bindings::v0_1::exports::annex::extension::activation::Decision;
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::Hook;
use crate::instance::Instance;
use crate::metrics::{Verdict, Watch};
use crate::outgoing;
use crate::store::{HostState, SessionReader, TaskReader, TurnReaders};

/// The request as the hooks may see it.
pub struct TurnRequest<'a> {
    /// The A2A operation.
    pub operation: &'static str,
    /// The conversation, when it is known.
    pub context_id: Option<&'a ContextId>,
    /// The task that the message continues.
    pub task_id: Option<&'a TaskId>,
    /// Every URI that the client asked for.
    pub requested: &'a [ExtensionUri],
    /// `message.metadata`.
    pub message: &'a Metadata,
    /// `metadata` of the request.
    pub request: &'a Metadata,
    /// The session, for extensions with the grant.
    pub session: Arc<dyn SessionReader>,
    /// The task, for extensions with the grant.
    pub task: Arc<dyn TaskReader>,
}

/// The extensions that are active in one turn. Dropping it frees their instances.
#[derive(Default)]
pub struct Chain {
    members: Vec<Member>,
}

struct Member {
    extension: Arc<Extension>,
    instance: Slot,
    readers: TurnReaders,
    /// The call that has just ended, until its result is looked at.
    watch: Option<Watch>,
}

/// A member's instance.
enum Slot {
    /// No hook has run yet.
    Idle,
    Running(Instance),
    /// A hook failed; the turn has failed with it, and the events that say so go out without this extension.
    Failed,
}

impl Chain {
    /// Runs the hooks of the way in: each extension in order, `activation` then `state`.
    ///
    /// Returns the chain for the way out and the state delta of all extensions; a later one wins a key.
    ///
    /// # Errors
    /// When an extension refuses the request or fails. Nothing has happened then.
    pub async fn start(
        extensions: &[Arc<Extension>],
        request: &TurnRequest<'_>,
    ) -> Result<(Self, JsonObject), HookError> {
        let mut chain = Self::default();
        let mut delta = JsonObject::new();
        if extensions.is_empty() {
            return Ok((chain, delta));
        }
        let seen = seen_request(request);
        let readers = TurnReaders { session: Arc::clone(&request.session), task: Arc::clone(&request.task) };
        for extension in extensions {
            if !chain.has_all(&extension.descriptor.depends_on) {
                Self::check_optional(extension)?;
                continue;
            }
            let mut member = Member {
                extension: Arc::clone(extension),
                instance: Slot::Idle,
                readers: readers.clone(),
                watch: None,
            };
            let activated = member.activate(&seen).await;
            if !member.counted(activated)? {
                continue;
            }
            let validated = member.validate(request, &seen).await;
            delta.extend(member.counted(validated)?);
            chain.members.push(member);
        }
        Ok((chain, delta))
    }

    fn has_all(&self, uris: &[ExtensionUri]) -> bool {
        uris.iter().all(|uri| self.active().any(|active| active == uri))
    }

    /// An extension whose dependency chose to stay inactive stays inactive too, unless the operator requires it.
    fn check_optional(extension: &Extension) -> Result<(), Fault> {
        if !extension.is_required() {
            return Ok(());
        }
        let reason = "it is required, and an extension that it depends on stays inactive".to_owned();
        Err(Fault::BrokeContract { uri: extension.uri().clone(), hook: Hook::Activation, reason })
    }

    /// The URIs that are active, for the echo.
    pub fn active(&self) -> impl Iterator<Item = &ExtensionUri> {
        self.members.iter().map(|member| member.extension.uri())
    }

    /// The extensions that are active.
    pub fn extensions(&self) -> impl Iterator<Item = &Arc<Extension>> {
        self.members.iter().map(|member| &member.extension)
    }

    /// Lets each extension add its metadata to an outgoing event, in reverse order.
    ///
    /// # Errors
    /// When an extension fails or writes what is not its own; the event must not be sent then.
    pub async fn respond(&mut self, event: &mut StreamResponse) -> Result<(), Fault> {
        for member in self.members.iter_mut().rev() {
            let responded = member.respond(event).await;
            member.counted(responded)?;
        }
        Ok(())
    }
}

impl Member {
    /// Runs one hook and measures it.
    async fn call<T>(
        &mut self,
        hook: Hook,
        body: impl AsyncFnOnce(&mut Store<HostState>, &ComponentInstance) -> wasmtime::Result<T>,
    ) -> Result<T, Fault> {
        let mut watch = Watch::new(&self.extension, hook);
        let called = watch.run(self.enter(hook, body)).await;
        self.watch = Some(watch);
        called
    }

    /// Counts the call that has just ended, if there was one, by what came of it.
    fn counted<T, E>(&mut self, result: Result<T, E>) -> Result<T, E>
    where
        for<'a> Verdict<'a>: From<&'a E>,
    {
        if let Some(watch) = self.watch.take() {
            watch.end(&result.as_ref().map_or_else(Verdict::from, |_| Verdict::Passed));
        }
        result
    }

    /// Runs one hook in the member's instance, which is started by the first. An instance that failed is dropped with
    /// its store, and the member takes no further part in the turn.
    async fn enter<T>(
        &mut self,
        hook: Hook,
        body: impl AsyncFnOnce(&mut Store<HostState>, &ComponentInstance) -> wasmtime::Result<T>,
    ) -> Result<T, Fault> {
        let mut instance = match std::mem::replace(&mut self.instance, Slot::Failed) {
            Slot::Running(instance) => instance,
            Slot::Idle | Slot::Failed => {
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

    async fn respond(&mut self, event: &mut StreamResponse) -> Result<(), Fault> {
        let extension = Arc::clone(&self.extension);
        let Some(indices) = &extension.program.hooks.response else { return Ok(()) };
        let Some(seen) = outgoing::seen_event(event, &extension.descriptor) else { return Ok(()) };
        if matches!(self.instance, Slot::Failed) {
            return Ok(());
        }
        let patch = self
            .call(Hook::Response, async |store, component| {
                indices.load(&mut *store, component)?.call_respond(store, &seen).await
            })
            .await?;
        let patch = patch.map_err(|message| self.failed(Hook::Response, message))?;
        let Some(patch) = patch else { return Ok(()) };
        let shown = match &mut self.instance {
            Slot::Running(instance) => instance.take_shown(),
            Slot::Idle | Slot::Failed => None,
        };
        outgoing::apply(event, &extension.descriptor, patch.metadata, shown)
            .map_err(|reason| self.broke(Hook::Response, &reason))
    }

    fn broke(&self, hook: Hook, reason: &str) -> Fault {
        Fault::BrokeContract { uri: self.extension.uri().clone(), hook, reason: reason.to_owned() }
    }

    fn failed(&self, hook: Hook, message: String) -> Fault {
        Fault::Failed { uri: self.extension.uri().clone(), hook, message }
    }
}

fn seen_request(request: &TurnRequest<'_>) -> types::Request {
    types::Request {
        operation: request.operation.to_owned(),
        context_id: request.context_id.map(ToString::to_string),
        task_id: request.task_id.map(ToString::to_string),
        requested: request.requested.iter().map(ToString::to_string).collect(),
    }
}

//! The hooks of the way in: `activation`, `message`, `state`.

use std::sync::Arc;

use annex_protocol::{A2aError, FieldViolation, Json, JsonObject, Part};

use super::Member;
use crate::bindings::SeenRequest;
use crate::chain::TurnRequest;
use crate::chain::rewriting;
use crate::contract::{Decision, Location, MetadataEntry};
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::Hook;
use crate::recording::recorder::TurnRecorder;
use crate::recording::step::StepResult;

/// An extension's changes to a request.
#[derive(Default)]
pub(in crate::chain) struct RequestChanges {
    /// The keys of session state that the extension sets, with their new values.
    pub(in crate::chain) delta: JsonObject,
    /// The parts of the message, if the extension rewrote them.
    pub(in crate::chain) parts: Option<Vec<Part>>,
}

/// A value of the request under a key that the extension owns.
struct OwnValue<'a> {
    location: Location,
    /// JSON pointer to the metadata that contains the key.
    pointer: &'static str,
    key: &'a str,
    value: &'a Json,
}

impl Member {
    /// Runs the hooks of the way in on a message with `parts`. Returns the member and its changes, or `None` if the
    /// extension stays inactive.
    pub(in crate::chain) async fn enter(
        extension: &Arc<Extension>,
        request: &TurnRequest<'_>,
        seen: &SeenRequest,
        parts: &[Part],
    ) -> Result<Option<(Self, RequestChanges)>, HookError> {
        let mut member = Self::admit(extension, Arc::clone(&request.view)).await?;
        if extension.profile.grants.forget_metadata && member.own_values(request).next().is_some() {
            member.notes(TurnRecorder::leave_out);
        }
        member.notes(|recorder| recorder.request(request.head(), (request.message, request.request), parts));
        let entered = member.run_way_in(request, seen, parts).await;
        member.noted(&entered, |entered| match entered {
            Some(RequestChanges { delta, parts }) => StepResult::Active { delta: delta.clone(), parts: parts.clone() },
            None => StepResult::Inactive,
        });
        member.fails_by(&entered);
        Ok(entered?.map(|changes| (member, changes)))
    }

    async fn run_way_in(
        &mut self,
        request: &TurnRequest<'_>,
        seen: &SeenRequest,
        parts: &[Part],
    ) -> Result<Option<RequestChanges>, HookError> {
        if !self.takes_part(seen).await? {
            return Ok(None);
        }
        // The earlier turn has checked the message and stored it with its state delta.
        if request.resumed {
            return Ok(Some(RequestChanges::default()));
        }
        // The contract guarantees `message` before `state`, both in the instance that ran `activation`.
        let checked = self.check(request, seen, parts).await;
        let parts = self.counted(Hook::Message, checked)?;
        let validated = self.validate(request, seen).await;
        let delta = self.counted(Hook::State, validated)?;
        Ok(Some(RequestChanges { delta, parts }))
    }

    /// True if the extension is active for the request.
    pub(crate) async fn takes_part(&mut self, seen: &SeenRequest) -> Result<bool, HookError> {
        let activated = self.activate(seen).await;
        self.counted(Hook::Activation, activated)
    }

    async fn activate(&mut self, seen: &SeenRequest) -> Result<bool, HookError> {
        let is_active = self.decide_on(seen).await?;
        if !is_active && self.extension.is_required() {
            // Skipping a required extension would accept a request that the card declares impossible.
            return Err(self.broke(Hook::Activation, "it stays inactive although it is required").into());
        }
        Ok(is_active)
    }

    /// True if the extension wants to be active for the request. The answer is true without the hook `activation`.
    pub(super) async fn decide_on(&mut self, seen: &SeenRequest) -> Result<bool, HookError> {
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        if !hooks.has(Hook::Activation) {
            return Ok(true);
        }
        let decided =
            self.call(Hook::Activation, async |store, component| hooks.activate(store, component, seen).await).await?;
        match decided {
            Ok(Decision::Active) => Ok(true),
            Ok(Decision::Inactive) => Ok(false),
            Err(error) => Err(self.own_error(Hook::Activation, error)?.into()),
        }
    }

    /// Runs the hook `message`. Returns the new parts of the message, or `None` if the extension leaves the parts
    /// unchanged.
    async fn check(
        &mut self,
        request: &TurnRequest<'_>,
        seen: &SeenRequest,
        parts: &[Part],
    ) -> Result<Option<Vec<Part>>, HookError> {
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        if !hooks.has(Hook::Message) {
            return Ok(None);
        }
        // Checked first, because this error names the key.
        self.own_metadata(request)?;
        let message = rewriting::shown(request.message, parts, &extension.descriptor);
        self.check_message_size(&message)?;
        let checked = self
            .call(Hook::Message, async |store, component| hooks.check(store, component, seen, message).await)
            .await?;
        match checked {
            Ok(rewrites) if rewrites.is_empty() => Ok(None),
            // This grant has no import that the linker could withhold, so it is checked here.
            Ok(_) if !extension.profile.grants.rewrite_message => {
                Err(self.broke(Hook::Message, "it rewrites the message without the grant rewrite-message").into())
            }
            Ok(rewrites) => {
                let rewritten = rewriting::rewrite(parts, rewrites, &extension.descriptor.metadata_keys);
                Ok(Some(rewritten.map_err(|reason| self.broke(Hook::Message, &reason))?))
            }
            Err(rejection) => Err(self.refusal(Hook::Message, rejection)?.into()),
        }
    }

    async fn validate(&mut self, request: &TurnRequest<'_>, seen: &SeenRequest) -> Result<JsonObject, HookError> {
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        if !hooks.has(Hook::State) {
            return Ok(JsonObject::new());
        }
        let metadata = self.own_metadata(request)?;
        let validated = self
            .call(Hook::State, async |store, component| hooks.validate(store, component, seen, metadata).await)
            .await?;
        match validated {
            Ok(None) => Ok(JsonObject::new()),
            Ok(Some(delta)) => Ok(self.check_delta(&delta, request)?),
            Err(rejection) => Err(self.refusal(Hook::State, rejection)?.into()),
        }
    }

    /// Collects the metadata entries of the request whose keys the extension owns. An error means that these entries
    /// exceed the extension's input limit.
    fn own_metadata(&self, request: &TurnRequest<'_>) -> Result<Vec<MetadataEntry>, A2aError> {
        let mut entries = Vec::new();
        // All entries are arguments of one call, so they share one limit.
        let mut left = self.extension.profile.limits.input;
        for OwnValue { location, pointer, key, value } in self.own_values(request) {
            left = left.checked_sub(value.get().len()).ok_or_else(|| self.too_large(pointer, key))?;
            entries.push(MetadataEntry { location, key: key.to_owned(), value: value.get().to_owned() });
        }
        Ok(entries)
    }

    fn own_values<'a>(&'a self, request: &'a TurnRequest<'_>) -> impl Iterator<Item = OwnValue<'a>> {
        let places = [
            (Location::Message, &request.message.metadata, "/message/metadata/"),
            (Location::Request, request.request, "/metadata/"),
        ];
        let keys = &self.extension.descriptor.metadata_keys;
        places.into_iter().flat_map(move |(location, metadata, pointer)| {
            let own = move |key: &'a String| Some(OwnValue { location, pointer, key, value: metadata.get(key)? });
            keys.iter().filter_map(own)
        })
    }

    fn too_large(&self, place: &str, key: &str) -> A2aError {
        // A JSON pointer (RFC 6901) escapes these two characters.
        let field = format!("{place}{}", key.replace('~', "~0").replace('/', "~1"));
        let uri = self.extension.uri();
        let limit = self.extension.profile.limits.input;
        let description = format!("extension {uri} takes at most {limit} bytes of metadata per request");
        A2aError::InvalidParams { violations: vec![FieldViolation { field, description }] }
    }

    fn check_delta(&self, delta: &str, request: &TurnRequest<'_>) -> Result<JsonObject, Fault> {
        // What the client sent was checked when it came, and many a delta is just that.
        let read = match self.own_values(request).find(|own| own.value.get() == delta) {
            Some(sent) => sent.value.deserialize(),
            None => JsonObject::parse(delta),
        };
        let delta =
            read.map_err(|error| self.broke(Hook::State, &format!("the delta is not a JSON object: {error}")))?;
        // One forbidden key refuses the whole delta. The rest would be a state that the extension did not intend.
        let forbidden = delta.keys().find(|key| !self.extension.profile.grants.may_write_key(key));
        match forbidden {
            Some(key) => Err(self.broke(Hook::State, &format!("the delta writes `{key}` without a grant for it"))),
            None => Ok(delta),
        }
    }
}

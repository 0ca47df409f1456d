//! Runs the hook `client` of an extension: the extension adds to the call of a client, and reads the answer.

use std::sync::Arc;

use annex_protocol::{A2aError, AgentExtension, Json, Message, Metadata, StreamResponse};

use crate::chain::Member;
use crate::chain::outgoing;
use crate::chain::owned_metadata;
use crate::chain::rewriting;
use crate::contract::{ClientEvent, ClientRequest, Location};
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::Hook;
use crate::turn_view::{NoTurn, TurnView};

/// A call that a client is about to make to an agent.
#[derive(Clone, Copy, Debug)]
pub struct ClientCallRequest<'a> {
    /// The A2A operation, or the method of an extension.
    pub operation: &'a str,
    /// URL of the agent's card.
    pub agent: &'a str,
    /// The extension's entry on the agent's card. `None` if the card has no entry for the extension.
    pub declaration: Option<&'a AgentExtension>,
    /// The calling program's input for the extension. The extension decides how the input is sent.
    pub input: Option<&'a Json>,
    /// The message, if the operation has one.
    pub message: Option<&'a Message>,
}

/// The extension's addition to a call.
#[derive(Clone, Debug, Default)]
pub struct Addition {
    /// True if the extension's URI goes into the header `A2A-Extensions`.
    pub activate: bool,
    /// Entries for `message.metadata`.
    pub message: Metadata,
    /// Entries for `metadata` of the request.
    pub request: Metadata,
}

/// The state of one extension during one call of a client. Dropping this value frees the extension's instance.
pub struct ClientCall {
    member: Member,
    /// True if the extension set [`Addition::activate`].
    is_asked_for: bool,
}

impl ClientCall {
    /// Lets the extension add to a call. An extension without the hook `client` adds nothing.
    ///
    /// # Errors
    /// The extension refuses the call or fails. The call must not be made then.
    pub async fn start(
        extension: &Arc<Extension>,
        call: &ClientCallRequest<'_>,
    ) -> Result<(Self, Addition), HookError> {
        Self::start_in(extension, call, Arc::new(NoTurn)).await
    }

    /// Like [`start`](Self::start), but with a view that can replace services of the host. Tests use such a view to set
    /// the clock, for example. Other clients need no view, because they have no turn.
    ///
    /// # Errors
    /// The extension refuses the call or fails. The call must not be made then.
    pub async fn start_in(
        extension: &Arc<Extension>,
        call: &ClientCallRequest<'_>,
        view: Arc<dyn TurnView>,
    ) -> Result<(Self, Addition), HookError> {
        let mut started = Self { member: Member::admit(extension, view).await?, is_asked_for: false };
        let added = started.ask(call).await;
        let added = started.member.counted(Hook::Client, added);
        started.member.fails_by(&added);
        let added = added?;
        started.is_asked_for = added.activate;
        Ok((started, added))
    }

    /// Shows one event of the answer to the extension. `active` is true if the header of the answer names the extension
    /// as active. Returns the extension's output for the calling program, or `None` if it has none.
    ///
    /// # Errors
    /// The extension fails. It gets no further events then.
    pub async fn after(&mut self, event: &StreamResponse, active: bool) -> Result<Option<Json>, Fault> {
        let told = self.tell(event, active).await;
        let told = self.member.counted(Hook::Client, told).map_err(HookError::Fault);
        self.member.fails_by(&told);
        told.map_err(|error| match error {
            HookError::Fault(fault) => fault,
            HookError::Refused(refusal) => self.member.broke(Hook::Client, &refusal.to_string()),
        })
    }

    async fn ask(&mut self, call: &ClientCallRequest<'_>) -> Result<Addition, HookError> {
        let extension = Arc::clone(&self.member.extension);
        let hooks = &extension.program.hooks;
        if !hooks.has(Hook::Client) {
            return Ok(Addition::default());
        }
        let message = call.message.map(|message| rewriting::shown(message, &message.parts, &extension.descriptor));
        let declaration = call.declaration.and_then(|declaration| Json::from_serialize(declaration).ok());
        let seen = ClientRequest {
            operation: call.operation.to_owned(),
            agent: call.agent.to_owned(),
            declaration: declaration.map(|declaration| declaration.get().to_owned()),
            input: call.input.map(|input| input.get().to_owned()),
            message,
        };
        // All of these are arguments of one call, so they share one limit.
        let sizes = [&seen.declaration, &seen.input, &seen.message].map(|text| text.as_ref().map_or(0, String::len));
        let size = sizes.iter().sum::<usize>();
        let limit = extension.profile.limits.input;
        if size > limit {
            let reason = format!("extension {} takes calls of at most {limit} bytes; this has {size}", extension.uri());
            return Err(A2aError::invalid_params(reason).into());
        }
        let added =
            self.member.call(Hook::Client, async |store, component| hooks.before(store, component, seen).await).await?;
        let added = match added {
            Ok(added) => added,
            Err(rejection) => return Err(self.member.refusal(Hook::Client, rejection)?.into()),
        };
        let mut addition = Addition { activate: added.activate, ..Addition::default() };
        for entry in added.metadata {
            let (place, metadata) = match entry.location {
                Location::Message => ("message", &mut addition.message),
                Location::Request => ("request", &mut addition.request),
            };
            let entries = vec![(entry.key, entry.value)];
            let checked = outgoing::checked_entries(place, &extension.descriptor, entries, None);
            metadata.extend(checked.map_err(|reason| self.member.broke(Hook::Client, &reason))?);
        }
        Ok(addition)
    }

    async fn tell(&mut self, event: &StreamResponse, active: bool) -> Result<Option<Json>, Fault> {
        let extension = Arc::clone(&self.member.extension);
        let hooks = &extension.program.hooks;
        if !hooks.has(Hook::Client) || self.member.is_out() {
            return Ok(None);
        }
        // Not every agent echoes the header `A2A-Extensions`. But each lists an extension on the messages and
        // artifacts that the extension contributed to.
        let active = active || self.is_asked_for && owned_metadata::has_a_part(event, extension.uri());
        // The program gets the unchanged event. Only the guest's copy loses the metadata of others.
        let mut event = event.clone();
        owned_metadata::retain(&mut event, &extension.descriptor.metadata_keys);
        let shown = serde_json::to_string(&event).unwrap_or_default();
        self.member.check_size(shown.len())?;
        let seen = ClientEvent { active, event: shown, metadata: owned_metadata::entries(&mut event) };
        let told =
            self.member.call(Hook::Client, async |store, component| hooks.after(store, component, seen).await).await?;
        let told = told.map_err(|message| self.member.failed(Hook::Client, &message))?;
        let told = told.map(Json::parse).transpose();
        told.map_err(|error| {
            self.member.broke(Hook::Client, &format!("its output for the program is not JSON: {error}"))
        })
    }
}

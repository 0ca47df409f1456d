//! The active extensions of one turn, called in order on the way in and in reverse order on the way out.

use std::sync::Arc;

use annex_protocol::{ContextId, ExtensionUri, JsonObject, Metadata, StreamResponse, TaskId};

use crate::bindings::v0_1::annex::extension::types;
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::Hook;
use crate::store::{SessionReader, TaskReader, TurnReaders};
use crate::turn_services::TurnServices;

mod member;

use member::Member;

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
    /// What else there is for extensions with the grants.
    pub services: TurnServices,
}

/// The extensions that are active in one turn. Dropping it frees their instances.
#[derive(Default)]
pub struct Chain {
    members: Vec<Member>,
}

impl Chain {
    /// Runs the hooks of the way in: each extension in order, `activation` then `state`.
    ///
    /// Returns the chain for the way out and the state delta of all extensions; a later one wins a key. One that fails
    /// and may be skipped is in neither.
    ///
    /// # Errors
    /// When an extension refuses the request, or fails and may not be skipped. Nothing has happened then.
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
        let (session, task) = (Arc::clone(&request.session), Arc::clone(&request.task));
        let readers = TurnReaders { session, task, services: request.services.clone() };
        for extension in extensions {
            if !chain.has_all(&extension.descriptor.depends_on) {
                Self::check_optional(extension)?;
                continue;
            }
            match Member::enter(extension, request, &seen, readers.clone()).await {
                Ok(Some((member, own))) => {
                    delta.extend(own);
                    chain.members.push(member);
                }
                Ok(None) => {}
                Err(HookError::Fault(fault)) if extension.may_be_skipped() => log_skipped(extension, &fault),
                Err(error) => return Err(error),
            }
        }
        Ok((chain, delta))
    }

    fn has_all(&self, uris: &[ExtensionUri]) -> bool {
        uris.iter().all(|uri| self.active().any(|active| active == uri))
    }

    /// An extension whose dependency stays inactive or is skipped stays inactive too, unless the operator requires it.
    fn check_optional(extension: &Extension) -> Result<(), Fault> {
        if !extension.is_required() {
            return Ok(());
        }
        let reason = "it is required, and an extension that it depends on stays inactive".to_owned();
        Err(Fault::BrokeContract { uri: extension.uri().clone(), hook: Hook::Activation, reason })
    }

    /// The URIs that are active, for the echo. One that failed on the way out is no longer among them.
    pub fn active(&self) -> impl Iterator<Item = &ExtensionUri> {
        self.members.iter().filter(|member| !member.is_out()).map(|member| member.extension.uri())
    }

    /// The extensions that are active.
    pub fn extensions(&self) -> impl Iterator<Item = &Arc<Extension>> {
        self.members.iter().map(|member| &member.extension)
    }

    /// Lets each extension add its metadata to an outgoing event, in reverse order. One that fails and may be skipped
    /// adds nothing, to this event and to all later ones.
    ///
    /// # Errors
    /// When an extension fails or writes what is not its own, and may not be skipped; the event must not be sent then.
    pub async fn respond(&mut self, event: &mut StreamResponse) -> Result<(), Fault> {
        let mut skips = false;
        for member in self.members.iter_mut().rev() {
            match member.respond(event).await {
                Err(fault) if member.extension.may_be_skipped() => {
                    log_skipped(&member.extension, &fault);
                    skips = true;
                }
                other => other?,
            }
        }
        if skips { self.leave_out_dependents() } else { Ok(()) }
    }

    /// Whoever depends on a skipped extension takes no further part either.
    fn leave_out_dependents(&mut self) -> Result<(), Fault> {
        loop {
            let active: Vec<ExtensionUri> = self.active().cloned().collect();
            let lacks =
                |member: &&mut Member| member.extension.descriptor.depends_on.iter().any(|uri| !active.contains(uri));
            let Some(dependent) = self.members.iter_mut().filter(|member| !member.is_out()).find(lacks) else {
                return Ok(());
            };
            Self::check_optional(&dependent.extension)?;
            dependent.leave();
        }
    }
}

/// A quarantine has its own lines in the log, when it begins and when it ends.
fn log_skipped(extension: &Extension, fault: &Fault) {
    let uri = extension.uri();
    match fault {
        Fault::Quarantined { .. } => tracing::debug!(extension = %uri, "skipped: {}", fault.text()),
        _ => tracing::warn!(extension = %uri, "skipped in one turn: {}", fault.text()),
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

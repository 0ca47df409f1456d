//! GetExtendedAgentCard (A2A 1.0 section 3.1.11), whose entries extensions change for their readers (the hook
//! `extended-card`).
//!
//! The changes are in the answer to one read. A card that has changed is signed again. A failing extension never fails a
//! read.

use std::sync::Arc;

use annex_protocol::{A2aError, AgentCard, AgentExtension, ExtensionUri};
use annex_runtime::{Extension, Hook, ShownEntries, show_entries};

use crate::activation::{self, Occasion};
use crate::answer::Answer;
use crate::extension_set::ExtendedCard;
use crate::request_handler::RequestHandler;
use crate::service_parameters::ServiceParameters;
use crate::tasks::reading::{Read, ReadPermit, tell};

/// The operation as extensions get it, also for a client of 0.3.
const OPERATION: &str = "GetExtendedAgentCard";

impl RequestHandler {
    /// Performs GetExtendedAgentCard. The caller is authenticated, because a server without authentication has no
    /// extended card.
    ///
    /// # Errors
    /// [`A2aError::UnsupportedOperation`] if there is no extended card, and the errors of
    /// [`ExtensionSets::current`](crate::extension_set::ExtensionSets::current).
    pub(crate) async fn get_extended_agent_card(
        &self,
        call: &ServiceParameters,
    ) -> Result<Answer<Arc<AgentCard>>, A2aError> {
        let set = self.extensions.current()?;
        let reason = "this agent has no extended card; the public one is all there is";
        let none = || A2aError::UnsupportedOperation { reason: reason.to_owned() };
        let card = set.extended_card.as_ref().ok_or_else(none)?;
        if set.installed.shows_entries() {
            let extensions = activation::for_read(&set.installed, &Occasion::read(call), Hook::ExtendedCard);
            if !extensions.is_empty() {
                return Ok(self.for_tenant(self.show_card(call, &extensions, card)).await);
            }
        }
        Ok(Answer { value: Arc::clone(&card.card), active: Vec::new() })
    }

    /// Asks the extensions about their entries. The read has a permit, like a read of tasks, until the changed card is
    /// signed. So no more cards are signed at the same time than turns may run.
    async fn show_card(
        &self,
        call: &ServiceParameters,
        extensions: &[Arc<Extension>],
        card: &ExtendedCard,
    ) -> Answer<Arc<AgentCard>> {
        let Some(permit) = self.permit_for_read(call).await.map(Arc::new) else {
            return Answer { value: Arc::clone(&card.card), active: Vec::new() };
        };
        let read = Read { operation: OPERATION, context_id: None, task_id: None };
        let parts = self.parts_of_read(call, extensions);
        let request = parts.request(call, read);
        let entries = &card.card.capabilities.extensions;
        let ShownEntries { changed, mut active } = Box::pin(show_entries(extensions, &request, entries)).await;
        let mut shown = Arc::clone(&card.card);
        if !changed.is_empty() {
            match card.completed(&changed, &permit).await {
                Ok(completed) => shown = completed,
                // One entry may be the reason: a number that cannot be signed, or a size that the card has no room for.
                Err(_) => shown = one_by_one((card, &permit), changed, &mut active).await,
            }
        }
        tell(&active);
        Answer { value: shown, active }
    }
}

/// The card with each of the changed entries with which it can be completed. The other entries stay as they are, and
/// their extensions are removed from `active`.
async fn one_by_one(
    (card, permit): (&ExtendedCard, &Arc<ReadPermit>),
    changed: Vec<AgentExtension>,
    active: &mut Vec<ExtensionUri>,
) -> Arc<AgentCard> {
    let mut shown = Arc::clone(&card.card);
    let mut good = Vec::new();
    for entry in changed {
        let uri = entry.uri.clone();
        good.push(entry);
        match card.completed(&good, permit).await {
            Ok(completed) => shown = completed,
            Err(reason) => {
                good.pop();
                active.retain(|other| *other != uri);
                tracing::warn!(extension = %uri, "its entry on the extended card stays as it is: {reason}");
            }
        }
    }
    shown
}

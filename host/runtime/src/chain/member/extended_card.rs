//! The hook `extended-card`.

use std::sync::Arc;

use annex_protocol::{AgentExtension, JsonObject};

use super::Member;
use crate::bindings::SeenRequest;
use crate::chain::TurnRequest;
use crate::chain::entry_decision::EntryDecision;
use crate::contract::ShownEntry;
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::Hook;
use crate::load::card::EntryBasis;
use crate::recording::step::StepResult;

impl Member {
    /// Asks the extension how its entry differs for a reader of the extended card. `present` is the entry on the card.
    /// Returns `None` if the extension takes no part in the read.
    pub(in crate::chain) async fn show_entry(
        extension: &Arc<Extension>,
        request: &TurnRequest<'_>,
        seen: &SeenRequest,
        present: &AgentExtension,
    ) -> Result<Option<EntryDecision>, HookError> {
        let mut member = Self::admit(extension, Arc::clone(&request.view)).await?;
        member.notes(|recorder| recorder.extended_card(request.head(), present));
        let shown = member.show_entry_if_active(seen, present).await;
        member.noted(&shown, |decision| decision.clone().map_or(StepResult::Inactive, StepResult::ShowsEntry));
        member.fails_by(&shown);
        shown
    }

    async fn show_entry_if_active(
        &mut self,
        seen: &SeenRequest,
        present: &AgentExtension,
    ) -> Result<Option<EntryDecision>, HookError> {
        if !self.takes_part_in_read(Hook::ExtendedCard, seen).await? {
            return Ok(None);
        }
        let decided = self.ask_for_entry(seen, present).await;
        Ok(Some(self.counted(Hook::ExtendedCard, decided)?))
    }

    async fn ask_for_entry(&mut self, seen: &SeenRequest, present: &AgentExtension) -> Result<EntryDecision, Fault> {
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        let given = ShownEntry {
            description: present.description.clone(),
            params: present.params.as_ref().map(JsonObject::to_json_string),
        };
        self.check_size(given.description.len() + given.params.as_ref().map_or(0, String::len))?;
        let change = self
            .call(Hook::ExtendedCard, async |store, component| hooks.show_entry(store, component, seen, given).await)
            .await?;
        let change = change.map_err(|message| self.failed(Hook::ExtendedCard, &message))?;
        let basis = EntryBasis {
            descriptor: &extension.descriptor,
            selection: &extension.selection,
            required: extension.required,
        };
        let changed = basis.changed(present, change);
        let changed = changed.map_err(|error| self.broke(Hook::ExtendedCard, &error.reason()))?;
        Ok(if changed == *present { EntryDecision::Unchanged } else { EntryDecision::Replaced(changed) })
    }
}

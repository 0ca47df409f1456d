//! A read of the extended Agent Card, for which the hook `extended-card` changes entries of extensions.

use std::sync::Arc;

use annex_protocol::{AgentExtension, ExtensionUri};

use crate::card_slot::entry_bytes;
use crate::chain::entry_decision::EntryDecision;
use crate::chain::{Member, TurnRequest, log_left_out, log_skipped};
use crate::error::HookError;
use crate::extension::Extension;
use crate::installed::MAX_CARD_ENTRIES;

/// The changes to the extended card in the answer to one read.
#[derive(Debug, Default)]
pub struct ShownEntries {
    /// The entries that differ for the reader. Each replaces the entry with the same URI.
    pub changed: Vec<AgentExtension>,
    /// The extensions that took part in the read.
    pub active: Vec<ExtensionUri>,
}

/// Asks each extension in order how its entry differs for the reader of the extended card. `entries` are the entries of
/// the card. The hook `activation` runs first, in the same instance.
///
/// The hook never fails a read: if an extension fails or refuses, or if the card has no room for its entry, the reader
/// gets the entry as it is on the card.
pub async fn show_entries(
    extensions: &[Arc<Extension>],
    request: &TurnRequest<'_>,
    entries: &[AgentExtension],
) -> ShownEntries {
    let mut shown = ShownEntries::default();
    let mut room = Room::of(entries);
    let seen = request.seen();
    for extension in extensions {
        let Some(present) = entries.iter().find(|entry| entry.uri == *extension.uri()) else { continue };
        match Member::show_entry(extension, request, &seen, present).await {
            Ok(Some(EntryDecision::Unchanged)) => shown.active.push(extension.uri().clone()),
            Ok(Some(EntryDecision::Replaced(entry))) if room.takes(present, &entry) => {
                shown.active.push(extension.uri().clone());
                shown.changed.push(entry);
            }
            Ok(Some(EntryDecision::Replaced(_))) => {
                tracing::warn!(
                    extension = %extension.uri(),
                    "its entry on the extended card stays as it is, because the card has no room for the changed entry"
                );
            }
            Ok(None) => {}
            Err(HookError::Fault(fault)) => log_skipped(extension, &fault),
            Err(HookError::Refused(refusal)) => log_left_out(extension, &refusal),
        }
    }
    shown
}

/// The room that the card has for its entries, in bytes of JSON.
struct Room {
    used: usize,
    limit: usize,
}

impl Room {
    fn of(entries: &[AgentExtension]) -> Self {
        let used = entries.iter().fold(0_usize, |sum, entry| sum.saturating_add(entry_bytes(entry)));
        // The card may have further entries, those of a remote agent.
        Self { used, limit: used.max(MAX_CARD_ENTRIES) }
    }

    /// Exchanges `present` for `other`, if there is room. Returns false if there is none.
    fn takes(&mut self, present: &AgentExtension, other: &AgentExtension) -> bool {
        let used = self.used.saturating_sub(entry_bytes(present)).saturating_add(entry_bytes(other));
        let fits = used <= self.limit;
        if fits {
            self.used = used;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use annex_protocol::AgentExtension;

    use super::{MAX_CARD_ENTRIES, Room};
    use crate::card_slot::entry_bytes;

    fn entry(bytes: usize) -> AgentExtension {
        AgentExtension { description: "x".repeat(bytes), ..AgentExtension::default() }
    }

    #[test]
    fn entries_replace_others_as_long_as_the_card_has_room() {
        let [small, large] = [1_000, MAX_CARD_ENTRIES / 2].map(entry);
        let mut room = Room::of(&[small.clone(), small.clone(), small.clone()]);
        assert!(room.takes(&small, &large));
        assert!(!room.takes(&small, &large), "the second large entry");
        assert!(room.takes(&small, &entry(2_000)));
        let remaining = [&small, &large, &entry(2_000)].map(entry_bytes);
        assert_eq!(room.used, remaining.iter().sum::<usize>());
    }

    #[test]
    fn a_card_with_more_entries_than_usual_takes_entries_of_the_same_size() {
        let huge = entry(2 * MAX_CARD_ENTRIES);
        let mut room = Room::of(std::slice::from_ref(&huge));
        assert!(room.takes(&huge, &huge));
        assert!(!room.takes(&huge, &entry(2 * MAX_CARD_ENTRIES + 1)));
    }
}

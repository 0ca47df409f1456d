//! What depends on the installed extensions, made together and replaced as a whole.

use std::sync::{Arc, PoisonError, RwLock};

use annex_protocol::{AgentCard, AgentExtension};
use annex_runtime::Installed;

use crate::card::EncodedCard;

/// One set of installed extensions and the cards that declare it. Nothing in it ever changes.
pub(crate) struct Edition {
    /// Counts the editions of this process, from 1.
    pub(crate) number: u64,
    pub(crate) installed: Installed,
    /// Extensions of an agent that lives elsewhere, which are its own affair: none of them is installed here.
    pub(crate) passed_on: Vec<AgentExtension>,
    /// The public card.
    pub(crate) card: Arc<EncodedCard>,
    /// The card for authenticated callers.
    pub(crate) extended_card: Option<Arc<AgentCard>>,
    /// The card as 0.3 has it, encoded; empty when 0.3 is not spoken.
    pub(crate) card_v0_3: String,
}

/// Hands out the edition that is in force. A request takes one when it is accepted and keeps it to its end, so that
/// it never sees halves of two.
pub(crate) struct Editions {
    current: RwLock<Arc<Edition>>,
}

impl Editions {
    pub(crate) fn new(first: Edition) -> Self {
        Self { current: RwLock::new(Arc::new(first)) }
    }

    /// From now on requests get this one.
    pub(crate) fn replace(&self, edition: Edition) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(edition);
    }

    pub(crate) fn current(&self) -> Arc<Edition> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

//! The installed extensions, replaced as a whole.

use std::sync::{Arc, PoisonError, RwLock};

use annex_protocol::{AgentCard, AgentExtension};
use annex_runtime::Installed;

/// One set of installed extensions. Nothing in it ever changes.
pub struct ExtensionSet {
    /// Counts the sets of this process, from 1.
    pub number: u64,
    /// The extensions.
    pub installed: Installed,
    /// Extensions of an agent that lives elsewhere, which it handles itself: none of them is installed here.
    pub passed_on: Vec<AgentExtension>,
    /// The card for authenticated callers, which declares them.
    pub extended_card: Option<Arc<AgentCard>>,
}

/// Hands out the set that is in force. A request takes one when it is accepted and keeps it to its end, so that it never
/// sees halves of two.
pub struct ExtensionSets {
    current: RwLock<Arc<ExtensionSet>>,
}

impl ExtensionSets {
    /// Begins with the first one.
    pub fn new(first: Arc<ExtensionSet>) -> Arc<Self> {
        Arc::new(Self { current: RwLock::new(first) })
    }

    /// From now on requests get this one.
    pub fn replace(&self, set: Arc<ExtensionSet>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = set;
    }

    /// The set in force.
    pub fn current(&self) -> Arc<ExtensionSet> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

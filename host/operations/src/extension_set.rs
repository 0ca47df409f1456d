//! The installed extensions, replaced as a whole.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use annex_protocol::{A2aError, AgentCard, AgentExtension};
use annex_runtime::Installed;

/// One set of installed extensions. Nothing in it ever changes.
pub struct ExtensionSet {
    /// Counts the sets of this process, from 1; where processes agree on what is installed, those of all.
    pub number: u64,
    /// The extensions.
    pub installed: Installed,
    /// Extensions of an agent that lives elsewhere, which it handles itself: none of them is installed here.
    pub passed_on: Vec<AgentExtension>,
    /// The card for authenticated callers, which declares them.
    pub extended_card: Option<Arc<AgentCard>>,
}

/// Says why the set must not be used now, if it must not.
pub type Bar = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Hands out the set that is in force. A request takes one when it is accepted and keeps it to its end, so that it never
/// sees halves of two.
pub struct ExtensionSets {
    current: RwLock<Arc<ExtensionSet>>,
    /// Set where other processes may have put another set in force.
    bar: OnceLock<Bar>,
}

impl ExtensionSets {
    /// Begins with the first one.
    pub fn new(first: Arc<ExtensionSet>) -> Arc<Self> {
        Arc::new(Self { current: RwLock::new(first), bar: OnceLock::new() })
    }

    /// From now on requests get a set only while there is nothing against it. Said once.
    pub fn bar(&self, bar: Bar) {
        // A second one would be that of the same processes.
        drop(self.bar.set(bar));
    }

    /// From now on requests get this one.
    pub fn replace(&self, set: Arc<ExtensionSet>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = set;
    }

    /// The set in force, for a request.
    ///
    /// # Errors
    /// [`A2aError::Unavailable`] while this process does not know which one that is, or cannot serve it.
    pub fn current(&self) -> Result<Arc<ExtensionSet>, A2aError> {
        match self.bar.get().and_then(|bar| bar()) {
            Some(reason) => Err(A2aError::Unavailable { reason, retry_seconds: None }),
            None => Ok(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))),
        }
    }
}

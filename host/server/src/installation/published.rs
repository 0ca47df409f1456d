//! A set of extensions with the cards that declare it.

use std::sync::{Arc, PoisonError, RwLock};

use annex_operations::extension_set::{ExtensionSet, ExtensionSets};

use crate::installation::encoded_card::EncodedCard;

/// One set of extensions, and the cards that declare it. Nothing in it ever changes.
pub(crate) struct Published {
    pub(crate) extensions: Arc<ExtensionSet>,
    /// The public card.
    pub(crate) card: Arc<EncodedCard>,
    /// The card as 0.3 has it, encoded; empty when 0.3 is not spoken.
    pub(crate) card_v0_3: String,
}

/// The set and the cards that are in force.
pub(crate) struct Publisher {
    sets: Arc<ExtensionSets>,
    current: RwLock<Arc<Published>>,
}

impl Publisher {
    pub(crate) fn new(first: Published) -> Self {
        let sets = ExtensionSets::new(Arc::clone(&first.extensions));
        Self { sets, current: RwLock::new(Arc::new(first)) }
    }

    /// From now on requests are served with these extensions, and clients see these cards.
    pub(crate) fn replace(&self, published: Published) {
        // First the extensions: whoever sees a new card finds what it declares.
        self.sets.replace(Arc::clone(&published.extensions));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(published);
    }

    pub(crate) fn current(&self) -> Arc<Published> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The sets of extensions, from which requests take theirs.
    pub(crate) fn sets(&self) -> &Arc<ExtensionSets> {
        &self.sets
    }
}

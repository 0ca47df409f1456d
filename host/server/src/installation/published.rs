//! A set of extensions with the cards that declare it.

use std::sync::{Arc, PoisonError, RwLock};

use annex_operations::extension_set::{ExtensionSet, ExtensionSets};

use crate::installation::encoded_card::EncodedCard;

/// A set of extensions and the cards that declare it. It is immutable.
pub(crate) struct PublishedSet {
    pub(crate) extensions: Arc<ExtensionSet>,
    /// The public card.
    pub(crate) card: Arc<EncodedCard>,
    /// The JSON of the card in the form of 0.3. Empty if 0.3 is not served.
    pub(crate) card_v0_3: String,
}

/// The current set and its cards.
pub(crate) struct Publisher {
    sets: Arc<ExtensionSets>,
    current: RwLock<Arc<PublishedSet>>,
}

impl Publisher {
    pub(crate) fn new(first: PublishedSet) -> Self {
        let sets = ExtensionSets::new(Arc::clone(&first.extensions));
        Self { sets, current: RwLock::new(Arc::new(first)) }
    }

    /// Replaces the set and the cards for all further requests.
    pub(crate) fn replace(&self, published: PublishedSet) {
        // The extensions are replaced first, so that every client with a new card finds the extensions that the card
        // declares.
        self.sets.replace(Arc::clone(&published.extensions));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(published);
    }

    pub(crate) fn current(&self) -> Arc<PublishedSet> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The sets of extensions for the request handlers.
    pub(crate) fn sets(&self) -> &Arc<ExtensionSets> {
        &self.sets
    }
}

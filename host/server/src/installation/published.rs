//! A set of extensions with the cards that declare it.

use std::sync::{Arc, PoisonError, RwLock};

use annex_operations::extension_set::{ExtensionSet, ExtensionSets};
use annex_runtime::LiveEntry;
use tokio::time::Instant;

use crate::installation::encoded_card::{EncodedCard, MAX_AGE};

/// A set of extensions and the cards that declare it. It is immutable. A live entry that changes makes another set.
pub(crate) struct PublishedSet {
    pub(crate) extensions: Arc<ExtensionSet>,
    /// The public card.
    pub(crate) card: Arc<EncodedCard>,
    /// The JSON of the card in the form of 0.3. Empty if 0.3 is not served.
    pub(crate) card_v0_3: String,
    /// The entries on the cards that extensions declare again while they are installed.
    pub(crate) live: Vec<LiveEntry>,
}

impl PublishedSet {
    /// For how many seconds clients may use the public card: until an extension declares its entry again.
    pub(crate) fn max_age(&self, now: Instant) -> u64 {
        let due = self.extensions.installed.iter().filter_map(|extension| extension.next_declaration()).min();
        // An entry that is overdue stays for a moment: until it is declared, or the call fails.
        due.map_or(MAX_AGE, |due| due.saturating_duration_since(now).as_secs().clamp(1, MAX_AGE))
    }
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
        let now = Instant::now();
        for live in &published.live {
            if let Some(extension) = published.extensions.installed.get(&live.entry.uri) {
                extension.show_live(live, now);
            }
        }
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

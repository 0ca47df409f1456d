//! The set of installed extensions. A change replaces the whole set.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use annex_protocol::{A2aError, AgentCard, AgentExtension};
use annex_runtime::Installed;

/// One immutable set of installed extensions.
pub struct ExtensionSet {
    /// The number of the set. If processes share their extensions, this is the number of the edition. Otherwise each process
    /// counts its own sets from 1.
    pub number: u64,
    /// The extensions.
    pub installed: Installed,
    /// The extensions that a remote agent handles itself. The installed extensions are not among them.
    pub passed_on: Vec<AgentExtension>,
    /// The card for authenticated callers, which declares the extensions.
    pub extended_card: Option<ExtendedCard>,
}

/// The card for authenticated callers.
pub struct ExtendedCard {
    /// The card for callers for whom no extension changes its entry.
    pub card: Arc<AgentCard>,
    /// Signs copies of the card in which entries of extensions differ.
    pub complete: CompleteCard,
}

/// Checks the size of a card and signs it. Returns the reason if the card is too large or cannot be signed. The work
/// may take some milliseconds of CPU time.
pub type CompleteCard = Arc<dyn Fn(AgentCard) -> Result<AgentCard, String> + Send + Sync>;

impl ExtendedCard {
    /// The card with the entries `changed`, each in place of the entry with the same URI. The card is checked and signed
    /// on a thread where this work delays no other request. The work keeps `permit` until its end, also if the reader
    /// disconnects before.
    ///
    /// # Errors
    /// The reason why there is no such card.
    pub(crate) async fn completed<P: Send + Sync + 'static>(
        &self,
        changed: &[AgentExtension],
        permit: &Arc<P>,
    ) -> Result<Arc<AgentCard>, String> {
        let mut card = AgentCard::clone(&self.card);
        for present in &mut card.capabilities.extensions {
            if let Some(entry) = changed.iter().find(|entry| entry.uri == present.uri) {
                present.clone_from(entry);
            }
        }
        let (complete, permit) = (Arc::clone(&self.complete), Arc::clone(permit));
        let work = move || {
            let completed = complete(card);
            drop(permit);
            completed
        };
        let completed = tokio::task::spawn_blocking(work).await;
        completed.unwrap_or_else(|error| Err(error.to_string())).map(Arc::new)
    }
}

/// A check whether requests may use the current set. Returns the reason why no request may use it now, or `None` if
/// requests may.
pub type Bar = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Provides the current set. A request takes the set once, when the request is accepted, so it never sees a mixture of two
/// sets.
pub struct ExtensionSets {
    current: RwLock<Arc<ExtensionSet>>,
    /// The check that runs before a request gets the set. Unset if no other process can install another set.
    bar: OnceLock<Bar>,
}

impl ExtensionSets {
    /// Creates a provider whose current set is `first`.
    pub fn new(first: Arc<ExtensionSet>) -> Arc<Self> {
        Arc::new(Self { current: RwLock::new(first), bar: OnceLock::new() })
    }

    /// Installs the check that runs before a request gets the set. Only the first call has an effect.
    pub fn bar(&self, bar: Bar) {
        // A second check would be about the same processes.
        drop(self.bar.set(bar));
    }

    /// Replaces the set for all further requests.
    pub fn replace(&self, set: Arc<ExtensionSet>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = set;
    }

    /// The last set, if its extensions concern readers of tasks: they limit the readers of their metadata, or have the hook
    /// `reads`. Tasks are read also while no request may use the set, but the extensions of the set do not run then.
    pub(crate) fn for_readers(&self) -> Option<Arc<ExtensionSet>> {
        let last = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let installed = &last.installed;
        (installed.limits_readers() || installed.shows_tasks()).then(|| Arc::clone(&last))
    }

    /// The current set, for a new request.
    ///
    /// # Errors
    /// [`A2aError::Unavailable`] while this process does not know the current set or cannot serve it.
    pub fn current(&self) -> Result<Arc<ExtensionSet>, A2aError> {
        match self.bar.get().and_then(|bar| bar()) {
            Some(reason) => Err(A2aError::Unavailable { reason, retry_seconds: None }),
            None => Ok(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};
    use std::time::Duration;

    use futures::FutureExt;

    use super::{AgentCard, Arc, CompleteCard, ExtendedCard};

    #[tokio::test]
    async fn a_card_that_is_signed_keeps_its_permit_although_the_reader_is_gone() {
        let (begun, begins) = mpsc::channel::<()>();
        let (go, goes) = mpsc::channel::<()>();
        let goes = Mutex::new(goes);
        let complete: CompleteCard = Arc::new(move |card: AgentCard| {
            begun.send(()).expect("the test waits");
            goes.lock().expect("a lock").recv().expect("a word of the test");
            Ok(card)
        });
        let card = ExtendedCard { card: Arc::new(AgentCard::default()), complete };
        let permit = Arc::new("a permit");
        let mut completed = Box::pin(card.completed(&[], &permit));
        assert!(completed.as_mut().now_or_never().is_none());
        begins.recv().expect("the work begins");
        drop(completed);
        assert_eq!(Arc::strong_count(&permit), 2);
        go.send(()).expect("the work waits");
        while Arc::strong_count(&permit) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

//! Asks an extension again for its entry on the Agent Card, by the hook `live-card`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use annex_protocol::AgentExtension;
use futures::future::BoxFuture;
use tokio::time::Instant;
use uuid::Uuid;

use crate::card_slot::{LastDeclaration, LiveEntry};
use crate::contract::LiveCardEntry;
use crate::error::Fault;
use crate::extension::Extension;
use crate::hook::Hook;
use crate::load::card::{EntryBasis, ask_live};
use crate::observation::metrics::watch::{CallVerdict, Watch};
use crate::turn_view::NoTurn;

impl Extension {
    /// The extension's present entry on the Agent Card.
    #[must_use]
    pub fn card(&self) -> Arc<AgentExtension> {
        self.card.entry()
    }

    /// The present entry and its times. `None` if the extension has no hook `live-card`.
    #[must_use]
    pub fn live_entry(&self) -> Option<LiveEntry> {
        self.card.live_entry()
    }

    /// When the extension is to declare its entry again. `None` if the entry does not change before the next load.
    #[must_use]
    pub fn next_declaration(&self) -> Option<Instant> {
        if self.hook_set.has(Hook::LiveCard) { self.card.due() } else { None }
    }

    /// The last declaration. `None` if the extension has no hook `live-card`.
    #[must_use]
    pub fn last_declaration(&self) -> Option<LastDeclaration> {
        self.card.last_declaration()
    }

    /// Asks the extension for its entry. The present entry stays until [`show_live`](Self::show_live). The call counts
    /// like a turn of the extension, except that an error of the hook is no failure.
    ///
    /// # Errors
    /// The extension fails, is quarantined or revoked, or declares an entry that is not valid.
    pub fn declare_again(&self) -> BoxFuture<'_, Result<LiveEntry, Fault>> {
        Box::pin(async move {
            let admission = self.breaker.admit().map_err(|refusal| refusal.fault(self.uri()))?;
            let mut watch = Watch::new(self, Hook::LiveCard);
            let declared = watch.run(pin!(self.ask())).await;
            watch.end(&declared.as_ref().map_or_else(CallVerdict::from, |_| CallVerdict::Passed));
            match &declared {
                Ok(_) => self.breaker.succeeded(admission),
                // The contract allows the error. The entry stays as it is then.
                Err(Fault::Failed { .. }) => {}
                Err(fault) if fault.is_of_guest() => self.breaker.failed(admission, fault),
                Err(_) => {}
            }
            declared
        })
    }

    async fn ask(&self) -> Result<LiveEntry, Fault> {
        let failed = |message: String| {
            let message = self.profile.words(&message);
            Fault::Failed { uri: self.uri().clone(), error_id: Uuid::new_v4(), hook: Hook::LiveCard, message }
        };
        let LiveCardEntry { entry, seconds } =
            ask_live(&self.program, &self.profile, Arc::new(NoTurn)).await?.map_err(failed)?;
        let basis = EntryBasis { descriptor: &self.descriptor, selection: &self.selection, required: self.required };
        let entry = basis.entry(entry).map_err(|error| error.fault(self.uri(), Hook::LiveCard))?;
        let before = self.live_entry().map_or(0, |live| live.asked_at);
        Ok(LiveEntry::declared(entry, seconds, before))
    }

    /// Makes `live` the present entry. Its time begins at `now`, unless it is the present declaration already.
    pub fn show_live(&self, live: &LiveEntry, now: Instant) {
        self.card.show(live, now);
    }

    /// Notes that the extension could not be asked, or that its entry cannot be used. The present entry stays. The
    /// extension is asked again after `pause`; if `pause` is `None`, after the time for which its entry holds. Returns
    /// true if the previous call succeeded.
    #[must_use]
    pub fn keeps_entry(&self, reason: &str, pause: Option<Duration>, now: Instant) -> bool {
        self.card.fails(reason, pause, now)
    }
}

//! Declares the live entries of the cards again. If all processes share the cards, one of them declares for all.

use std::sync::Arc;
use std::time::Duration;

use annex_leases::editions::{Edition, EditionsError, Round};
use annex_runtime::{Extension, Fault, LiveEntry};
use annex_telemetry::fault;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::agreement::Agreement;
use super::prepared::PreparedChange;
use super::{InstallError, Installer};
use crate::installation::issuer::IssuedCards;
use crate::installation::live_cards::LiveCard;
use crate::installation::published::PublishedSet;

/// The time that a declaration for all processes may take beyond the call of the extension: for an instance, for the
/// signatures and for the database.
const BEYOND_CALL: Duration = Duration::from_secs(20);

/// Why an entry stays as it is.
struct Refusal {
    reason: String,
    /// The time until the extension is asked again. `None`: the time for which its entry holds.
    pause: Option<Duration>,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        let pause = match &fault {
            Fault::Quarantined { next_trial, .. } => Some(*next_trial),
            _ => None,
        };
        Self { reason: fault.text(), pause }
    }
}

impl LiveCard for Installer {
    fn overdue_since(&self, now: Instant) -> Option<Instant> {
        if self.declaring.try_lock().is_err() || self.bar().is_some() {
            return None;
        }
        self.overdue(now).map(|(since, _)| since)
    }

    fn declare_overdue(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Ok(_declaring) = self.declaring.try_lock() else { return };
            let Some((_, extension)) = self.overdue(Instant::now()) else { return };
            match self.agreement.as_deref().filter(|agreement| agreement.peers.share_cards) {
                None => self.declare_alone(&extension).await,
                Some(agreement) => {
                    // The entry stays overdue, so the next look tries again.
                    if let Err(error) = self.declare_for_all(agreement, &extension).await {
                        let tenant = self.tenant();
                        tracing::debug!(tenant, %error, "a live entry on the card cannot be declared for all replicas");
                    }
                }
            }
        })
    }
}

impl Installer {
    /// The installed extension whose entry is overdue for longest, and the time since which it is.
    fn overdue(&self, now: Instant) -> Option<(Instant, Arc<Extension>)> {
        let current = self.publisher.current();
        // Most cards have no live entry.
        if current.live.is_empty() {
            return None;
        }
        let due = current.extensions.installed.iter();
        let due = due.filter_map(|extension| Some((extension.next_declaration()?, extension)));
        let overdue = due.filter(|(since, _)| *since <= now).min_by_key(|(since, _)| *since);
        overdue.map(|(since, extension)| (since, Arc::clone(extension)))
    }

    /// True if the cards have entries that extensions declare again.
    pub(crate) fn has_live_entries(&self) -> bool {
        !self.publisher.current().live.is_empty()
    }

    /// Asks an extension for its entry, and makes the cards of this process again if the entry has changed.
    async fn declare_alone(&self, extension: &Extension) {
        let declared = extension.declare_again().await;
        // The extension may be slow, so nothing is locked before it has answered.
        let _door = self.door.lock().await;
        let _agreement = match &self.agreement {
            Some(agreement) => Some(agreement.door.lock().await),
            None => None,
        };
        let current = self.publisher.current();
        if !is_installed(&current, extension) {
            return;
        }
        match self.settle(&current, extension, declared) {
            Ok((_, Some(cards))) => self.publisher.replace(self.issuer.renewed(&current, cards)),
            Ok((live, None)) => extension.show_live(&live, Instant::now()),
            Err(refusal) => self.keep_entry(extension, &refusal),
        }
    }

    /// Checks a declaration against the other entries. Returns it with the new cards; without cards if the entry is the
    /// same as before.
    fn settle(
        &self,
        current: &PublishedSet,
        extension: &Extension,
        declared: Result<LiveEntry, Fault>,
    ) -> Result<(LiveEntry, Option<IssuedCards>), Refusal> {
        let live = declared?;
        if *extension.card() == live.entry {
            return Ok((live, None));
        }
        let installed = &current.extensions.installed;
        installed.check_entry(&live.entry).map_err(|error| Refusal { reason: error.to_string(), pause: None })?;
        let cards = self.issuer.cards_with(installed, Some(&live));
        let cards = cards.map_err(|error| Refusal { reason: fault::text(&error), pause: None })?;
        Ok((live, Some(cards)))
    }

    fn keep_entry(&self, extension: &Extension, refusal: &Refusal) {
        let reason = extension.without_secrets(&refusal.reason);
        // Only the first of several failures is logged. `annex extension show` has the last one.
        if extension.keeps_entry(&reason, refusal.pause, Instant::now()) {
            let (tenant, uri) = (self.tenant(), extension.uri());
            tracing::warn!(tenant, extension = %uri, "its entry on the agent card stays as it was: {reason}");
        }
    }

    /// Asks an extension for its entry in place of all processes, and gives all of them the new cards. Does nothing if
    /// another process asks.
    async fn declare_for_all(&self, agreement: &Agreement, extension: &Extension) -> Result<(), EditionsError> {
        // Each process has its own deny file.
        if let Err(fault) = extension.check_in_service() {
            self.keep_entry(extension, &Refusal::from(fault));
            return Ok(());
        }
        // Another process may be able to ask.
        if let Some(next_trial) = extension.health().quarantined.filter(|next_trial| !next_trial.is_zero()) {
            let refusal = Refusal::from(Fault::Quarantined { uri: extension.uri().clone(), next_trial });
            self.keep_entry(extension, &refusal);
            return Ok(());
        }
        let editions = &agreement.peers.editions;
        let replica = editions.lease().replica();
        let served = agreement.served();
        let round = Round { tenant: self.tenant(), number: served.number, renewals: served.renewals };
        if !self.makes_cards_of(&served) {
            let reason = "the cards in force come from another config than that of this replica".to_owned();
            self.keep_entry(extension, &Refusal { reason, pause: None });
            return Ok(());
        }
        if !editions.claim(&replica, &round, extension.limits().turn_wall + BEYOND_CALL).await? {
            return Ok(());
        }
        let declared = extension.declare_again().await;
        let _door = agreement.door.lock().await;
        let current = self.publisher.current();
        if agreement.number() != served.number || !is_installed(&current, extension) {
            return Ok(());
        }
        let settled = self.settle(&current, extension, declared);
        let Some(cards) = self.cards_for_all(extension, &served, &settled) else { return Ok(()) };
        let Ok(written) = serde_json::to_string(&cards) else { return Ok(()) };
        if !editions.renew(&replica, &round, &written).await? {
            // The time of the claim was over, and another process has asked since.
            return Ok(());
        }
        self.publisher.replace(self.issuer.renewed(&current, cards));
        agreement.renew(Edition { renewals: served.renewals.saturating_add(1), cards: written, ..served.clone() });
        agreement.tell(served.number);
        Ok(())
    }

    /// True if this process would make the cards of the edition again as they are, apart from the signatures. During a
    /// rollout some processes have another config.
    fn makes_cards_of(&self, served: &Edition) -> bool {
        let says = self.issuer.says(&self.publisher.current().extensions.installed);
        let present = serde_json::from_str::<IssuedCards>(&served.cards);
        matches!((says, present), (Ok(says), Ok(present)) if present.says == says)
    }

    /// The cards for all processes after a declaration. `None` if the present cards cannot be read.
    fn cards_for_all(
        &self,
        extension: &Extension,
        served: &Edition,
        settled: &Result<(LiveEntry, Option<IssuedCards>), Refusal>,
    ) -> Option<IssuedCards> {
        let unchanged = |live: LiveEntry| {
            let present = serde_json::from_str::<IssuedCards>(&served.cards).ok()?;
            Some(present.with_live(live))
        };
        match settled {
            Ok((_, Some(cards))) => Some(cards.clone()),
            Ok((live, None)) => unchanged(live.clone()),
            Err(refusal) => {
                self.keep_entry(extension, refusal);
                // The other processes wait as well before one of them asks again.
                unchanged(extension.live_entry()?)
            }
        }
    }

    /// Gives a tried proposal, which has the first cards of its edition, the cards that the edition has now.
    pub(super) fn renewed_since(&self, prepared: PreparedChange, edition: &Edition) -> PreparedChange {
        if edition.renewals == 0 {
            return prepared;
        }
        // The process that proposed the edition has written cards of this form.
        let Ok(cards) = serde_json::from_str::<IssuedCards>(&edition.cards) else { return prepared };
        PreparedChange { published: self.issuer.renewed(&prepared.published, cards), ..prepared }
    }

    /// Takes over the cards of the served edition after another process has made them again.
    pub(crate) async fn adopt_renewed(&self, agreement: &Agreement) -> Result<(), EditionsError> {
        let _door = agreement.door.lock().await;
        let served = agreement.served();
        let present = agreement.peers.editions.edition(self.tenant(), served.number).await?;
        let Some(present) = present.filter(|present| present.renewals > served.renewals) else { return Ok(()) };
        match serde_json::from_str(&present.cards) {
            Ok(cards) => self.publisher.replace(self.issuer.renewed(&self.publisher.current(), cards)),
            // Only a process of another version of Annex writes such cards. Noted once, as the edition counts as renewed.
            Err(error) => self.note(&InstallError::Unreadable { reason: error.to_string() }),
        }
        agreement.renew(present);
        Ok(())
    }
}

fn is_installed(current: &PublishedSet, extension: &Extension) -> bool {
    let installed = current.extensions.installed.get(extension.uri());
    installed.is_some_and(|installed| std::ptr::eq(Arc::as_ptr(installed), extension))
}

//! Changes of extensions that several processes have installed. A change is proposed by one process and tried by all
//! others before it is applied.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use annex_leases::Replica;
use annex_leases::editions::{Consent, Edition, Editions, EditionsError, Finding, Proposal, Report};
use annex_runtime::Installed;
use tokio::time::{Instant, sleep};

use super::agreement::Agreement;
use super::history::Action;
use super::loader::{self, Occasion, Plan, Present};
use super::prepared::PreparedChange;
use super::version::{Origin, Version};
use super::{InstallError, Installer, kept};
use crate::config::ExtensionConfig;
use crate::installation::issuer::{IssueError, IssuedCards};

/// The pause between two readings of the reports of other processes.
const LOOK: Duration = Duration::from_millis(50);
/// The pause before a change is proposed again after another process was faster.
const RETRY: Duration = Duration::from_millis(250);
/// The longest time to wait until all other processes have applied a change. A process that does not respond loses its
/// lease within this time.
const SWAP: Duration = Duration::from_secs(15);
/// The time until a process that has ended no longer counts as alive. It is a little longer than a lease.
const LEASE: Duration = Duration::from_secs(6);
/// The longest reason, in characters, that is reported to other processes.
const MAX_REASON: usize = 2_000;

/// The edition that a change starts from, and the processes whose consent the change needs.
#[derive(Clone, Copy)]
pub(super) struct Basis {
    /// The number of the edition that was served when the change began.
    pub(super) edition: u64,
    pub(super) consent: Consent,
}

/// The set of extensions that a change proposes.
struct ProposedSet {
    versions: Vec<Version>,
    installed: Installed,
    /// The digest of the config's extensions.
    config: String,
    basis: Basis,
    action: Action,
}

impl Installer {
    /// The basis of the next change: the number of the served edition, and `consent`. The caller must read the basis
    /// before it reads the installed versions. If another process then makes a change first, the proposal of this
    /// change is refused because its basis is outdated.
    pub(super) fn basis(&self, consent: Consent) -> Basis {
        Basis { edition: self.agreement.as_deref().map_or(0, Agreement::number), consent }
    }

    /// Applies a prepared change, in all processes that serve the agent.
    pub(super) async fn put_in_force(
        &self,
        prepared: PreparedChange,
        action: Action,
        basis: Basis,
    ) -> Result<bool, InstallError> {
        let Some(agreement) = &self.agreement else { return Ok(self.put(prepared, action)) };
        let PreparedChange { versions, published } = prepared;
        let installed = published.extensions.installed.clone();
        let config = agreement.served().config;
        self.agree(agreement, ProposedSet { versions, installed, config, basis, action }).await
    }

    /// Applies the current edition in this process if the edition has the extensions of `config`. Otherwise proposes
    /// these extensions as the next edition. Tries again for a limited time while another process makes a change.
    /// Returns false if nothing has changed.
    pub(super) async fn converge(
        &self,
        agreement: &Agreement,
        config: &[ExtensionConfig],
        occasion: Occasion,
    ) -> Result<bool, InstallError> {
        let until = Instant::now() + agreement.limit();
        loop {
            match self.try_to_converge(agreement, config, occasion).await {
                // Usually another process with the same config was faster.
                Err(InstallError::Busy) if Instant::now() < until => sleep(RETRY).await,
                outcome => return outcome,
            }
        }
    }

    async fn try_to_converge(
        &self,
        agreement: &Agreement,
        config: &[ExtensionConfig],
        occasion: Occasion,
    ) -> Result<bool, InstallError> {
        let editions = &agreement.peers.editions;
        let current = editions.current(&self.tenant).await?.unwrap_or_default();
        let digests = self.loader.digests(config).await?;
        let own_cards = agreement.peers.share_cards.then(|| self.issuer.identity());
        let digest = kept::config_digest(config, &digests, own_cards.as_deref()).map_err(unreadable)?;
        if occasion != Occasion::Reload && self.is_settled(editions, &current, &digest).await? {
            return self.take(agreement, current).await;
        }
        // Added extensions stay, even though the config does not name them.
        let present = if agreement.number() == current.number {
            self.versions()
        } else {
            self.load_edition(editions, &current, |origin| matches!(origin, Origin::Added { .. })).await?
        };
        let present = Present { versions: &present, overruled: &[] };
        // The config's list is applied as a whole or not at all, even on a rescan: a missing extension would be missing
        // in all processes.
        let occasion = if occasion == Occasion::Start { occasion } else { Occasion::Reload };
        let Plan { versions, installed, .. } = self.loader.plan(config, &present, occasion).await?;
        let is_same = kept::write(&versions).map_err(unreadable)? == current.sources;
        if is_same && digest == current.config {
            return self.take(agreement, current).await;
        }
        let basis = Basis { edition: current.number, consent: Consent::OfAll };
        self.agree(agreement, ProposedSet { versions, installed, config: digest, basis, action: Action::Loaded }).await
    }

    /// True if this process need not propose its config: the current edition comes from this config, or an earlier
    /// edition did and other processes serve the agent with a later edition.
    async fn is_settled(&self, editions: &Editions, current: &Edition, config: &str) -> Result<bool, InstallError> {
        if current.number == 0 || current.config == config {
            return Ok(current.number > 0);
        }
        if !editions.has_seen(&self.tenant, config).await? {
            return Ok(false);
        }
        // A process without others may apply its config. A process that has ended counts until its lease is over.
        let until = Instant::now() + LEASE;
        while editions.has_others(&self.tenant).await? {
            if Instant::now() > until {
                tracing::warn!(
                    tenant = self.tenant,
                    edition = current.number,
                    "the extensions in force are those of a later config than this one, which has been in force before; \
                     reload the config to put it in force again"
                );
                return Ok(true);
            }
            sleep(RETRY).await;
        }
        Ok(false)
    }

    /// Proposes a new set, and applies the set after all other processes have agreed. Then waits until no process
    /// serves the previous set.
    async fn agree(&self, agreement: &Agreement, wanted: ProposedSet) -> Result<bool, InstallError> {
        let door = agreement.door.lock().await;
        let ProposedSet { versions, installed, config, basis, action } = wanted;
        let editions = &agreement.peers.editions;
        let sources = kept::write(&versions).map_err(unreadable)?;
        let cards = self.issuer.cards(&installed).map_err(|error| InstallError::Cards(error.into()))?;
        let written = if agreement.peers.share_cards { written(&cards)? } else { String::new() };
        let digests: BTreeSet<String> = versions.iter().map(|version| version.extension.digest().to_string()).collect();
        let digests: Vec<String> = digests.into_iter().collect();
        if !editions.touch(&digests).await? {
            return Err(InstallError::NotKept { digest: digests.join(" or ") });
        }
        let proposal = Proposal {
            tenant: &self.tenant,
            parent: basis.edition,
            config: &config,
            sources: &sources,
            cards: &written,
            digests: &digests,
            limit: agreement.limit(),
        };
        let replica = editions.lease().replica();
        let number = editions.propose(&replica, &proposal).await?.ok_or(InstallError::Busy)?;
        self.obtain(agreement, (&replica, number), basis.consent).await?;
        let published = self.issuer.publish(installed, number, cards, Some(&self.publisher.current()));
        let edition = Edition { number, config, sources, cards: written, renewals: 0 };
        let changed = self.put(PreparedChange { versions, published }, action);
        agreement.serve(edition);
        // The lock is released before the wait: the task that follows other processes may need it to report this
        // process under a new replica id.
        drop(door);
        editions.serve_from(&replica, &self.tenant, number).await?;
        agreement.tell(number);
        self.await_others(editions, number).await?;
        Ok(changed)
    }

    /// Waits until all other processes consent. Withdraws the proposal if a process refuses or does not answer in time.
    async fn obtain(
        &self,
        agreement: &Agreement,
        (replica, number): (&Replica, u64),
        consent: Consent,
    ) -> Result<(), InstallError> {
        let editions = &agreement.peers.editions;
        let Err(refusal) = self.ask(agreement, (replica, number), consent).await else { return Ok(()) };
        // The request to conclude may have succeeded although its answer was lost.
        let withdrawn = editions.withdraw(replica, &self.tenant, number).await;
        if matches!(withdrawn, Ok(false))
            && editions.current(&self.tenant).await?.is_some_and(|current| current.number == number)
        {
            return Ok(());
        }
        Err(refusal)
    }

    async fn ask(
        &self,
        agreement: &Agreement,
        (replica, number): (&Replica, u64),
        consent: Consent,
    ) -> Result<(), InstallError> {
        let editions = &agreement.peers.editions;
        agreement.tell(number);
        let until = Instant::now() + agreement.limit();
        loop {
            let reports = editions.reports(replica, (&self.tenant, number)).await?;
            let unable = reports.iter().find_map(|report| match &report.finding {
                Finding::Unable(reason) => Some((report.replica.clone(), reason.clone())),
                Finding::Nothing | Finding::Ready => None,
            });
            if let Some((replica, reason)) = unable.filter(|_| consent == Consent::OfAll) {
                return Err(InstallError::Unable { replica, reason });
            }
            let silent = reports.iter().filter(|report| report.finding == Finding::Nothing);
            let silent: Vec<&str> = silent.map(|Report { replica, .. }| replica.as_str()).collect();
            if silent.is_empty() && editions.conclude(replica, (&self.tenant, number), consent).await? {
                return Ok(());
            }
            if !editions.lease().holds(replica) {
                return Err(InstallError::LeaseOver);
            }
            if Instant::now() > until {
                let seconds = agreement.limit().as_secs();
                return Err(InstallError::Silent { replicas: silent.join(", "), seconds });
            }
            sleep(LOOK).await;
        }
    }

    /// Waits until no process with a lease serves an edition before `number`.
    async fn await_others(&self, editions: &Editions, number: u64) -> Result<(), InstallError> {
        let until = Instant::now() + SWAP;
        loop {
            let behind = editions.behind(&self.tenant, number).await?;
            if behind.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(InstallError::Behind { number, replicas: behind.join(", ") });
            }
            sleep(LOOK).await;
        }
    }

    /// Registers this process: the process serves the agent with the current edition, and must try each later proposal.
    pub(super) async fn join(&self, agreement: &Agreement) -> Result<(), InstallError> {
        let editions = &agreement.peers.editions;
        loop {
            let replica = editions.lease().replica();
            let number = agreement.number();
            let has_joined = editions.join(&replica, &[(&self.tenant, number)]).await?;
            // An edition may have been concluded before this process was registered.
            let current = editions.current(&self.tenant).await?.unwrap_or_default();
            if has_joined && current.number <= number {
                agreement.join(&replica);
                return Ok(());
            }
            if !self.take(agreement, current).await? {
                // The lease has ended, and a new one begins soon.
                sleep(RETRY).await;
            }
        }
    }

    /// Applies an edition. Returns false if the served edition is at least as new.
    async fn take(&self, agreement: &Agreement, edition: Edition) -> Result<bool, InstallError> {
        let _door = agreement.door.lock().await;
        if edition.number <= agreement.number() {
            return Ok(false);
        }
        let prepared = match agreement.take_tried(edition.number) {
            Some(prepared) => self.renewed_since(prepared, &edition),
            None => self.prepare_edition(agreement, &edition).await?,
        };
        let changed = self.put(prepared, Action::Loaded);
        agreement.serve(edition);
        Ok(changed)
    }

    async fn prepare_edition(&self, agreement: &Agreement, edition: &Edition) -> Result<PreparedChange, InstallError> {
        let versions = self.load_edition(&agreement.peers.editions, edition, |_| true).await?;
        let plan = loader::in_order(versions)?;
        let cards = if edition.cards.is_empty() || !agreement.peers.share_cards {
            self.issuer.cards(&plan.installed).map_err(|error| InstallError::Cards(error.into()))?
        } else {
            serde_json::from_str(&edition.cards).map_err(|error| unreadable(error.to_string()))?
        };
        let current = self.publisher.current();
        let published = self.issuer.publish(plan.installed, edition.number, cards, Some(&current));
        Ok(PreparedChange { versions: plan.versions, published })
    }

    /// Loads the versions of an edition whose origin satisfies `wanted`.
    async fn load_edition(
        &self,
        editions: &Editions,
        edition: &Edition,
        wanted: impl Fn(&Origin) -> bool,
    ) -> Result<Vec<Version>, InstallError> {
        let there = self.versions();
        let mut versions = Vec::new();
        for kept in kept::read(&edition.sources).map_err(unreadable)? {
            if wanted(&kept.origin) {
                versions.push(self.loader.load_kept(editions, kept, &there).await?);
            }
        }
        Ok(versions)
    }

    /// Applies the current edition. If that fails, this process refuses requests for the agent until a later attempt
    /// succeeds.
    pub(crate) async fn follow(&self, agreement: &Agreement, replica: &Replica) -> Result<(), EditionsError> {
        let editions = &agreement.peers.editions;
        let Some(current) = editions.current(&self.tenant).await? else { return Ok(()) };
        let number = current.number;
        match self.take(agreement, current).await {
            Ok(_) => {
                editions.serve_from(replica, &self.tenant, number).await?;
                agreement.join(replica);
            }
            Err(InstallError::Editions(error)) => return Err(error),
            Err(error) => {
                agreement.give_up();
                agreement.join(replica);
                self.note(&error);
                editions.serve_from(replica, &self.tenant, number).await?;
            }
        }
        Ok(())
    }

    /// Tries the proposal of another process and reports the result.
    pub(crate) async fn try_proposed(
        &self,
        agreement: &Agreement,
        (replica, number): (&Replica, u64),
    ) -> Result<(), EditionsError> {
        let editions = &agreement.peers.editions;
        let prepared = {
            let _door = agreement.door.lock().await;
            let Some(edition) = editions.edition(&self.tenant, number).await? else { return Ok(()) };
            let prepared = self.prepare_edition(agreement, &edition).await;
            prepared.map(|prepared| agreement.keep_tried(number, prepared))
        };
        match prepared {
            Ok(()) => editions.report(replica, (&self.tenant, number), None).await,
            // An error of the database is no finding about the proposal, so nothing is reported.
            Err(InstallError::Editions(error)) => Err(error),
            Err(error) => {
                let reason: String = error.public_text().replace('\0', "").chars().take(MAX_REASON).collect();
                let edition = number;
                tracing::warn!(tenant = self.tenant, edition, "the proposal of another replica is refused: {reason}");
                editions.report(replica, (&self.tenant, number), Some(&reason)).await
            }
        }
    }

    /// Makes the cards again after a change of the agent's own card. If all processes share the cards, proposes the new
    /// cards to the other processes.
    pub(super) async fn reissue_agreed(&self, agreement: &Agreement) -> Result<(), InstallError> {
        let until = Instant::now() + agreement.limit();
        loop {
            let of_issuer = |error: IssueError| InstallError::Cards(error.into());
            if !agreement.peers.share_cards {
                // The lock keeps the following task from applying a later edition at the same time.
                let _door = agreement.door.lock().await;
                let current = self.publisher.current();
                let installed = current.extensions.installed.clone();
                let cards = self.issuer.cards(&installed).map_err(of_issuer)?;
                let number = current.extensions.number;
                self.publisher.replace(self.issuer.publish(installed, number, cards, Some(&current)));
                return Ok(());
            }
            let basis = self.basis(Consent::OfAll);
            let installed = self.publisher.current().extensions.installed.clone();
            let edition = agreement.served();
            let shown: Option<IssuedCards> = serde_json::from_str(&edition.cards).ok();
            let says = self.issuer.says(&installed).map_err(of_issuer)?;
            if shown.is_some_and(|shown| shown.says == says) {
                return Ok(());
            }
            let versions = self.versions();
            let wanted = ProposedSet { versions, installed, config: edition.config, basis, action: Action::Loaded };
            match self.agree(agreement, wanted).await {
                Err(InstallError::Busy) if Instant::now() < until => sleep(RETRY).await,
                outcome => return outcome.map(drop),
            }
        }
    }

    /// The agreement with the other processes. `None` if no other process serves the agent.
    pub(crate) fn agreement(&self) -> Option<&Arc<Agreement>> {
        self.agreement.as_ref()
    }

    /// The reason why requests for the agent are refused. `None` if requests are served.
    pub(crate) fn bar(&self) -> Option<&'static str> {
        self.agreement.as_ref().and_then(|agreement| agreement.bar())
    }
}

fn unreadable(reason: String) -> InstallError {
    InstallError::Unreadable { reason }
}

fn written(cards: &IssuedCards) -> Result<String, InstallError> {
    serde_json::to_string(cards).map_err(|error| unreadable(error.to_string()))
}

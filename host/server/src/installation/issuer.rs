//! Makes the cards of a set of extensions. Signing is the last step.

use std::sync::{Arc, PoisonError, RwLock};

use annex_auth::signature::Signer;
use annex_auth::{Authenticator, SecurityDeclaration};
use annex_operations::extension_set::{CompleteCard, ExtendedCard, ExtensionSet};
use annex_protocol::{AgentCard, AgentExtension, v0_3};
use annex_runtime::{Digest, Installed, LiveEntry};
use annex_telemetry::fault;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::config::served::ServedConfig;
use crate::config::{CardConfig, ExtendedCardConfig};
use crate::installation::card;
use crate::installation::encoded_card::EncodedCard;
use crate::installation::published::PublishedSet;
use crate::installation::signing::{self, SigningError};
use crate::locations::Locations;

/// The parts that all cards of one agent have in common. The agent is either the agent of the config itself or the
/// agent of a tenant.
pub(crate) struct Issuer {
    /// The public card without extensions and signatures. A reload of the config updates its security schemes.
    card: RwLock<AgentCard>,
    /// The `[card]` of the config.
    config: CardConfig,
    /// The current card of a remote agent. `None` for an agent in this process.
    remote: Option<watch::Receiver<Arc<AgentCard>>>,
    extended: Option<ExtendedCardConfig>,
    /// Shared with the extended card, whose copies for readers are signed as well.
    signer: Option<Arc<Signer>>,
    /// True if the public card also has the fields of 0.3.
    speaks_v0_3: bool,
}

/// Why the cards of a set cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    #[error("a card cannot be signed")]
    Sign(#[from] SigningError),
    #[error("a card cannot be encoded")]
    Encode(#[from] serde_json::Error),
    #[error(
        "the {which} card has {size} bytes; at most {MAX_CARD_BYTES} are allowed, and the largest part is {largest}"
    )]
    TooLarge { which: &'static str, size: usize, largest: String },
}

/// The signed cards of a set. Each signing gives different signatures, so processes that share their cards store these
/// cards in the database.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct IssuedCards {
    /// The digest of the cards before signing.
    pub(crate) says: String,
    /// The JSON of the public card.
    public: String,
    /// The JSON of the card in the form of 0.3. Empty if 0.3 is not served.
    v0_3: String,
    extended: Option<AgentCard>,
    /// The entries of the cards that extensions declare again while they are installed.
    #[serde(default)]
    live: Vec<LiveEntry>,
}

impl IssuedCards {
    /// These cards after another declaration that has changed no card.
    pub(crate) fn with_live(mut self, live: LiveEntry) -> Self {
        self.live.retain(|other| other.entry.uri != live.entry.uri);
        self.live.push(live);
        self
    }
}

/// The cards of a set before signing.
struct UnsignedCards {
    public: AgentCard,
    extended: Option<AgentCard>,
}

/// The maximum size of a card in bytes, with its signatures and the fields of both versions. Clients read cards of up
/// to twice this size.
const MAX_CARD_BYTES: usize = 512 << 10;

impl Issuer {
    /// Reads the signing key, if the config names one. `tenant` is empty for the agent of the config itself.
    pub(crate) fn new(
        config: &ServedConfig,
        tenant: &str,
        base_url: &str,
        authenticator: Option<&Authenticator>,
        locations: &Locations,
    ) -> Result<Self, SigningError> {
        let signing = config.card.signing.as_ref();
        Ok(Self {
            card: RwLock::new(card::assemble(config, tenant, base_url, authenticator)),
            config: config.card.clone(),
            remote: None,
            extended: config.card.extended.clone(),
            signer: signing.map(|signing| signing::signer(signing, &locations.config)).transpose()?.map(Arc::new),
            speaks_v0_3: config.speaks_v0_3(),
        })
    }

    /// The key that signs the cards. `None` if the cards are not signed.
    pub(crate) fn signer(&self) -> Option<&Arc<Signer>> {
        self.signer.as_ref()
    }

    /// Sets the card of the remote agent. `None` for an agent in this process.
    pub(crate) fn with_remote(self, remote: Option<watch::Receiver<Arc<AgentCard>>>) -> Self {
        Self { remote, ..self }
    }

    /// Replaces the security schemes of all cards that are made later.
    pub(crate) fn set_security(&self, security: &SecurityDeclaration) {
        let mut card = self.card.write().unwrap_or_else(PoisonError::into_inner);
        card.security_schemes.clone_from(&security.schemes);
        card.security_requirements.clone_from(&security.requirements);
    }

    fn card(&self) -> AgentCard {
        self.card.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The digest of everything on the cards that comes from the config and not from the extensions.
    pub(crate) fn identity(&self) -> String {
        let own = serde_json::to_string(&self.card()).unwrap_or_default();
        Digest::of(format!("{own}{:?}{}", self.config, self.speaks_v0_3).as_bytes()).hex()
    }

    /// Makes and signs the cards of `installed`. Returns `installed` with its cards as the set after `previous`. If
    /// `previous` is `None`, it is the first set.
    pub(crate) fn issue(
        &self,
        installed: Installed,
        previous: Option<&PublishedSet>,
    ) -> Result<PublishedSet, IssueError> {
        let number = previous.map_or(1, |previous| previous.extensions.number.saturating_add(1));
        let cards = self.cards(&installed)?;
        Ok(self.publish(installed, number, cards, previous))
    }

    /// Makes and signs the cards of a set. Each call gives different signatures.
    pub(crate) fn cards(&self, installed: &Installed) -> Result<IssuedCards, IssueError> {
        self.cards_with(installed, None)
    }

    /// Like `cards`, with `declared` in place of the entry that its extension has now.
    pub(crate) fn cards_with(
        &self,
        installed: &Installed,
        declared: Option<&LiveEntry>,
    ) -> Result<IssuedCards, IssueError> {
        let live = live_entries(installed, declared);
        self.sign(self.unsigned(installed, &live), live)
    }

    /// Makes the cards of a set, and returns their digest before signing.
    pub(crate) fn says(&self, installed: &Installed) -> Result<String, IssueError> {
        Ok(self.unsigned(installed, &live_entries(installed, None)).says()?)
    }

    /// Combines a set with its number and its cards.
    pub(crate) fn publish(
        &self,
        installed: Installed,
        number: u64,
        cards: IssuedCards,
        previous: Option<&PublishedSet>,
    ) -> PublishedSet {
        self.warn_of_unmet(&installed);
        self.combine(installed, number, cards, previous)
    }

    /// Combines the present set with other cards, which differ in a live entry. The set keeps its number.
    pub(crate) fn renewed(&self, present: &PublishedSet, cards: IssuedCards) -> PublishedSet {
        let ExtensionSet { number, installed, .. } = &*present.extensions;
        self.combine(installed.clone(), *number, cards, Some(present))
    }

    fn combine(
        &self,
        installed: Installed,
        number: u64,
        cards: IssuedCards,
        previous: Option<&PublishedSet>,
    ) -> PublishedSet {
        let passed_on = self.passed_on(&installed);
        let IssuedCards { public, v0_3, extended, live, .. } = cards;
        let card = EncodedCard::new(public, previous.map(|previous| &previous.card));
        let extended_card = extended.map(|card| ExtendedCard { card: Arc::new(card), complete: self.complete() });
        let extensions = ExtensionSet { number, installed, passed_on, extended_card };
        PublishedSet { extensions: Arc::new(extensions), card, card_v0_3: v0_3, live }
    }

    /// Signs and checks copies of the extended card in which entries differ for a reader.
    fn complete(&self) -> CompleteCard {
        let signer = self.signer.clone();
        Arc::new(move |mut card: AgentCard| {
            let signed = signer.as_deref().map_or(Ok(()), |signer| signing::sign(&mut card, signer));
            let checked = signed.map_err(IssueError::from).and_then(|()| check_extended(&card));
            checked.map(|()| card).map_err(|error| fault::text(&error))
        })
    }

    /// The current card of the remote agent; `None` for an agent in this process.
    fn remote_card(&self) -> Option<Arc<AgentCard>> {
        self.remote.as_ref().map(|remote| Arc::clone(&remote.borrow()))
    }

    /// The extensions that the remote agent handles itself. Extensions that are also installed here are left out,
    /// because this server declares them.
    fn passed_on(&self, installed: &Installed) -> Vec<AgentExtension> {
        let remote = self.remote_card();
        let of_remote = remote.iter().flat_map(|remote| &remote.capabilities.extensions);
        of_remote.filter(|other| installed.get(&other.uri).is_none()).cloned().collect()
    }

    /// Logs a warning for each installed extension that the remote agent requires: this server never requests that
    /// extension from the remote agent, so the remote agent refuses each message.
    fn warn_of_unmet(&self, installed: &Installed) {
        let remote = self.remote_card();
        let required = remote.iter().flat_map(|remote| &remote.capabilities.extensions).filter(|other| other.required);
        for AgentExtension { uri, .. } in required {
            if installed.get(uri).is_some() {
                tracing::warn!(
                    %uri,
                    "the upstream agent requires an extension that is installed here, and refuses each message, because \
                     Annex does not ask it for an installed extension; install the extension in one place only"
                );
            }
        }
    }

    fn unsigned(&self, installed: &Installed, live: &[LiveEntry]) -> UnsignedCards {
        let remote = self.remote_card();
        let mut public = match &remote {
            Some(remote) => card::decorate(&self.card(), &self.config, remote),
            None => self.card(),
        };
        let own = installed.iter().map(|extension| {
            let live = live.iter().find(|live| live.entry.uri == *extension.uri());
            live.map_or_else(|| AgentExtension::clone(&extension.card()), |live| live.entry.clone())
        });
        public.capabilities.extensions = own.chain(self.passed_on(installed)).collect();
        // The extended card starts as a copy of the public card, so the extensions must be on that first.
        let extended = self.extended.as_ref().map(|extended| card::extend(&public, extended));
        UnsignedCards { public, extended }
    }

    fn sign(&self, cards: UnsignedCards, live: Vec<LiveEntry>) -> Result<IssuedCards, IssueError> {
        let says = cards.says()?;
        let UnsignedCards { mut public, mut extended } = cards;
        // Signing comes last, because every later addition breaks the signatures (A2A 1.0 section 8.4).
        if let Some(signer) = &self.signer {
            if let Some(extended) = &mut extended {
                signing::sign(extended, signer)?;
            }
            if self.speaks_v0_3 {
                signing::sign_merged(&mut public, signer)?
            } else {
                signing::sign(&mut public, signer)?
            }
        }
        let v0_3 = v0_3::AgentCard::of(&public).map(|card| serde_json::to_string(&card)).transpose()?;
        let v0_3 = v0_3.unwrap_or_default();
        let body = EncodedCard::encode(&public)?;
        // The sizes include the signatures, as clients read them.
        check_size("public", body.len(), &public)?;
        check_size("0.3", v0_3.len(), &public)?;
        if let Some(extended) = &extended {
            check_extended(extended)?;
        }
        Ok(IssuedCards { says, public: body, v0_3, extended, live })
    }
}

impl UnsignedCards {
    fn says(&self) -> Result<String, serde_json::Error> {
        Ok(Digest::of(&serde_json::to_vec(&(&self.public, &self.extended))?).hex())
    }
}

/// The live entries of a set, with `declared` in place of the entry that its extension has now.
fn live_entries(installed: &Installed, declared: Option<&LiveEntry>) -> Vec<LiveEntry> {
    let present = installed.iter().filter_map(|extension| extension.live_entry());
    let entry = |present: LiveEntry| match declared {
        Some(declared) if declared.entry.uri == present.entry.uri => declared.clone(),
        _ => present,
    };
    present.map(entry).collect()
}

fn check_extended(card: &AgentCard) -> Result<(), IssueError> {
    check_size("extended", serde_json::to_vec(card)?.len(), card)
}

/// Refuses a card that is larger than [`MAX_CARD_BYTES`]. Clients do not read a card of this size, so they could not
/// reach the agent.
fn check_size(which: &'static str, size: usize, card: &AgentCard) -> Result<(), IssueError> {
    if size <= MAX_CARD_BYTES {
        return Ok(());
    }
    let entries = card.capabilities.extensions.iter().map(|entry| Ok((bytes(entry)?, entry.uri.as_str())));
    let entries = entries.collect::<Result<Vec<_>, serde_json::Error>>()?;
    let of_agent = size.saturating_sub(entries.iter().map(|(bytes, _)| bytes).sum());
    let largest = match entries.into_iter().max().filter(|(bytes, _)| *bytes > of_agent) {
        Some((bytes, uri)) => format!("the entry of {uri} with {bytes}"),
        None => format!("what is said of the agent and its skills, with {of_agent}"),
    };
    Err(IssueError::TooLarge { which, size, largest })
}

fn bytes(entry: &AgentExtension) -> Result<usize, serde_json::Error> {
    Ok(serde_json::to_vec(entry)?.len())
}

//! The entry of an extension on the Agent Card: what the hooks `card` and `live-card` declare, completed with the URI
//! and the operator's settings.

use std::sync::Arc;

use annex_keyvalue::{KeyValueStore, MemoryKeyValueStore};
use annex_protocol::{AgentExtension, ExtensionUri, JsonObject};
use uuid::Uuid;

use crate::card_slot::{CardSlot, LiveEntry, entry_bytes};
use crate::confinement::instance::GuestInstance;
use crate::confinement::profile::Profile;
use crate::contract::{CardEntry, LiveCardEntry};
use crate::error::{Fault, LoadError};
use crate::hook::Hook;
use crate::load::descriptor::Descriptor;
use crate::load::program::Program;
use crate::load::selection::Selection;
use crate::observation::log::Log;
use crate::overrides::ServiceOverrides;
use crate::turn_view::TurnView;

/// Maximum size of the card entry of an extension, in bytes of JSON. Clients read cards of at most 1 MiB, and a card
/// contains the entries of all extensions.
pub(crate) const MAX_CARD_ENTRY: usize = 32 << 10;

/// The parts of an entry that the component does not declare.
#[derive(Clone, Copy)]
pub(crate) struct EntryBasis<'a> {
    pub(crate) descriptor: &'a Descriptor,
    pub(crate) selection: &'a Selection,
    pub(crate) required: bool,
}

/// The view of a declaration at load. Its keys are empty and soon forgotten. A component names its own URI, and keys
/// belong to a URI. So the lasting keys may be those of another extension until the whole set is checked.
struct TemporaryKeys(ServiceOverrides);

impl TurnView for TemporaryKeys {
    fn overrides(&self) -> Option<&ServiceOverrides> {
        Some(&self.0)
    }
}

impl TemporaryKeys {
    fn of(profile: &Profile) -> Arc<dyn TurnView> {
        let keyvalue = Some(Arc::<MemoryKeyValueStore>::default() as Arc<dyn KeyValueStore>);
        Arc::new(Self(ServiceOverrides { keyvalue, ..profile.services.overrides.clone() }))
    }
}

/// Why a declaration makes no entry.
pub(crate) enum EntryError {
    /// `params` is not a JSON object.
    Params(String),
    /// The entry has this many bytes as JSON.
    TooLarge(usize),
}

impl EntryError {
    fn at_load(self, uri: &ExtensionUri, hook: Hook) -> LoadError {
        match self {
            Self::Params(_) => LoadError::SelfTest(self.fault(uri, hook)),
            // With such an entry clients could not read the card, and could not reach the agent.
            Self::TooLarge(size) => LoadError::CardEntry { uri: uri.clone(), size, limit: MAX_CARD_ENTRY },
        }
    }

    pub(crate) fn fault(self, uri: &ExtensionUri, hook: Hook) -> Fault {
        Fault::BrokeContract { uri: uri.clone(), error_id: Uuid::new_v4(), hook, reason: self.reason() }
    }

    pub(crate) fn reason(self) -> String {
        match self {
            Self::Params(reason) => reason,
            Self::TooLarge(size) => format!("the entry has {size} bytes; at most {MAX_CARD_ENTRY} are allowed"),
        }
    }
}

/// Calls `declare` or `declare-live`, whichever the component exports, and makes the entry.
pub(super) async fn declared(
    program: &Program,
    profile: &Arc<Profile>,
    basis: EntryBasis<'_>,
) -> Result<CardSlot, LoadError> {
    let wrong = |reason: String| LoadError::Description { reason: profile.words(&reason) };
    let unusable = |error: EntryError, hook| error.at_load(&profile.uri, hook);
    if program.hooks.has(Hook::LiveCard) {
        let declared = ask_live(program, profile, TemporaryKeys::of(profile)).await.map_err(LoadError::SelfTest)?;
        let LiveCardEntry { entry, seconds } = declared.map_err(wrong)?;
        let entry = basis.entry(entry).map_err(|error| unusable(error, Hook::LiveCard))?;
        let slot = CardSlot::live(LiveEntry::declared(entry, seconds, 0), &profile.grants);
        // Only an extension that is installed is asked again.
        if profile.grants.keyvalue.is_some() {
            slot.needs_lasting_keys();
        }
        return Ok(slot);
    }
    let mut entry = CardEntry { description: None, params: None };
    if program.hooks.has(Hook::Card) {
        let hooks = &program.hooks;
        // Each step of loading has its own instance, so none depends on memory of an earlier one.
        let log = Log::new(Arc::clone(profile), None);
        let started = GuestInstance::start(program, profile, None, log, Hook::Card).await;
        let mut instance = started.map_err(LoadError::SelfTest)?;
        let declared = instance
            .call(Hook::Card, async |store, component| hooks.declare(store, component).await)
            .await
            .map_err(LoadError::SelfTest)?;
        entry = declared.map_err(wrong)?;
    }
    Ok(CardSlot::fixed(basis.entry(entry).map_err(|error| unusable(error, Hook::Card))?))
}

/// Calls `declare-live` in an instance of its own. The inner error is the reason that the extension gives. No turn runs,
/// so `view` has neither a session nor a task. The lasting keys need none.
pub(crate) async fn ask_live(
    program: &Program,
    profile: &Arc<Profile>,
    view: Arc<dyn TurnView>,
) -> Result<Result<LiveCardEntry, String>, Fault> {
    let log = Log::new(Arc::clone(profile), Some(Arc::clone(&view)));
    let mut instance = GuestInstance::start(program, profile, Some(view), log, Hook::LiveCard).await?;
    let hooks = &program.hooks;
    instance.call(Hook::LiveCard, async |store, component| hooks.declare_live(store, component).await).await
}

impl EntryBasis<'_> {
    /// Completes a declaration with the URI, the operator's settings and the notes about activation.
    pub(crate) fn entry(&self, declared: CardEntry) -> Result<AgentExtension, EntryError> {
        let CardEntry { description, params } = declared;
        let description = description.as_deref().unwrap_or(&self.descriptor.description);
        checked(AgentExtension {
            uri: self.descriptor.uri.clone(),
            description: self.selection.described(description),
            required: self.required,
            params: parsed(params.as_deref())?,
        })
    }

    /// Applies the changes of the hook `extended-card` to `present`. The notes about activation stay.
    pub(crate) fn changed(&self, present: &AgentExtension, change: CardEntry) -> Result<AgentExtension, EntryError> {
        let CardEntry { description, params } = change;
        let mut entry = present.clone();
        if let Some(description) = description {
            entry.description = self.selection.described(&description);
        }
        if let Some(params) = parsed(params.as_deref())? {
            entry.params = Some(params);
        }
        checked(entry)
    }
}

fn parsed(params: Option<&str>) -> Result<Option<JsonObject>, EntryError> {
    let params = params.map(JsonObject::parse).transpose();
    params.map_err(|error| EntryError::Params(format!("params is not a JSON object: {error}")))
}

fn checked(entry: AgentExtension) -> Result<AgentExtension, EntryError> {
    let size = entry_bytes(&entry);
    if size > MAX_CARD_ENTRY { Err(EntryError::TooLarge(size)) } else { Ok(entry) }
}

//! The keys of slots: a conversation or a shared map.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use crate::key::{ConversationKey, NAME_HASHER};
use crate::state::Scope;

/// The name of a slot with its hash.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SlotKey {
    hash: u64,
    pub(super) name: SlotName,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum SlotName {
    Conversation(ConversationKey),
    User { tenant: Arc<str>, app: Arc<str>, user: Arc<str> },
    App { tenant: Arc<str>, app: Arc<str> },
}

impl From<SlotName> for SlotKey {
    fn from(name: SlotName) -> Self {
        Self { hash: NAME_HASHER.hash_one(&name), name }
    }
}

impl Hash for SlotKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// A hasher for keys that contain their hash.
#[derive(Default)]
pub(super) struct Prehashed(u64);

impl Hasher for Prehashed {
    fn finish(&self) -> u64 {
        self.0
    }

    /// Required by the trait and never called, because a [`SlotKey`] writes its hash by one call of `write_u64`.
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The slots of one conversation: the own slot and the shared maps.
pub(super) struct SlotKeys<'a> {
    key: &'a ConversationKey,
    pub(super) own: SlotKey,
}

impl<'a> SlotKeys<'a> {
    pub(super) fn new(key: &'a ConversationKey) -> Self {
        Self { key, own: SlotName::Conversation(key.clone()).into() }
    }

    /// The slot that holds the keys of `scope` for the conversation; `None` for `temp:` keys, which are not stored.
    pub(super) fn of(&self, scope: Scope) -> Option<Cow<'_, SlotKey>> {
        let tenant = &self.key.tenant;
        let app = &self.key.app;
        let shared = match scope {
            Scope::Conversation => return Some(Cow::Borrowed(&self.own)),
            Scope::User => SlotName::User { tenant: tenant.clone(), app: app.clone(), user: self.key.user.clone() },
            Scope::App => SlotName::App { tenant: tenant.clone(), app: app.clone() },
            Scope::Temp => return None,
        };
        Some(Cow::Owned(shared.into()))
    }
}

impl SlotName {
    /// The conversation; `None` for a shared map.
    pub(super) fn conversation(&self) -> Option<&ConversationKey> {
        match self {
            Self::Conversation(key) => Some(key),
            Self::User { .. } | Self::App { .. } => None,
        }
    }

    pub(super) fn tenant(&self) -> &str {
        match self {
            Self::Conversation(key) => &key.tenant,
            Self::User { tenant, .. } | Self::App { tenant, .. } => tenant,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Conversation(key) => key.tenant.len() + key.app.len() + key.user.len() + key.context.as_str().len(),
            Self::User { tenant, app, user } => tenant.len() + app.len() + user.len(),
            Self::App { tenant, app } => tenant.len() + app.len(),
        }
    }
}

//! The names of conversations and their owners, and the rules for names and ids.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use annex_protocol::ContextId;
pub use annex_protocol::Owner;

/// The maximum number of bytes of a tenant, an agent's name, a user or an id, in every store. PostgreSQL sets the bound: an
/// entry of an index has at most 2,704 bytes, and some indexes contain four such texts.
pub const MAX_KEY_BYTES: usize = 600;

/// The name of one conversation. The same context id under another user, agent or tenant is another conversation.
///
/// Clones share the names. A turn looks its conversation up many times, so the key contains the hash of its names. The
/// hash differs in each process, so that clients, who choose the names, cannot find names with the same hash.
///
/// ```
/// use annex_conversation::{ConversationKey, Owner};
///
/// let ada = Owner { tenant: "acme".to_owned(), principal: "ada".to_owned() };
/// let key = ConversationKey::of("guide", &ada, &"c-1".into());
/// assert_eq!(&*key.user, "principal:ada");
/// assert_eq!(*key.owner(), ada);
/// ```
#[derive(Clone)]
pub struct ConversationKey(Arc<Hashed>);

struct Hashed {
    hash: u64,
    names: ConversationNames,
    owner: Owner,
}

/// The names that make up a [`ConversationKey`].
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConversationNames {
    /// The tenant that the request was authorised for.
    pub tenant: Arc<str>,
    /// The agent's name.
    pub app: Arc<str>,
    /// The user, who owns the `user:` state. For an authenticated client this is `principal:` followed by the
    /// principal. An anonymous client gets a user of its own in each conversation.
    pub user: Arc<str>,
    /// The A2A context.
    pub context: ContextId,
}

/// The hasher of names. Its results differ in each process.
pub(crate) static NAME_HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The beginning of the name of an anonymous user. The context follows.
const ANONYMOUS: &str = "A2A_USER_";
/// The beginning of the name of an authenticated user. The principal follows. No principal thus has the name of an
/// anonymous user.
const PRINCIPAL: &str = "principal:";

impl From<ConversationNames> for ConversationKey {
    fn from(names: ConversationNames) -> Self {
        let is_anonymous = names.user.strip_prefix(ANONYMOUS) == Some(names.context.as_str());
        let principal = if is_anonymous { "" } else { names.user.strip_prefix(PRINCIPAL).unwrap_or(&names.user) };
        let owner = Owner { tenant: (*names.tenant).to_owned(), principal: principal.to_owned() };
        Self(Arc::new(Hashed { hash: NAME_HASHER.hash_one(&names), names, owner }))
    }
}

impl Deref for ConversationKey {
    type Target = ConversationNames;

    fn deref(&self) -> &ConversationNames {
        &self.0.names
    }
}

impl fmt::Debug for ConversationKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, formatter)
    }
}

impl PartialEq for ConversationKey {
    fn eq(&self, other: &Self) -> bool {
        // Most comparisons are between clones of one key, whose long names need not be compared.
        Arc::ptr_eq(&self.0, &other.0) || (self.0.hash == other.0.hash && self.0.names == other.0.names)
    }
}

impl Eq for ConversationKey {}

impl PartialOrd for ConversationKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ConversationKey {
    fn cmp(&self, other: &Self) -> Ordering {
        ConversationNames::cmp(self, other)
    }
}

impl Hash for ConversationKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Equal names have equal hashes, so this agrees with `eq`.
        state.write_u64(self.0.hash);
    }
}

impl ConversationKey {
    /// The key of the conversation with these names.
    pub fn new(
        tenant: impl Into<Arc<str>>,
        app: impl Into<Arc<str>>,
        user: impl Into<Arc<str>>,
        context: impl Into<ContextId>,
    ) -> Self {
        ConversationNames { tenant: tenant.into(), app: app.into(), user: user.into(), context: context.into() }.into()
    }

    /// The conversation of an owner with an agent. An anonymous owner is another user in each conversation, so that the
    /// `user:` state of one conversation never reaches another.
    pub fn of(app: impl Into<Arc<str>>, owner: &Owner, context: &ContextId) -> Self {
        let user = match owner.principal.as_str() {
            "" => [ANONYMOUS, context.as_str()].concat(),
            principal => [PRINCIPAL, principal].concat(),
        };
        let tenant: Arc<str> = match owner.tenant.as_str() {
            // Without tenants, all keys share one empty text.
            "" => Arc::default(),
            tenant => tenant.into(),
        };
        Self::new(tenant, app, user, context.clone())
    }

    /// The owner of the conversation and its tasks.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.0.owner
    }

    /// True if the client is anonymous. No other conversation then has the same user.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.0.owner.principal.is_empty() && self.user.starts_with(ANONYMOUS)
    }

    /// Checks the names. A conversation whose names fail the check was never stored.
    pub(crate) fn check(&self) -> Result<(), InvalidName> {
        let id = self.context.as_str();
        // Refused rather than trimmed: a trimmed id would not be the one that the client goes on using.
        if id.is_empty() || id.trim() != id {
            return Err(InvalidName::Context { context: self.context.clone() });
        }
        check_key("tenant", &self.tenant)?;
        check_key("agent's name", &self.app)?;
        check_key("user id", &self.user)?;
        check_key("context id", id)
    }
}

/// The reason why a text cannot be stored as a name or an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// A context id is empty, or starts or ends with white space.
    #[error("context id {:?} is empty or has white space around it", context.as_str())]
    Context {
        /// The offending id.
        context: ContextId,
    },
    /// A required name or id is empty.
    #[error("the {field} is empty")]
    Empty {
        /// The kind of text, such as `message id`.
        field: &'static str,
    },
    /// A text is too long, or contains a NUL character that cannot be escaped.
    #[error("the {field} is longer than {limit} bytes or contains a NUL character")]
    Key {
        /// The kind of text, such as `state key`.
        field: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// A name contains invisible characters, or characters that change the direction or the line breaks of the text
    /// that follows.
    #[error("the {field} {text:?} has control or format characters or line separators; leave them out")]
    Unseen {
        /// The kind of text, such as `state key`.
        field: &'static str,
        /// The name.
        text: String,
    },
}

/// Checks the length of a name or an id, and refuses NUL, which PostgreSQL cannot store.
pub(crate) fn check_key(field: &'static str, text: &str) -> Result<(), InvalidName> {
    if text.len() > MAX_KEY_BYTES || text.contains('\0') {
        Err(InvalidName::Key { field, limit: MAX_KEY_BYTES })
    } else {
        Ok(())
    }
}

/// Checks a name or an id that must not be empty.
pub(crate) fn check_name(field: &'static str, text: &str) -> Result<(), InvalidName> {
    if text.is_empty() { Err(InvalidName::Empty { field }) } else { check_key(field, text) }
}

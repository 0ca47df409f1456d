//! The operators' interface to conversations: lists, counts and deletions.

use annex_protocol::ContextId;
use async_trait::async_trait;

use crate::error::StoreError;
use crate::history::{ConversationCursor, ConversationSnapshot};
use crate::key::ConversationKey;

/// The conversations that a list contains, as conditions that all apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversationQuery {
    /// The tenant of the conversations.
    pub tenant: String,
    /// The agent's name.
    pub app: String,
    /// The user of the conversations; `None` for all users.
    pub user: Option<String>,
    /// The position after which the list starts; `None` starts at the first conversation.
    pub after: Option<ConversationCursor>,
    /// The most conversations that the list contains.
    pub limit: usize,
}

/// The totals of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// The number of stored conversations.
    pub conversations: u64,
    /// The bytes of names and values of all state, including shared state. The history is not counted.
    pub state_bytes: u64,
    /// The number of stored tasks.
    pub tasks: u64,
    /// The number of tasks with a turn that runs or waits, in all processes.
    pub turns: u64,
}

/// Reads and deletions for operators.
#[async_trait]
pub trait ConversationAdmin: Send + Sync + 'static {
    /// Conversations without their events, the longest unchanged first.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] and [`StoreError::Database`].
    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationSnapshot>, StoreError>;

    /// The users with a conversation in this context of an agent, in the order of their names.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn users_in(
        &self,
        tenant: &str,
        app: &str,
        context: &ContextId,
        limit: usize,
    ) -> Result<Vec<String>, StoreError>;

    /// Deletes a conversation with its history, its state and its artifacts. The user of an anonymous client has no
    /// other conversation, so the `user:` keys of such a user are deleted too. The tasks of the conversation stay, and
    /// so do `app:` keys and the `user:` keys of an authenticated user. Returns `false` if the conversation does not
    /// exist.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError>;

    /// Deletes one full key, for example `user:theme`. Returns `false` if the key does not exist. A running turn sees
    /// the key until the turn ends. `owner` says whose key is deleted: an `app:` key belongs to the tenant and the
    /// agent of `owner`, a `user:` key to the user there, and any other key to the conversation.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn delete_key(&self, owner: &ConversationKey, full_key: &str) -> Result<bool, StoreError>;

    /// Deletes all `user:` keys of a user and returns their number. The context of `owner` is ignored.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn delete_user_state(&self, owner: &ConversationKey) -> Result<u64, StoreError>;

    /// Counts the conversations, state and tasks of a tenant. The count reads all of them, so no request should wait for
    /// this.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn holdings(&self, tenant: &str) -> Result<Holdings, StoreError>;
}

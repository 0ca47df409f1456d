//! What operators see of conversations, and what they delete.

use annex_protocol::ContextId;
use async_trait::async_trait;

use crate::error::StoreError;
use crate::history::{ConversationCursor, ConversationSnapshot};
use crate::key::ConversationKey;

/// Which conversations to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversationQuery {
    /// Only those of this tenant.
    pub tenant: String,
    /// Only those of this agent.
    pub app: String,
    /// Only those of this user; `None` for all users.
    pub user: Option<String>,
    /// Only those behind this one.
    pub after: Option<ConversationCursor>,
    /// The most conversations.
    pub limit: usize,
}

/// What a tenant has in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Conversations.
    pub conversations: u64,
    /// Bytes of names and values of all state, shared state included. The history is not counted.
    pub state_bytes: u64,
    /// Tasks.
    pub tasks: u64,
}

/// What operators see and delete.
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

    /// Deletes a conversation with its history, its state and its artifacts, and the `user:` state of an anonymous user with
    /// the one conversation that can see it. Its tasks stay, and so do other `user:` state and `app:` state. Tells whether
    /// there was one.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError>;

    /// Deletes one full key, whether a turn runs or not, and tells whether it was there. A turn that runs sees the key to its
    /// end. Of `owner` counts what the scope of the key belongs to: the tenant and the agent, for a `user:` key the user too,
    /// for a key of a conversation all of it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn delete_key(&self, owner: &ConversationKey, full_key: &str) -> Result<bool, StoreError>;

    /// Deletes all `user:` keys of a user, and tells how many there were. The context of `owner` does not count.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn delete_user_state(&self, owner: &ConversationKey) -> Result<u64, StoreError>;

    /// Counts what a tenant has. It looks at all of that, so it is not for each request.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn holdings(&self, tenant: &str) -> Result<Holdings, StoreError>;
}

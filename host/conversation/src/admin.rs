//! The view of operators on conversations, and their deletions.

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

/// The totals of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Conversations.
    pub conversations: u64,
    /// Bytes of names and values of all state, shared state included. The history is not counted.
    pub state_bytes: u64,
    /// Tasks.
    pub tasks: u64,
    /// Tasks with a turn that runs or waits, of all processes.
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

    /// Deletes a conversation with its history, its state and its artifacts, and the `user:` state of an anonymous user
    /// with the one conversation that can see it. Its tasks stay, and so do other `user:` state and `app:` state. Returns
    /// `false` if the conversation does not exist.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError>;

    /// Deletes one full key, for example `user:theme`. Returns `false` if the key does not exist. A running turn sees the
    /// key until the turn ends. An `app:` key uses the tenant and the agent of `owner`, a `user:` key its user as well, and
    /// any other key its context as well.
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

//! Keys that extensions store with a task or a conversation. They are deleted together with the task or the
//! conversation.
//!
//! A running turn marks its keys as in use. At the end of the turn, keys of a task or conversation that was never
//! created are removed. If a task or conversation is deleted later, or if a process crashes, a periodic sweep of the
//! store finds and removes the keys.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_conversation::{Conversation, ConversationKey, ConversationStore, StoreError, Window};
use annex_fairness::of_same_tenant;
use annex_protocol::{ContextId, Owner, TaskId};
use annex_runtime::{KeyValueError, KeyValueStore, SCOPES_PER_PAGE, Scope, ScopeKind};
use tokio::runtime::Handle;

use crate::fault;
use crate::keyed_locks::KeyedLocks;
use crate::views::agent_names::AgentNames;

/// The keys of all tasks and conversations.
pub struct ScopedKeys {
    store: Arc<dyn KeyValueStore>,
    conversations: Arc<dyn ConversationStore>,
    /// The agents' names, under which conversations are stored.
    apps: AgentNames,
    /// The number of turns that use each scope.
    in_use: Mutex<HashMap<Scope, usize>>,
    /// Held so that the keys of a conversation are not removed while one of its turns begins.
    locks: KeyedLocks,
}

/// The keys of one turn: those of its conversation and those of its task.
pub(crate) struct TurnKeys {
    keys: Arc<ScopedKeys>,
    context: ScopeOfTurn,
    task: ScopeOfTurn,
}

struct ScopeOfTurn {
    scope: Scope,
    /// True once an extension has requested the scope, and may have stored keys.
    was_asked_for: AtomicBool,
}

/// The reason why the sweep cannot decide about keys or cannot remove them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepError {
    #[error("the keys of extensions cannot be read or removed")]
    Keys(#[from] KeyValueError),
    #[error("cannot list the tasks and conversations that still own keys")]
    Conversations(#[from] StoreError),
}

impl ScopedKeys {
    pub fn new(
        store: Arc<dyn KeyValueStore>,
        conversations: Arc<dyn ConversationStore>,
        apps: AgentNames,
    ) -> Arc<Self> {
        let in_use = Mutex::default();
        let locks = KeyedLocks::new();
        Arc::new(Self { store, conversations, apps, in_use, locks })
    }

    /// The keys for a turn. A conversation without events begins without keys: any existing ones belong to an older
    /// conversation with the same id and are removed.
    ///
    /// # Errors
    /// When these keys cannot be removed.
    pub(crate) async fn of_turn(
        self: &Arc<Self>,
        owner: &Owner,
        conversation: &Conversation,
        task: &TaskId,
    ) -> Result<TurnKeys, KeyValueError> {
        let context = Scope::context(&owner.tenant, &owner.principal, &conversation.key().context);
        let task = Scope::task(&owner.tenant, &owner.principal, task);
        // The lock makes a sweep of this conversation wait until its keys are marked as in use.
        let _locked = self.locks.lock(&context).await;
        if !conversation.exists() {
            self.store.remove(&context).await?;
        }
        let mut in_use = self.in_use();
        for scope in [&context, &task] {
            *in_use.entry(scope.clone()).or_insert(0) += 1;
        }
        Ok(TurnKeys { keys: Arc::clone(self), context: ScopeOfTurn::new(context), task: ScopeOfTurn::new(task) })
    }

    /// Closes the key-value store.
    pub async fn close(&self) {
        self.store.close().await;
    }

    /// Removes the keys of all deleted tasks and conversations.
    ///
    /// # Errors
    /// When a store fails. Keys that were removed before stay removed.
    pub(crate) async fn sweep(&self) -> Result<(), SweepError> {
        let mut after = None;
        loop {
            let page = self.store.scopes(after.as_ref()).await?;
            for scope in &page {
                self.remove_if_gone(scope).await?;
            }
            if page.len() < SCOPES_PER_PAGE {
                return Ok(());
            }
            after = page.into_iter().next_back();
        }
    }

    async fn remove_if_gone(&self, scope: &Scope) -> Result<(), SweepError> {
        // No turn of the conversation may begin between the check and the removal.
        let _locked = self.locks.lock(scope).await;
        let is_in_use = self.in_use().contains_key(scope);
        if is_in_use || self.exists(scope).await? {
            return Ok(());
        }
        Ok(self.store.remove(scope).await?)
    }

    async fn exists(&self, scope: &Scope) -> Result<bool, SweepError> {
        let owner = Owner { tenant: scope.tenant.clone(), principal: scope.principal.clone() };
        // A tenant that is not served now may be served later.
        let Some(app) = self.apps.of(&owner.tenant) else { return Ok(true) };
        match scope.kind {
            ScopeKind::Lasting => Ok(true),
            ScopeKind::Context => {
                let context = ContextId::from(scope.id.as_str());
                let key = ConversationKey::of(app, &owner, &context);
                Ok(self.conversations.conversation(&key, Window::NONE).await?.exists())
            }
            ScopeKind::Task => {
                let stored = self.conversations.task(&TaskId::from(scope.id.as_str())).await?;
                Ok(stored.is_some_and(|task| task.is_of(&owner)))
            }
        }
    }

    fn in_use(&self) -> MutexGuard<'_, HashMap<Scope, usize>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ScopeOfTurn {
    fn new(scope: Scope) -> Self {
        Self { scope, was_asked_for: AtomicBool::new(false) }
    }
}

impl TurnKeys {
    /// The scope of the turn's task or conversation. `None` for a lasting scope. Marks the scope as requested.
    pub(crate) fn scope(&self, kind: ScopeKind) -> Option<Scope> {
        let asked = match kind {
            ScopeKind::Lasting => return None,
            ScopeKind::Context => &self.context,
            ScopeKind::Task => &self.task,
        };
        asked.was_asked_for.store(true, Ordering::Relaxed);
        Some(asked.scope.clone())
    }
}

/// Releases the scopes. The turn's extensions are already dropped, so no more keys are written.
impl Drop for TurnKeys {
    fn drop(&mut self) {
        let mut left = Vec::new();
        let mut in_use = self.keys.in_use();
        for of_turn in [&self.context, &self.task] {
            if let Some(turns) = in_use.get_mut(&of_turn.scope) {
                *turns -= 1;
                if *turns == 0 {
                    in_use.remove(&of_turn.scope);
                }
            }
            if of_turn.was_asked_for.load(Ordering::Relaxed) {
                left.push(of_turn.scope.clone());
            }
        }
        drop(in_use);
        // Without a runtime the process is ending. A later process sweeps the keys.
        let Ok(runtime) = Handle::try_current() else { return };
        let keys = Arc::clone(&self.keys);
        if !left.is_empty() {
            runtime.spawn(of_same_tenant(async move {
                for scope in left {
                    if let Err(error) = keys.remove_if_gone(&scope).await {
                        fault::log(&error);
                    }
                }
            }));
        }
    }
}

#[cfg(test)]
mod tests;

//! Keys that extensions store with a task or a conversation, and that are deleted together with it.
//!
//! A running turn marks its keys as in use. At its end, keys of a task or session that was never created are removed.
//! Keys of tasks and sessions that are deleted later, and keys that a crash has left, are found by a periodic sweep of
//! the store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_fairness::of_same_tenant;
use annex_protocol::{ContextId, Owner, TaskId};
use annex_runtime::{KeyValueError, KeyValueStore, Quota, SCOPES_PER_PAGE, Scope, ScopeKind, Space};
use annex_session::{SessionError, SessionKey, SessionService, TurnSession};
use annex_tasks::{StoreError, TaskStore};
use tokio::runtime::Handle;

use crate::fault;
use crate::keyed_locks::KeyedLocks;
use crate::views::agent_names::AgentNames;

/// The name that stands for an extension's URI when the ids of an upstream agent are stored. It is not a URI, so no
/// extension has it.
const AGENT: &str = "agent";
/// Each task and conversation has one note, and their number is limited in other places.
const QUOTA: Quota = Quota {
    max_keys: 1,
    max_value_bytes: 64 << 10,
    max_total_bytes: 128 << 10,
    max_scoped_keys: usize::MAX,
    max_scoped_bytes: usize::MAX,
};

/// The keys of all tasks and conversations.
pub struct ScopedKeys {
    store: Arc<dyn KeyValueStore>,
    tasks: Arc<dyn TaskStore>,
    sessions: Arc<dyn SessionService>,
    /// The agents' names, under which sessions are stored.
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

/// Why the sweep cannot decide about keys, or cannot remove them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepError {
    #[error("the keys of extensions cannot be read or removed")]
    Keys(#[from] KeyValueError),
    #[error("cannot list the tasks that still own keys")]
    Tasks(#[from] StoreError),
    #[error("cannot list the sessions that still own keys")]
    Sessions(#[from] SessionError),
}

/// The session key of an owner's conversation.
pub fn session_key(app: impl Into<Arc<str>>, owner: &Owner, context: &ContextId) -> SessionKey {
    let tenant = if owner.tenant.is_empty() { Arc::default() } else { owner.tenant.as_str().into() };
    let app = app.into();
    let context = context.clone();
    match owner.principal.as_str() {
        "" => SessionKey::anonymous(tenant, app, context),
        // The prefix ensures that no principal has the name of an anonymous user.
        principal => SessionKey::new(tenant, app, format!("principal:{principal}"), context),
    }
}

impl ScopedKeys {
    pub fn new(
        store: Arc<dyn KeyValueStore>,
        tasks: Arc<dyn TaskStore>,
        sessions: Arc<dyn SessionService>,
        apps: AgentNames,
    ) -> Arc<Self> {
        let in_use = Mutex::default();
        let locks = KeyedLocks::new();
        Arc::new(Self { store, tasks, sessions, apps, in_use, locks })
    }

    /// The keys for a turn. A conversation without a session begins without keys: any existing ones belong to an older
    /// conversation with the same id and are removed.
    ///
    /// # Errors
    /// When these keys cannot be removed.
    pub(crate) async fn of_turn(
        self: &Arc<Self>,
        owner: &Owner,
        session: &TurnSession,
        task: &TaskId,
    ) -> Result<TurnKeys, KeyValueError> {
        let context = Scope::context(&owner.tenant, &owner.principal, &session.key().context);
        let task = Scope::task(&owner.tenant, &owner.principal, task);
        // The lock makes a sweep of this conversation wait until its keys are marked as in use.
        let _locked = self.locks.lock(&context).await;
        if !session.exists() {
            self.store.remove(&context).await?;
        }
        let mut in_use = self.in_use();
        for scope in [&context, &task] {
            *in_use.entry(scope.clone()).or_insert(0) += 1;
        }
        Ok(TurnKeys { keys: Arc::clone(self), context: ScopeOfTurn::new(context), task: ScopeOfTurn::new(task) })
    }

    /// The ids of an upstream agent in a scope.
    pub(crate) async fn note(&self, scope: Scope, key: &str) -> Result<Option<String>, KeyValueError> {
        let space = Space { extension: AGENT.into(), scope };
        let note = self.store.get(&space, key).await?;
        // Only text is ever stored here.
        Ok(note.and_then(|note| String::from_utf8(note).ok()))
    }

    /// Replaces the ids of an upstream agent in a scope.
    pub(crate) async fn set_note(&self, scope: Scope, key: &str, note: &str) -> Result<(), KeyValueError> {
        let space = Space { extension: AGENT.into(), scope };
        self.store.set(&space, key, note.as_bytes().to_vec(), &QUOTA).await
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
                Ok(self.sessions.exists(&session_key(app, &owner, &context)).await?)
            }
            ScopeKind::Task => Ok(self.tasks.exists(&owner, &TaskId::from(scope.id.as_str())).await?),
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

//! Reads and deletes the state that sessions share, and deletes single keys of any scope.

use std::sync::Arc;

use annex_conversation::{ConversationKey, ConversationNames, Scope, Window};

use crate::admin_api::sessions::{DeletedKeys, DeletedUserState, SharedState};
use crate::stores::sessions::{SessionName, Sessions, SessionsError};

/// The owner of state keys.
#[derive(Clone, Debug, Default)]
pub struct StateOwner {
    /// The tenant. `None` for the agent of the config itself.
    pub tenant: Option<String>,
    /// The user, spelled as in a list of sessions. `None` for the anonymous user of the context.
    pub user: Option<String>,
    /// The A2A context.
    pub context: Option<String>,
}

impl Sessions {
    /// Reads the `app:` keys, and the `user:` keys of the user in `owner`. Without a user and a context, only the
    /// `app:` keys.
    ///
    /// # Errors
    /// [`SessionsError::NoTenant`], [`SessionsError::Store`].
    pub async fn shared_state(&self, owner: &StateOwner) -> Result<SharedState, SessionsError> {
        let ConversationNames { tenant, app, user, .. } = &*self.key(&name(owner))?;
        let is_named = owner.user.is_some() || owner.context.is_some();
        let user = if is_named { Arc::clone(user) } else { "".into() };
        // Reading a session needs a context. The shared state is the same in every context, so any name will do.
        let key = ConversationKey::new(Arc::clone(tenant), Arc::clone(app), user, "-");
        let state = self.store.conversation(&key, Window::NONE).await?.state.shared();
        let user = is_named.then(|| key.user.to_string());
        let state = self.hidden(move |redaction| redaction.state(&state)).await?;
        Ok(SharedState { agent: key.app.to_string(), user, state })
    }

    /// Deletes keys by their full names. A running turn still sees the deleted keys until the turn ends.
    ///
    /// # Errors
    /// [`SessionsError::NoTenant`], [`SessionsError::NoOwner`], [`SessionsError::NoKeys`], [`SessionsError::Store`].
    pub async fn delete_keys(&self, owner: &StateOwner, keys: Vec<String>) -> Result<DeletedKeys, SessionsError> {
        // All keys are checked before the first one is deleted.
        keys.iter().try_for_each(|key| check(owner, key))?;
        let owner = self.key(&name(owner))?;
        let mut done = DeletedKeys { deleted: Vec::new(), missing: Vec::new() };
        for key in keys {
            let is_deleted = self.store.delete_key(&owner, &key).await?;
            if is_deleted { &mut done.deleted } else { &mut done.missing }.push(key);
        }
        if done.deleted.is_empty() { Err(SessionsError::NoKeys) } else { Ok(done) }
    }

    /// Deletes all `user:` keys of a user.
    ///
    /// # Errors
    /// [`SessionsError::NoTenant`], [`SessionsError::NoUserState`], [`SessionsError::Store`].
    pub async fn delete_user_state(
        &self,
        tenant: Option<String>,
        user: String,
    ) -> Result<DeletedUserState, SessionsError> {
        let owner = self.key(&SessionName { tenant, user: Some(user.clone()), context: String::new() })?;
        match self.store.delete_user_state(&owner).await? {
            0 => Err(SessionsError::NoUserState { user }),
            keys => Ok(DeletedUserState { user, keys }),
        }
    }
}

fn name(StateOwner { tenant, user, context }: &StateOwner) -> SessionName {
    SessionName { tenant: tenant.clone(), user: user.clone(), context: context.clone().unwrap_or_default() }
}

/// Checks that `owner` has the fields that the scope of the key needs, such as the context for a key without a prefix.
fn check(owner: &StateOwner, key: &str) -> Result<(), SessionsError> {
    let reason = match Scope::of(key).0 {
        Scope::App => return Ok(()),
        Scope::User if owner.user.is_some() || owner.context.is_some() => return Ok(()),
        Scope::Conversation if owner.context.is_some() => return Ok(()),
        Scope::User => "it belongs to a user; name the user, or the context of an anonymous one",
        Scope::Conversation => "it belongs to a session; name the context",
        Scope::Temp => "`temp:` keys end with their turn and are not stored",
    };
    Err(SessionsError::NoOwner { key: key.to_owned(), reason })
}

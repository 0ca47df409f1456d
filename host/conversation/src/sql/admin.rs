//! The operators' reads and deletions, and the configs of push notifications.

use annex_database::{Row, Value, from_sql};
use annex_protocol::{ContextId, TaskId, TaskPushNotificationConfig, Timestamp};
use async_trait::async_trait;

use super::leased::Leased;
use super::values::named;
use super::{SqlStore, delete, read, scopes, statements, upkeep_statements};
use crate::admin::{ConversationAdmin, ConversationQuery, Holdings};
use crate::configs::{ConfigError, ConfigStore, MAX_PUSH_CONFIGS};
use crate::cursors::PushCursors;
use crate::encoding::encoded_name;
use crate::error::{AppendError, StoreError};
use crate::history::{ConversationSnapshot, Window};
use crate::key::{ConversationKey, InvalidName, check_key, check_name};
use crate::page::{ConfigPage, cut};
use crate::state::Scope;

#[async_trait]
impl<D: Leased> ConversationAdmin for SqlStore<D> {
    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationSnapshot>, StoreError> {
        let after = query.after.as_ref();
        let values = [
            Value::Text(&query.tenant),
            Value::Text(&query.app),
            Value::Int(after.map_or(i64::MIN, |after| after.updated_at.as_millis())),
            Value::Text(after.map_or("", |after| &after.user)),
            Value::Text(after.map_or("", |after| after.context.as_str())),
            Value::count(query.limit),
            // The last one, because only the statement for one user has a parameter for it.
            Value::Text(query.user.as_deref().unwrap_or_default()),
        ];
        let (sql, values) = match query.user {
            Some(_) => (upkeep_statements::LIST_CONVERSATIONS_OF_USER, values.as_slice()),
            None => (upkeep_statements::LIST_CONVERSATIONS, values.get(..6).unwrap_or_default()),
        };
        let mut found = Vec::new();
        for row in self.database.read(sql, values).await? {
            let key = ConversationKey::new(query.tenant.as_str(), query.app.as_str(), row.text(0)?, row.text(1)?);
            // Number and time are those of the list, whose order is by the time. Both may have changed since.
            let (number, updated_at) = (from_sql(row.int(2)?), Timestamp::from_millis(row.int(3)?));
            let read = read::conversation(self.database.as_ref(), &key, Window::NONE).await?;
            found.push(ConversationSnapshot { number, updated_at, ..read });
        }
        Ok(found)
    }

    async fn users_in(
        &self,
        tenant: &str,
        app: &str,
        context: &ContextId,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let values = [Value::Text(tenant), Value::Text(app), Value::Text(context.as_str()), Value::count(limit)];
        let rows = self.database.read(upkeep_statements::USERS_IN, &values).await?;
        Ok(rows.iter().map(|row| row.text(0)).collect::<Result<_, _>>()?)
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        if key.check().is_err() {
            return Ok(false);
        }
        delete::conversation(self.database.as_ref(), key).await
    }

    async fn delete_key(&self, owner: &ConversationKey, full_key: &str) -> Result<bool, StoreError> {
        let (scope, name) = Scope::of(full_key);
        let name = encoded_name(name);
        // A database would not even take what cannot be stored.
        if check_names(owner, scope).is_err() || check_key("state key", &name).is_err() {
            return Ok(false);
        }
        let mut transaction = self.database.begin().await?;
        let is_deleted = scopes::delete_key::<D>(&mut transaction, (scope, &name), owner).await?;
        D::commit(transaction).await?;
        Ok(is_deleted)
    }

    async fn delete_user_state(&self, owner: &ConversationKey) -> Result<u64, StoreError> {
        if check_names(owner, Scope::User).is_err() {
            return Ok(0);
        }
        let [tenant, app, user, _] = named(owner);
        let mut transaction = self.database.begin().await?;
        let deleted = D::execute(&mut transaction, statements::DELETE_USER_KEYS, &[tenant, app, user]).await?;
        D::commit(transaction).await?;
        Ok(deleted)
    }

    async fn holdings(&self, tenant: &str) -> Result<Holdings, StoreError> {
        let rows = self.database.read(upkeep_statements::COUNT_HOLDINGS, &[Value::Text(tenant)]).await?;
        let Some(row) = rows.first() else { return Ok(Holdings::default()) };
        Ok(Holdings {
            conversations: from_sql(row.int(0)?),
            state_bytes: from_sql(row.int(1)?),
            tasks: from_sql(row.int(2)?),
            turns: from_sql(row.int(3)?),
        })
    }
}

#[async_trait]
impl<D: Leased> ConfigStore for SqlStore<D> {
    async fn put_config(&self, task: &TaskId, config: &TaskPushNotificationConfig) -> Result<(), ConfigError> {
        let config_id = config.id.as_deref().unwrap_or_default();
        check_name("push notification config id", config_id).map_err(AppendError::from)?;
        if check_key("task id", task.as_str()).is_err() {
            return Err(AppendError::Missing.into());
        }
        let json = serde_json::to_string(config).map_err(StoreError::from).map_err(AppendError::from)?;
        self.store_config([Value::Text(task.as_str()), Value::Text(config_id), Value::Text(&json)]).await
    }

    async fn config(&self, task: &TaskId, config: &str) -> Result<Option<TaskPushNotificationConfig>, StoreError> {
        if check_key("task id", task.as_str()).is_err() || check_key("config id", config).is_err() {
            return Ok(None);
        }
        let values = [Value::Text(task.as_str()), Value::Text(config)];
        let rows = self.database.read(upkeep_statements::SELECT_CONFIG, &values).await?;
        rows.first().map(|row| stored_config(task, row)).transpose()
    }

    async fn configs(&self, task: &TaskId, after: &str, limit: usize) -> Result<ConfigPage, StoreError> {
        if check_key("task id", task.as_str()).is_err() || check_key("config id", after).is_err() {
            return Ok(ConfigPage::default());
        }
        let values = [Value::Text(task.as_str()), Value::Text(after), Value::count(limit.saturating_add(1))];
        let rows = self.database.read(upkeep_statements::SELECT_CONFIGS, &values).await?;
        let mut configs = rows.iter().map(|row| stored_config(task, row)).collect::<Result<Vec<_>, _>>()?;
        let next = cut(&mut configs, limit, |config| config.id.clone().unwrap_or_default());
        Ok(ConfigPage { configs, next })
    }

    async fn delete_config(&self, task: &TaskId, config: &str) -> Result<(), StoreError> {
        if check_key("task id", task.as_str()).is_err() || check_key("config id", config).is_err() {
            return Ok(());
        }
        let values = [Value::Text(task.as_str()), Value::Text(config)];
        self.database.change(upkeep_statements::DELETE_CONFIG, &values).await?;
        Ok(())
    }

    fn push_cursors(&self) -> Option<&dyn PushCursors> {
        self.database.push_cursors()
    }
}

impl<D: Leased> SqlStore<D> {
    async fn store_config(&self, values: [Value<'_>; 3]) -> Result<(), ConfigError> {
        let [task, config, _] = values;
        let failed = |error: sqlx::Error| ConfigError::from(AppendError::from(error));
        let mut transaction = self.database.begin().await.map_err(failed)?;
        // Locked, so that two configs at once do not both take the last place.
        if D::execute(&mut transaction, upkeep_statements::LOCK_TASK, &[task]).await.map_err(failed)? == 0 {
            return Err(AppendError::Missing.into());
        }
        // The config itself does not count, because putting it again replaces it.
        let others = D::query(&mut transaction, upkeep_statements::COUNT_OTHER_CONFIGS, &[task, config])
            .await
            .map_err(failed)?;
        let others = others.first().map(|row| row.int(0)).transpose().map_err(failed)?.unwrap_or_default();
        if from_sql::<u64>(others) >= MAX_PUSH_CONFIGS as u64 {
            return Err(ConfigError::TooMany { limit: MAX_PUSH_CONFIGS });
        }
        D::execute(&mut transaction, upkeep_statements::PUT_CONFIG, &values).await.map_err(failed)?;
        D::commit(transaction).await.map_err(failed)
    }
}

pub(super) fn stored_config<R: Row>(task: &TaskId, row: &R) -> Result<TaskPushNotificationConfig, StoreError> {
    serde_json::from_str(&row.text(0)?).map_err(|source| StoreError::unreadable_task(task, source))
}

/// Checks the names that identify the owner of the keys of a scope.
fn check_names(owner: &ConversationKey, scope: Scope) -> Result<(), InvalidName> {
    if scope == Scope::Conversation {
        return owner.check();
    }
    check_key("tenant", &owner.tenant)?;
    check_key("agent's name", &owner.app)?;
    check_key("user id", &owner.user)
}

//! Tenants in a database.

use annex_database::{Database, Row, Value, from_sql};
use annex_protocol::Timestamp;
use async_trait::async_trait;

use super::SqlTenantStore;
use crate::key::{self, is_key};
use crate::{
    ChangedTenant, Expectation, ListedTenant, StoredTenant, TenantChange, TenantState, TenantStore, TenantStoreError,
};

/// The time for which a removed tenant is listed among the changes.
const LISTED_MILLIS: i64 = 24 * 60 * 60 * 1_000;

const SELECT: &str = "SELECT rev, state, config FROM tenant WHERE name = $1 AND state <> 'removed'";

const LIST: &str = "
    SELECT name, rev, state FROM tenant WHERE name > $1 AND state <> 'removed' ORDER BY name LIMIT CAST($2 AS BIGINT)";

/// Numbers a change that is made to a tenant. Other changes wait until the end of the transaction.
const NEXT_REV: &str = "UPDATE tenant_change SET rev = rev + 1 RETURNING rev";

const ADD: &str = "
    INSERT INTO tenant (name, rev, state, config, changed_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (name) DO UPDATE
    SET rev = excluded.rev, state = excluded.state, config = excluded.config, changed_at = excluded.changed_at
    WHERE tenant.state = 'removed'";

const CHANGE: &str = "
    UPDATE tenant SET rev = $2, state = $3, config = $4, changed_at = $5
    WHERE name = $1 AND rev = $6 AND state <> 'removed'";

const FORGET_REMOVED: &str = "DELETE FROM tenant WHERE state = 'removed' AND changed_at < $1";

const CHANGED: &str = "
    SELECT name, rev, state FROM tenant WHERE rev > $1 ORDER BY rev LIMIT CAST($2 AS BIGINT)";

const LAST_CHANGE: &str = "SELECT rev FROM tenant_change";

const REMOVED: &str = "removed";

#[async_trait]
impl<D: Database> TenantStore for SqlTenantStore<D> {
    async fn find(&self, name: &str) -> Result<Option<StoredTenant>, TenantStoreError> {
        // A request may name anything as a tenant.
        if !is_key(name) {
            return Ok(None);
        }
        let rows = self.database.read(SELECT, &[Value::Text(name)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let state = state_of(&row.text(1)?);
        Ok(Some(StoredTenant { name: name.to_owned(), rev: from_sql(row.int(0)?), state, config: row.text(2)? }))
    }

    async fn list(&self, after: &str, limit: usize) -> Result<Vec<ListedTenant>, TenantStoreError> {
        if !is_key(after) {
            return Ok(Vec::new());
        }
        let rows = self.database.read(LIST, &[Value::Text(after), Value::count(limit)]).await?;
        let listed = rows.iter().map(|row| {
            Ok(ListedTenant { name: row.text(0)?, rev: from_sql(row.int(1)?), state: state_of(&row.text(2)?) })
        });
        listed.collect::<Result<_, sqlx::Error>>().map_err(TenantStoreError::from)
    }

    async fn put(
        &self,
        name: &str,
        expectation: Expectation,
        state: TenantState,
        config: &str,
    ) -> Result<TenantChange, TenantStoreError> {
        key::check_name("tenant", name)?;
        self.change_tenant(name, expectation, name_of(state), config).await
    }

    async fn remove(&self, name: &str, rev: u64) -> Result<TenantChange, TenantStoreError> {
        if !is_key(name) {
            return Ok(TenantChange::Other(None));
        }
        self.change_tenant(name, Expectation::Rev(rev), REMOVED, "").await
    }

    async fn changed_after(&self, rev: u64, limit: usize) -> Result<Vec<ChangedTenant>, TenantStoreError> {
        let rows = self.database.read(CHANGED, &[Value::count(rev), Value::count(limit)]).await?;
        let changed = rows.iter().map(|row| {
            let state = Some(row.text(2)?).filter(|state| state != REMOVED);
            let state = state.as_deref().map(state_of);
            Ok(ChangedTenant { name: row.text(0)?, rev: from_sql(row.int(1)?), state })
        });
        changed.collect::<Result<_, sqlx::Error>>().map_err(TenantStoreError::from)
    }

    async fn last_change(&self) -> Result<u64, TenantStoreError> {
        let rows = self.database.read(LAST_CHANGE, &[]).await?;
        Ok(rows.first().map(|row| row.int(0)).transpose()?.map_or(0, from_sql))
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

impl<D: Database> SqlTenantStore<D> {
    async fn change_tenant(
        &self,
        name: &str,
        expectation: Expectation,
        state: &str,
        config: &str,
    ) -> Result<TenantChange, TenantStoreError> {
        let mut transaction = self.database.begin().await?;
        let next = D::query(&mut transaction, NEXT_REV, &[]).await?;
        let next = next.first().ok_or(sqlx::Error::RowNotFound)?.int(0)?;
        let now = Timestamp::now().as_millis();
        let values = [Value::Text(name), Value::Int(next), Value::Text(state), Value::Text(config), Value::Int(now)];
        let changed = match expectation {
            Expectation::Absent => D::execute(&mut transaction, ADD, &values).await?,
            Expectation::Rev(rev) => {
                let values = values.into_iter().chain([Value::count(rev)]);
                D::execute(&mut transaction, CHANGE, &values.collect::<Vec<_>>()).await?
            }
        };
        if changed == 0 {
            let there = D::query(&mut transaction, SELECT, &[Value::Text(name)]).await?;
            // Dropping the transaction rolls it back, including the new revision number.
            return Ok(TenantChange::Other(there.first().map(|row| row.int(0)).transpose()?.map(from_sql)));
        }
        if state == REMOVED {
            D::execute(&mut transaction, FORGET_REMOVED, &[Value::Int(now.saturating_sub(LISTED_MILLIS))]).await?;
        }
        D::commit(transaction).await?;
        Ok(TenantChange::Stored(from_sql(next)))
    }
}

fn name_of(state: TenantState) -> &'static str {
    match state {
        TenantState::Active => "active",
        TenantState::Suspended => "suspended",
    }
}

/// The state with this name. A state that only a later version knows counts as suspended, because this version cannot serve
/// such a tenant.
fn state_of(name: &str) -> TenantState {
    if name == "active" { TenantState::Active } else { TenantState::Suspended }
}

//! Uploaded components in a database.

use annex_database::{Database, Row, Value, from_sql};
use annex_protocol::Timestamp;
use async_trait::async_trait;

use super::SqlTenantStore;
use crate::key::{self, is_key};
use crate::{ComponentStore, ListedComponent, TenantStoreError, Upload, UploadBounds};

/// Takes a lock that other uploads wait for, until the end of the transaction. Changes of tenants take the same lock.
/// The statement changes no value.
const LOCK: &str = "UPDATE tenant_change SET rev = rev";

const HELD: &str = "SELECT count(*), CAST(coalesce(sum(size), 0) AS BIGINT) FROM uploaded_component";

const PUT: &str = "INSERT INTO uploaded_component (digest, bytes, size, uploaded_at) VALUES ($1, $2, $3, $4)";

const FIND: &str = "SELECT bytes FROM uploaded_component WHERE digest = $1";

const HAS: &str = "SELECT size FROM uploaded_component WHERE digest = $1";

const LIST: &str = "SELECT digest, size, uploaded_at FROM uploaded_component ORDER BY digest";

const REMOVE: &str = "DELETE FROM uploaded_component WHERE digest = $1 RETURNING digest";

#[async_trait]
impl<D: Database> ComponentStore for SqlTenantStore<D> {
    async fn put(&self, digest: &str, bytes: &[u8], bounds: UploadBounds) -> Result<Upload, TenantStoreError> {
        key::check_name("digest", digest)?;
        let mut transaction = self.database.begin().await?;
        D::execute(&mut transaction, LOCK, &[]).await?;
        if !D::query(&mut transaction, HAS, &[Value::Text(digest)]).await?.is_empty() {
            return Ok(Upload::Known);
        }
        let held = D::query(&mut transaction, HELD, &[]).await?;
        let held = held.first().ok_or(sqlx::Error::RowNotFound)?;
        let held = UploadBounds { count: from_sql(held.int(0)?), bytes: from_sql(held.int(1)?) };
        if held.count >= bounds.count || held.bytes.saturating_add(bytes.len() as u64) > bounds.bytes {
            return Ok(Upload::Full(held));
        }
        let now = Timestamp::now().as_millis();
        let values = [Value::Text(digest), Value::Bytes(bytes), Value::count(bytes.len()), Value::Int(now)];
        D::execute(&mut transaction, PUT, &values).await?;
        D::commit(transaction).await?;
        Ok(Upload::Stored)
    }

    async fn find(&self, digest: &str) -> Result<Option<Vec<u8>>, TenantStoreError> {
        if !is_key(digest) {
            return Ok(None);
        }
        let rows = self.database.read(FIND, &[Value::Text(digest)]).await?;
        Ok(rows.first().map(|row| row.bytes(0)).transpose()?)
    }

    async fn has(&self, digest: &str) -> Result<bool, TenantStoreError> {
        Ok(is_key(digest) && !self.database.read(HAS, &[Value::Text(digest)]).await?.is_empty())
    }

    async fn list(&self) -> Result<Vec<ListedComponent>, TenantStoreError> {
        let rows = self.database.read(LIST, &[]).await?;
        let listed = rows.iter().map(|row| {
            let uploaded_at = Timestamp::from_millis(row.int(2)?);
            Ok(ListedComponent { digest: row.text(0)?, size: from_sql(row.int(1)?), uploaded_at })
        });
        listed.collect::<Result<_, sqlx::Error>>().map_err(TenantStoreError::from)
    }

    async fn remove(&self, digest: &str) -> Result<bool, TenantStoreError> {
        if !is_key(digest) {
            return Ok(false);
        }
        Ok(!self.database.change(REMOVE, &[Value::Text(digest)]).await?.is_empty())
    }
}

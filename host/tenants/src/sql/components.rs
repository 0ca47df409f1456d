//! Uploaded and pulled components in a database.

use annex_database::{Database, Row, Value, from_sql};
use annex_protocol::Timestamp;
use async_trait::async_trait;

use super::SqlTenantStore;
use crate::key::{self, is_key};
use crate::{ComponentStore, ListedComponent, PulledComponent, TenantStoreError, Upload, UploadBounds};

/// Takes a lock that other uploads wait for, until the end of the transaction. Changes of tenants take the same lock.
/// The statement changes no value.
const LOCK: &str = "UPDATE tenant_change SET rev = rev";

const HELD: &str = "SELECT count(*), CAST(coalesce(sum(size), 0) AS BIGINT) FROM \
                    (SELECT size FROM uploaded_component UNION ALL SELECT size FROM pulled_component) AS held";

const PUT: &str = "INSERT INTO uploaded_component (digest, bytes, size, uploaded_at) VALUES ($1, $2, $3, $4)";

const FIND: &str = "SELECT bytes FROM uploaded_component WHERE digest = $1";

const HAS: &str = "SELECT size FROM uploaded_component WHERE digest = $1";

const LIST: &str = "SELECT digest, size, uploaded_at FROM uploaded_component ORDER BY digest";

const REMOVE: &str = "DELETE FROM uploaded_component WHERE digest = $1 RETURNING digest";

const PUT_PULLED: &str = "INSERT INTO pulled_component (digest, manifest, bytes, size, pulled_at) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (digest) DO UPDATE SET manifest = excluded.manifest, bytes = excluded.bytes, size = excluded.size";

const HAS_PULLED: &str = "SELECT size FROM pulled_component WHERE digest = $1";

const FIND_PULLED: &str = "SELECT manifest, bytes FROM pulled_component WHERE digest = $1";

const PUT_SIGNATURE: &str = "INSERT INTO pulled_signature (digest, number, bytes) VALUES ($1, $2, $3)";

const SIGNATURES: &str = "SELECT bytes FROM pulled_signature WHERE digest = $1 ORDER BY number";

const REMOVE_SIGNATURES: &str = "DELETE FROM pulled_signature WHERE digest = $1";

const CLAIM: &str =
    "INSERT INTO tenant_component (tenant, digest) VALUES ($1, $2) ON CONFLICT (tenant, digest) DO NOTHING";

const CLAIMS: &str = "SELECT digest FROM tenant_component WHERE tenant = $1 ORDER BY digest";

const RELEASE: &str = "DELETE FROM tenant_component WHERE tenant = $1 AND digest = $2";

const HAS_TENANT: &str = "SELECT tenant FROM tenant_component WHERE digest = $1 LIMIT 1";

const REMOVE_PULLED: &str = "DELETE FROM pulled_component WHERE digest = $1";

/// The present number and size of all stored components.
async fn held<D: Database>(transaction: &mut D::Transaction) -> Result<UploadBounds, TenantStoreError> {
    let held = D::query(transaction, HELD, &[]).await?;
    let held = held.first().ok_or(sqlx::Error::RowNotFound)?;
    Ok(UploadBounds { count: from_sql(held.int(0)?), bytes: from_sql(held.int(1)?) })
}

fn is_full(held: UploadBounds, more: usize, bounds: UploadBounds) -> bool {
    held.count >= bounds.count || held.bytes.saturating_add(more as u64) > bounds.bytes
}

#[async_trait]
impl<D: Database> ComponentStore for SqlTenantStore<D> {
    async fn put(&self, digest: &str, bytes: &[u8], bounds: UploadBounds) -> Result<Upload, TenantStoreError> {
        key::check_name("digest", digest)?;
        let mut transaction = self.database.begin().await?;
        D::execute(&mut transaction, LOCK, &[]).await?;
        if !D::query(&mut transaction, HAS, &[Value::Text(digest)]).await?.is_empty() {
            return Ok(Upload::Known);
        }
        let held = held::<D>(&mut transaction).await?;
        if is_full(held, bytes.len(), bounds) {
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

    async fn put_pulled(
        &self,
        tenant: &str,
        digest: &str,
        pulled: &PulledComponent,
        bounds: UploadBounds,
    ) -> Result<Upload, TenantStoreError> {
        key::check_name("tenant", tenant)?;
        key::check_name("digest", digest)?;
        let mut transaction = self.database.begin().await?;
        D::execute(&mut transaction, LOCK, &[]).await?;
        let is_known = !D::query(&mut transaction, HAS_PULLED, &[Value::Text(digest)]).await?.is_empty();
        if !is_known {
            let held = held::<D>(&mut transaction).await?;
            if is_full(held, pulled.size(), bounds) {
                return Ok(Upload::Full(held));
            }
        }
        let now = Timestamp::now().as_millis();
        let PulledComponent { manifest, component, .. } = pulled;
        let (manifest, component) = (Value::Bytes(manifest), Value::Bytes(component));
        let values = [Value::Text(digest), manifest, component, Value::count(pulled.size()), Value::Int(now)];
        D::execute(&mut transaction, PUT_PULLED, &values).await?;
        D::execute(&mut transaction, REMOVE_SIGNATURES, &[Value::Text(digest)]).await?;
        for (number, signature) in pulled.signatures.iter().enumerate() {
            let values = [Value::Text(digest), Value::count(number), Value::Bytes(signature)];
            D::execute(&mut transaction, PUT_SIGNATURE, &values).await?;
        }
        D::execute(&mut transaction, CLAIM, &[Value::Text(tenant), Value::Text(digest)]).await?;
        D::commit(transaction).await?;
        Ok(if is_known { Upload::Known } else { Upload::Stored })
    }

    async fn claim_pulled(&self, tenant: &str, digest: &str) -> Result<bool, TenantStoreError> {
        if !is_key(tenant) || !is_key(digest) {
            return Ok(false);
        }
        let mut transaction = self.database.begin().await?;
        D::execute(&mut transaction, LOCK, &[]).await?;
        if D::query(&mut transaction, HAS_PULLED, &[Value::Text(digest)]).await?.is_empty() {
            return Ok(false);
        }
        D::execute(&mut transaction, CLAIM, &[Value::Text(tenant), Value::Text(digest)]).await?;
        D::commit(transaction).await?;
        Ok(true)
    }

    async fn find_pulled(&self, digest: &str) -> Result<Option<PulledComponent>, TenantStoreError> {
        if !is_key(digest) {
            return Ok(None);
        }
        let rows = self.database.read(FIND_PULLED, &[Value::Text(digest)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (manifest, component) = (row.bytes(0)?, row.bytes(1)?);
        let signatures = self.database.read(SIGNATURES, &[Value::Text(digest)]).await?;
        let signatures = signatures.iter().map(|row| row.bytes(0)).collect::<Result<_, sqlx::Error>>()?;
        Ok(Some(PulledComponent { manifest, component, signatures }))
    }

    async fn release_pulled(&self, tenant: &str, text: &str) -> Result<(), TenantStoreError> {
        if !is_key(tenant) {
            return Ok(());
        }
        let claims = self.database.read(CLAIMS, &[Value::Text(tenant)]).await?;
        let claims = claims.iter().map(|row| row.text(0)).collect::<Result<Vec<_>, sqlx::Error>>()?;
        let released: Vec<&String> = claims.iter().filter(|digest| !text.contains(digest.as_str())).collect();
        if released.is_empty() {
            return Ok(());
        }
        let mut transaction = self.database.begin().await?;
        D::execute(&mut transaction, LOCK, &[]).await?;
        for digest in released {
            D::execute(&mut transaction, RELEASE, &[Value::Text(tenant), Value::Text(digest)]).await?;
            if D::query(&mut transaction, HAS_TENANT, &[Value::Text(digest)]).await?.is_empty() {
                D::execute(&mut transaction, REMOVE_SIGNATURES, &[Value::Text(digest)]).await?;
                D::execute(&mut transaction, REMOVE_PULLED, &[Value::Text(digest)]).await?;
            }
        }
        Ok(D::commit(transaction).await?)
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

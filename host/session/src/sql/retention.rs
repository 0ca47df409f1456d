//! Deletes sessions outside of the retention.

use annex_database::{Database, Row, Value, from_sql};
use annex_protocol::Timestamp;

use super::statements;
use super::values::named;
use crate::SessionError;
use crate::service::Retention;
use crate::session::SessionKey;

/// Sessions that go in one transaction, so that no writer waits long.
const BATCH: u64 = 100;

pub(super) async fn sweep<D: Database>(database: &D, retention: &Retention) -> Result<u64, SessionError> {
    let before = retention.changed_before(Timestamp::now());
    let values = [Value::count(retention.count), Value::Int(before)];
    let mut swept = 0;
    for tenant in database.read(statements::TENANTS_TO_SWEEP, &values).await? {
        let tenant = tenant.text(0)?;
        loop {
            // Each batch is a transaction of its own, so that turns get their writes in between.
            let batch = delete_batch(database, &tenant, retention, before).await?;
            swept += batch;
            if batch == 0 {
                break;
            }
        }
    }
    Ok(swept)
}

/// Deletes the oldest of a tenant's beyond the count, or of those beyond the age when there are not too many.
async fn delete_batch<D: Database>(
    database: &D,
    tenant: &str,
    retention: &Retention,
    before: i64,
) -> Result<u64, SessionError> {
    let tenant = Value::Text(tenant);
    let mut transaction = database.begin().await?;
    if let Some(lock) = D::LOCK_SWEEP {
        // Two sweepers at once would each delete what is too much.
        D::query(&mut transaction, lock, &[]).await?;
    }
    let rows = D::query(&mut transaction, statements::COUNT_SESSIONS, &[tenant]).await?;
    let sessions = rows.first().map(|row| row.int(0)).transpose()?.unwrap_or_default();
    let surplus = from_sql::<u64>(sessions).saturating_sub(retention.count);
    let oldest = match surplus {
        0 => [Value::Int(before), Value::count(BATCH), tenant],
        // Too many: the oldest go, however young they are.
        _ => [Value::Int(i64::MAX), Value::count(surplus.min(BATCH)), tenant],
    };
    let deleted = D::query(&mut transaction, statements::DELETE_OLDEST, &oldest).await?;
    for row in &deleted {
        let key = SessionKey::new(row.text(0)?, row.text(1)?, row.text(2)?, row.text(3)?);
        forget_anonymous::<D>(&mut transaction, &key).await?;
    }
    D::commit(transaction).await?;
    Ok(deleted.len() as u64)
}

/// Deletes the `user:` state of an anonymous user whose session is deleted, because no other session can see that
/// state.
pub(super) async fn forget_anonymous<D: Database>(
    transaction: &mut D::Transaction,
    deleted: &SessionKey,
) -> Result<(), SessionError> {
    if deleted.is_anonymous() {
        let [tenant, app, user, _] = named(deleted);
        D::execute(transaction, statements::DELETE_KEYS_OF_USER, &[tenant, app, user]).await?;
    }
    Ok(())
}

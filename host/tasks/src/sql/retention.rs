//! Deletes tasks outside of the retention.

use annex_database::{Database, Row, Value, from_sql};
use annex_protocol::Timestamp;

use super::statements;
use crate::{Retention, StoreError};

/// Rows that go in one transaction, so that no writer waits long.
const BATCH: u64 = 100;

pub(super) async fn sweep<D: Database>(database: &D, retention: &Retention) -> Result<u64, StoreError> {
    let now = Timestamp::now().as_millis();
    let finished = Value::Int(retention.finished_before(now));
    let count = Value::count(retention.count);
    let batch = Value::count(BATCH);
    let mut swept = 0;
    for tenant in tenants(database, statements::TENANTS_TO_SWEEP, &[count, finished]).await? {
        swept += sweep_tenant(database, &tenant, retention, now).await?;
    }
    for tenant in tenants(database, statements::TENANTS_WITH_ANSWERS_TO_FORGET, &[count, finished]).await? {
        let tenant = Value::Text(&tenant);
        delete_all(database, statements::FORGET_SURPLUS_ANSWERS, &[count, batch, tenant]).await?;
        delete_all(database, statements::FORGET_OLD_ANSWERS, &[finished, batch, tenant]).await?;
    }
    let remembered = Value::Int(retention.remembered_before(now));
    delete_all(database, statements::FORGET_UNCLAIMED, &[remembered, batch]).await?;
    delete_all(database, statements::FORGET_LOST_PINS, &[remembered, batch]).await?;
    Ok(swept)
}

pub(super) async fn sweep_tenant<D: Database>(
    database: &D,
    tenant: &str,
    retention: &Retention,
    now: i64,
) -> Result<u64, StoreError> {
    let mut swept = 0;
    loop {
        let deleted = delete_batch(database, tenant, retention, now).await?;
        if deleted == 0 {
            return Ok(swept);
        }
        swept += deleted;
    }
}

async fn tenants<D: Database>(
    database: &D,
    sql: &'static str,
    values: &[Value<'_>],
) -> Result<Vec<String>, StoreError> {
    let rows = database.read(sql, values).await?;
    Ok(rows.iter().map(|row| row.text(0)).collect::<Result<_, _>>()?)
}

/// Runs a statement that deletes a batch, until it finds no more.
async fn delete_all<D: Database>(database: &D, sql: &'static str, values: &[Value<'_>]) -> Result<(), StoreError> {
    loop {
        // Each batch commits, so that writers come in between: SQLite has one writer.
        let mut transaction = database.begin().await?;
        let deleted = D::execute(&mut transaction, sql, values).await?;
        D::commit(transaction).await?;
        if deleted == 0 {
            return Ok(());
        }
    }
}

/// Deletes the oldest of a tenant's beyond the count, or of those beyond the age when there are not too many.
async fn delete_batch<D: Database>(
    database: &D,
    tenant: &str,
    retention: &Retention,
    now: i64,
) -> Result<u64, StoreError> {
    let tenant = Value::Text(tenant);
    let mut transaction = database.begin().await?;
    if let Some(lock) = D::LOCK_SWEEP {
        // Two sweepers at once would each delete what is too much.
        D::query(&mut transaction, lock, &[]).await?;
    }
    let finished = D::query(&mut transaction, statements::COUNT_FINISHED, &[tenant]).await?;
    let finished = finished.first().map(|row| row.int(0)).transpose()?.unwrap_or_default();
    let surplus = from_sql::<u64>(finished).saturating_sub(retention.count);
    let oldest = match surplus {
        0 => [Value::Int(retention.finished_before(now)), Value::count(BATCH), tenant],
        // Too many: the oldest go, however young they are.
        _ => [Value::Int(i64::MAX), Value::count(surplus.min(BATCH)), tenant],
    };
    // Messages and pins first: they are found by the tasks that are deleted next.
    D::execute(&mut transaction, statements::FORGET_OLDEST, &oldest).await?;
    D::execute(&mut transaction, statements::FORGET_PINS, &oldest).await?;
    let deleted = D::execute(&mut transaction, statements::DELETE_OLDEST, &oldest).await?;
    D::commit(transaction).await?;
    Ok(deleted)
}

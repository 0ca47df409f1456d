//! The usage of tenants in a database.

use annex_database::{Database, Row, Value, from_sql};
use async_trait::async_trait;

use super::SqlTenantStore;
use crate::key::is_key;
use crate::usage::MOST_OF_HOUR;
use crate::{Consumption, TenantStoreError, UsageStore};

/// Adds to the usage of a tenant in an hour. Each sum is capped at `$7`, so no sum overflows.
const ADD: &str = "
    INSERT INTO tenant_usage (hour, tenant, requests, refused, cpu_micros, tokens) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (hour, tenant) DO UPDATE SET
        requests = CASE WHEN tenant_usage.requests > $7 - excluded.requests THEN $7
            ELSE tenant_usage.requests + excluded.requests END,
        refused = CASE WHEN tenant_usage.refused > $7 - excluded.refused THEN $7
            ELSE tenant_usage.refused + excluded.refused END,
        cpu_micros = CASE WHEN tenant_usage.cpu_micros > $7 - excluded.cpu_micros THEN $7
            ELSE tenant_usage.cpu_micros + excluded.cpu_micros END,
        tokens = CASE WHEN tenant_usage.tokens > $7 - excluded.tokens THEN $7
            ELSE tenant_usage.tokens + excluded.tokens END";

const OF_TENANT: &str = "
    SELECT CAST(coalesce(sum(requests), 0) AS BIGINT), CAST(coalesce(sum(refused), 0) AS BIGINT),
        CAST(coalesce(sum(cpu_micros), 0) AS BIGINT), CAST(coalesce(sum(tokens), 0) AS BIGINT)
    FROM tenant_usage WHERE tenant = $1 AND hour >= $2";

const COSTLIEST: &str = "
    SELECT CAST(sum(requests) AS BIGINT), CAST(sum(refused) AS BIGINT), CAST(sum(cpu_micros) AS BIGINT),
        CAST(sum(tokens) AS BIGINT), tenant
    FROM tenant_usage WHERE hour >= $1 GROUP BY tenant
    ORDER BY sum(cpu_micros) DESC, sum(requests) DESC, tenant LIMIT CAST($2 AS BIGINT)";

const FORGET: &str = "DELETE FROM tenant_usage WHERE hour < $1";

#[async_trait]
impl<D: Database> UsageStore for SqlTenantStore<D> {
    async fn add(&self, hour: u64, used: &[(String, Consumption)]) -> Result<(), TenantStoreError> {
        let mut used: Vec<_> = used.iter().filter(|(tenant, _)| is_key(tenant)).collect();
        // Processes that add at the same time change the rows in one order, so that none waits for another in a ring.
        used.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let mut transaction = self.database.begin().await?;
        for (tenant, used) in used {
            let Consumption { requests, refused, cpu_micros, tokens } = used.of_hour();
            let numbers = [requests, refused, cpu_micros, tokens, MOST_OF_HOUR].map(Value::count);
            let values = [Value::count(hour), Value::Text(tenant)].into_iter().chain(numbers);
            D::execute(&mut transaction, ADD, &values.collect::<Vec<_>>()).await?;
        }
        D::commit(transaction).await?;
        Ok(())
    }

    async fn of_tenant(&self, tenant: &str, since: u64) -> Result<Consumption, TenantStoreError> {
        if !is_key(tenant) {
            return Ok(Consumption::default());
        }
        let rows = self.database.read(OF_TENANT, &[Value::Text(tenant), Value::count(since)]).await?;
        Ok(rows.first().map(consumption).transpose()?.unwrap_or_default())
    }

    async fn costliest(&self, since: u64, limit: usize) -> Result<Vec<(String, Consumption)>, TenantStoreError> {
        let rows = self.database.read(COSTLIEST, &[Value::count(since), Value::count(limit)]).await?;
        let used = rows.iter().map(|row| Ok((row.text(4)?, consumption(row)?)));
        used.collect::<Result<_, sqlx::Error>>().map_err(TenantStoreError::from)
    }

    async fn forget_before(&self, hour: u64) -> Result<(), TenantStoreError> {
        self.database.change(FORGET, &[Value::count(hour)]).await?;
        Ok(())
    }
}

fn consumption(row: &impl Row) -> Result<Consumption, sqlx::Error> {
    Ok(Consumption {
        requests: from_sql(row.int(0)?),
        refused: from_sql(row.int(1)?),
        cpu_micros: from_sql(row.int(2)?),
        tokens: from_sql(row.int(3)?),
    })
}

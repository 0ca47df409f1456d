//! Places of turns in a database of several processes.

use annex_database::{Database, Row, Value, from_sql};
use annex_leases::living_replicas;
use annex_protocol::Owner;
use async_trait::async_trait;

use super::SqlTaskStore;
use crate::{StoreError, TaskStore, TurnPlaceStore};

const COUNT_PROCESSES: &str = concat!("SELECT count(*) FROM ", living_replicas!(), " AS living");

/// Makes other processes that take a place for the same caller wait until the transaction ends. The number is
/// arbitrary; no other lock uses the number.
const LOCK_CALLER: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 4711240515))";

const TAKE: &str = concat!(
    "
    INSERT INTO turn_place (id, tenant, principal, runner) SELECT $1, $2, $3, $4 WHERE $5 > (
        SELECT count(*) FROM turn_place WHERE tenant = $2 AND principal = $3 AND runner IN ",
    living_replicas!(),
    ")"
);

const COUNT_RUNNING: &str = concat!("SELECT count(*) FROM task WHERE tenant = $1 AND runner IN ", living_replicas!());

const GIVE_BACK: &str = "DELETE FROM turn_place WHERE id = $1 RETURNING id";

#[async_trait]
impl<D: Database> TurnPlaceStore for SqlTaskStore<D> {
    async fn processes(&self) -> Result<usize, StoreError> {
        let rows = self.database.read(COUNT_PROCESSES, &[]).await?;
        // This one counts also where its lease is over.
        Ok(rows.first().map(|row| row.int(0)).transpose()?.map_or(1, from_sql::<usize>).max(1))
    }

    async fn running(&self, tenant: &str) -> Result<u64, StoreError> {
        let rows = self.database.read(COUNT_RUNNING, &[Value::Text(tenant)]).await?;
        Ok(rows.first().map(|row| row.int(0)).transpose()?.map_or(0, from_sql))
    }

    async fn take(&self, owner: &Owner, id: &str, most: usize) -> Result<bool, StoreError> {
        let Some(replica) = self.replica() else { return Ok(false) };
        let caller = format!("{}\u{1f}{}", owner.tenant, owner.principal);
        let values = [
            Value::Text(id),
            Value::Text(&owner.tenant),
            Value::Text(&owner.principal),
            Value::Text(replica.id()),
            Value::count(most),
        ];
        let mut transaction = self.database.begin().await?;
        D::execute(&mut transaction, LOCK_CALLER, &[Value::Text(&caller)]).await?;
        let taken = D::execute(&mut transaction, TAKE, &values).await? == 1;
        D::commit(transaction).await?;
        Ok(taken)
    }

    async fn give_back(&self, id: &str) -> Result<(), StoreError> {
        self.database.change(GIVE_BACK, &[Value::Text(id)]).await?;
        Ok(())
    }
}

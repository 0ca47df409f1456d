//! Counts the running turns of each caller over all processes on one database.

use std::sync::Arc;

use annex_database::{Database, OpenError, PostgresConnections, PostgresDatabase, Row, Value, from_sql};

use crate::{Lease, MIGRATIONS, living_replicas};

/// The database failed.
#[derive(Debug, thiserror::Error)]
#[error("the database of the turn places failed")]
pub struct TurnPlacesError(#[from] sqlx::Error);

/// Counts the running turns of a caller over all processes. Each counted turn has a place. The place is released at the
/// latest when the lease of the process that runs the turn ends.
#[derive(Debug)]
pub struct TurnPlaces {
    database: PostgresDatabase,
    lease: Arc<Lease>,
}

const COUNT_PROCESSES: &str = concat!("SELECT count(*) FROM ", living_replicas!(), " AS living");

/// Takes a lock until the transaction ends. Other processes that take a place for the same caller wait for the lock.
/// The seed of the hash is arbitrary. No other lock uses this seed.
const LOCK_CALLER: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 4711240515))";

const TAKE: &str = concat!(
    "
    INSERT INTO turn_place (id, tenant, principal, runner) SELECT $1, $2, $3, $4 WHERE $5 > (
        SELECT count(*) FROM turn_place WHERE tenant = $2 AND principal = $3 AND runner IN ",
    living_replicas!(),
    ")"
);

const GIVE_BACK: &str = "DELETE FROM turn_place WHERE id = $1 RETURNING id";

impl TurnPlaces {
    /// Creates missing tables. The places that this process takes are tied to the `lease`.
    ///
    /// # Errors
    /// The errors of [`PostgresDatabase::open`].
    pub async fn open(connections: &PostgresConnections, lease: Arc<Lease>) -> Result<Self, OpenError> {
        Ok(Self { database: PostgresDatabase::open(connections, MIGRATIONS).await?, lease })
    }

    /// The number of live processes, including this process.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn processes(&self) -> Result<usize, TurnPlacesError> {
        let rows = self.database.read(COUNT_PROCESSES, &[]).await?;
        // This process counts also without a lease.
        Ok(rows.first().map(|row| row.int(0)).transpose()?.map_or(1, from_sql::<usize>).max(1))
    }

    /// Takes a place for the caller, which is a principal of a tenant. `id` is the new id of the place. Returns false if the
    /// caller has `most` places already.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn take(&self, tenant: &str, principal: &str, id: &str, most: usize) -> Result<bool, TurnPlacesError> {
        let caller = format!("{tenant}\u{1f}{principal}");
        let replica = self.lease.replica();
        let values = [
            Value::Text(id),
            Value::Text(tenant),
            Value::Text(principal),
            Value::Text(replica.id()),
            Value::count(most),
        ];
        let mut transaction = self.database.begin().await?;
        PostgresDatabase::execute(&mut transaction, LOCK_CALLER, &[Value::Text(&caller)]).await?;
        let taken = PostgresDatabase::execute(&mut transaction, TAKE, &values).await? == 1;
        PostgresDatabase::commit(transaction).await?;
        Ok(taken)
    }

    /// Releases a place. Releasing a place twice is not an error.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn give_back(&self, id: &str) -> Result<(), TurnPlacesError> {
        self.database.change(GIVE_BACK, &[Value::Text(id)]).await?;
        Ok(())
    }
}

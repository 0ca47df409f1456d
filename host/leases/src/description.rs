//! The list of replicas that operators see.

use annex_database::Row;

/// The description that a process gives of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The version of the program.
    pub version: String,
    /// The address that clients use.
    pub address: String,
    /// The phase of the process: `starting`, `ready` or `draining`.
    pub phase: String,
}

/// A replica with a row in the table of leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedReplica {
    /// The id, a new one for each lease.
    pub id: String,
    /// The name from the config of the process.
    pub name: Option<String>,
    /// The beginning of the lease, in milliseconds since 1970-01-01T00:00:00Z by the clock of the database.
    pub since: i64,
    /// The description; `None` before the process has given one.
    pub description: Option<Description>,
    /// The rest of the lease in milliseconds; zero or less after its end.
    pub lease_left: i64,
}

impl ListedReplica {
    pub(crate) fn of_row(row: &impl Row) -> sqlx::Result<Self> {
        // The statement returns an empty text for NULL. No process describes itself with an empty text.
        let some = |text: String| (!text.is_empty()).then_some(text);
        let description = match some(row.text(2)?) {
            Some(version) => Some(Description { version, address: row.text(3)?, phase: row.text(4)? }),
            None => None,
        };
        Ok(Self {
            id: row.text(0)?,
            name: some(row.text(1)?),
            since: row.int(5)?,
            description,
            lease_left: row.int(6)?,
        })
    }
}

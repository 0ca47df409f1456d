//! What processes say of themselves to operators.

use annex_database::Row;

/// What a process says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Its version.
    pub version: String,
    /// Where clients reach it.
    pub address: String,
    /// What it does: `starting`, `ready` or `draining`.
    pub phase: String,
}

/// A process that has, or had, a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedReplica {
    /// Its id, another one for each lease.
    pub id: String,
    /// What its config calls it.
    pub name: Option<String>,
    /// When its lease began, in milliseconds since 1970-01-01T00:00:00Z by the clock of the database; `None` for a version that did
    /// not say so.
    pub since: Option<i64>,
    /// What it says of itself; `None` for a version that says nothing.
    pub description: Option<Description>,
    /// The time that is left of its lease in milliseconds. It is over where that is not positive.
    pub lease_left: i64,
}

impl ListedReplica {
    pub(crate) fn of_row(row: &impl Row) -> sqlx::Result<Self> {
        // An empty text stands for NULL, and is none that a process says.
        let some = |text: String| (!text.is_empty()).then_some(text);
        let description = match some(row.text(2)?) {
            Some(version) => Some(Description { version, address: row.text(3)?, phase: row.text(4)? }),
            None => None,
        };
        Ok(Self {
            id: row.text(0)?,
            name: some(row.text(1)?),
            since: row.maybe_int(5)?,
            description,
            lease_left: row.int(6)?,
        })
    }
}

//! SQL for leases without a process. Tests of all crates use these statements, so that they need not name the table of
//! leases.

/// Makes the table.
pub(crate) const CREATE: &str = include_str!("../../migrations/1_replicas.sql");

/// SQL that begins a lease which lasts longer than any test. It also renews a lease that has ended.
pub(crate) fn endless(replica: &str) -> String {
    format!(
        "INSERT INTO replica (id, lease_until) VALUES ('{replica}', clock_timestamp() + INTERVAL '1 day')
         ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until"
    )
}

/// Ends the lease, as if its process had not renewed it.
pub(crate) fn end(replica: &str) -> String {
    format!("UPDATE replica SET lease_until = clock_timestamp() WHERE id = '{replica}'")
}

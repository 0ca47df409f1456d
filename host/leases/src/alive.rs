//! The SQL that says which replicas are alive. Other crates embed these fragments and never name the table of leases.

/// SQL that is true while the lease of a replica holds by the clock of the database.
///
/// The first argument is a parameter, or a column with the name of its table: an unqualified `id` would be the replica's own.
///
/// ```
/// const TAKE: &str =
///     concat!("UPDATE task SET runner = $1 WHERE id = $2 AND ", annex_leases::is_alive!("$1"));
/// ```
///
/// The time is that of the comparison, not that of the transaction. A statement that may wait for a row sees the leases as they
/// were at its beginning and compares them with `statement_timestamp()`, the second argument. A lease that was renewed during the
/// wait would otherwise count as over.
#[macro_export]
macro_rules! is_alive {
    ($replica:expr) => {
        $crate::is_alive!($replica, "clock_timestamp()")
    };
    ($replica:expr, $time:expr) => {
        concat!(
            "EXISTS (SELECT 1 FROM replica WHERE replica.id = ",
            $replica,
            " AND replica.lease_until > ",
            $time,
            ")"
        )
    };
}

/// SQL for the ids of all replicas whose leases hold: a query in parentheses, for `IN` and `FROM`.
///
/// `x IN` this query lets PostgreSQL use an index on `x`, where [`is_alive!`] compares row by row.
#[macro_export]
macro_rules! living_replicas {
    () => {
        "(SELECT replica.id FROM replica WHERE replica.lease_until > clock_timestamp())"
    };
}

//! The SQL that tells which replicas are alive. Other crates embed this SQL, so that they never name the table of
//! leases.

/// SQL that is true while the lease of a replica is valid by the clock of the database.
///
/// The first argument is a parameter, or a column with the name of its table. Without that name, `id` would be the column of
/// the table of leases.
///
/// ```
/// const TAKE: &str =
///     concat!("UPDATE task SET runner = $1 WHERE id = $2 AND ", annex_leases::is_alive!("$1"));
/// ```
///
/// The optional second argument is the time with which the end of the lease is compared. The default is the time of the
/// comparison. A statement that may wait for a row passes `statement_timestamp()`: it sees the leases as they were at its
/// beginning, so a lease that was renewed during the wait would otherwise count as over.
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

/// SQL for the ids of all replicas whose leases are valid: a query in parentheses, for `IN` and `FROM`.
///
/// With `x IN` this query, PostgreSQL can use an index on `x`. [`is_alive!`] instead compares row by row.
#[macro_export]
macro_rules! living_replicas {
    () => {
        "(SELECT replica.id FROM replica WHERE replica.lease_until > clock_timestamp())"
    };
}

//! The SQL that tells which replicas are alive. Other crates embed this SQL, so that only this crate names the table of leases.

/// SQL that is true while the lease of a replica is valid by the clock of the database.
///
/// The first argument is a parameter, or a column that is written with the name of its table. An `id` without the name
/// of its table would mean the column of the table of leases.
///
/// ```
/// const TAKE: &str =
///     concat!("UPDATE task SET runner = $1 WHERE id = $2 AND ", annex_leases::is_alive!("$1"));
/// ```
///
/// The optional second argument is the time with which the end of the lease is compared. The default is the time of the
/// comparison. A statement that may wait for a row passes `statement_timestamp()`, the time at which the statement began. Such
/// a statement sees the table of leases as it was at that time. If it compared with a later time, a lease that was renewed
/// during the wait would count as ended.
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
/// With a condition such as `x IN` and this query, PostgreSQL can use an index on `x`. [`is_alive!`] compares row by row.
#[macro_export]
macro_rules! living_replicas {
    () => {
        "(SELECT replica.id FROM replica WHERE replica.lease_until > clock_timestamp())"
    };
}

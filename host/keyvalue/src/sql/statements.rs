//! The statements, in the SQL that SQLite and PostgreSQL share. Their first parameters are those of the scope, or of the
//! bucket.
//!
//! Parameters of `LIMIT` are cast: where SQLite sees the parameter itself it plans the statement anew for each value.

macro_rules! in_scope {
    () => {
        "kind = $1 AND tenant = $2 AND principal = $3 AND id = $4"
    };
}

macro_rules! in_bucket {
    () => {
        concat!(in_scope!(), " AND extension = $5")
    };
}

/// Lengths are counted in bytes as in memory, also those of keys.
macro_rules! size {
    () => {
        "octet_length(key) + octet_length(value)"
    };
}

macro_rules! add_to_usage {
    () => {
        " ON CONFLICT (tenant, extension) DO UPDATE
        SET keys = scoped_usage.keys + excluded.keys, bytes = scoped_usage.bytes + excluded.bytes"
    };
}

pub(crate) const SELECT_VALUE: &str = concat!("SELECT value FROM entry WHERE ", in_bucket!(), " AND key = $6");

pub(crate) const SELECT_KEYS: &str = concat!(
    "SELECT key FROM entry WHERE ",
    in_bucket!(),
    " ORDER BY key LIMIT CAST($6 AS BIGINT) OFFSET CAST($7 AS BIGINT)"
);

// The quota bounds the rows of a bucket, so it is summed up. Only the sum over all tasks and conversations is kept.
/// The usage of the bucket, and the bytes of the key's value if it is there.
pub(crate) const SELECT_USAGE: &str = concat!(
    "SELECT COUNT(*), COALESCE(SUM(",
    size!(),
    "), 0), CAST(MAX(CASE WHEN key = $6 THEN octet_length(value) END) AS BIGINT) FROM entry WHERE ",
    in_bucket!()
);

macro_rules! put {
    () => {
        "INSERT INTO entry (kind, tenant, principal, id, extension, key, value) VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (kind, tenant, principal, id, extension, key) DO UPDATE SET value = excluded.value"
    };
}

pub(crate) const PUT: &str = put!();

/// The same where it is noted when keys are set.
pub(crate) const PUT_WITH_TIME: &str = concat!(put!(), ", set_at = clock_timestamp()");

/// Returns the bytes that it frees.
pub(crate) const DELETE: &str =
    concat!("DELETE FROM entry WHERE ", in_bucket!(), " AND key = $6 RETURNING CAST(", size!(), " AS BIGINT)");

/// Adds to the usage of two parameters and returns it. Whoever counts for the same extension waits for the end of the
/// transaction, so this comes last.
pub(crate) const COUNT_SCOPED: &str = concat!(
    "INSERT INTO scoped_usage (tenant, extension, keys, bytes) VALUES ($1, $2, $3, $4)",
    add_to_usage!(),
    " RETURNING keys, bytes"
);

// Kinds of later software are left out here, so that a page is full unless it is the last; an empty text behind the kind
// keeps the order of the index.
macro_rules! ends_after {
    () => {
        "kind || '' IN ('task', 'context') AND (kind, tenant, principal, id) > ($1, $2, $3, $4)"
    };
}

/// Those that end and come after a scope. The last parameter is not needed here.
pub(crate) const SELECT_SCOPES: &str = concat!(
    "SELECT DISTINCT kind, tenant, principal, id FROM entry WHERE ",
    ends_after!(),
    " AND $6 >= 0 ORDER BY kind, tenant, principal, id LIMIT CAST($5 AS BIGINT)"
);

/// The same without those that have a key which was set within so many milliseconds.
pub(crate) const SELECT_IDLE_SCOPES: &str = concat!(
    "SELECT kind, tenant, principal, id FROM entry WHERE ",
    ends_after!(),
    " GROUP BY kind, tenant, principal, id
     HAVING max(set_at) <= clock_timestamp() - CAST($6 AS DOUBLE PRECISION) * INTERVAL '1 millisecond'
     ORDER BY kind, tenant, principal, id LIMIT CAST($5 AS BIGINT)"
);

/// Those of all kinds, by the beginning of the primary key.
pub(crate) const COUNT_KEYS: &str =
    "SELECT count(*) FROM entry WHERE kind IN ('', 'context', 'task') AND tenant = $1 AND extension LIKE '%:%'";

pub(crate) const HAS_KEYS: &str = concat!("SELECT key FROM entry WHERE ", in_scope!(), " LIMIT 1");

/// Goes before [`DELETE_SCOPE`].
pub(crate) const UNCOUNT_SCOPE: &str = concat!(
    "INSERT INTO scoped_usage (tenant, extension, keys, bytes)
     SELECT tenant, extension, -COUNT(*), -SUM(",
    size!(),
    ") FROM entry WHERE kind <> '' AND ",
    in_scope!(),
    // In one order, so that no two of them wait for each other.
    " GROUP BY tenant, extension ORDER BY tenant, extension",
    add_to_usage!()
);

pub(crate) const DELETE_SCOPE: &str = concat!("DELETE FROM entry WHERE ", in_scope!());

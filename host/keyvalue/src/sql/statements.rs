//! Statements in the SQL that SQLite and PostgreSQL share. Their first parameters identify the scope or the bucket.
//!
//! Parameters of `LIMIT` are cast. Without the cast, SQLite plans the statement again for each value.

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

/// SQL for the size of a key and its value, in bytes. The memory store counts the same size.
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

// The quota bounds the rows of a bucket, so summing is cheap. Only the usage of all tasks and conversations is
// stored.
/// Selects the usage of a bucket, and the size of the key's value if the key exists.
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

/// Sets a key like [`PUT`], and also records the time of the change.
pub(crate) const PUT_WITH_TIME: &str = concat!(put!(), ", set_at = clock_timestamp()");

/// Deletes a key and returns the size of the key and its value, in bytes.
pub(crate) const DELETE: &str =
    concat!("DELETE FROM entry WHERE ", in_bucket!(), " AND key = $6 RETURNING CAST(", size!(), " AS BIGINT)");

/// Adds two numbers to the usage and returns the result. The statement locks the row, so other writers of the same
/// extension wait until the transaction ends. Therefore it is the last statement of a transaction.
pub(crate) const COUNT_SCOPED: &str = concat!(
    "INSERT INTO scoped_usage (tenant, extension, keys, bytes) VALUES ($1, $2, $3, $4)",
    add_to_usage!(),
    " RETURNING keys, bytes"
);

// Kinds of later versions are excluded here, so that a page is full unless it is the last one. The empty text after
// the kind makes the database use the order of the index.
macro_rules! ends_after {
    () => {
        "kind || '' IN ('task', 'context') AND (kind, tenant, principal, id) > ($1, $2, $3, $4)"
    };
}

/// Selects the scopes of tasks and conversations after a given scope. The last parameter has no effect. It exists because
/// [`SELECT_IDLE_SCOPES`] needs it.
pub(crate) const SELECT_SCOPES: &str = concat!(
    "SELECT DISTINCT kind, tenant, principal, id FROM entry WHERE ",
    ends_after!(),
    " AND $6 >= 0 ORDER BY kind, tenant, principal, id LIMIT CAST($5 AS BIGINT)"
);

/// Selects scopes like [`SELECT_SCOPES`]. Skips scopes with a key that was set within the last `$6` milliseconds.
pub(crate) const SELECT_IDLE_SCOPES: &str = concat!(
    "SELECT kind, tenant, principal, id FROM entry WHERE ",
    ends_after!(),
    " GROUP BY kind, tenant, principal, id
     HAVING max(set_at) <= clock_timestamp() - CAST($6 AS DOUBLE PRECISION) * INTERVAL '1 millisecond'
     ORDER BY kind, tenant, principal, id LIMIT CAST($5 AS BIGINT)"
);

/// Counts the keys of a tenant. The statement names all kinds, so that the database can use the primary key.
pub(crate) const COUNT_KEYS: &str =
    "SELECT count(*) FROM entry WHERE kind IN ('', 'context', 'task') AND tenant = $1 AND extension LIKE '%:%'";

pub(crate) const HAS_KEYS: &str = concat!("SELECT key FROM entry WHERE ", in_scope!(), " LIMIT 1");

/// Subtracts the keys of a scope from the stored usage. Must run before [`DELETE_SCOPE`].
pub(crate) const UNCOUNT_SCOPE: &str = concat!(
    "INSERT INTO scoped_usage (tenant, extension, keys, bytes)
     SELECT tenant, extension, -COUNT(*), -SUM(",
    size!(),
    ") FROM entry WHERE kind <> '' AND ",
    in_scope!(),
    // A fixed order avoids deadlocks.
    " GROUP BY tenant, extension ORDER BY tenant, extension",
    add_to_usage!()
);

pub(crate) const DELETE_SCOPE: &str = concat!("DELETE FROM entry WHERE ", in_scope!());

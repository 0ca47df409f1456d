//! The statements. Their first parameters are those of the scope, or of the bucket.
//!
//! Parameters of `LIMIT` are cast: where SQLite sees the parameter itself it plans the statement anew for each value.

macro_rules! in_scope {
    () => {
        "kind = ?1 AND tenant = ?2 AND principal = ?3 AND id = ?4"
    };
}

macro_rules! in_bucket {
    () => {
        concat!(in_scope!(), " AND extension = ?5")
    };
}

/// Lengths are counted in bytes as in memory, also those of keys.
macro_rules! size {
    () => {
        "LENGTH(CAST(key AS BLOB)) + LENGTH(value)"
    };
}

pub(crate) const SELECT_VALUE: &str = concat!("SELECT value FROM entry WHERE ", in_bucket!(), " AND key = ?6");

pub(crate) const SELECT_KEYS: &str = concat!(
    "SELECT key FROM entry WHERE ",
    in_bucket!(),
    " ORDER BY key LIMIT CAST(?6 AS BIGINT) OFFSET CAST(?7 AS BIGINT)"
);

// The quota bounds the rows of a bucket, so it is summed up. Only the sum over all tasks and conversations is kept.
/// The usage of the bucket, and the bytes of the key's value if it is there.
pub(crate) const SELECT_USAGE: &str = concat!(
    "SELECT COUNT(*), COALESCE(SUM(",
    size!(),
    "), 0), MAX(CASE WHEN key = ?6 THEN LENGTH(value) END) FROM entry WHERE ",
    in_bucket!()
);

pub(crate) const PUT: &str = "
    INSERT OR REPLACE INTO entry (kind, tenant, principal, id, extension, key, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

pub(crate) const DELETE: &str = concat!("DELETE FROM entry WHERE ", in_bucket!(), " AND key = ?6 RETURNING ", size!());

pub(crate) const SELECT_SCOPED_USAGE: &str = "SELECT keys, bytes FROM scoped_usage WHERE tenant = ? AND extension = ?";

pub(crate) const COUNT_SCOPED: &str = "
    INSERT INTO scoped_usage (tenant, extension, keys, bytes) VALUES (?, ?, ?, ?)
    ON CONFLICT (tenant, extension) DO UPDATE SET keys = keys + excluded.keys, bytes = bytes + excluded.bytes";

/// Those that end and come after a scope. Kinds of later software are left out here, so that a page is full unless it is the
/// last; `+` keeps the order of the index.
pub(crate) const SELECT_SCOPES: &str = "
    SELECT DISTINCT kind, tenant, principal, id FROM entry
    WHERE +kind IN ('task', 'context') AND (kind, tenant, principal, id) > (?1, ?2, ?3, ?4)
    ORDER BY kind, tenant, principal, id LIMIT CAST(?5 AS BIGINT)";

pub(crate) const HAS_KEYS: &str = concat!("SELECT EXISTS (SELECT 1 FROM entry WHERE ", in_scope!(), ")");

/// Goes before [`DELETE_SCOPE`].
pub(crate) const UNCOUNT_SCOPE: &str = concat!(
    "INSERT INTO scoped_usage (tenant, extension, keys, bytes)
     SELECT tenant, extension, -COUNT(*), -SUM(",
    size!(),
    ") FROM entry WHERE kind <> '' AND ",
    in_scope!(),
    " GROUP BY tenant, extension
     ON CONFLICT (tenant, extension) DO UPDATE SET keys = keys + excluded.keys, bytes = bytes + excluded.bytes"
);

pub(crate) const DELETE_SCOPE: &str = concat!("DELETE FROM entry WHERE ", in_scope!());

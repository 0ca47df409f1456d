//! The tables of the file, and how those of an older version become them.

use sqlx::sqlite::SqlitePool;

/// The version of the tables, kept in the file.
pub(crate) const VERSION: i64 = 2;

/// `scoped_usage` is what all buckets of an extension that end hold together.
const TABLES: &str = "
    CREATE TABLE entry (
        kind TEXT NOT NULL,
        tenant TEXT NOT NULL,
        principal TEXT NOT NULL,
        id TEXT NOT NULL,
        extension TEXT NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (kind, tenant, principal, id, extension, key)
    ) WITHOUT ROWID;
    CREATE TABLE scoped_usage (
        tenant TEXT NOT NULL,
        extension TEXT NOT NULL,
        keys INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        PRIMARY KEY (tenant, extension)
    ) WITHOUT ROWID;
    PRAGMA user_version = 2;
";

/// All keys of the first version last.
const SET_ASIDE_V1: &str = "ALTER TABLE entry RENAME TO entry_v1";
const TAKE_OVER_V1: &str = "
    INSERT INTO entry SELECT '', tenant, '', '', extension, key, value FROM entry_v1;
    DROP TABLE entry_v1;
";

/// Makes the tables what they are now, and returns the version that was found. Those of a later version stay as they are.
pub(crate) async fn bring_up_to_date(pool: &SqlitePool) -> Result<i64, sqlx::Error> {
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
    let found: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *transaction).await?;
    let steps: &[&'static str] = match found {
        0 => &[TABLES],
        1 => &[SET_ASIDE_V1, TABLES, TAKE_OVER_V1],
        _ => &[],
    };
    for step in steps {
        sqlx::raw_sql(*step).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(found)
}

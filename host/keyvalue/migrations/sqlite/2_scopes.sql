-- Keys of tasks and conversations beside those that last, which all keys of the first version do.

ALTER TABLE entry RENAME TO entry_v1;

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

-- What all buckets of an extension that end hold together.
CREATE TABLE scoped_usage (
    tenant TEXT NOT NULL,
    extension TEXT NOT NULL,
    keys INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (tenant, extension)
) WITHOUT ROWID;

INSERT INTO entry SELECT '', tenant, '', '', extension, key, value FROM entry_v1;

DROP TABLE entry_v1;

PRAGMA user_version = 2;

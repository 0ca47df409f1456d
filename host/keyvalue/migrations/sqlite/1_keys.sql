-- Keys that last. Later software reads the version of the file from user_version, and so does software from before there
-- was a table of migrations: each migration sets it to its own number.

CREATE TABLE entry (
    tenant TEXT NOT NULL,
    extension TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (tenant, extension, key)
) WITHOUT ROWID;

PRAGMA user_version = 1;

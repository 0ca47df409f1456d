-- As in PostgreSQL. A file has one process, so that this stays 0.
ALTER TABLE task ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;

-- The versions of extensions that a task which waits goes on with, as JSON. No foreign key: they are kept a moment before the
-- task is stored.
CREATE TABLE task_pin (
    task_id TEXT NOT NULL PRIMARY KEY,
    json TEXT NOT NULL,
    -- Tells an interruption by an extension from all others of the task; NULL where there is none, or when it has ended.
    number BIGINT,
    kept_at BIGINT NOT NULL
);

CREATE INDEX task_pin_kept ON task_pin (kept_at);

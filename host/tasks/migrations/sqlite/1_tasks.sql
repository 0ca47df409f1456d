-- JSON is TEXT exactly as it was encoded. Times are milliseconds since 1970-01-01T00:00:00Z. Tables with a key of several
-- texts are WITHOUT ROWID, which is one tree less to write.

CREATE TABLE task (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    context_id TEXT NOT NULL,
    state TEXT NOT NULL,
    -- The least number when the status has no timestamp.
    status_at INTEGER NOT NULL,
    -- NULL while the task can go on.
    finished_at INTEGER,
    -- The number of the last event.
    seq INTEGER NOT NULL,
    json TEXT NOT NULL
);

-- The state is in both so that counting reads no rows.
CREATE INDEX task_of_owner ON task (tenant, principal, status_at, id, state);
CREATE INDEX task_of_context ON task (tenant, principal, context_id, status_at, id, state);
CREATE INDEX task_finished ON task (finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX task_unfinished ON task (id) WHERE finished_at IS NULL;

CREATE TABLE task_event (
    task_id TEXT NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    -- 'stream' or 'message'.
    kind TEXT NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (task_id, seq)
) WITHOUT ROWID;

CREATE TABLE push_config (
    task_id TEXT NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (task_id, id)
) WITHOUT ROWID;

-- No foreign key: a message is remembered before its task is created.
CREATE TABLE message_seen (
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    context_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    digest BLOB NOT NULL,
    task_id TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    -- How often the message came.
    times INTEGER NOT NULL,
    PRIMARY KEY (tenant, principal, context_id, message_id)
) WITHOUT ROWID;

CREATE INDEX message_seen_of_task ON message_seen (task_id);
CREATE INDEX message_seen_at ON message_seen (seen_at);

-- Counts the turns of a task, and the processes that have taken it from another: whoever writes for an earlier one writes
-- nothing.
ALTER TABLE task ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;

-- The epoch whose turn another process wants to be cancelled.
ALTER TABLE task ADD COLUMN cancel_asked BIGINT;

-- The versions of extensions that a task which waits goes on with, as JSON. No foreign key: they are kept a moment before the
-- task is stored.
CREATE TABLE task_pin (
    task_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    json TEXT NOT NULL,
    -- Tells an interruption by an extension from all others of the task; NULL where there is none, or when it has ended.
    number BIGINT,
    kept_at BIGINT NOT NULL
);

CREATE INDEX task_pin_kept ON task_pin (kept_at);

-- How far a process has sent the events of a task to a receiver of push notifications. The row goes with its config, and when
-- the last event of the task was sent.
CREATE TABLE push_cursor (
    task_id TEXT COLLATE "C" NOT NULL,
    config_id TEXT COLLATE "C" NOT NULL,
    -- The number of the last event that was sent or given up.
    sent_seq BIGINT NOT NULL,
    -- The process that sends. NULL while the task waits for its client, or where its sender has left it.
    sender TEXT COLLATE "C",
    -- Attempts in a row that failed.
    failures BIGINT NOT NULL DEFAULT 0,
    -- Nobody tries before.
    retry_at TIMESTAMPTZ,
    PRIMARY KEY (task_id, config_id),
    FOREIGN KEY (task_id, config_id) REFERENCES push_config (task_id, id) ON DELETE CASCADE
);

-- A version from before this table has sent what there is.
INSERT INTO push_cursor (task_id, config_id, sent_seq)
SELECT push_config.task_id, push_config.id, task.seq FROM push_config JOIN task ON task.id = push_config.task_id
WHERE task.finished_at IS NULL;

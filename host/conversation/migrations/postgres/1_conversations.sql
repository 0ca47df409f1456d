-- JSON is TEXT exactly as it was encoded. Times are milliseconds since 1970-01-01T00:00:00Z. State keys and names of
-- artifacts are JSON texts without their quotes, because a key may hold any character. Names compare byte by
-- byte.

CREATE TABLE conversation (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    app TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    context_id TEXT COLLATE "C" NOT NULL,
    -- The number of events. 0 for a row that only holds a queue or tasks.
    number BIGINT NOT NULL,
    -- The time of the last event, by the clock of its author.
    updated_at BIGINT NOT NULL,
    -- The time of the last change.
    changed_at BIGINT NOT NULL,
    -- The queue: the fence of each turn as '<replica/epoch>', in order. The first turn may write. An append checks and changes
    -- this row, so that no change of the queue comes in between.
    turns TEXT COLLATE "C" NOT NULL,
    -- The fence of the turn that ran when the conversation was deleted.
    orphan TEXT COLLATE "C",
    -- Entries up to this one are not in the history any more.
    cleared BIGINT NOT NULL DEFAULT 0,
    upstream TEXT,
    UNIQUE (tenant, app, user_id, context_id)
);

-- Retention counts by tenant.
CREATE INDEX conversation_changed ON conversation (tenant, changed_at, id);

CREATE TABLE log_entry (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation_id BIGINT NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
    -- NULL for an entry without a task. An entry of the history outlives its task.
    task_id TEXT COLLATE "C",
    -- The number among the entries of the task.
    number BIGINT,
    -- 'message', 'vetoed', 'event', 'update' or 'note'. The history is made of messages and events.
    kind TEXT NOT NULL,
    json TEXT NOT NULL,
    UNIQUE (task_id, number)
);

-- Finds the entries of a conversation that is deleted.
CREATE INDEX log_entry_of_conversation ON log_entry (conversation_id, seq);
CREATE INDEX log_entry_of_history ON log_entry (conversation_id, seq) WHERE kind IN ('message', 'event');

CREATE TABLE task (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    conversation_id BIGINT NOT NULL REFERENCES conversation (id),
    tenant TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    context_id TEXT COLLATE "C" NOT NULL,
    state TEXT NOT NULL,
    -- The least number when the status has no timestamp.
    status_at BIGINT NOT NULL,
    -- NULL while the task can go on.
    finished_at BIGINT,
    -- The number of the last entry.
    number BIGINT NOT NULL,
    -- Empty for a large task, whose entries are read instead.
    json TEXT NOT NULL,
    pins TEXT,
    upstream TEXT,
    -- The turn of the task in the queue: its fence, the text to run it, and its progress. NULL without a turn. An empty replica
    -- is one that has handed the turn over.
    replica TEXT COLLATE "C",
    epoch BIGINT,
    resume TEXT,
    attempts BIGINT NOT NULL DEFAULT 0,
    is_accepted BIGINT NOT NULL DEFAULT 0,
    has_begun BIGINT NOT NULL DEFAULT 0,
    is_cancelled BIGINT NOT NULL DEFAULT 0
);

-- The state is in both so that counting reads no rows.
CREATE INDEX task_of_owner ON task (tenant, principal, status_at, id, state);
CREATE INDEX task_of_context ON task (tenant, principal, context_id, status_at, id, state);
CREATE INDEX task_finished ON task (tenant, finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX task_of_replica ON task (replica, id) WHERE replica IS NOT NULL;
CREATE INDEX task_of_conversation ON task (conversation_id);

-- One row per key: its size in bytes with its value, and its position among the keys of its scope.
CREATE TABLE conversation_state (
    conversation_id BIGINT NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    value TEXT NOT NULL,
    size BIGINT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (conversation_id, name)
);

CREATE TABLE user_state (
    tenant TEXT COLLATE "C" NOT NULL,
    app TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    value TEXT NOT NULL,
    size BIGINT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (tenant, app, user_id, name)
);

CREATE TABLE app_state (
    tenant TEXT COLLATE "C" NOT NULL,
    app TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    value TEXT NOT NULL,
    size BIGINT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (tenant, app, name)
);

-- The latest version of each. The last written artifact has the greatest position.
CREATE TABLE artifact (
    conversation_id BIGINT NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    parts TEXT NOT NULL,
    size BIGINT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (conversation_id, name)
);

-- Claims of messages. A message is claimed before its conversation or its task exists.
CREATE TABLE message (
    conversation_id BIGINT,
    tenant TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    context_id TEXT COLLATE "C" NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL,
    digest BYTEA NOT NULL,
    task_id TEXT COLLATE "C" NOT NULL,
    claimed_at BIGINT NOT NULL,
    -- The process that looks at the message. NULL once the message is accepted.
    replica TEXT COLLATE "C",
    -- The claim that holds: a number of that process.
    claim BIGINT NOT NULL,
    -- The answer, where the message was answered with a message.
    answer TEXT,
    PRIMARY KEY (tenant, principal, context_id, message_id)
);

CREATE INDEX message_of_task ON message (task_id);
CREATE INDEX message_claimed ON message (claimed_at);
CREATE INDEX message_answered ON message (tenant, claimed_at) WHERE answer IS NOT NULL;

CREATE TABLE push_config (
    task_id TEXT COLLATE "C" NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    id TEXT COLLATE "C" NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (task_id, id)
);

-- How far a process has sent the events of a task to a receiver of push notifications. The row goes with its config, and when
-- the last event of the task was sent.
CREATE TABLE push_cursor (
    task_id TEXT COLLATE "C" NOT NULL,
    config_id TEXT COLLATE "C" NOT NULL,
    -- The number of the last entry that was sent or given up.
    sent BIGINT NOT NULL,
    -- The process that sends. NULL while the task waits for its client, or where its sender has left it.
    sender TEXT COLLATE "C",
    -- Attempts in a row that failed.
    failures BIGINT NOT NULL DEFAULT 0,
    -- Nobody tries before.
    retry_at TIMESTAMPTZ,
    PRIMARY KEY (task_id, config_id),
    FOREIGN KEY (task_id, config_id) REFERENCES push_config (task_id, id) ON DELETE CASCADE
);

CREATE INDEX push_cursor_sent ON push_cursor (sender) WHERE sender IS NOT NULL;
CREATE INDEX push_cursor_left ON push_cursor (retry_at) WHERE sender IS NULL AND retry_at IS NOT NULL;

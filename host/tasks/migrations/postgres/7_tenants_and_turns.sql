-- Tenants that were added while servers ran.
CREATE TABLE tenant (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- The number of its last change, of all changes of all tenants.
    rev BIGINT NOT NULL,
    -- 'active', 'suspended', or 'removed', which stays for a while so that all processes hear of it.
    state TEXT COLLATE "C" NOT NULL,
    -- What its operator wrote; empty once it is removed.
    config TEXT NOT NULL,
    -- Milliseconds since 1970-01-01T00:00:00Z.
    changed_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX tenant_rev ON tenant (rev);

-- The number of the last change. Whoever changes a tenant changes this row first, so that numbers are committed in their order,
-- and a process that has read up to a number has missed none before it.
CREATE TABLE tenant_change (
    rev BIGINT NOT NULL
);

INSERT INTO tenant_change (rev) VALUES (0);

-- Cursors that somebody sends, and those that their sender has left to others: the rest are of tasks that wait, which nobody
-- looks through.
CREATE INDEX push_cursor_sent ON push_cursor (sender) WHERE sender IS NOT NULL;
CREATE INDEX push_cursor_left ON push_cursor (retry_at) WHERE sender IS NULL AND retry_at IS NOT NULL;

-- What another process needs to go on with the turn of a task, should the one that runs it be gone. Empty or NULL where a turn
-- that is lost fails.
ALTER TABLE task ADD COLUMN turn TEXT;

-- Counts the processes that have begun that turn.
ALTER TABLE task ADD COLUMN attempt BIGINT NOT NULL DEFAULT 1;

-- Tenants that were added while servers ran.
CREATE TABLE tenant (
    name TEXT NOT NULL PRIMARY KEY,
    -- The number of its last change, of all changes of all tenants.
    rev INTEGER NOT NULL,
    -- 'active', 'suspended', or 'removed', which stays for a while so that all processes hear of it.
    state TEXT NOT NULL,
    -- What its operator wrote; empty once it is removed.
    config TEXT NOT NULL,
    -- Milliseconds since 1970-01-01T00:00:00Z.
    changed_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX tenant_rev ON tenant (rev);

-- The number of the last change. Whoever changes a tenant changes this row first, so that numbers are committed in their order,
-- and a process that has read up to a number has missed none before it.
CREATE TABLE tenant_change (
    rev INTEGER NOT NULL
);

INSERT INTO tenant_change (rev) VALUES (0);

-- What another process needs to go on with the turn of a task, should the one that runs it be gone. Empty or NULL where a turn
-- that is lost fails.
ALTER TABLE task ADD COLUMN turn TEXT;

-- Counts the processes that have begun that turn.
ALTER TABLE task ADD COLUMN attempt BIGINT NOT NULL DEFAULT 1;

-- A process that works on tasks of this database; each start is another one. It counts as alive until its lease is over, by
-- the clock of the database, and renews the lease as long as it lives.
CREATE TABLE replica (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- What its config calls it; NULL without a name.
    name TEXT COLLATE "C",
    lease_until TIMESTAMPTZ NOT NULL
);

-- The process that works on the task. NULL while none does, and where a version from before this column does.
ALTER TABLE task ADD COLUMN runner TEXT COLLATE "C";

CREATE INDEX task_of_runner ON task (runner, id) WHERE runner IS NOT NULL;

-- The process that took the message. It looks at it as long as there is neither a task nor an answer.
ALTER TABLE message_seen ADD COLUMN runner TEXT COLLATE "C";

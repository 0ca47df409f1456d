-- A replica is one start of a process that works on this database. It is alive until its lease ends by the clock of the database,
-- and the process renews the lease as long as it runs.
CREATE TABLE replica (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- The name of the process in its config; NULL without a name.
    name TEXT COLLATE "C",
    lease_until TIMESTAMPTZ NOT NULL,
    -- When the lease began.
    since TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    -- The description that the process gives of itself; NULL until the first one.
    version TEXT COLLATE "C",
    address TEXT COLLATE "C",
    phase TEXT COLLATE "C"
);

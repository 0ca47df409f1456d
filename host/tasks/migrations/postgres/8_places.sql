-- Places that callers' turns take from all processes together, beside those that each process has for itself. They go with
-- their process.
CREATE TABLE turn_place (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    runner TEXT COLLATE "C" NOT NULL REFERENCES replica (id) ON DELETE CASCADE
);

CREATE INDEX turn_place_of_caller ON turn_place (tenant, principal);
CREATE INDEX turn_place_of_runner ON turn_place (runner);

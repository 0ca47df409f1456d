-- The places of turns that all processes count together, beside the share that each process counts for itself. A place counts
-- while its process is alive.
CREATE TABLE turn_place (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    runner TEXT COLLATE "C" NOT NULL
);

CREATE INDEX turn_place_of_caller ON turn_place (tenant, principal);
CREATE INDEX turn_place_of_runner ON turn_place (runner);

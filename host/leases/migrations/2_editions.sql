-- Components, each under the digest of its bytes.
CREATE TABLE component (
    digest TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    bytes BYTEA NOT NULL,
    -- When an edition last needed the component. An hour later it is deleted if no edition names it.
    kept_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

-- An edition is the extensions and cards that an agent is served with. The accepted edition with the highest number is
-- in force.
CREATE TABLE edition (
    -- Empty for the agent of the config itself.
    tenant TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    -- The edition in force at the time of the proposal; 0 before the first.
    parent BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('proposed', 'accepted', 'withdrawn')),
    -- The replica that proposed the edition. Only this replica may conclude.
    proposer TEXT COLLATE "C" NOT NULL,
    -- The time after which the edition cannot be accepted.
    until TIMESTAMPTZ NOT NULL,
    -- The digest of the config that named the extensions.
    config TEXT COLLATE "C" NOT NULL,
    sources TEXT NOT NULL,
    cards TEXT NOT NULL,
    PRIMARY KEY (tenant, number)
);

-- One proposal of each agent at a time.
CREATE UNIQUE INDEX edition_proposed ON edition (tenant) WHERE state = 'proposed';

CREATE TABLE edition_component (
    tenant TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    digest TEXT COLLATE "C" NOT NULL REFERENCES component (digest),
    PRIMARY KEY (tenant, number, digest),
    FOREIGN KEY (tenant, number) REFERENCES edition (tenant, number) ON DELETE CASCADE
);

CREATE INDEX edition_component_digest ON edition_component (digest);

-- The replicas that serve an agent, and the finding of each on the last proposal. A proposer waits only for replicas with a row.
CREATE TABLE edition_replica (
    tenant TEXT COLLATE "C" NOT NULL,
    replica TEXT COLLATE "C" NOT NULL REFERENCES replica (id) ON DELETE CASCADE,
    -- The replica serves no edition before this one.
    serves_from BIGINT NOT NULL,
    -- The last proposal that the replica tried; NULL before the first.
    tried BIGINT,
    -- The reason why the replica cannot serve that proposal; NULL where it can.
    reason TEXT,
    PRIMARY KEY (tenant, replica)
);

CREATE INDEX edition_replica_replica ON edition_replica (replica);

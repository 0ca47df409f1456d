-- The bytes of components, by their digest.
CREATE TABLE component (
    digest TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    bytes BYTEA NOT NULL,
    -- When it was proposed last. It goes an hour later if no edition names it.
    kept_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

-- What an agent is served with: the extensions, and the cards that declare them. The accepted one with the highest number is in
-- force.
CREATE TABLE edition (
    -- Empty for the agent of the config itself.
    tenant TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    -- The edition in force when it was proposed; 0 where there was none.
    parent BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('proposed', 'accepted', 'withdrawn')),
    -- The replica that proposed it, and alone may conclude.
    proposer TEXT COLLATE "C" NOT NULL,
    -- It cannot be accepted later.
    until TIMESTAMPTZ NOT NULL,
    -- The digest of what the config named when it came in force.
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

-- The replicas that serve an agent, and what they have found of the last proposal. A version from before these tables has no
-- rows here, and is not waited for.
CREATE TABLE edition_replica (
    tenant TEXT COLLATE "C" NOT NULL,
    replica TEXT COLLATE "C" NOT NULL REFERENCES replica (id) ON DELETE CASCADE,
    -- It serves nothing older than this edition.
    serves_from BIGINT NOT NULL,
    -- The proposal that it has tried last; NULL before the first.
    tried BIGINT,
    -- Why it cannot serve that one; NULL where it can.
    reason TEXT,
    PRIMARY KEY (tenant, replica)
);

CREATE INDEX edition_replica_replica ON edition_replica (replica);

-- Components that were pulled from registries for tenants.
CREATE TABLE pulled_component (
    -- The digest of the manifest.
    digest TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    manifest BYTEA NOT NULL,
    bytes BYTEA NOT NULL,
    -- The size of the manifest, the component and the signatures.
    size BIGINT NOT NULL,
    -- Milliseconds since 1970-01-01T00:00:00Z.
    pulled_at BIGINT NOT NULL
);

-- The signatures of pulled components.
CREATE TABLE pulled_signature (
    digest TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    bytes BYTEA NOT NULL,
    PRIMARY KEY (digest, number)
);

-- The tenants that have a pulled component. A component without a tenant is removed.
CREATE TABLE tenant_component (
    tenant TEXT COLLATE "C" NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, digest)
);

CREATE INDEX tenant_component_digest ON tenant_component (digest);

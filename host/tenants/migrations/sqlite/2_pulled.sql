-- Components that were pulled from registries for tenants.
CREATE TABLE pulled_component (
    -- The digest of the manifest.
    digest TEXT NOT NULL PRIMARY KEY,
    manifest BLOB NOT NULL,
    bytes BLOB NOT NULL,
    -- The size of the manifest, the component and the signatures.
    size INTEGER NOT NULL,
    -- Milliseconds since 1970-01-01T00:00:00Z.
    pulled_at INTEGER NOT NULL
);

-- The signatures of pulled components.
CREATE TABLE pulled_signature (
    digest TEXT NOT NULL,
    number INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (digest, number)
);

-- The tenants that have a pulled component. A component without a tenant is removed.
CREATE TABLE tenant_component (
    tenant TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (tenant, digest)
);

CREATE INDEX tenant_component_digest ON tenant_component (digest);

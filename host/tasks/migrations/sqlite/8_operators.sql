-- What tenants have used.
CREATE TABLE tenant_usage (
    -- Hours since 1970-01-01T00:00:00Z.
    hour INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    requests INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    -- Microseconds of CPU time in extensions and in the agent.
    cpu_micros INTEGER NOT NULL,
    -- Tokens of models.
    tokens INTEGER NOT NULL,
    PRIMARY KEY (hour, tenant)
);

CREATE INDEX tenant_usage_tenant ON tenant_usage (tenant, hour);

-- Components that operators have uploaded for the tenants that are added.
CREATE TABLE uploaded_component (
    digest TEXT NOT NULL PRIMARY KEY,
    bytes BLOB NOT NULL,
    size INTEGER NOT NULL,
    -- Milliseconds since 1970-01-01T00:00:00Z.
    uploaded_at INTEGER NOT NULL
);

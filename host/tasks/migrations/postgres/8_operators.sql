-- What tenants have used, of all processes together.
CREATE TABLE tenant_usage (
    -- Hours since 1970-01-01T00:00:00Z, by the clock of the process that counted.
    hour BIGINT NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    requests BIGINT NOT NULL,
    refused BIGINT NOT NULL,
    -- Microseconds of CPU time in extensions and in the agent.
    cpu_micros BIGINT NOT NULL,
    -- Tokens of models.
    tokens BIGINT NOT NULL,
    PRIMARY KEY (hour, tenant)
);

CREATE INDEX tenant_usage_tenant ON tenant_usage (tenant, hour);

-- Components that operators have uploaded for the tenants that are added.
CREATE TABLE uploaded_component (
    digest TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    bytes BYTEA NOT NULL,
    size BIGINT NOT NULL,
    -- Milliseconds since 1970-01-01T00:00:00Z.
    uploaded_at BIGINT NOT NULL
);

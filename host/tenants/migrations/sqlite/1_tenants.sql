-- Tenants that were added while servers ran.
CREATE TABLE tenant (
    name TEXT NOT NULL PRIMARY KEY,
    -- The number of its last change, of all changes of all tenants.
    rev INTEGER NOT NULL,
    -- 'active', 'suspended' or 'removed'. A removed tenant stays for a day, so that all processes read of the removal.
    state TEXT NOT NULL,
    -- The text of its operator; empty for a removed tenant.
    config TEXT NOT NULL,
    -- Milliseconds since 1970-01-01T00:00:00Z.
    changed_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX tenant_rev ON tenant (rev);

-- The number of the last change. Each change of a tenant changes this row first. Numbers are thus committed in their order, and
-- a process that has read up to a number has missed none before it. An upload locks the row, too.
CREATE TABLE tenant_change (
    rev INTEGER NOT NULL
);

INSERT INTO tenant_change (rev) VALUES (0);

-- The usage of tenants.
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

-- Components that operators have uploaded for added tenants.
CREATE TABLE uploaded_component (
    digest TEXT NOT NULL PRIMARY KEY,
    bytes BLOB NOT NULL,
    size INTEGER NOT NULL,
    -- Milliseconds since 1970-01-01T00:00:00Z.
    uploaded_at INTEGER NOT NULL
);

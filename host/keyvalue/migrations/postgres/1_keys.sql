-- Keys of extensions: those that last, and those of tasks and conversations. Names compare byte by byte. They have no NUL,
-- and an extension whose URI is long has a digest in its place: an entry of an index has at most 2,704 bytes.
CREATE TABLE entry (
    kind TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    extension TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    value BYTEA NOT NULL,
    set_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (kind, tenant, principal, id, extension, key)
);

-- What all buckets of an extension that end hold together.
CREATE TABLE scoped_usage (
    tenant TEXT COLLATE "C" NOT NULL,
    extension TEXT COLLATE "C" NOT NULL,
    keys BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (tenant, extension)
);

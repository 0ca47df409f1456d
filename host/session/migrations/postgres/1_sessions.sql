-- JSON is TEXT exactly as it was encoded. Times are milliseconds since 1970-01-01T00:00:00Z. State keys and names of
-- artifacts are JSON texts without their quotes, because a key may hold any character. Names compare byte by
-- byte.

CREATE TABLE session (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    app TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    context_id TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    -- The time of the last event, by its author's clock.
    updated_at BIGINT NOT NULL,
    -- When the last change was stored.
    changed_at BIGINT NOT NULL,
    UNIQUE (tenant, app, user_id, context_id)
);

CREATE INDEX session_changed ON session (changed_at, id);

CREATE TABLE session_event (
    session_id BIGINT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    -- The revision that the session has with it.
    seq BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    happened_at BIGINT NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (session_id, seq),
    UNIQUE (session_id, id)
);

-- One row per key: its size in bytes with its value, and its place among the keys of its scope.
CREATE TABLE session_state (
    session_id BIGINT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    value TEXT NOT NULL,
    size BIGINT NOT NULL,
    place BIGINT NOT NULL,
    PRIMARY KEY (session_id, name)
);

CREATE TABLE user_state (
    tenant TEXT COLLATE "C" NOT NULL,
    app TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    value TEXT NOT NULL,
    size BIGINT NOT NULL,
    place BIGINT NOT NULL,
    PRIMARY KEY (tenant, app, user_id, name)
);

CREATE TABLE app_state (
    tenant TEXT COLLATE "C" NOT NULL,
    app TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    value TEXT NOT NULL,
    size BIGINT NOT NULL,
    place BIGINT NOT NULL,
    PRIMARY KEY (tenant, app, name)
);

-- The latest version of each. The one with the greatest place was written last.
CREATE TABLE session_artifact (
    session_id BIGINT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    parts TEXT NOT NULL,
    size BIGINT NOT NULL,
    place BIGINT NOT NULL,
    PRIMARY KEY (session_id, name)
);

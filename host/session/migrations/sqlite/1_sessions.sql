-- JSON is TEXT exactly as it was encoded. Times are milliseconds since 1970-01-01T00:00:00Z. State keys and names of
-- artifacts are JSON texts without their quotes, because a key may hold any character.

CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    app TEXT NOT NULL,
    user_id TEXT NOT NULL,
    context_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    -- The time of the last event, by its author's clock.
    updated_at INTEGER NOT NULL,
    -- When the last change was stored.
    changed_at INTEGER NOT NULL,
    UNIQUE (tenant, app, user_id, context_id)
);

CREATE INDEX session_changed ON session (changed_at, id);

CREATE TABLE session_event (
    session_id INTEGER NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    -- The revision that the session has with it.
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    happened_at INTEGER NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (session_id, seq),
    UNIQUE (session_id, id)
) WITHOUT ROWID;

-- One row per key: its size in bytes with its value, and its place among the keys of its scope.
CREATE TABLE session_state (
    session_id INTEGER NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    size INTEGER NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (session_id, name)
) WITHOUT ROWID;

CREATE TABLE user_state (
    tenant TEXT NOT NULL,
    app TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    size INTEGER NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (tenant, app, user_id, name)
) WITHOUT ROWID;

CREATE TABLE app_state (
    tenant TEXT NOT NULL,
    app TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    size INTEGER NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (tenant, app, name)
) WITHOUT ROWID;

-- The latest version of each. The one with the greatest place was written last.
CREATE TABLE session_artifact (
    session_id INTEGER NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    parts TEXT NOT NULL,
    size INTEGER NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (session_id, name)
) WITHOUT ROWID;

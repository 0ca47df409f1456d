//! The statements, in the SQL that SQLite and PostgreSQL share.
//!
//! Parameters of `LIMIT` are cast: where SQLite sees the parameter itself it plans the statement anew for each value.

use annex_database::{OfFirst, Rows};

use super::queue_statements::{enter, join_session};

// An update that changes nothing, because SQLite has no `SELECT … FOR UPDATE`.
/// Keeps other writers off the session until the end of the transaction.
pub(super) const LOCK_SESSION: &str = "
    UPDATE session SET revision = revision
    WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4
    RETURNING id, revision";

/// Inserts a session unless it exists.
pub(super) static INSERT_NEW_SESSION: Rows = Rows {
    head: "
    INSERT INTO session (tenant, app, user_id, context_id, revision, updated_at, changed_at) VALUES",
    row: "($1, $2, $3, $4, $5, $6, $7)",
    parameters: 7,
    tail: " ON CONFLICT (tenant, app, user_id, context_id) DO NOTHING",
    of_first: None,
};

pub(super) const INSERT_SESSION: &str = "
    INSERT INTO session (tenant, app, user_id, context_id, revision, updated_at, changed_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (tenant, app, user_id, context_id) DO NOTHING
    RETURNING id";

pub(super) const UPDATE_SESSION: &str = "
    UPDATE session SET revision = $2, updated_at = $3, changed_at = $4 WHERE id = $1";

/// The next revision of a session that has the one before.
pub(super) const ADVANCE_SESSION: &str = "
    UPDATE session SET revision = $1, updated_at = $2, changed_at = $3
    WHERE tenant = $4 AND app = $5 AND user_id = $6 AND context_id = $7 AND revision = $8";

/// Like [`ADVANCE_SESSION`], but only if the session's keys and artifacts leave room for the new ones. Each bound is
/// the limit minus the new keys or artifacts, which count as if none existed yet.
pub(super) const ADVANCE_SESSION_WITHIN: &str = "
    UPDATE session SET revision = $1, updated_at = $2, changed_at = $3
    WHERE tenant = $4 AND app = $5 AND user_id = $6 AND context_id = $7 AND revision = $8
    AND (SELECT coalesce(sum(size), 0) <= $9 AND count(*) <= $10 FROM session_state WHERE session_id = session.id)
    AND (SELECT coalesce(sum(size), 0) <= $11 AND count(*) <= $12 FROM session_artifact WHERE session_id = session.id)";

// A row of revision 0 is there for the queue of turns alone, and no session.

pub(super) const SELECT_REVISION: &str = "
    SELECT revision FROM session
    WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4 AND revision > 0";

/// The sessions of a tenant, and the bytes of their own and shared state.
pub(super) const COUNT_HOLDINGS: &str = "
    SELECT (SELECT count(*) FROM session WHERE tenant = $1 AND revision > 0), CAST(
        (SELECT coalesce(sum(size), 0) FROM session_state JOIN session ON session.id = session_id WHERE tenant = $1)
        + (SELECT coalesce(sum(size), 0) FROM user_state WHERE tenant = $1)
        + (SELECT coalesce(sum(size), 0) FROM app_state WHERE tenant = $1) AS BIGINT)";

/// The kinds of rows of [`SELECT_SESSION`]. A smaller number is a key in the scope that has this place in `STORED`.
pub(super) const SESSION_ROW: i64 = 3;
pub(super) const EVENT_ROW: i64 = 4;
/// The first of the queue, and the revision that the session had when the turn joined.
pub(super) const JOINED_ROW: i64 = 5;

macro_rules! select_session {
    ($joined:expr, $joined_row:expr, $events:expr) => {
        concat!(
            "
    WITH ",
            $joined,
            "
    found AS (
        SELECT id, revision, updated_at FROM session
        WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4)
    SELECT CAST(3 AS BIGINT), '', '', revision, updated_at FROM found",
            $joined_row,
            "
    UNION ALL
    SELECT CAST(0 AS BIGINT), name, value, place, CAST(0 AS BIGINT) FROM session_state
    WHERE session_id = (SELECT id FROM found)
    UNION ALL
    SELECT CAST(1 AS BIGINT), name, value, place, CAST(0 AS BIGINT) FROM user_state
    WHERE tenant = $1 AND app = $2 AND user_id = $3
    UNION ALL
    SELECT CAST(2 AS BIGINT), name, value, place, CAST(0 AS BIGINT) FROM app_state WHERE tenant = $1 AND app = $2
    UNION ALL
    SELECT CAST(4 AS BIGINT), '', json, seq, happened_at FROM (",
            $events,
            ") AS latest WHERE happened_at >= $6"
        )
    };
}

/// The latest events of a session.
macro_rules! recent {
    () => {
        "
        SELECT seq, happened_at, json FROM session_event
        WHERE session_id = (SELECT id FROM found) ORDER BY seq DESC LIMIT CAST($5 AS BIGINT)"
    };
}

/// The latest events whose JSON has at most $7 bytes in total.
macro_rules! recent_within {
    () => {
        concat!(
            "
        SELECT seq, happened_at, json FROM (
            SELECT seq, happened_at, json, SUM(OCTET_LENGTH(json)) OVER (ORDER BY seq DESC) AS bytes FROM (",
            recent!(),
            ") AS recent
            ) AS sized
        WHERE bytes <= $7"
        )
    };
}

/// The result of the statement by which a turn joined.
macro_rules! joined_row {
    () => {
        "
    UNION ALL
    SELECT CAST(5 AS BIGINT), head, '', revision, CAST(0 AS BIGINT) FROM joined"
    };
}

/// A session at one moment: its own row, its own and shared keys, and the latest events up to a count, restricted to
/// events at or after a time. The numbers of the scopes are their places in `STORED`.
pub(super) const SELECT_SESSION: &str = select_session!("", "", recent!());

/// Like [`SELECT_SESSION`], with at most $7 bytes of events.
pub(super) const SELECT_SESSION_WITHIN: &str = select_session!("", "", recent_within!());

/// Like [`SELECT_SESSION`], and joins the queue of the session in the same statement: at the time $7 as $8 of replica
/// $9. If the join had to wait for the session's row, the rows read are older than the join.
pub(super) const JOIN_SESSION: &str = select_session!(join_session!("$7", "$8", "$9"), joined_row!(), recent!());

pub(super) const JOIN_SESSION_WITHIN: &str =
    select_session!(join_session!("$8", "$9", "$10"), joined_row!(), recent_within!());

/// A page of sessions; no time is less than the least number.
pub(super) const SELECT_SESSIONS: &str = "
    SELECT user_id, context_id, revision, updated_at FROM session
    WHERE tenant = $1 AND app = $2 AND (updated_at, user_id, context_id) > ($3, $4, $5) AND revision > 0
    ORDER BY updated_at, user_id, context_id LIMIT CAST($6 AS BIGINT)";

pub(super) const SELECT_SESSIONS_OF_USER: &str = "
    SELECT user_id, context_id, revision, updated_at FROM session
    WHERE tenant = $1 AND app = $2 AND (updated_at, user_id, context_id) > ($3, $4, $5) AND user_id = $7 AND revision > 0
    ORDER BY updated_at, user_id, context_id LIMIT CAST($6 AS BIGINT)";

pub(super) const SELECT_USERS_IN: &str = "
    SELECT user_id FROM session WHERE tenant = $1 AND app = $2 AND context_id = $3 AND revision > 0
    ORDER BY user_id LIMIT CAST($4 AS BIGINT)";

pub(super) const DELETE_SESSION: &str = "
    DELETE FROM session WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4 AND revision > 0";

/// The tenants with more sessions than a count, or with a session whose last change is older than a time. Reads an
/// index alone.
pub(super) const TENANTS_TO_SWEEP: &str = "
    SELECT tenant FROM session GROUP BY tenant HAVING count(*) > $1 OR min(changed_at) < $2";

pub(super) const COUNT_SESSIONS: &str = "SELECT count(*) FROM session WHERE tenant = $1";

/// A tenant's sessions whose last change is older than a time, the longest unchanged first, with their keys, events and
/// artifacts.
pub(super) const DELETE_OLDEST: &str = "
    DELETE FROM session WHERE id IN (
        SELECT id FROM session WHERE tenant = $3 AND changed_at < $1 ORDER BY changed_at, id LIMIT CAST($2 AS BIGINT))
    RETURNING tenant, app, user_id, context_id";

pub(super) const DELETE_KEYS_OF_USER: &str = "
    DELETE FROM user_state WHERE tenant = $1 AND app = $2 AND user_id = $3";

pub(super) const SELECT_KEYS_OF_SESSION: &str = "SELECT name, size, place FROM session_state WHERE session_id = $1";

pub(super) const SELECT_KEYS_OF_USER: &str = "
    SELECT name, size, place FROM user_state WHERE tenant = $1 AND app = $2 AND user_id = $3";

pub(super) const SELECT_KEYS_OF_APP: &str = "SELECT name, size, place FROM app_state WHERE tenant = $1 AND app = $2";

pub(super) const PUT_KEY_OF_SESSION: &str = "
    INSERT INTO session_state (name, value, size, place, session_id) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (session_id, name) DO UPDATE SET value = excluded.value, size = excluded.size";

pub(super) const PUT_KEY_OF_USER: &str = "
    INSERT INTO user_state (name, value, size, place, tenant, app, user_id) VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (tenant, app, user_id, name) DO UPDATE SET value = excluded.value, size = excluded.size";

pub(super) const PUT_KEY_OF_APP: &str = "
    INSERT INTO app_state (name, value, size, place, tenant, app) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (tenant, app, name) DO UPDATE SET value = excluded.value, size = excluded.size";

pub(super) const DELETE_KEY_OF_SESSION: &str = "DELETE FROM session_state WHERE name = $1 AND session_id = $2";

pub(super) const DELETE_KEY_OF_USER: &str = "
    DELETE FROM user_state WHERE name = $1 AND tenant = $2 AND app = $3 AND user_id = $4";

pub(super) const DELETE_KEY_OF_APP: &str = "DELETE FROM app_state WHERE name = $1 AND tenant = $2 AND app = $3";

pub(super) const SELECT_EVENT: &str = "SELECT json FROM session_event WHERE session_id = $1 AND id = $2";

pub(super) const INSERT_EVENT: &str = "
    INSERT INTO session_event (session_id, seq, id, happened_at, json) VALUES ($1, $2, $3, $4, $5)";

/// Events of sessions whose ids have not been read.
pub(super) static INSERT_EVENTS_OF_NAMED: Rows = Rows {
    head: "
    INSERT INTO session_event (session_id, seq, id, happened_at, json) VALUES",
    row: "
    ((SELECT id FROM session WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4),
    $5, $6, $7, $8)",
    parameters: 8,
    tail: "",
    of_first: Some(OfFirst { key: 4, row: "($1, $2, $3, $4)" }),
};

/// Keys that are not there, of sessions whose ids have not been read.
pub(super) static INSERT_KEYS_OF_NAMED: Rows = Rows {
    head: "
    INSERT INTO session_state (session_id, name, value, size, place) VALUES",
    row: "
    ((SELECT id FROM session WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4),
    $5, $6, $7, $8)",
    parameters: 8,
    tail: "",
    of_first: Some(OfFirst { key: 4, row: "($1, $2, $3, $4)" }),
};

/// Keys of sessions whose ids have not been read. An existing key keeps its place.
pub(super) static PUT_KEYS_OF_NAMED: Rows = Rows {
    tail: " ON CONFLICT (session_id, name) DO UPDATE SET value = excluded.value, size = excluded.size",
    ..INSERT_KEYS_OF_NAMED
};

/// Artifacts that are not there, of sessions whose ids have not been read.
pub(super) static INSERT_ARTIFACTS_OF_NAMED: Rows = Rows {
    head: "
    INSERT INTO session_artifact (session_id, name, version, parts, size, place) VALUES",
    row: "
    ((SELECT id FROM session WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4),
    $5, 1, $6, $7, $8)",
    parameters: 8,
    tail: "",
    of_first: Some(OfFirst { key: 4, row: "($1, 1, $2, $3, $4)" }),
};

/// New versions of artifacts, of sessions whose ids have not been read.
pub(super) static PUT_ARTIFACTS_OF_NAMED: Rows = Rows {
    tail: "
    ON CONFLICT (session_id, name) DO UPDATE SET
        version = session_artifact.version + 1, parts = excluded.parts, size = excluded.size, place = excluded.place",
    ..INSERT_ARTIFACTS_OF_NAMED
};

pub(super) const DELETE_EVENTS: &str = "DELETE FROM session_event WHERE session_id = $1 AND seq <= $2";

pub(super) const SELECT_ARTIFACT: &str = "
    SELECT version, parts FROM session_artifact
    WHERE name = $5 AND session_id = (
        SELECT id FROM session WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4)";

/// The artifacts of a session, the latest write first.
pub(super) const SELECT_ARTIFACTS: &str = "
    SELECT name, size, place FROM session_artifact WHERE session_id = $1 ORDER BY place DESC";

pub(super) const PUT_ARTIFACT: &str = "
    INSERT INTO session_artifact (session_id, name, version, parts, size, place) VALUES ($1, $2, 1, $3, $4, $5)
    ON CONFLICT (session_id, name) DO UPDATE SET
        version = session_artifact.version + 1, parts = excluded.parts, size = excluded.size, place = excluded.place";

pub(super) const DELETE_ARTIFACT: &str = "DELETE FROM session_artifact WHERE session_id = $1 AND name = $2";

pub(super) const PROBE: &str = "SELECT id FROM session LIMIT 1";

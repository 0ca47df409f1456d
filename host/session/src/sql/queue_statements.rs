//! The statements of the queue of turns, and those of appends that prove that their turn may write: in the same statement its
//! replica has its lease, by the database's clock, and it is the first of the queue.
//!
//! For PostgreSQL only; one process has a file for itself.

use annex_leases::{is_alive, living_replicas};

/// Inserts the first events of a session. The row may exist already for its queue.
macro_rules! begin_session {
    ($turns:literal, $replica:literal, $left:literal, $member:literal) => {
        concat!(
            "
    INSERT INTO session (tenant, app, user_id, context_id, revision, updated_at, changed_at, turns)
    SELECT $1, $2, $3, $4, $5, $6, $7, CAST(",
            $turns,
            " AS TEXT[]) WHERE ",
            is_alive!($replica),
            "
    ON CONFLICT (tenant, app, user_id, context_id) DO UPDATE SET
        revision = excluded.revision, updated_at = excluded.updated_at, changed_at = excluded.changed_at",
            $left,
            "
    WHERE session.revision = 0 AND session.turns[1] = ",
            $member
        )
    };
}

pub(super) const BEGIN_SESSION: &str = begin_session!("ARRAY[$8]", "$9", "", "$10");

/// Like [`BEGIN_SESSION`], with the last event of the turn: the turn leaves the queue.
pub(super) const BEGIN_SESSION_AND_LEAVE: &str = begin_session!("'{}'", "$8", ", turns = session.turns[2:]", "$9");

/// Like `statements::ADVANCE_SESSION`, for a turn with a place.
macro_rules! advance_session {
    ($left:literal, $room:literal) => {
        concat!(
            "
    UPDATE session SET revision = $1, updated_at = $2, changed_at = $3",
            $left,
            "
    WHERE tenant = $4 AND app = $5 AND user_id = $6 AND context_id = $7 AND revision = $8 AND turns[1] = $9 AND ",
            is_alive!("$10"),
            $room
        )
    };
    ($left:literal) => {
        advance_session!(
            $left,
            "
    AND (SELECT coalesce(sum(size), 0) <= $11 AND count(*) <= $12 FROM session_state WHERE session_id = session.id)
    AND (SELECT coalesce(sum(size), 0) <= $13 AND count(*) <= $14 FROM session_artifact WHERE session_id = session.id)"
        )
    };
}

pub(super) const ADVANCE_SESSION: &str = advance_session!("", "");
pub(super) const ADVANCE_SESSION_AND_LEAVE: &str = advance_session!(", turns = turns[2:]", "");
pub(super) const ADVANCE_SESSION_WITHIN: &str = advance_session!("");
pub(super) const ADVANCE_SESSION_WITHIN_AND_LEAVE: &str = advance_session!(", turns = turns[2:]");

/// Like `statements::LOCK_SESSION`. The last column is 1 if the turn may write.
pub(super) const LOCK_SESSION: &str = concat!(
    "
    UPDATE session SET revision = revision
    WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4
    RETURNING id, revision, CAST(CASE WHEN coalesce(turns[1], '') = $5 AND ",
    is_alive!("$6"),
    " THEN 1 ELSE 0 END AS BIGINT)"
);

pub(super) const SELECT_LEASE: &str = concat!("SELECT id FROM ", living_replicas!(), " AS living WHERE id = $1");

/// The session that its first turn has just made.
pub(super) const ENTER_NEW: &str = "UPDATE session SET turns = ARRAY[$2] WHERE id = $1";

pub(super) const LEAVE_LOCKED: &str = "UPDATE session SET turns = array_remove(turns, $2) WHERE id = $1";

/// Puts a turn into the queue of a session, whose row is made if need be, while its replica has its lease: into an empty one, or
/// else where `others` says.
macro_rules! enter {
    ($now:literal, $member:literal, $replica:literal, $($others:tt)*) => {
        concat!(
            "
        INSERT INTO session (tenant, app, user_id, context_id, revision, updated_at, changed_at, turns)
        SELECT $1, $2, $3, $4, 0, ",
            $now,
            ", ",
            $now,
            ", ARRAY[",
            $member,
            "] WHERE ",
            annex_leases::is_alive!($replica),
            "
        ON CONFLICT (tenant, app, user_id, context_id) DO UPDATE SET turns = ",
            $($others)*,
            "
        RETURNING revision, turns[1] AS head"
        )
    };
}

/// Joins the queue as the first turn of its process: before the other turns of the process, or at the end of the queue
/// if the process has no other turn. This is the first part of a statement that reads the session; the parameters of
/// that statement's names come first.
macro_rules! join_session {
    ($now:literal, $member:literal, $replica:literal) => {
        concat!(
            "joined AS (",
            enter!(
                $now,
                $member,
                $replica,
                concat!(
                    "CASE WHEN session.turns = '{}' THEN ARRAY[",
                    $member,
                    "] ELSE (
            SELECT others[:first - 1] || CAST(",
                    $member,
                    " AS TEXT) || others[first:] FROM (
                SELECT array_remove(session.turns, ",
                    $member,
                    ") AS others, coalesce(min(place), cardinality(session.turns) + 1) AS first
                FROM unnest(session.turns) WITH ORDINALITY AS queue (member, place)
                WHERE split_part(member, '/', 1) = ",
                    $replica,
                    ") AS placed) END"
                )
            ),
            "),"
        )
    };
}

/// A turn joins the end of the queue while another one of its process runs, or waits.
pub(super) const LINE_UP: &str = enter!("$5", "$6", "$7", "array_append(session.turns, $6)");

pub(super) use {enter, join_session};

/// The place of a turn in the queue, 1 for the first and 0 for none, and 1 if the replica of the first one has its lease.
pub(super) const SELECT_PLACE: &str = concat!(
    "
    SELECT CAST(coalesce(array_position(turns, $5), 0) AS BIGINT), CAST(CASE WHEN ",
    is_alive!("split_part(turns[1], '/', 1)"),
    " THEN 1 ELSE 0 END AS BIGINT)
    FROM session WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4"
);

/// Removes all turns of replicas without a lease, if the caller's replica has its lease. Leases are compared with the
/// time at which the statement began, because the statement may wait for the row and still sees the leases of its
/// beginning.
pub(super) const REMOVE_GONE: &str = concat!(
    "
    UPDATE session SET turns = ARRAY(
        SELECT member FROM unnest(turns) WITH ORDINALITY AS queue (member, place)
        WHERE ",
    is_alive!("split_part(member, '/', 1)", "statement_timestamp()"),
    "
        ORDER BY place)
    WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4 AND ",
    is_alive!("$5")
);

pub(super) const LEAVE: &str = "
    UPDATE session SET turns = array_remove(turns, $5)
    WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4 AND array_position(turns, $5) IS NOT NULL
    RETURNING revision, CAST(cardinality(turns) AS BIGINT)";

/// A row that existed only for its queue.
pub(super) const FORGET_QUEUE: &str = "
    DELETE FROM session
    WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4 AND revision = 0 AND turns = '{}'";

/// Rows of ended processes: rows that exist only for a queue, unchanged since a time and without a turn of a living
/// replica.
pub(super) const FORGET_QUEUES: &str = concat!(
    "
    DELETE FROM session WHERE revision = 0 AND changed_at < $1 AND NOT EXISTS (
        SELECT 1 FROM unnest(turns) AS queue (member) WHERE ",
    is_alive!("split_part(member, '/', 1)"),
    ")"
);

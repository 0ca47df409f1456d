//! The statements that compare leases, for each database.
//!
//! A process may write only while its lease is valid. The statement that writes checks the lease by the clock of the database.
//! A SQLite file is used by one process at a time, until another process opens the file.

use annex_database::{Database, PostgresDatabase, SqliteDatabase};

use super::statements::{select_conversation, take_task, task_columns};
use crate::cursors::PushCursors;

/// The statements that differ between the databases, because they compare leases.
#[derive(Debug)]
pub struct LeasedStatements {
    pub(super) is_alive: &'static str,
    pub(super) claim: &'static str,
    /// Puts a turn with its task and its message into the queue of a conversation, and reads the conversation.
    pub(super) enter: &'static str,
    /// The first step of an append of a turn.
    pub(super) advance: &'static str,
    /// The first step of an append that also ends the turn.
    pub(super) advance_and_end: &'static str,
    /// Locks a conversation against other writers until the end of the transaction.
    pub(super) lock: &'static str,
    pub(super) lost: &'static str,
    pub(super) take: &'static str,
    /// Removes the first turn of a queue if its process has ended and its message was not accepted.
    pub(super) forget_first: &'static str,
    pub(super) cancel: &'static str,
    pub(super) changed: &'static str,
    pub(super) to_stop: &'static str,
}

/// A database that has the statements of [`LeasedStatements`].
pub trait Leased: Database + Sized {
    /// The statements for this database.
    const STATEMENTS: &'static LeasedStatements;

    /// The progress of push notifications in a store that several processes share.
    fn push_cursors(&self) -> Option<&dyn PushCursors>;
}

/// SQL for PostgreSQL that is true while the lease of a replica is valid.
macro_rules! has_lease {
    ($replica:expr) => {
        annex_leases::is_alive!($replica)
    };
}

/// SQL for SQLite that is true while a process uses the file.
macro_rules! has_file {
    ($replica:expr) => {
        concat!("EXISTS (SELECT 1 FROM process WHERE process.id = ", $replica, ")")
    };
}

/// Puts a turn at the end of the queue of its conversation. Changes nothing if the queue is full, if the task already has a
/// turn, or if the task belongs to another conversation.
macro_rules! enter {
    ($alive:ident) => {
        concat!(
            "INSERT INTO conversation (tenant, app, user_id, context_id, number, updated_at, changed_at, turns)
        SELECT $1, $2, $3, $4, 0, $7, $7, $8 WHERE ",
            $alive!("$9"),
            " AND NOT EXISTS (SELECT 1 FROM task JOIN conversation AS own ON own.id = task.conversation_id
            WHERE task.id = $10 AND (task.replica IS NOT NULL
                OR NOT (own.tenant = $1 AND own.app = $2 AND own.user_id = $3 AND own.context_id = $4)))
        ON CONFLICT (tenant, app, user_id, context_id) DO UPDATE SET turns = conversation.turns || excluded.turns
        WHERE length(conversation.turns) - length(replace(conversation.turns, '<', '')) <= $11
        RETURNING "
        )
    };
}

/// The first step of an append. Changes no row unless all of these conditions hold:
///
/// - The turn is the first of its queue, and its lease is valid.
/// - The task is as the turn knows it.
/// - The conversation is within its limits on state, artifacts and history. The other steps cannot delete anything.
macro_rules! advance {
    ($turns:literal, $alive:ident) => {
        concat!(
            "
    UPDATE conversation SET number = number + $1, updated_at = coalesce($2, updated_at), changed_at = $3,
        upstream = coalesce($4, upstream), receipt = coalesce($5, receipt), turns = ",
            $turns,
            "
    WHERE tenant = $7 AND app = $8 AND user_id = $9 AND context_id = $10 AND substr(turns, 1, length($11)) = $12
        AND coalesce(orphan, '') <> $13 AND ",
            $alive!("$14"),
            " AND number <= $15
        AND coalesce((SELECT task.number FROM task WHERE task.id = $16), 0) = $17
        AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = $18 AND task.conversation_id <> conversation.id)
        AND (SELECT coalesce(sum(size), 0) <= $19 AND count(*) <= $20 FROM conversation_state
            WHERE conversation_id = conversation.id)
        AND (CAST($21 AS BIGINT) = 0 OR (SELECT coalesce(sum(size), 0) <= $22 AND count(*) <= $23 FROM artifact
            WHERE conversation_id = conversation.id))"
        )
    };
}

/// Enters a queue in PostgreSQL: also stores the task, accepts the message, and reads the conversation. All of this is one
/// statement, so no part sees the rows that another part writes.
const ENTER_AT_ONCE: &str = select_conversation!(
    concat!(
        "entered AS (",
        enter!(has_lease),
        "id, number, turns),
    taken AS (",
        take_task!(),
        " RETURNING task.id),
    accepted AS (
        UPDATE message SET replica = NULL FROM entered, taken WHERE entered.turns <> $8 AND message.tenant = $1
            AND message.principal = $12 AND message.context_id = $16 AND message.message_id = $17),"
    ),
    "
    UNION ALL
    SELECT CAST(5 AS BIGINT), turns, CASE WHEN NOT EXISTS (SELECT 1 FROM taken)
        AND (turns <> $8 OR EXISTS (SELECT 1 FROM task WHERE task.id = $10)) THEN 'late' ELSE '' END, number, id FROM entered"
);

/// SQL for SQLite that selects the conversation whose queue the turn has entered by an earlier statement.
macro_rules! entered {
    () => {
        "WITH entered (id, turns) AS (SELECT id, turns FROM conversation
            WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4 AND instr(turns, $8) > 0)"
    };
}

/// Enters a queue in SQLite, like [`ENTER_AT_ONCE`] in PostgreSQL. This is a transaction of several statements, because SQLite
/// allows no writes in the parts of a statement.
const ENTER_BY_STEPS: &str = concat!(
    "BEGIN IMMEDIATE;",
    enter!(has_file),
    "5, turns, '', number, id;",
    entered!(),
    take_task!(),
    ";",
    entered!(),
    "UPDATE message SET replica = NULL WHERE tenant = $1 AND principal = $12 AND context_id = $16 AND message_id = $17
        AND EXISTS (SELECT 1 FROM entered WHERE turns <> $8);",
    select_conversation!("", ""),
    ";COMMIT"
);

macro_rules! statements {
    ($alive:ident, $enter:ident, $known:literal) => {
        LeasedStatements {
            is_alive: concat!("SELECT CAST(1 AS BIGINT) WHERE ", $alive!("$1")),
            claim: concat!(
                "
    INSERT INTO message (tenant, principal, context_id, message_id, digest, task_id, claimed_at, replica, claim)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (tenant, principal, context_id, message_id) DO UPDATE SET
        claim = CASE WHEN message.digest = excluded.digest AND message.replica IS NOT NULL AND NOT ",
                $alive!("message.replica"),
                " THEN excluded.claim ELSE message.claim END,
        replica = CASE WHEN message.digest = excluded.digest AND message.replica IS NOT NULL AND NOT ",
                $alive!("message.replica"),
                " THEN excluded.replica ELSE message.replica END
    RETURNING digest, task_id, coalesce(replica, ''), claim, coalesce(answer, '')"
            ),
            enter: $enter,
            advance: advance!("CASE WHEN $6 = '' THEN '' ELSE turns END", $alive),
            advance_and_end: advance!("replace(turns, $6, '')", $alive),
            lock: concat!(
                "
    UPDATE conversation SET number = number
    WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4
    RETURNING id, number, turns, coalesce(orphan, ''), CAST(CASE WHEN ",
                $alive!("$5"),
                " THEN 1 ELSE 0 END AS BIGINT)"
            ),
            lost: concat!(
                "
    SELECT id, replica, epoch FROM task WHERE replica IS NOT NULL AND NOT ",
                $alive!("task.replica"),
                " AND ",
                $alive!("$1"),
                " ORDER BY id LIMIT CAST($2 AS BIGINT)"
            ),
            take: concat!(
                "
    UPDATE task SET replica = $1, epoch = $2, attempts = attempts + 1
    WHERE id = $3 AND replica = $4 AND epoch = $5 AND ",
                $alive!("$1"),
                "
    RETURNING conversation_id, coalesce(resume, ''), has_begun, attempts - 1, is_cancelled, is_accepted"
            ),
            forget_first: concat!(
                "
    UPDATE conversation SET turns = substr(turns, length($5) + 1)
    WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4 AND substr(turns, 1, length($5)) = $5
        AND NOT ",
                $alive!("$6"),
                " AND ",
                $alive!("$7"),
                "
        AND NOT EXISTS (SELECT 1 FROM task WHERE task.conversation_id = conversation.id AND task.replica IS NOT NULL
            AND '<' || task.replica || '/' || task.epoch || '>' = $5)
    RETURNING id"
            ),
            cancel: concat!(
                "
    UPDATE task SET is_cancelled = 1 WHERE id = $1 AND replica IS NOT NULL
    RETURNING replica, epoch, CAST(CASE WHEN ",
                $alive!("task.replica"),
                " THEN 1 ELSE 0 END AS BIGINT)"
            ),
            changed: concat!(
                "
    SELECT known.id, task.number FROM ",
                $known,
                " LEFT JOIN task ON task.id = known.id
    WHERE task.number IS NULL OR task.number <> known.number"
            ),
            to_stop: concat!(
                "
    SELECT task.id FROM ",
                $known,
                " JOIN task ON task.id = known.id
    WHERE task.is_cancelled = 1 OR coalesce(task.epoch, -1) <> known.number OR coalesce(task.replica, '') <> known.replica"
            ),
        }
    };
}

impl Leased for SqliteDatabase {
    const STATEMENTS: &'static LeasedStatements = &statements!(
        has_file,
        ENTER_BY_STEPS,
        "(SELECT value ->> 'id' AS id, value ->> 'number' AS number, value ->> 'replica' AS replica FROM json_each($1))
        AS known"
    );

    fn push_cursors(&self) -> Option<&dyn PushCursors> {
        None
    }
}

impl Leased for PostgresDatabase {
    const STATEMENTS: &'static LeasedStatements = &statements!(
        has_lease,
        ENTER_AT_ONCE,
        "json_to_recordset(CAST($1 AS json)) AS known (id TEXT, number BIGINT, replica TEXT)"
    );

    fn push_cursors(&self) -> Option<&dyn PushCursors> {
        Some(self)
    }
}

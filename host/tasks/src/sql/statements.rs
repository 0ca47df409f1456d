//! The statements, in the SQL that SQLite and PostgreSQL share.
//!
//! Parameters of `LIMIT` are cast: where SQLite sees the parameter itself it plans the statement anew for each value.

use annex_database::{OfFirst, Rows};
use annex_leases::{is_alive, living_replicas};

pub(super) static INSERT_TASK: Rows = Rows {
    head: "
    INSERT INTO task (id, tenant, principal, context_id, state, status_at, finished_at, seq, json, json_seq,
        runner) VALUES",
    row: "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    parameters: 11,
    // A task that exists changes no row, which `Write::refusal` explains. An error would take back the changes of
    // others that share the transaction.
    tail: " ON CONFLICT (id) DO NOTHING",
    of_first: None,
};

/// Inserts a task if the replica of its turn has its lease.
pub(super) const INSERT_TASK_AMONG_OTHERS: &str = concat!(
    "
    INSERT INTO task (id, tenant, principal, context_id, state, status_at, finished_at, seq, json, json_seq, runner,
        turn)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12
    WHERE ",
    is_alive!("$13"),
    " ON CONFLICT (id) DO NOTHING"
);

macro_rules! update_task {
    () => {
        "
    UPDATE task SET seq = $1, state = $2, status_at = $3, finished_at = $4, runner = $5, json = $6, json_seq = NULL,
        epoch = $7, turn = coalesce($8, turn), attempt = coalesce($9, attempt)
    WHERE id = $10 AND seq = $11 AND epoch = $12"
    };
}

/// Like `update_task!`, but leaves the task's JSON unchanged. A long JSON would be written again with its row each time, so
/// a long JSON is emptied, and the task is read from all its events.
macro_rules! advance_task {
    () => {
        "
    UPDATE task SET seq = $1, state = $2, status_at = $3, finished_at = $4, runner = $5,
        json_seq = CASE WHEN json_seq IS NOT NULL THEN json_seq WHEN octet_length(json) > 16384 THEN 0 ELSE seq END,
        json = CASE WHEN json_seq IS NULL AND octet_length(json) > 16384 THEN '' ELSE json END,
        epoch = $6, turn = coalesce($7, turn), attempt = coalesce($8, attempt)
    WHERE id = $9 AND seq = $10 AND epoch = $11"
    };
}

pub(super) const UPDATE_TASK: &str = update_task!();
/// Like [`UPDATE_TASK`], if the replica that begins a turn of the task has its lease.
pub(super) const UPDATE_TASK_AMONG_OTHERS: &str = concat!(update_task!(), " AND ", is_alive!("$13"));
pub(super) const ADVANCE_TASK: &str = advance_task!();
pub(super) const ADVANCE_TASK_AMONG_OTHERS: &str = concat!(advance_task!(), " AND ", is_alive!("$12"));

// An update that changes nothing, because SQLite has no `SELECT … FOR UPDATE`.
/// Keeps other writers off the task until the end of the transaction.
pub(super) const LOCK_TASK: &str = "UPDATE task SET seq = seq WHERE id = $1";

pub(super) const SELECT_PLACE: &str = "SELECT seq, epoch FROM task WHERE id = $1";

/// The columns of a stored task. The fifth is 2 for a finished task, 1 for a task with a turn, and 0 for a waiting
/// task; the sixth is the epoch. A waiting task has a runner once its client has answered.
macro_rules! stored_task {
    () => {
        "task.id, task.seq, task.json, coalesce(task.json_seq, task.seq), CAST(CASE
            WHEN task.finished_at IS NOT NULL THEN 2
            WHEN task.runner IS NOT NULL OR task.state NOT IN ('TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_AUTH_REQUIRED')
            THEN 1 ELSE 0 END AS BIGINT), task.epoch"
    };
}

pub(super) const SELECT_TASK: &str = concat!(
    "
    SELECT ",
    stored_task!(),
    " FROM task WHERE id = $1 AND tenant = $2 AND principal = $3"
);

pub(super) const SELECT_EXISTING: &str = "
    SELECT id FROM task WHERE id = $1 AND tenant = $2 AND principal = $3";

pub(super) static INSERT_EVENTS: Rows = Rows {
    head: "
    INSERT INTO task_event (task_id, seq, kind, json) VALUES",
    row: "($1, $2, $3, $4)",
    parameters: 4,
    tail: "",
    of_first: Some(OfFirst { key: 1, row: "($1, $2, $3)" }),
};

pub(super) const SELECT_EVENTS: &str = "
    SELECT seq, kind, json FROM task_event WHERE task_id = $1 AND seq > $2 ORDER BY seq LIMIT CAST($3 AS BIGINT)";

/// Like [`SELECT_EVENTS`], with at most $4 bytes of events, but always the first one. Sizes are summed up before any
/// JSON is read.
pub(super) const SELECT_EVENTS_WITHIN: &str = "
    SELECT seq, kind, json FROM (
        SELECT seq, kind, json, sum(octet_length(json)) OVER (ORDER BY seq) AS up_to, row_number() OVER (ORDER BY seq) AS place
        FROM (SELECT seq, kind, json FROM task_event
            WHERE task_id = $1 AND seq > $2 ORDER BY seq LIMIT CAST($3 AS BIGINT)) AS following) AS sized
    WHERE up_to <= $4 OR place = 1 ORDER BY seq";

/// Events after a number, if the task is still in the epoch.
pub(super) const SELECT_WRITTEN: &str = "
    SELECT task_event.kind, task_event.json FROM task_event JOIN task ON task.id = task_event.task_id
    WHERE task_event.task_id = $1 AND task_event.seq > $2 AND task.epoch = $3
    ORDER BY task_event.seq LIMIT CAST($4 AS BIGINT)";

/// Tasks that other processes have changed, among the ids and numbers in a JSON array. One statement for any number of
/// tasks.
pub(super) const SELECT_CHANGED: &str = "
    SELECT known.id, task.seq FROM json_to_recordset(CAST($1 AS json)) AS known (id TEXT, number BIGINT)
    LEFT JOIN task ON task.id = known.id WHERE task.seq IS DISTINCT FROM known.number";

// Two pairs, so that each is answered by its index. The owner's pair takes a context, too, and finds it to be empty, so
// that all pages have the same parameters.

/// A page as far as its JSON fits into $9 bytes, the first task in any case, and how many rows it would have had. Sizes
/// are summed up before any JSON is read.
macro_rules! page {
    ($context:literal) => {
        concat!(
            "
    WITH page AS (
        SELECT id, status_at, octet_length(json) + CASE WHEN json_seq IS NULL THEN 0 ELSE (
            SELECT coalesce(sum(octet_length(task_event.json)), 0) FROM task_event
            WHERE task_event.task_id = task.id AND task_event.seq > task.json_seq) END AS size FROM task
        WHERE tenant = $1 AND principal = $2 AND ($3 = '' OR state = $3) AND status_at >= $4 AND ",
            $context,
            " AND (status_at, id) < ($6, $7)
        ORDER BY status_at DESC, id DESC LIMIT CAST($8 AS BIGINT)),
    sized AS (
        SELECT id, sum(size) OVER (ORDER BY status_at DESC, id DESC) AS up_to, size, count(*) OVER () AS found
        FROM page)
    SELECT ",
            stored_task!(),
            ", task.status_at, sized.found FROM sized CROSS JOIN task
    WHERE task.id = sized.id AND (sized.up_to <= $9 OR sized.up_to = sized.size)
    ORDER BY task.status_at DESC, task.id DESC"
        )
    };
}

pub(super) const PAGE_OF_OWNER: &str = page!("$5 = ''");

pub(super) const COUNT_OF_OWNER: &str = "
    SELECT count(*) FROM task
    WHERE tenant = $1 AND principal = $2 AND ($3 = '' OR state = $3) AND status_at >= $4";

pub(super) const PAGE_OF_CONTEXT: &str = page!("context_id = $5");

pub(super) const COUNT_OF_CONTEXT: &str = "
    SELECT count(*) FROM task
    WHERE tenant = $1 AND principal = $2 AND ($3 = '' OR state = $3) AND status_at >= $4 AND context_id = $5";

pub(super) const COUNT_OTHER_CONFIGS: &str = "SELECT count(*) FROM push_config WHERE task_id = $1 AND id <> $2";

pub(super) const PUT_CONFIG: &str = "
    INSERT INTO push_config (task_id, id, json) VALUES ($1, $2, $3)
    ON CONFLICT (task_id, id) DO UPDATE SET json = excluded.json";

pub(super) const SELECT_CONFIG: &str = "SELECT json FROM push_config WHERE task_id = $1 AND id = $2";

pub(super) const SELECT_CONFIGS: &str = "
    SELECT json FROM push_config WHERE task_id = $1 AND id > $2 ORDER BY id LIMIT CAST($3 AS BIGINT)";

pub(super) const DELETE_CONFIG: &str = "DELETE FROM push_config WHERE task_id = $1 AND id = $2";

/// One statement, so that of any number of writers exactly one reads that the message came once.
pub(super) const REMEMBER: &str = "
    INSERT INTO message_seen (tenant, principal, context_id, message_id, digest, task_id, seen_at, times)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 1)
    ON CONFLICT (tenant, principal, context_id, message_id) DO UPDATE SET times = message_seen.times + 1
    RETURNING times, digest, task_id, coalesce(answer, ''), CASE
        WHEN EXISTS (SELECT 1 FROM task WHERE task.id = message_seen.task_id) THEN 0 ELSE 2 END";

/// True for a message that has reached its task: the task began with the message, or the message was appended. The
/// message is searched as text, because PostgreSQL cannot parse JSON with a NUL character in a text.
macro_rules! has_joined {
    () => {
        "EXISTS (SELECT 1 FROM task_event WHERE task_event.task_id = message_seen.task_id
            AND (task_event.seq = 1 OR task_event.kind = 'message')
            AND strpos(task_event.json, '\"messageId\":' || to_json(message_seen.message_id)) > 0)"
    };
}

/// Like [`REMEMBER`], where several processes take messages. A message whose replica has ended counts as new and keeps
/// its task id: if that replica creates the task after all, only one of the two can.
///
/// The last column is 1 for a message that another replica is checking, and 2 for a message of this replica without a
/// task or an answer.
pub(super) const REMEMBER_AMONG_OTHERS: &str = concat!(
    "
    INSERT INTO message_seen (tenant, principal, context_id, message_id, digest, task_id, seen_at, times, runner)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 1, $8)
    ON CONFLICT (tenant, principal, context_id, message_id) DO UPDATE SET (times, runner) = (
        SELECT CASE WHEN is_left THEN 1 ELSE message_seen.times + 1 END,
            CASE WHEN is_left THEN excluded.runner ELSE message_seen.runner END
        FROM (SELECT message_seen.digest = excluded.digest AND message_seen.answer IS NULL
            AND NOT ",
    is_alive!("message_seen.runner"),
    " AND NOT ",
    has_joined!(),
    " AS is_left) AS found)
    RETURNING times, digest, task_id, coalesce(answer, ''), CAST(CASE
        WHEN times = 1 OR answer IS NOT NULL OR ",
    has_joined!(),
    " THEN 0 WHEN runner = $8 THEN 2 ELSE 1 END AS BIGINT)"
);

pub(super) const ANSWER: &str = "
    UPDATE message_seen SET answer = $7
    WHERE tenant = $1 AND principal = $2 AND context_id = $3 AND message_id = $4 AND digest = $5
        AND coalesce(runner, '') = $6";

pub(super) const FORGET: &str = "
    DELETE FROM message_seen
    WHERE tenant = $1 AND principal = $2 AND context_id = $3 AND message_id = $4 AND digest = $5";

/// Like [`FORGET`], for a claim with an unknown outcome: the message may have been answered, or may have reached its
/// task.
pub(super) const FORGET_AMONG_OTHERS: &str = concat!(
    "
    DELETE FROM message_seen
    WHERE tenant = $1 AND principal = $2 AND context_id = $3 AND message_id = $4 AND digest = $5 AND runner = $6
        AND answer IS NULL AND NOT ",
    has_joined!()
);

// PostgreSQL has no `DELETE … LIMIT`, so a subquery picks the batch.
/// Messages of which neither a task nor an answer came, remembered before a time.
pub(super) const FORGET_UNCLAIMED: &str = "
    DELETE FROM message_seen WHERE (tenant, principal, context_id, message_id) IN (
        SELECT tenant, principal, context_id, message_id FROM message_seen
        WHERE seen_at < $1 AND answer IS NULL AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = message_seen.task_id)
        LIMIT CAST($2 AS BIGINT))";

/// The tenants of which messages that were answered with a message are more than a count, or were remembered before a time.
pub(super) const TENANTS_WITH_ANSWERS_TO_FORGET: &str = "
    SELECT tenant FROM message_seen WHERE answer IS NOT NULL
    GROUP BY tenant HAVING count(*) > $1 OR min(seen_at) < $2";

/// Messages of a tenant with an answer that were remembered before a time.
pub(super) const FORGET_OLD_ANSWERS: &str = "
    DELETE FROM message_seen WHERE (tenant, principal, context_id, message_id) IN (
        SELECT tenant, principal, context_id, message_id FROM message_seen
        WHERE tenant = $3 AND seen_at < $1 AND answer IS NOT NULL
        LIMIT CAST($2 AS BIGINT))";

/// A tenant's oldest messages with an answer beyond a count. The whole order is descending, so that the index provides
/// the order.
pub(super) const FORGET_SURPLUS_ANSWERS: &str = "
    DELETE FROM message_seen WHERE (tenant, principal, context_id, message_id) IN (
        SELECT tenant, principal, context_id, message_id FROM message_seen
        WHERE tenant = $3 AND answer IS NOT NULL
        ORDER BY seen_at DESC, principal DESC, context_id DESC, message_id DESC
        LIMIT CAST($2 AS BIGINT) OFFSET CAST($1 AS BIGINT))";

/// Running tasks without a known runner. In a file their process had the file before; in a shared database their
/// process was of a version that stored no name.
pub(super) const SELECT_ABANDONED: &str = concat!(
    "
    SELECT ",
    stored_task!(),
    " FROM task
    WHERE finished_at IS NULL AND runner IS NULL AND id > $1
        AND state NOT IN ('TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_AUTH_REQUIRED')
    ORDER BY id LIMIT CAST($2 AS BIGINT)"
);

/// True for a task whose replica has ended. The query for the lease runs again if another process has just changed the
/// row.
macro_rules! is_lost {
    () => {
        concat!("runner IS NOT NULL AND finished_at IS NULL AND NOT ", is_alive!("task.runner"))
    };
}

/// Tasks whose replica has ended. A replica without a lease finds none. Tasks with a turn to continue are found if the
/// third parameter is 1. A locked row is skipped, because the process that holds the lock may be stopped.
pub(super) const SELECT_LOST: &str = concat!(
    "SELECT id, epoch, attempt, coalesce(turn, ''), tenant, principal FROM task WHERE ",
    is_lost!(),
    " AND ",
    is_alive!("$1"),
    " AND (CAST($3 AS BIGINT) = 1 OR coalesce(turn, '') = '' OR attempt >= 2 OR cancel_asked = epoch)
    LIMIT CAST($2 AS BIGINT) FOR UPDATE SKIP LOCKED"
);

/// Takes a lost task in the epoch and the attempt in which the task was found, so that this replica owns the task in
/// the next epoch. The column is 1 for a task that was to be cancelled. A locked task is left to the next call.
pub(super) const TAKE_LOST: &str = concat!(
    "WITH lost AS MATERIALIZED (SELECT id FROM task
        WHERE id = $2 AND epoch = $3 AND attempt = $4 AND ",
    is_lost!(),
    " AND ",
    is_alive!("$1"),
    " FOR UPDATE SKIP LOCKED)
    UPDATE task SET runner = $1, epoch = epoch + 1,
        attempt = attempt + CASE WHEN attempt < 2 AND cancel_asked IS DISTINCT FROM epoch AND turn <> '' THEN 1 ELSE 0 END
    FROM lost WHERE task.id = lost.id
    RETURNING CAST(CASE WHEN cancel_asked = epoch - 1 THEN 1 ELSE 0 END AS BIGINT)"
);

/// Like [`TAKE_LOST`], after an attempt that seemed to fail and may have taken the task.
pub(super) const TAKE_LOST_AGAIN: &str = concat!(
    "UPDATE task SET runner = $1, epoch = $3 + 1,
        attempt = attempt + CASE WHEN epoch = $3 AND attempt < 2 AND cancel_asked IS DISTINCT FROM epoch AND turn <> ''
            THEN 1 ELSE 0 END
    WHERE id = $2 AND (epoch = $3 AND attempt = $4 AND ",
    is_lost!(),
    " OR epoch = $3 + 1 AND runner = $1) AND finished_at IS NULL AND ",
    is_alive!("$1"),
    " RETURNING CAST(CASE WHEN cancel_asked = epoch - 1 THEN 1 ELSE 0 END AS BIGINT)"
);

pub(super) const SELECT_TAKEN: &str =
    concat!("SELECT ", stored_task!(), " FROM task WHERE id = $1 AND runner = $2 AND finished_at IS NULL");

/// Takes a task from any runner. The epoch guarantees that no other process has taken the task since.
pub(super) const TAKE: &str = concat!(
    "
    UPDATE task SET runner = $1, epoch = epoch + 1
    WHERE id = $2 AND epoch = $3 AND finished_at IS NULL AND ",
    is_alive!("$1"),
    " RETURNING seq, epoch"
);

/// Like [`TAKE`], after an attempt that seemed to fail and may have taken the task.
pub(super) const TAKE_AGAIN: &str = concat!(
    "
    UPDATE task SET runner = $1, epoch = $3 + 1
    WHERE id = $2 AND (epoch = $3 OR (epoch = $3 + 1 AND runner = $1)) AND finished_at IS NULL AND ",
    is_alive!("$1"),
    " RETURNING seq, epoch"
);

/// An empty id belongs to no replica, so the task counts as a task of an ended replica.
pub(super) const HAND_OVER: &str = "
    UPDATE task SET runner = '', attempt = attempt - CAST($4 AS BIGINT)
    WHERE id = $1 AND epoch = $2 AND runner = $3 AND finished_at IS NULL RETURNING id";

/// The second column is 1 if the replica with the task is alive.
pub(super) const ASK_TO_CANCEL: &str = concat!(
    "
    UPDATE task SET cancel_asked = epoch WHERE id = $1 AND runner IS NOT NULL AND finished_at IS NULL
    RETURNING epoch, CAST(CASE WHEN ",
    is_alive!("task.runner"),
    " THEN 1 ELSE 0 END AS BIGINT)"
);

pub(super) const COUNT_TASKS: &str = "SELECT count(*) FROM task WHERE tenant = $1";

/// Tasks that other processes have taken or want to cancel, among the ids and epochs in a JSON array.
pub(super) const SELECT_TO_STOP: &str = "
    SELECT running.id FROM json_to_recordset(CAST($1 AS json)) AS running (id TEXT, number BIGINT)
    JOIN task ON task.id = running.id
    WHERE task.epoch > running.number OR (task.epoch = running.number AND task.cancel_asked = task.epoch)";

/// A task that cannot be read is not looked at again and again.
pub(super) const RELEASE: &str = "UPDATE task SET runner = NULL WHERE id = $1 AND seq = $2";

pub(super) const COUNT_RUNNING: &str =
    concat!("SELECT count(*) FROM task WHERE tenant = $1 AND runner IN ", living_replicas!());

pub(super) const COUNT_LIVING: &str = concat!("SELECT count(*) FROM ", living_replicas!(), " AS living");

pub(super) const PROBE: &str = "SELECT id FROM task LIMIT 1";

/// Tasks that wait and are more than their owner may have, the younger ones counted first, or have waited since before a
/// time.
pub(super) const SELECT_OVERDUE: &str = "
    SELECT id, tenant, principal FROM (
        SELECT id, tenant, principal, status_at, row_number() OVER (
            PARTITION BY tenant, principal ORDER BY status_at DESC, id DESC) AS place
        FROM task
        WHERE finished_at IS NULL AND state IN ('TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_AUTH_REQUIRED')) AS waiting
    WHERE place > CASE WHEN principal = '' THEN $1 ELSE $2 END OR status_at < $3
    ORDER BY status_at, id LIMIT CAST($4 AS BIGINT) OFFSET CAST($5 AS BIGINT)";

/// The tenants with more finished tasks than a count, or with a task that finished before a time. Reads an index and no
/// task.
pub(super) const TENANTS_TO_SWEEP: &str = "
    SELECT tenant FROM task WHERE finished_at IS NOT NULL
    GROUP BY tenant HAVING count(*) > $1 OR min(finished_at) < $2";

pub(super) const COUNT_FINISHED: &str = "SELECT count(*) FROM task WHERE tenant = $1 AND finished_at IS NOT NULL";

/// Messages of what [`DELETE_OLDEST`] deletes with the same parameters.
pub(super) const FORGET_OLDEST: &str = "
    DELETE FROM message_seen WHERE task_id IN (
        SELECT id FROM task WHERE tenant = $3 AND finished_at < $1 ORDER BY finished_at, id LIMIT CAST($2 AS BIGINT))";

/// Pins of what [`DELETE_OLDEST`] deletes with the same parameters.
pub(super) const FORGET_PINS: &str = "
    DELETE FROM task_pin WHERE task_id IN (
        SELECT id FROM task WHERE tenant = $3 AND finished_at < $1 ORDER BY finished_at, id LIMIT CAST($2 AS BIGINT))";

/// Pins that were kept before a time and whose task never came to be.
pub(super) const FORGET_LOST_PINS: &str = "
    DELETE FROM task_pin WHERE task_id IN (
        SELECT task_id FROM task_pin
        WHERE kept_at < $1 AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = task_pin.task_id)
        ORDER BY kept_at LIMIT CAST($2 AS BIGINT))";

/// The oldest tasks of a tenant that finished before a time, with their events and configs.
pub(super) const DELETE_OLDEST: &str = "
    DELETE FROM task WHERE id IN (
        SELECT id FROM task WHERE tenant = $3 AND finished_at < $1 ORDER BY finished_at, id LIMIT CAST($2 AS BIGINT))";

//! The statements in the SQL that SQLite and PostgreSQL share.
//!
//! Parameters of `LIMIT` are cast. Without the cast, SQLite plans the statement again for each value.

use annex_database::{OfFirst, Rows};

/// The columns of a task in an `INSERT`, except the id of its conversation.
macro_rules! task_columns {
    () => {
        "id, tenant, principal, context_id, state, status_at, finished_at, number, json, pins, upstream, replica, epoch, resume,
        attempts, is_accepted, has_begun"
    };
}

/// A row whose first value is the `id` of the conversation with the names `$1` to `$4`.
macro_rules! of_named {
    ($rest:literal) => {
        concat!(
            "
    ((SELECT id FROM conversation WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4), ",
            $rest,
            ")"
        )
    };
}

/// Inserts a task, or updates the task if it exists. A task without a replica has no turn.
pub(super) static PUT_TASK: Rows = Rows {
    head: concat!("\n    INSERT INTO task (conversation_id, ", task_columns!(), ") VALUES"),
    row: of_named!("$5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21"),
    parameters: 21,
    tail: "
    ON CONFLICT (id) DO UPDATE SET state = excluded.state, status_at = excluded.status_at,
        finished_at = excluded.finished_at, number = excluded.number, json = excluded.json,
        pins = coalesce(excluded.pins, task.pins), upstream = coalesce(excluded.upstream, task.upstream),
        replica = excluded.replica, epoch = excluded.epoch,
        resume = CASE WHEN excluded.replica IS NULL THEN NULL WHEN task.has_begun = 0 THEN excluded.resume
            ELSE task.resume END,
        attempts = CASE WHEN excluded.replica IS NOT NULL AND task.has_begun = 1 AND task.attempts > excluded.attempts
            THEN task.attempts ELSE excluded.attempts END,
        is_accepted = excluded.is_accepted, has_begun = excluded.has_begun,
        is_cancelled = CASE WHEN excluded.replica IS NULL THEN 0 ELSE task.is_cancelled END",
    of_first: Some(OfFirst {
        key: 4,
        row: "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
    }),
};

pub(super) static INSERT_ENTRIES: Rows = Rows {
    head: "\n    INSERT INTO log_entry (conversation_id, task_id, number, kind, json) VALUES",
    row: of_named!("$5, $6, $7, $8"),
    parameters: 8,
    tail: "",
    of_first: Some(OfFirst { key: 4, row: "($1, $2, $3, $4)" }),
};

/// Inserts or updates keys of a conversation. An existing key keeps its position.
pub(super) static PUT_KEYS: Rows = Rows {
    head: "\n    INSERT INTO conversation_state (conversation_id, name, value, size, position) VALUES",
    row: of_named!("$5, $6, $7, $8"),
    parameters: 8,
    tail: " ON CONFLICT (conversation_id, name) DO UPDATE SET value = excluded.value, size = excluded.size",
    of_first: Some(OfFirst { key: 4, row: "($1, $2, $3, $4)" }),
};

/// Inserts artifacts, or replaces them by new versions.
pub(super) static PUT_ARTIFACTS: Rows = Rows {
    head: "\n    INSERT INTO artifact (conversation_id, name, version, parts, size, position) VALUES",
    row: of_named!("$5, 1, $6, $7, $8"),
    parameters: 8,
    tail: " ON CONFLICT (conversation_id, name) DO UPDATE SET version = artifact.version + 1, parts = excluded.parts,
        size = excluded.size, position = excluded.position",
    of_first: Some(OfFirst { key: 4, row: "($1, 1, $2, $3, $4)" }),
};

/// Marks the message of a turn as accepted, and stores the answer to the message if there is one.
pub(super) static ACCEPT_MESSAGE: Rows = Rows {
    head: "
    INSERT INTO message (conversation_id, tenant, principal, context_id, message_id, digest, task_id, claimed_at, answer,
        claim) VALUES",
    row: of_named!("$5, $6, $7, $8, $9, $10, $11, $12, 0"),
    parameters: 12,
    tail: "
    ON CONFLICT (tenant, principal, context_id, message_id) DO UPDATE SET
        replica = NULL, conversation_id = excluded.conversation_id, answer = coalesce(excluded.answer, message.answer)",
    of_first: Some(OfFirst { key: 4, row: "($1, $2, $3, $4, $5, $6, $7, $8, 0)" }),
};

/// The first column of the rows of `select_conversation!` tells what a row contains. This value marks the row of the
/// conversation itself. A smaller value marks a key of the scope with that index in `STORED`.
pub(super) const CONVERSATION_ROW: i64 = 3;
pub(super) const ENTRY_ROW: i64 = 4;
/// Marks the row about the queue: the turns in the queue, [`LATE`] or an empty text, and the number of events when the turn
/// entered.
pub(super) const ENTERED_ROW: i64 = 5;
/// The text in the row about the queue if another turn of the same task entered at the same time.
pub(super) const LATE: &str = "late";

/// Reads a conversation at one moment: its row, all keys that it sees, and its latest events. `$before` is SQL before the
/// subquery `found`, and `$after` adds rows to the result.
macro_rules! select_conversation {
    ($before:expr, $after:expr) => {
        concat!(
            "
    WITH ",
            $before,
            "
    found AS (
        SELECT id, number, updated_at, cleared, upstream, receipt FROM conversation
        WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4)
    SELECT CAST(3 AS BIGINT), coalesce(upstream, ''), coalesce(receipt, ''), number, updated_at FROM found",
            $after,
            "
    UNION ALL
    SELECT CAST(0 AS BIGINT), name, value, position, CAST(0 AS BIGINT) FROM conversation_state
    WHERE conversation_id = (SELECT id FROM found)
    UNION ALL
    SELECT CAST(1 AS BIGINT), name, value, position, CAST(0 AS BIGINT) FROM user_state
    WHERE tenant = $1 AND app = $2 AND user_id = $3
    UNION ALL
    SELECT CAST(2 AS BIGINT), name, value, position, CAST(0 AS BIGINT) FROM app_state WHERE tenant = $1 AND app = $2
    UNION ALL
    SELECT CAST(4 AS BIGINT), kind, json, seq, CAST(0 AS BIGINT) FROM (
        SELECT seq, kind, json, SUM(OCTET_LENGTH(json)) OVER (ORDER BY seq DESC) AS bytes FROM (
            SELECT seq, kind, json FROM log_entry
            WHERE conversation_id = (SELECT id FROM found) AND kind IN ('message', 'event')
                AND seq > (SELECT cleared FROM found)
            ORDER BY seq DESC LIMIT CAST($5 AS BIGINT)) AS latest) AS sized
    WHERE bytes <= $6"
        )
    };
}

pub(super) const SELECT_CONVERSATION: &str = select_conversation!("", "");

/// Marks the task as having a turn, when the turn has entered a queue. The row of a new task is inserted only if the
/// turn has to wait.
macro_rules! take_task {
    () => {
        concat!(
            "INSERT INTO task (conversation_id, ",
            task_columns!(),
            ")
        SELECT entered.id, $10, $1, $12, $4, 'TASK_STATE_SUBMITTED', $7, CAST(NULL AS BIGINT), 0, $13,
            CAST(NULL AS TEXT), CAST(NULL AS TEXT), $9, $14, $15, 0,
            CASE WHEN entered.turns = $8 THEN 0 ELSE 1 END, 0
        FROM entered WHERE entered.turns <> $8 OR EXISTS (SELECT 1 FROM task WHERE task.id = $10)
        ON CONFLICT (id) DO UPDATE SET replica = excluded.replica, epoch = excluded.epoch, resume = excluded.resume,
            attempts = 0, is_accepted = excluded.is_accepted, has_begun = 0, is_cancelled = 0
        WHERE task.replica IS NULL"
        )
    };
}

pub(super) use {select_conversation, take_task, task_columns};

pub(super) const SELECT_TURNS: &str = "
    SELECT turns FROM conversation WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4";

pub(super) const INSERT_CONVERSATION: &str = "
    INSERT INTO conversation (tenant, app, user_id, context_id, number, updated_at, changed_at, turns)
    VALUES ($1, $2, $3, $4, 0, $5, $5, '') ON CONFLICT (tenant, app, user_id, context_id) DO NOTHING";

/// Changes the row of a conversation in an append. All checks were made before.
pub(super) const CHANGE_CONVERSATION: &str = "
    UPDATE conversation SET number = $2, updated_at = coalesce($3, updated_at), changed_at = $4,
        upstream = coalesce($5, upstream), receipt = coalesce($7, receipt),
        turns = replace(turns, $6, ''), orphan = CASE WHEN $6 = '' THEN orphan END
    WHERE id = $1";

/// Removes a turn from the queue of its conversation.
pub(super) const REMOVE_TURN: &str = "
    UPDATE conversation SET turns = replace(turns, $5, '')
    WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4 RETURNING id";

/// Replaces the fence of a turn in the queue of its conversation. A turn that is missing in the queue is added at the end,
/// because its task would otherwise never end.
pub(super) const MOVE_TURN: &str = "
    UPDATE conversation SET turns = CASE WHEN length(replace(turns, $2, '')) < length(turns) THEN replace(turns, $2, $3)
        ELSE turns || $3 END, orphan = CASE WHEN orphan = $2 THEN $3 ELSE orphan END
    WHERE id = $1";

/// Deletes a conversation without events, turns and tasks. Such a row was only inserted for its queue.
pub(super) const FORGET_CONVERSATION: &str = "
    DELETE FROM conversation WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4 AND number = 0
        AND turns = '' AND NOT EXISTS (SELECT 1 FROM task WHERE task.conversation_id = conversation.id)";

pub(super) const SELECT_NUMBER: &str = "SELECT conversation_id, number FROM task WHERE id = $1";

/// Selects the entries of a task after a number. If they are the entries of an append, that append was stored before.
pub(super) const SELECT_WRITTEN: &str = "
    SELECT kind, json FROM log_entry WHERE task_id = $1 AND number > $2 ORDER BY number LIMIT CAST($3 AS BIGINT)";

pub(super) const DELETE_TASK: &str = "DELETE FROM task WHERE id = $1";

/// Deletes a SUBMITTED task without entries, which was stored only because its turn had to wait.
pub(super) const FORGET_TASK: &str = "DELETE FROM task WHERE id = $1 AND number = 0";

/// Marks a task as having no turn any more.
pub(super) const REST_TASK: &str = "
    UPDATE task SET replica = NULL, epoch = NULL, resume = NULL, attempts = 0, is_accepted = 0, has_begun = 0, is_cancelled = 0
    WHERE id = $1 AND replica = $2 AND epoch = $3";

/// Selects a turn that a process has taken over, in the columns that the statement `take` returns.
pub(super) const SELECT_TAKEN: &str = "
    SELECT conversation_id, coalesce(resume, ''), has_begun, attempts - 1, is_cancelled, is_accepted FROM task
    WHERE replica = $1 AND epoch = $2 AND id = $3";

/// Leaves the turn of a task to other processes. The empty id stands for no replica.
pub(super) const HAND_OVER: &str = "
    UPDATE task SET replica = '', epoch = $4, attempts = CASE WHEN attempts > $5 THEN attempts - $5 ELSE 0 END
    WHERE id = $1 AND replica = $2 AND epoch = $3 RETURNING conversation_id";

pub(super) const FORGET_CLAIMS_OF_TASK: &str = "DELETE FROM message WHERE task_id = $1";

/// The columns of a stored task.
macro_rules! stored_task {
    () => {
        "task.id, task.number, task.json, CAST(CASE WHEN task.finished_at IS NOT NULL THEN 2 WHEN task.replica IS NOT NULL THEN 1
            ELSE 0 END AS BIGINT), coalesce(task.pins, ''), coalesce(task.upstream, ''), conversation.tenant,
        conversation.app, conversation.user_id, conversation.context_id"
    };
}

pub(super) const SELECT_TASK: &str = concat!(
    "
    SELECT ",
    stored_task!(),
    " FROM task JOIN conversation ON conversation.id = task.conversation_id WHERE task.id = $1"
);

/// Selects entries of a task up to `$4` bytes in total. The first entry is selected even if it is larger. The sizes are summed
/// up before any JSON is read.
pub(super) const SELECT_ENTRIES: &str = "
    SELECT number, kind, json FROM (
        SELECT number, kind, json, sum(octet_length(json)) OVER (ORDER BY number) AS up_to,
            row_number() OVER (ORDER BY number) AS position
        FROM (SELECT number, kind, json FROM log_entry
            WHERE task_id = $1 AND number > $2 ORDER BY number LIMIT CAST($3 AS BIGINT)) AS following) AS sized
    WHERE up_to <= $4 OR position = 1 ORDER BY number";

/// Selects one page of tasks up to `$9` bytes of JSON in total. The first task is selected even if it is larger. The last
/// column is the number of rows without the limit on bytes. `$context` is a condition, so that a list of one context and a list
/// of all contexts each use their own index.
macro_rules! page {
    ($context:literal) => {
        concat!(
            "
    WITH page AS (
        SELECT id, status_at, octet_length(json) + CASE WHEN json <> '' THEN 0 ELSE (
            SELECT coalesce(sum(octet_length(log_entry.json)), 0) FROM log_entry
            WHERE log_entry.task_id = task.id) END AS size
        FROM task
        WHERE tenant = $1 AND principal = $2 AND ($3 = '' OR state = $3) AND status_at >= $4 AND ",
            $context,
            " AND (status_at, id) < ($6, $7)
        ORDER BY status_at DESC, id DESC LIMIT CAST($8 AS BIGINT)),
    sized AS (
        SELECT id, sum(size) OVER (ORDER BY status_at DESC, id DESC) AS up_to, size, count(*) OVER () AS found
        FROM page)
    SELECT ",
            stored_task!(),
            ", task.status_at, sized.found FROM sized CROSS JOIN task CROSS JOIN conversation
    WHERE task.id = sized.id AND conversation.id = task.conversation_id
        AND (sized.up_to <= $9 OR sized.up_to = sized.size)
    ORDER BY task.status_at DESC, task.id DESC"
        )
    };
}

pub(super) const PAGE_OF_OWNER: &str = page!("$5 = ''");
pub(super) const PAGE_OF_CONTEXT: &str = page!("context_id = $5");

pub(super) const COUNT_OF_OWNER: &str = "
    SELECT count(*) FROM task
    WHERE tenant = $1 AND principal = $2 AND ($3 = '' OR state = $3) AND status_at >= $4";

pub(super) const COUNT_OF_CONTEXT: &str = "
    SELECT count(*) FROM task
    WHERE tenant = $1 AND principal = $2 AND ($3 = '' OR state = $3) AND status_at >= $4 AND context_id = $5";

pub(super) const RELEASE_CLAIM: &str = "
    DELETE FROM message WHERE tenant = $1 AND principal = $2 AND context_id = $3 AND message_id = $4 AND replica = $5
        AND claim = $6";

pub(super) const PROBE: &str = "SELECT id FROM task LIMIT 1";

// State keys and artifacts.

pub(super) const SELECT_OWN_KEYS: &str =
    "SELECT name, size, position FROM conversation_state WHERE conversation_id = $1";

pub(super) const SELECT_USER_KEYS: &str = "
    SELECT name, size, position FROM user_state WHERE tenant = $1 AND app = $2 AND user_id = $3";

pub(super) const SELECT_APP_KEYS: &str = "SELECT name, size, position FROM app_state WHERE tenant = $1 AND app = $2";

pub(super) const PUT_OWN_KEY: &str = "
    INSERT INTO conversation_state (name, value, size, position, conversation_id) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (conversation_id, name) DO UPDATE SET value = excluded.value, size = excluded.size";

pub(super) const PUT_USER_KEY: &str = "
    INSERT INTO user_state (name, value, size, position, tenant, app, user_id) VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (tenant, app, user_id, name) DO UPDATE SET value = excluded.value, size = excluded.size";

pub(super) const PUT_APP_KEY: &str = "
    INSERT INTO app_state (name, value, size, position, tenant, app) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (tenant, app, name) DO UPDATE SET value = excluded.value, size = excluded.size";

pub(super) const DELETE_OWN_KEY: &str = "DELETE FROM conversation_state WHERE name = $1 AND conversation_id = $2";

pub(super) const DELETE_USER_KEY: &str =
    "DELETE FROM user_state WHERE name = $1 AND tenant = $2 AND app = $3 AND user_id = $4";

pub(super) const DELETE_APP_KEY: &str = "DELETE FROM app_state WHERE name = $1 AND tenant = $2 AND app = $3";

pub(super) const DELETE_USER_KEYS: &str = "DELETE FROM user_state WHERE tenant = $1 AND app = $2 AND user_id = $3";

pub(super) const SELECT_ARTIFACT: &str = "
    SELECT version, parts FROM artifact WHERE name = $5 AND conversation_id = (
        SELECT id FROM conversation WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4)";

/// Selects the artifacts of a conversation. The artifact that was written last comes first.
pub(super) const SELECT_ARTIFACTS: &str = "
    SELECT name, size, position FROM artifact WHERE conversation_id = $1 ORDER BY position DESC";

pub(super) const PUT_ARTIFACT: &str = "
    INSERT INTO artifact (conversation_id, name, version, parts, size, position) VALUES ($1, $2, 1, $3, $4, $5)
    ON CONFLICT (conversation_id, name) DO UPDATE SET
        version = artifact.version + 1, parts = excluded.parts, size = excluded.size, position = excluded.position";

pub(super) const DELETE_ARTIFACT: &str = "DELETE FROM artifact WHERE conversation_id = $1 AND name = $2";

// The history.

/// Removes all events from the history except the latest ones.
pub(super) const TRIM_HISTORY: &str = "
    UPDATE conversation SET cleared = coalesce((
        SELECT seq FROM log_entry WHERE conversation_id = $1 AND kind IN ('message', 'event')
        ORDER BY seq DESC LIMIT 1 OFFSET CAST($2 AS BIGINT)), cleared)
    WHERE id = $1";

/// Deletes the entries that neither the history nor a task needs.
pub(super) const DELETE_CLEARED: &str = "
    DELETE FROM log_entry WHERE conversation_id = $1
        AND seq <= (SELECT cleared FROM conversation WHERE id = $1)
        AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = log_entry.task_id)";

pub(super) const SELECT_TURN_OF_TASK: &str = "SELECT id FROM task WHERE id = $1 AND replica IS NOT NULL";

pub(super) const SELECT_ID: &str = "
    SELECT id FROM conversation WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4";

pub(super) const SELECT_TASK_OF_TURN: &str = "SELECT id, has_begun FROM task WHERE replica = $1 AND epoch = $2";

pub(super) const SELECT_NAMES: &str = "SELECT tenant, app, user_id, context_id FROM conversation WHERE id = $1";

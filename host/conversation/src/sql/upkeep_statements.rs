//! The statements of operators, of retention and of push notification configs.

pub(super) const LIST_CONVERSATIONS: &str = "
    SELECT user_id, context_id, number, updated_at FROM conversation
    WHERE tenant = $1 AND app = $2 AND (updated_at, user_id, context_id) > ($3, $4, $5) AND number > 0
    ORDER BY updated_at, user_id, context_id LIMIT CAST($6 AS BIGINT)";

pub(super) const LIST_CONVERSATIONS_OF_USER: &str = "
    SELECT user_id, context_id, number, updated_at FROM conversation
    WHERE tenant = $1 AND app = $2 AND (updated_at, user_id, context_id) > ($3, $4, $5) AND user_id = $7 AND number > 0
    ORDER BY updated_at, user_id, context_id LIMIT CAST($6 AS BIGINT)";

pub(super) const USERS_IN: &str = "
    SELECT user_id FROM conversation WHERE tenant = $1 AND app = $2 AND context_id = $3 AND number > 0
    ORDER BY user_id LIMIT CAST($4 AS BIGINT)";

/// Ends the history of a conversation that matches `$more`, and returns the id and the queue of the conversation.
macro_rules! clear {
    ($more:literal) => {
        concat!(
            "
    UPDATE conversation SET number = 0, upstream = NULL, receipt = NULL,
        cleared = coalesce((SELECT max(seq) FROM log_entry WHERE log_entry.conversation_id = conversation.id), 0)
    WHERE tenant = $1 AND app = $2 AND user_id = $3 AND context_id = $4 AND number > 0",
            $more,
            "
    RETURNING id, turns"
        )
    };
}

/// Ends the history of a conversation, even if a turn runs. The running turn must not begin a new history, so [`SET_ORPHAN`]
/// then stores the fence of that turn.
pub(super) const CLEAR_CONVERSATION: &str = clear!("");

/// Ends the history of a conversation, unless the conversation has a turn or has changed since [`OLD_CONVERSATIONS`] found it.
pub(super) const CLEAR_OLD_CONVERSATION: &str = clear!(" AND turns = '' AND changed_at = $5");

pub(super) const SET_ORPHAN: &str = "UPDATE conversation SET orphan = $2 WHERE id = $1";

pub(super) const DELETE_OWN_KEYS: &str = "DELETE FROM conversation_state WHERE conversation_id = $1";
pub(super) const DELETE_ARTIFACTS: &str = "DELETE FROM artifact WHERE conversation_id = $1";

pub(super) const COUNT_HOLDINGS: &str = "
    SELECT (SELECT count(*) FROM conversation WHERE tenant = $1 AND number > 0), CAST(
        (SELECT coalesce(sum(size), 0) FROM conversation_state
            JOIN conversation ON conversation.id = conversation_id WHERE tenant = $1)
        + (SELECT coalesce(sum(size), 0) FROM user_state WHERE tenant = $1)
        + (SELECT coalesce(sum(size), 0) FROM app_state WHERE tenant = $1) AS BIGINT),
        (SELECT count(*) FROM task WHERE tenant = $1),
        (SELECT count(*) FROM task WHERE tenant = $1 AND replica IS NOT NULL)";

/// Selects conversations without a turn that are too old, of all tenants.
pub(super) const OLD_CONVERSATIONS: &str = "
    SELECT tenant, app, user_id, context_id, changed_at FROM conversation
    WHERE number > 0 AND turns = '' AND changed_at < $1
    ORDER BY changed_at LIMIT CAST($2 AS BIGINT)";

/// Selects the tenants with too many conversations. Reads all entries of one index, and no table.
pub(super) const TENANTS_WITH_SURPLUS_CONVERSATIONS: &str = "
    SELECT tenant FROM conversation WHERE number > 0 GROUP BY tenant HAVING count(*) > $1";

/// Selects conversations without a turn, of a tenant that has too many newer conversations.
pub(super) const SURPLUS_CONVERSATIONS: &str = "
    SELECT tenant, app, user_id, context_id, changed_at FROM conversation WHERE turns = '' AND id IN (
        SELECT id FROM conversation WHERE tenant = $1 AND number > 0
        ORDER BY changed_at DESC, id DESC LIMIT CAST($3 AS BIGINT) OFFSET CAST($2 AS BIGINT))";

/// Selects the queues of conversations in which nobody has said anything, and whose turns have no task yet.
pub(super) const IDLE_QUEUES: &str = "
    SELECT id, turns FROM conversation WHERE number = 0 AND turns <> '' AND changed_at < $1
        AND NOT EXISTS (SELECT 1 FROM task WHERE task.conversation_id = conversation.id)
    ORDER BY changed_at LIMIT CAST($2 AS BIGINT)";

/// Removes all turns from a queue, unless it has changed.
pub(super) const FORGET_QUEUE: &str = "UPDATE conversation SET turns = '' WHERE id = $1 AND turns = $2 AND number = 0";

/// Deletes rows that have neither a history nor tasks nor turns.
pub(super) const DELETE_EMPTY: &str = "
    DELETE FROM conversation WHERE number = 0 AND turns = '' AND changed_at < $1
        AND NOT EXISTS (SELECT 1 FROM task WHERE task.conversation_id = conversation.id)";

/// Selects finished tasks that are too old, of all tenants.
pub(super) const OLD_TASKS: &str = "
    SELECT id FROM task WHERE finished_at IS NOT NULL AND finished_at < $1
    ORDER BY finished_at, id LIMIT CAST($2 AS BIGINT)";

/// Selects the tenants with too many finished tasks. Reads all entries of one index, and no table.
pub(super) const TENANTS_WITH_SURPLUS_TASKS: &str = "
    SELECT tenant FROM task WHERE finished_at IS NOT NULL GROUP BY tenant HAVING count(*) > $1";

/// Selects finished tasks of a tenant that has too many newer ones.
pub(super) const SURPLUS_TASKS: &str = "
    SELECT id FROM task WHERE finished_at IS NOT NULL AND tenant = $1
    ORDER BY finished_at DESC, id DESC LIMIT CAST($3 AS BIGINT) OFFSET CAST($2 AS BIGINT)";

/// Deletes the entries of a task. Entries in the history of the conversation stay.
pub(super) const DELETE_ENTRIES_OF_TASK: &str = "
    DELETE FROM log_entry WHERE task_id = $1 AND (kind NOT IN ('message', 'event')
        OR seq <= (SELECT cleared FROM conversation WHERE conversation.id = log_entry.conversation_id))";

pub(super) const SELECT_OVERDUE: &str = "
    SELECT id FROM (
        SELECT id, principal, status_at, row_number() OVER (
            PARTITION BY tenant, principal ORDER BY status_at DESC, id DESC) AS position
        FROM task WHERE finished_at IS NULL AND replica IS NULL) AS waiting
    WHERE position > CASE WHEN principal = '' THEN $1 ELSE $2 END OR status_at < $3
    ORDER BY status_at, id LIMIT CAST($4 AS BIGINT)";

pub(super) const FORGET_OLD_ANSWERS: &str = "
    DELETE FROM message WHERE (tenant, principal, context_id, message_id) IN (
        SELECT tenant, principal, context_id, message_id FROM (
            SELECT tenant, principal, context_id, message_id, claimed_at,
                row_number() OVER (PARTITION BY tenant ORDER BY claimed_at DESC, message_id DESC) AS position
            FROM message WHERE answer IS NOT NULL) AS answered
        WHERE position > $1 OR claimed_at < $2)";

pub(super) const FORGET_OLD_CLAIMS: &str = "
    DELETE FROM message WHERE claimed_at < $1 AND answer IS NULL
        AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = message.task_id)";

// Push notification configs.

// An update that changes nothing, because SQLite has no `SELECT … FOR UPDATE`.
pub(super) const LOCK_TASK: &str = "UPDATE task SET number = number WHERE id = $1";

pub(super) const COUNT_OTHER_CONFIGS: &str = "SELECT count(*) FROM push_config WHERE task_id = $1 AND id <> $2";

pub(super) const PUT_CONFIG: &str = "
    INSERT INTO push_config (task_id, id, json) VALUES ($1, $2, $3)
    ON CONFLICT (task_id, id) DO UPDATE SET json = excluded.json";

pub(super) const SELECT_CONFIG: &str = "SELECT json FROM push_config WHERE task_id = $1 AND id = $2";

pub(super) const SELECT_CONFIGS: &str = "
    SELECT json FROM push_config WHERE task_id = $1 AND id > $2 ORDER BY id LIMIT CAST($3 AS BIGINT)";

pub(super) const DELETE_CONFIG: &str = "DELETE FROM push_config WHERE task_id = $1 AND id = $2";

//! The statements of editions.

use crate::{is_alive, living_replicas};

pub(super) const TOUCH: &str = "
    UPDATE component SET kept_at = clock_timestamp()
    WHERE digest IN (SELECT json_array_elements_text($1::json)) RETURNING digest";

pub(super) const KEEP: &str = "
    INSERT INTO component (digest, bytes) VALUES ($1, $2)
    ON CONFLICT (digest) DO UPDATE SET kept_at = clock_timestamp()";

pub(super) const SELECT_BYTES: &str = "SELECT bytes FROM component WHERE digest = $1";

pub(super) const SELECT_CURRENT: &str = "
    SELECT number, config, sources, cards, renewals FROM edition WHERE tenant = $1 AND state = 'accepted'
    ORDER BY number DESC LIMIT 1";

pub(super) const SELECT_EDITION: &str = "
    SELECT number, config, sources, cards, renewals FROM edition
    WHERE tenant = $1 AND number = $2 AND state <> 'withdrawn'";

pub(super) const SELECT_SEEN: &str = "
    SELECT number FROM edition WHERE tenant = $1 AND state = 'accepted' AND config = $2 LIMIT 1";

pub(super) const SELECT_OTHERS: &str = concat!(
    "
    SELECT replica FROM edition_replica
    WHERE tenant = $1 AND replica <> $2 AND replica IN ",
    living_replicas!(),
    " LIMIT 1"
);

/// Withdraws proposals whose time limit has passed or whose proposer lost its lease. Such proposals would block other
/// proposals.
pub(super) const WITHDRAW_LEFT: &str = concat!(
    "
    UPDATE edition SET state = 'withdrawn'
    WHERE state = 'proposed' AND (until < clock_timestamp() OR NOT ",
    is_alive!("edition.proposer"),
    ")
    RETURNING number"
);

/// Inserts a proposal. Of two simultaneous proposals for an agent, the second finds its number taken and inserts nothing.
pub(super) const PROPOSE: &str = concat!(
    "
    WITH made AS (
        INSERT INTO edition (tenant, number, parent, state, proposer, until, config, sources, cards)
        SELECT $1, coalesce((SELECT max(number) FROM edition WHERE tenant = $1), 0) + 1, $2, 'proposed', $3,
            clock_timestamp() + $4::bigint * INTERVAL '1 millisecond', $5, $6, $7
        WHERE $2 = coalesce((SELECT max(number) FROM edition WHERE tenant = $1 AND state = 'accepted'), 0)
            AND NOT EXISTS (SELECT 1 FROM edition WHERE tenant = $1 AND state = 'proposed') AND ",
    is_alive!("$3"),
    "
        ON CONFLICT DO NOTHING
        RETURNING tenant, number
    ), named AS (
        INSERT INTO edition_component (tenant, number, digest)
        SELECT made.tenant, made.number, digests.digest FROM made, json_array_elements_text($8::json) AS digests (digest)
    )
    SELECT number FROM made"
);

/// The number of the proposal that a process has made for an agent. An agent has at most one proposal at a time.
pub(super) const SELECT_PROPOSED: &str =
    "SELECT number FROM edition WHERE tenant = $1 AND parent = $2 AND state = 'proposed' AND proposer = $3";

/// The reports on a proposal, without the report of the proposer. The second column is 0 for a replica that has not tried the
/// proposal, 1 for a replica that can serve it, and 2 for a replica that cannot serve it.
pub(super) const SELECT_REPORTS: &str = concat!(
    "
    SELECT coalesce(replica.name, replica.id),
        (CASE WHEN serving.tried IS DISTINCT FROM $2 THEN 0 WHEN serving.reason IS NULL THEN 1 ELSE 2 END)::bigint,
        coalesce(serving.reason, '')
    FROM edition_replica AS serving JOIN replica ON replica.id = serving.replica
    WHERE serving.tenant = $1 AND serving.replica <> $3 AND serving.replica IN ",
    living_replicas!()
);

/// Accepts a proposal. No other statement accepts proposals.
pub(super) const CONCLUDE: &str = concat!(
    "
    UPDATE edition SET state = 'accepted'
    WHERE tenant = $1 AND number = $2 AND state = 'proposed' AND proposer = $3 AND until > clock_timestamp() AND ",
    is_alive!("$3"),
    " AND NOT EXISTS (
            SELECT 1 FROM edition_replica AS serving
            WHERE serving.tenant = $1 AND serving.replica <> $3 AND serving.replica IN ",
    living_replicas!(),
    "
                AND (serving.tried IS DISTINCT FROM $2 OR ($4::bigint = 0 AND serving.reason IS NOT NULL)))
    RETURNING number"
);

pub(super) const WITHDRAW: &str = "
    UPDATE edition SET state = 'withdrawn'
    WHERE tenant = $1 AND number = $2 AND state = 'proposed' AND proposer = $3 RETURNING number";

pub(super) const SELECT_BEHIND: &str = concat!(
    "
    SELECT coalesce(replica.name, replica.id)
    FROM edition_replica AS serving JOIN replica ON replica.id = serving.replica
    WHERE serving.tenant = $1 AND serving.serves_from < $2 AND serving.replica IN ",
    living_replicas!()
);

pub(super) const JOIN: &str = concat!(
    "
    INSERT INTO edition_replica (tenant, replica, serves_from)
    SELECT joined.tenant, $1, joined.number FROM json_to_recordset($2::json) AS joined (tenant TEXT, number BIGINT)
    WHERE ",
    is_alive!("$1"),
    "
    ON CONFLICT (tenant, replica) DO UPDATE SET serves_from = excluded.serves_from, tried = NULL, reason = NULL
    RETURNING tenant"
);

pub(super) const LEAVE: &str = "DELETE FROM edition_replica WHERE tenant = $1 AND replica = $2";

pub(super) const REPORT: &str = "
    UPDATE edition_replica SET tried = $3, reason = $4 WHERE tenant = $1 AND replica = $2";

pub(super) const SERVE_FROM: &str = "
    UPDATE edition_replica SET serves_from = greatest(serves_from, $3) WHERE tenant = $1 AND replica = $2";

/// Claims the renewal of the cards of an edition. Of two simultaneous claims, the second waits for the row and then sees the
/// first.
pub(super) const CLAIM: &str = concat!(
    "
    UPDATE edition SET renewer = $4, renewed_until = clock_timestamp() + $5::bigint * INTERVAL '1 millisecond'
    WHERE tenant = $1 AND number = $2 AND state = 'accepted' AND renewals = $3
        AND (renewer IS NULL OR renewer = $4 OR renewed_until < clock_timestamp() OR NOT ",
    is_alive!("edition.renewer"),
    ") AND ",
    is_alive!("$4"),
    "
        AND NOT EXISTS (
            SELECT 1 FROM edition AS later WHERE later.tenant = $1 AND later.number > $2 AND later.state = 'accepted')
    RETURNING number"
);

/// Replaces the cards of an edition. No other statement changes the cards of an accepted edition.
pub(super) const RENEW: &str = "
    UPDATE edition SET cards = $5, renewals = renewals + 1, renewer = NULL, renewed_until = NULL
    WHERE tenant = $1 AND number = $2 AND renewals = $3 AND renewer = $4 RETURNING number";

/// The editions that a replica serves and whose cards were renewed.
pub(super) const SELECT_RENEWED: &str = "
    SELECT edition.tenant, edition.number, edition.renewals
    FROM edition_replica AS serving
        JOIN edition ON edition.tenant = serving.tenant AND edition.number = serving.serves_from
    WHERE serving.replica = $1 AND edition.renewals > 0";

/// The editions that a replica has to serve or to try, for all its agents.
pub(super) const SELECT_NEWS: &str = "
    SELECT edition.tenant, edition.number, (CASE edition.state WHEN 'accepted' THEN 1 ELSE 0 END)::bigint
    FROM edition_replica AS serving JOIN edition ON edition.tenant = serving.tenant
    WHERE serving.replica = $1 AND edition.number > serving.serves_from
        AND (edition.state = 'accepted'
            OR (edition.state = 'proposed' AND edition.proposer <> $1
                AND edition.number IS DISTINCT FROM serving.tried))
    ORDER BY edition.tenant, edition.number";

/// Deletes editions, except for the last eight of each agent, the edition in force, and proposals.
pub(super) const FORGET_EDITIONS: &str = "
    DELETE FROM edition USING (
        SELECT tenant, max(number) AS last, max(number) FILTER (WHERE state = 'accepted') AS current
        FROM edition GROUP BY tenant
    ) AS kept
    WHERE edition.tenant = kept.tenant AND edition.number <= kept.last - 8
        AND edition.number IS DISTINCT FROM kept.current AND edition.state <> 'proposed'";

pub(super) const FORGET_COMPONENTS: &str = "
    DELETE FROM component WHERE kept_at < clock_timestamp() - INTERVAL '1 hour'
        AND NOT EXISTS (SELECT 1 FROM edition_component WHERE edition_component.digest = component.digest)";

//! The statements of leases. A lease has a length of five seconds here and in `lease.rs`.

use crate::is_alive;

/// Begins a lease. A second attempt with the same id continues the same lease.
pub(crate) const BEGIN_LEASE: &str = "
    INSERT INTO replica (id, name, lease_until) VALUES ($1, $2, clock_timestamp() + INTERVAL '5 seconds')
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, lease_until = excluded.lease_until";

/// Renews a lease that is still valid.
pub(crate) const RENEW_LEASE: &str = "
    UPDATE replica SET lease_until = clock_timestamp() + INTERVAL '5 seconds'
    WHERE id = $1 AND lease_until > clock_timestamp() RETURNING id";

pub(crate) const END_LEASE: &str = "DELETE FROM replica WHERE id = $1";

pub(crate) const END_NAMED_LEASE: &str = "DELETE FROM replica WHERE name = $1";

pub(crate) const NAMED_LEASE: &str = "
    SELECT id FROM replica WHERE name = $1 AND id <> $2 AND lease_until > clock_timestamp()";

/// Deletes replicas whose leases ended more than an hour ago. Their work was taken over long before.
pub(crate) const FORGET_REPLICAS: &str = "
    DELETE FROM replica WHERE lease_until < clock_timestamp() - INTERVAL '1 hour'";

/// Deletes the turn places of replicas without a lease. Leases are compared with the time at which the statement began.
pub(crate) const FORGET_PLACES: &str =
    concat!("DELETE FROM turn_place WHERE NOT ", is_alive!("turn_place.runner", "statement_timestamp()"));

pub(crate) const DESCRIBE: &str =
    "UPDATE replica SET version = $2, address = $3, phase = $4 WHERE id = $1 RETURNING id";

/// The replicas, the oldest first.
pub(crate) const LIST: &str = "
    SELECT id, coalesce(name, ''), coalesce(version, ''), coalesce(address, ''), coalesce(phase, ''),
        CAST(extract(epoch FROM since) * 1000 AS BIGINT),
        CAST(extract(epoch FROM lease_until - clock_timestamp()) * 1000 AS BIGINT)
    FROM replica ORDER BY since, id LIMIT 1000";

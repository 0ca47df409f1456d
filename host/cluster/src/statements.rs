//! The statements. The table `replica` is made by the migrations of `host/tasks`.

// Leases of five seconds, as `lease.rs` says too.
/// The same again is the same lease.
pub(crate) const BEGIN_LEASE: &str = "
    INSERT INTO replica (id, name, lease_until) VALUES ($1, $2, clock_timestamp() + INTERVAL '5 seconds')
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, lease_until = excluded.lease_until";

pub(crate) const RENEW_LEASE: &str = "
    UPDATE replica SET lease_until = clock_timestamp() + INTERVAL '5 seconds'
    WHERE id = $1 AND lease_until > clock_timestamp() RETURNING id";

pub(crate) const END_LEASE: &str = "DELETE FROM replica WHERE id = $1";

pub(crate) const END_NAMED_LEASE: &str = "DELETE FROM replica WHERE name = $1";

pub(crate) const NAMED_LEASE: &str = "
    SELECT id FROM replica WHERE name = $1 AND id <> $2 AND lease_until > clock_timestamp()";

/// Replicas that have not been heard of for an hour. Their work was settled long before.
pub(crate) const FORGET_REPLICAS: &str = "
    DELETE FROM replica WHERE lease_until < clock_timestamp() - INTERVAL '1 hour'";

/// What the process of a lease says of itself.
pub(crate) const DESCRIBE: &str =
    "UPDATE replica SET version = $2, address = $3, phase = $4 WHERE id = $1 RETURNING id";

/// The processes, the oldest first. Those that have not been heard of for an hour are forgotten.
pub(crate) const LIST: &str = "
    SELECT id, coalesce(name, ''), coalesce(version, ''), coalesce(address, ''), coalesce(phase, ''),
        CAST(extract(epoch FROM since) * 1000 AS BIGINT),
        CAST(extract(epoch FROM lease_until - clock_timestamp()) * 1000 AS BIGINT)
    FROM replica ORDER BY since NULLS FIRST, id LIMIT 1000";

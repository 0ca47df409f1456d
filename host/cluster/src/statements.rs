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

//! Leases of processes on one PostgreSQL database, on clocks that the tests move, and the editions that processes agree on.

// Lets the lints see helper functions, too, as test code.
#![cfg(test)]

mod clock;
mod editions;
mod lease;
#[expect(dead_code, reason = "these tests only end leases of others")]
mod table;

#[path = "../../../database/tests/databases/cluster.rs"]
mod cluster;
#[path = "../../../tasks/tests/stores/wires.rs"]
#[expect(dead_code, reason = "these tests lose no single answers")]
mod wires;

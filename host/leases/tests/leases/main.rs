//! Leases of processes on one PostgreSQL database, on clocks that the tests move, and the editions that processes agree on.

// Lets the lints see helper functions, too, as test code.
#![cfg(test)]

mod clock;
mod cluster;
mod editions;
mod lease;
#[expect(dead_code, reason = "these tests only end leases of others")]
mod table;
mod turn_places;
#[expect(dead_code, reason = "these tests lose no single answers")]
mod wires;

//! Coordinates the processes that share one PostgreSQL database. This crate provides:
//!
//! - the lease of each process, and SQL that tells which leases are valid;
//! - wake-ups between processes;
//! - the places for turns, which all processes count together;
//! - editions: the extensions that all processes serve.
//!
//! This crate owns the table `replica`. A statement of another crate names the table through [`is_alive!`] and
//! [`living_replicas!`]. This crate knows neither tasks nor conversations.

#![warn(missing_docs)]

mod alive;
mod description;
mod distance;
pub mod editions;
mod lease;
mod replica;
mod statements;
mod turn_places;
pub mod wake;

pub use description::{Description, ListedReplica};
pub use lease::Lease;
pub use replica::Replica;
pub use turn_places::{TurnPlaces, TurnPlacesError};

use annex_database::Migrations;

/// The migrations of the tables of leases, editions and turn places.
pub const MIGRATIONS: Migrations = Migrations {
    table: "_lease_migrations",
    files: &[
        (1, "replicas", include_str!("../migrations/1_replicas.sql")),
        (2, "editions", include_str!("../migrations/2_editions.sql")),
        (3, "turn places", include_str!("../migrations/3_turn_places.sql")),
        (4, "renewals", include_str!("../migrations/4_renewals.sql")),
    ],
};

//! A process among others that work on one PostgreSQL database: its lease, and the replica that it is. What the processes
//! work on is decided elsewhere.

#![warn(missing_docs)]

mod lease;
mod replica;
mod statements;

pub use lease::Lease;
pub use replica::Replica;

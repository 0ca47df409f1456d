//! A process among others that work on one PostgreSQL database: its lease, the replica that it is, the way in which they wake
//! each other, and the editions that they agree on. What the processes work on is decided elsewhere.

#![warn(missing_docs)]

mod described;
pub mod editions;
mod lease;
mod replica;
mod statements;
pub mod wake;

pub use described::{Description, ListedReplica};
pub use lease::Lease;
pub use replica::Replica;

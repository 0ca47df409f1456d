//! Places of which there are few, shared by tenants: where all are taken, those that wait get them round robin over the tenants.
//!
//! So however many of one tenant wait, one of another waits for no more than one of each tenant before it. What a place is for,
//! an instance or a connection, is not known here. As long as there are places nobody waits, and taking one costs what a lock
//! does that nobody else holds.

mod line;
mod places;
mod resize;
mod scope;

pub use places::{FairPlaces, Place};
pub use resize::resize;
pub use scope::{current_tenant, of_same_tenant, of_tenant};

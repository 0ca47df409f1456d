//! A limited number of places that tenants share fairly. If all places are taken, waiting tenants get places in
//! rotation.
//!
//! However many tasks of one tenant wait, a task of another tenant waits for at most one task of each other tenant. A
//! place stands for a limited resource, such as an instance or a connection. While places are free, taking a place
//! never waits and costs one uncontended lock.

mod places;
mod resize;
mod scope;
mod tenant_queue;

pub use places::{FairPlaces, Place};
pub use resize::resize;
pub use scope::{current_tenant, of_same_tenant, of_tenant};

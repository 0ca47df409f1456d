//! The three stores in memory. Their content is lost when the process ends.

mod components;
mod tenants;
mod usage;

pub(crate) use components::MemoryComponents;
pub(crate) use tenants::MemoryTenants;
pub(crate) use usage::MemoryUsage;

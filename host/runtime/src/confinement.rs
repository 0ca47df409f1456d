//! Isolates guests. The modules contain the engine, the limits, the stores, the imports with the grants that enable
//! them, and the circuit breaker.

pub(crate) mod breaker;
pub(crate) mod engine;
pub(crate) mod grants;
pub(crate) mod guest_time;
pub(crate) mod http_sender;
pub(crate) mod imports;
pub(crate) mod instance;
pub(crate) mod kept;
pub(crate) mod limits;
pub(crate) mod linker;
pub(crate) mod pieces;
pub(crate) mod profile;
pub(crate) mod self_check;
pub(crate) mod slots;
pub(crate) mod store;

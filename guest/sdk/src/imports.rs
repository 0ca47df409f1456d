//! The host's functions: those of the contract in a component, and those of [`crate::native`] elsewhere.

#[cfg(target_arch = "wasm32")]
pub(crate) use crate::bindings::capabilities::annex::extension::{
    agent_steps, json_schema, session_state, task, task_resumption, tasks,
};
#[cfg(target_arch = "wasm32")]
pub(crate) use crate::bindings::capabilities::wasi::{
    clocks::wall_clock,
    config::store as config,
    keyvalue::{atomics, store},
    logging::logging,
};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use crate::native::{
    agent_steps, atomics, config, json_schema, logging, session_state, store, task, task_resumption, tasks, wall_clock,
};

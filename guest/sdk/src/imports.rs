//! The functions that the host provides. In a component these are the imports of the contract. Outside of a component
//! these are the functions of [`crate::native`].

#[cfg(target_arch = "wasm32")]
pub(crate) use crate::bindings::capabilities::annex::extension::{
    agent_steps, caller, json_schema, session_state, task, task_metadata, task_resumption, tasks,
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
    agent_steps, atomics, caller, config, json_schema, logging, session_state, store, task, task_metadata,
    task_resumption, tasks, wall_clock,
};

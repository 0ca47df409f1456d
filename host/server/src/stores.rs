//! Where tasks, sessions and keys of extensions are kept: the stores that the config names.

pub(crate) mod keyvalue_store;
pub(crate) mod session_store;
pub(crate) mod sessions;
pub(crate) mod task_store;

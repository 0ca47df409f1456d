//! The stores that the config names, for tasks, sessions and keys of extensions, and the way in which processes that share
//! them wake each other.

pub(crate) mod editions;
pub(crate) mod keyvalue_store;
mod place;
pub(crate) mod postgres;
pub(crate) mod session_store;
pub(crate) mod sessions;
pub(crate) mod state;
pub(crate) mod task_store;
pub(crate) mod wake;

use tokio::runtime::Handle;
use tokio::task::{JoinError, spawn_blocking};

/// Opens a store on a thread of its own: its files are made there, and sqlx's migrations are no future that can be sent.
///
/// # Errors
/// When the process ends meanwhile.
async fn on_own_thread<S: Send + 'static, F: Future<Output = S>>(
    open: impl FnOnce() -> F + Send + 'static,
) -> Result<S, JoinError> {
    let runtime = Handle::current();
    spawn_blocking(move || runtime.block_on(open())).await
}

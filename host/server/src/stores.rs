//! Opens the stores that the config names: for conversations and tasks, for tenants, and for keys of extensions. Also
//! opens the channel over which the processes on a shared database wake each other.

pub(crate) mod conversation_store;
pub(crate) mod editions;
pub(crate) mod keyvalue_store;
mod place;
pub(crate) mod postgres;
pub(crate) mod sessions;
pub(crate) mod state;
pub(crate) mod tenant_store;
pub(crate) mod turn_places;
pub(crate) mod wake;

use tokio::runtime::Handle;
use tokio::task::{JoinError, spawn_blocking};

/// Opens a store on a thread of its own. The thread is needed because opening creates files, and because the future of
/// sqlx's migrations is not `Send`.
///
/// # Errors
/// When the process ends while the store opens.
async fn on_own_thread<S: Send + 'static, F: Future<Output = S>>(
    open: impl FnOnce() -> F + Send + 'static,
) -> Result<S, JoinError> {
    let runtime = Handle::current();
    spawn_blocking(move || runtime.block_on(open())).await
}

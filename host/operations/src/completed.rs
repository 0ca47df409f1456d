//! Completes work whose caller may be dropped.

use annex_fairness::of_same_tenant;
use annex_protocol::A2aError;
use futures::FutureExt;

use crate::fault;

/// Runs work of the current tenant to its end, even if the caller is dropped. Work that never waits runs in this call.
/// Other work continues in a tokio task of its own.
///
/// # Errors
/// The error of the work, and an internal error if the work panics.
pub(crate) async fn completed<T: Send + 'static>(
    work: impl Future<Output = Result<T, A2aError>> + Send + 'static,
) -> Result<T, A2aError> {
    let mut work = Box::pin(of_same_tenant(work));
    match work.as_mut().now_or_never() {
        Some(result) => result,
        None => tokio::spawn(work).await.map_err(|error| fault::internal(&error))?,
    }
}

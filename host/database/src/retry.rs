//! Handles short outages of a database: tells which errors are transient, and retries.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Pause before the first retry. Each further pause is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Transient error codes of PostgreSQL: starting, stopping, out of connections, not the primary, serialization
/// failure, deadlock, and a transaction that was idle for too long.
const PASSING: [&str; 8] = ["57P01", "57P02", "57P03", "53300", "25006", "40001", "40P01", "25P03"];
/// Class of the error codes for connection failures.
const CONNECTION: &str = "08";

/// True if a retry may succeed, because the connection was lost or no connection was free. A change that failed with such an
/// error may still be stored.
#[must_use]
pub fn may_pass(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut => true,
        sqlx::Error::Database(error) => error
            .code()
            .is_some_and(|code| PASSING.contains(&code.as_ref()) || code.starts_with(CONNECTION) && code.len() == 5),
        _ => false,
    }
}

/// Retries, with pauses, until an attempt succeeds or fails with a permanent error. If `over` resolves first, cancels the
/// running attempt and returns `None`.
pub async fn outlast<T, E, F: Future<Output = Result<T, E>>>(
    over: impl Future<Output = ()>,
    passes: impl Fn(&E) -> bool,
    attempt: impl FnMut() -> F,
) -> Option<Result<T, E>> {
    tokio::select! {
        biased;
        result = attempts(passes, attempt) => Some(result),
        () = over => None,
    }
}

/// Retries for at most `patience`, then returns the last error. A running attempt is never cancelled.
pub async fn outlast_for<T, E, F: Future<Output = Result<T, E>>>(
    patience: Duration,
    passes: impl Fn(&E) -> bool,
    attempt: impl FnMut() -> F,
) -> Result<T, E> {
    let begin = Instant::now();
    attempts(|error| passes(error) && begin.elapsed() < patience, attempt).await
}

async fn attempts<T, E, F: Future<Output = Result<T, E>>>(
    passes: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> F,
) -> Result<T, E> {
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt().await {
            Err(error) if passes(&error) => {}
            result => return result,
        }
        sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;
    use std::io;

    use tokio::time::Instant;

    use super::*;

    fn lost() -> sqlx::Error {
        io::Error::from(io::ErrorKind::ConnectionReset).into()
    }

    #[tokio::test(start_paused = true)]
    async fn transient_errors_are_retried_until_the_database_is_back() {
        let attempts = Cell::new(0);
        let attempt = || {
            attempts.set(attempts.get() + 1);
            let result = if attempts.get() < 6 { Err(lost()) } else { Ok(attempts.get()) };
            async { result }
        };
        let begin = Instant::now();
        assert!(matches!(outlast(pending(), may_pass, attempt).await, Some(Ok(6))));
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn permanent_errors_fail_at_once_and_retries_end_after_their_limit() {
        let refused = outlast(pending(), may_pass, || async { Err::<(), _>(sqlx::Error::RowNotFound) }).await;
        assert!(matches!(refused, Some(Err(sqlx::Error::RowNotFound))));
        let over = sleep(Duration::from_secs(4));
        assert!(outlast(over, may_pass, || async { Err::<(), _>(lost()) }).await.is_none());
        let over = sleep(Duration::from_secs(4));
        assert!(outlast(over, may_pass, pending::<sqlx::Result<()>>).await.is_none(), "it hangs");
        let begin = Instant::now();
        let failed = outlast_for(Duration::from_secs(3), may_pass, || async { Err::<(), _>(lost()) }).await;
        assert!(failed.is_err() && begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    }
}

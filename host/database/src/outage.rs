//! A database that is away for a moment: what fails because of that, and trying it again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The first pause before it is tried again; each one after it is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// The codes of PostgreSQL while it starts, stops, has no connection left or is no primary yet, of two transactions that were in
/// each other's way, and of one in which this process was silent for too long.
const PASSING: [&str; 8] = ["57P01", "57P02", "57P03", "53300", "25006", "40001", "40P01", "25P03"];
/// The class of what it says of a connection.
const CONNECTION: &str = "08";

/// True if the same may succeed in a moment: the connection was lost, or none was to be had. A change that was under way may be
/// stored all the same.
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

/// Makes attempts, with pauses in between, until one succeeds or fails for a reason that does not pass. `None` when `over`
/// resolves before that; what is under way then is given up.
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

/// The same for a while, after which the failure stands. Nothing that is under way is given up.
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
    async fn what_fails_because_the_database_is_away_is_tried_until_it_is_back() {
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
    async fn what_will_not_pass_fails_at_once_and_nothing_is_tried_for_longer_than_it_may_be() {
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

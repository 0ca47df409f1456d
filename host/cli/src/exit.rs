//! Exit codes, which tell scripts what kind of failure ended a command.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use annex_client::ClientError;

/// The part of the help text below the list of commands.
pub(crate) const HELP: &str = "Exit codes:
  0  done
  1  another failure, such as a task that failed or was canceled
  2  wrong usage
  3  refused: by the agent or the server, or this program refused a component or a receipt
  4  not reachable: no server listens there, or no answer came in time
  5  different: a case of `annex test`, or a turn of `annex replay`";

/// The kinds of failure that have an exit code of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Usage,
    Refused,
    Unreachable,
    Different,
}

impl Failure {
    /// Marks the error with this kind of failure, and keeps the error's text.
    pub(crate) fn of(self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        ClassifiedError { failure: self, error: error.into() }.into()
    }

    /// Creates an error with this text, marked with this kind of failure.
    pub(crate) fn error(self, text: impl Into<String>) -> anyhow::Error {
        self.of(anyhow::Error::msg(text.into()))
    }

    fn code(self) -> u8 {
        match self {
            // The status with which clap ends a command.
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Unreachable => 4,
            Self::Different => 5,
        }
    }
}

/// Marks the error with the failure kind of a [`ClientError`] among its causes. An error without such a cause is
/// returned unmarked.
pub(crate) fn by_cause(error: anyhow::Error) -> anyhow::Error {
    match of_cause(&error) {
        Some(failure) => failure.of(error),
        None => error,
    }
}

/// Marks the error as [`by_cause`] does, and adds `hint` as a line below the error's text. The hint says what to do.
pub(crate) fn with_hint(error: &anyhow::Error, hint: &str) -> anyhow::Error {
    let text = format!("{error:#}\n{hint}");
    match of_cause(error) {
        Some(failure) => failure.error(text),
        None => anyhow::Error::msg(text),
    }
}

fn of_cause(error: &anyhow::Error) -> Option<Failure> {
    error.chain().find_map(|cause| cause.downcast_ref::<ClientError>()).and_then(of_client)
}

/// The exit code of a command that failed with `error`.
pub(crate) fn code(error: &anyhow::Error) -> ExitCode {
    failure(error).map_or(ExitCode::FAILURE, |failure| failure.code().into())
}

fn failure(error: &anyhow::Error) -> Option<Failure> {
    let marked = error.downcast_ref::<ClassifiedError>().map(|marked| marked.failure);
    marked.or_else(|| error.downcast_ref::<ClientError>().and_then(of_client))
}

/// The kind of failure that a client's error is. `None` if the error has no kind with an exit code of its own.
fn of_client(error: &ClientError) -> Option<Failure> {
    match error {
        ClientError::Address { .. } | ClientError::Parameter(_) => Some(Failure::Usage),
        ClientError::Unreachable { .. } | ClientError::TimedOut { .. } | ClientError::Broken { .. } => {
            Some(Failure::Unreachable)
        }
        ClientError::Agent(_)
        | ClientError::Status { .. }
        | ClientError::NotServed { .. }
        | ClientError::Refused(_)
        | ClientError::AnswerRefused(_) => Some(Failure::Refused),
        _ => None,
    }
}

/// An error and its kind.
#[derive(Debug)]
struct ClassifiedError {
    failure: Failure,
    error: anyhow::Error,
}

impl fmt::Display for ClassifiedError {
    /// Writes the error with all its causes. `source` returns `None`, so that no cause is printed twice.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#}", self.error)
    }
}

impl Error for ClassifiedError {}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::{ClientError, Failure, by_cause, failure};

    #[derive(Debug, thiserror::Error)]
    #[error("the agent is not served")]
    struct NotServed(#[source] ClientError);

    #[test]
    fn an_error_keeps_its_kind_under_further_context_and_its_text() {
        let causes = anyhow::anyhow!("the port is taken").context("cannot listen");
        let marked = Failure::Refused.of(causes);
        assert_eq!(format!("{marked:#}"), "cannot listen: the port is taken");
        let told = Err::<(), _>(marked).context("the server").unwrap_err();
        assert_eq!(failure(&told), Some(Failure::Refused));
        let late = ClientError::TimedOut { url: "http://127.0.0.1:1".to_owned() };
        assert_eq!(failure(&anyhow::Error::from(late).context("sent")), Some(Failure::Unreachable));
        assert_eq!(failure(&anyhow::anyhow!("a full disk")), None);
        let late = ClientError::TimedOut { url: "http://127.0.0.1:1".to_owned() };
        let caused = anyhow::Error::new(NotServed(late)).context("the server");
        assert_eq!(failure(&by_cause(caused)), Some(Failure::Unreachable));
    }
}

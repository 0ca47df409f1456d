//! Helpers: programs that keep credentials for docker, such as `docker-credential-pass`.
//! They speak the protocol of docker-credential-helpers.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::client::Login;
use crate::error::MAX_TEXT;

/// The maximum time of a call.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of an answer in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;
const MAX_NAME: usize = 64;
/// The text of a helper that has no credentials for a registry.
const NOT_FOUND: &str = "credentials not found";

/// The reasons why a helper fails.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The name could lead to another program.
    #[error("{0:?} is not the name of a helper: it may have letters, digits, . _ and -")]
    Name(String),
    /// The program does not start.
    #[error("{0} cannot be run; install it, or remove it from the file")]
    Run(String, #[source] io::Error),
    /// The program does not end.
    #[error("{0} does not end within {seconds} seconds", seconds = TIMEOUT.as_secs())]
    TimedOut(String),
    /// The program reports a failure.
    #[error("{program} reports: {text}")]
    Failed {
        /// The program.
        program: String,
        /// The program's own words.
        text: String,
    },
    /// The answer cannot be read.
    #[error("{0} gives an answer that is no JSON with a user and a password")]
    Answer(String),
    /// The answer is too long.
    #[error("{0} gives an answer with more than {MAX_ANSWER_BYTES} bytes")]
    TooLong(String),
}

/// A helper.
pub(crate) struct Helper {
    program: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: String,
}

impl Helper {
    /// The helper with this name, which has no folder.
    pub(crate) fn new(name: &str) -> Result<Self, HelperError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_allowed) {
            return Err(HelperError::Name(annex_text::line_within(name, MAX_TEXT)));
        }
        Ok(Self { program: format!("docker-credential-{name}") })
    }

    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// The credentials for a registry. `None` if the helper has none.
    pub(crate) async fn get(&self, registry: &str) -> Result<Option<Login>, HelperError> {
        let (is_done, answer) = self.call("get", registry.as_bytes()).await?;
        if !is_done {
            let failure = self.failure(&answer);
            let is_missing = matches!(&failure, HelperError::Failed { text, .. } if text.contains(NOT_FOUND));
            return if is_missing { Ok(None) } else { Err(failure) };
        }
        let answer: HelperAnswer =
            serde_json::from_slice(&answer).map_err(|_| HelperError::Answer(self.program.clone()))?;
        let login = Login { user: answer.username, password: answer.secret };
        Ok(Some(login).filter(|login| !login.password.is_empty()))
    }

    pub(crate) async fn store(&self, registry: &str, login: &Login) -> Result<(), HelperError> {
        let input = json!({"ServerURL": registry, "Username": login.user, "Secret": login.password});
        let (is_done, answer) = self.call("store", input.to_string().as_bytes()).await?;
        if is_done { Ok(()) } else { Err(self.failure(&answer)) }
    }

    /// Returns true if the program reports success, and the program's output.
    async fn call(&self, action: &str, input: &[u8]) -> Result<(bool, Vec<u8>), HelperError> {
        let failed = |error| HelperError::Run(self.program.clone(), error);
        let mut command = Command::new(&self.program);
        command.arg(action).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let process = command.spawn().map_err(failed)?;
        // At the end of the time the process is dropped, and thereby killed.
        match timeout(TIMEOUT, exchange(process, input)).await {
            Err(_) => Err(HelperError::TimedOut(self.program.clone())),
            Ok(Err(error)) => Err(failed(error)),
            Ok(Ok((_, answer))) if answer.len() > MAX_ANSWER_BYTES => Err(HelperError::TooLong(self.program.clone())),
            Ok(Ok(outcome)) => Ok(outcome),
        }
    }

    /// Helpers write the reason of a failure to standard output.
    fn failure(&self, answer: &[u8]) -> HelperError {
        let text = annex_text::line_within(String::from_utf8_lossy(answer).trim(), MAX_TEXT);
        HelperError::Failed { program: self.program.clone(), text }
    }
}

async fn exchange(mut process: Child, input: &[u8]) -> io::Result<(bool, Vec<u8>)> {
    if let Some(mut stdin) = process.stdin.take() {
        // A helper may end without reading its input. The end of this block closes the input.
        let _ = stdin.write_all(input).await;
    }
    let mut answer = Vec::new();
    if let Some(stdout) = process.stdout.take() {
        let most = u64::try_from(MAX_ANSWER_BYTES).unwrap_or(u64::MAX).saturating_add(1);
        stdout.take(most).read_to_end(&mut answer).await?;
    }
    Ok((process.wait().await?.success(), answer))
}

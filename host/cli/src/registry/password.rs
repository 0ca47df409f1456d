//! Reads a name and a password: typed on a terminal, or from a pipe.

use std::io::{self, BufRead, IsTerminal, Read};

use anyhow::{Context, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;
use crate::output;

/// The maximum size of a line in bytes. Tokens of registries are passwords too, and are longer than words.
const MAX_BYTES: usize = 16 << 10;

/// The signals that end a command. While this value exists they do not end the program at once, so that the terminal shows typed
/// text again first.
pub(super) struct EndSignals([Signal; 4]);

impl EndSignals {
    pub(super) fn new() -> anyhow::Result<Self> {
        let [interrupt, terminate, hangup, quit] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()]
                .map(|kind| signal(kind).context("cannot wait for signals"));
        Ok(Self([interrupt?, terminate?, hangup?, quit?]))
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        let Self([interrupt, terminate, hangup, quit]) = self;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

/// Asks for a line with `question` on a terminal, which shows the typed line only if `is_shown`. Without a terminal, reads
/// the first line of standard input.
///
/// # Errors
/// When the line is empty, too long, or not UTF-8.
pub(super) async fn read(question: &str, is_shown: bool) -> anyhow::Result<String> {
    let line = if io::stdin().is_terminal() { typed(question, is_shown).await? } else { line().await? };
    let line = line.trim_end_matches(['\r', '\n']);
    if line.is_empty() {
        return Err(
            Failure::Usage.error("standard input has no password; pipe it in: annex login HOST --user NAME < FILE")
        );
    }
    Ok(line.to_owned())
}

async fn typed(question: &str, is_shown: bool) -> anyhow::Result<String> {
    output::prompt(question);
    // The caller drops this future at a signal, and the echo comes back.
    let _echo = if is_shown { None } else { Some(HiddenEcho::begin()?) };
    line().await
}

async fn line() -> anyhow::Result<String> {
    tokio::task::spawn_blocking(first_line).await.context("standard input cannot be read")?
}

fn first_line() -> anyhow::Result<String> {
    let mut line = String::new();
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    io::stdin().lock().take(most).read_line(&mut line).context("cannot read a line of standard input")?;
    if line.len() > MAX_BYTES {
        bail!("the line is longer than {MAX_BYTES} bytes");
    }
    Ok(line)
}

/// While this value exists, the terminal does not show typed text.
struct HiddenEcho(Termios);

impl HiddenEcho {
    fn begin() -> anyhow::Result<Self> {
        let before = tcgetattr(io::stdin()).context("cannot read the settings of the terminal")?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden).context("cannot hide typed text")?;
        Ok(Self(before))
    }
}

impl Drop for HiddenEcho {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
        // The terminal has not shown the line break either.
        output::prompt("\n");
    }
}

//! The input lines, typed by a person or read from a pipe.

use std::io::{self, BufRead};
use std::thread;

use tokio::signal::unix::Signal;
use tokio::sync::mpsc;

use crate::output;

/// The lines of standard input. A separate thread reads them, because a read cannot be cancelled.
pub(super) struct Lines(mpsc::Receiver<io::Result<String>>);

impl Lines {
    pub(super) fn start() -> Self {
        // A long input from a pipe waits in the pipe and not in memory.
        let (sender, receiver) = mpsc::channel(1);
        thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self(receiver)
    }

    /// The next line; `None` at the end of the input, or at Ctrl-C.
    ///
    /// # Errors
    /// When standard input cannot be read or is not UTF-8.
    pub(super) async fn next(
        &mut self,
        prompt: Option<&str>,
        interrupts: &mut Signal,
    ) -> anyhow::Result<Option<String>> {
        if let Some(prompt) = prompt {
            output::prompt(prompt);
        }
        tokio::select! {
            line = self.0.recv() => Ok(line.transpose()?),
            _ = interrupts.recv() => Ok(None),
        }
    }
}

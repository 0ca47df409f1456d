//! `annex record`

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use annex_authoring::MAX_RECORDING_LINE;
use annex_runtime::RecordingEnd;
use annex_server::admin_api::Recording;
use anyhow::{Context, bail, ensure};
use clap::Args;
use reqwest::{Method, Response};
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::admin::{OfTenant, Target};
use crate::line::Line;
use crate::output;

/// The time that the whole request may take in addition to the time limit of the recording.
const GRACE: Duration = Duration::from_secs(60);

/// Record turns of an extension of a running server
///
/// The recording contains the messages of users and agents in these turns, and the keys that the extension used, with
/// their values. Placeholders replace the values of its secrets. The server's config needs `allow_recording = true` in
/// `[admin]`.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex record https://example.com/my-extension/v1 -o turns.jsonl\n  annex record \
                        https://example.com/my-extension/v1 --turns 500 -o turns.jsonl\n\nThe recording \
                        ends with the first bound that it reaches, or with Ctrl-C. The file is for its user alone. \
                        `annex replay` plays it to another version. The token is read from --token-file, or from the \
                        environment variable ANNEX_ADMIN_TOKEN.")]
pub(crate) struct Record {
    /// URI or digest of the extension
    extension: String,
    /// Stop after this many turns
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    turns: u64,
    /// Stop after this time: a number with s, m or h
    #[arg(long, default_value = "60s", value_parser = seconds)]
    time: u64,
    /// Stop at this size in bytes: a number, also with KiB or MiB
    #[arg(long, default_value = "16MiB", value_parser = bytes)]
    bytes: u64,
    /// Write the recording to this file; default: standard output, as with `-`
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    tenant: OfTenant,
}

fn seconds(text: &str) -> Result<u64, String> {
    scaled(text, &[("h", 3_600), ("m", 60), ("s", 1)]).ok_or_else(|| "write it as 90s, 10m or 1h".to_owned())
}

fn bytes(text: &str) -> Result<u64, String> {
    scaled(text, &[("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)])
        .ok_or_else(|| "write it as 16MiB, 512KiB or a number of bytes".to_owned())
}

/// Parses a positive number that is followed by one of `units`. Returns the number multiplied by the factor of this
/// unit. `None` for any other text.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    number.parse::<u64>().ok()?.checked_mul(*unit).filter(|product| *product > 0)
}

impl Record {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let file = self.output.as_deref().filter(|file| *file != Path::new("-"));
        if let Some(file) = file {
            let is_there = fs::symlink_metadata(file).is_ok();
            ensure!(self.force || !is_there, "{} is there already; --force writes in its place", file.display());
        }
        let client = self.target.client()?.on(&self.tenant);
        let bounds = Recording { turns: Some(self.turns), bytes: Some(self.bytes), seconds: Some(self.time) };
        let within = Duration::from_secs(self.time).saturating_add(GRACE);
        // Ctrl-C is handled from here on, so that the turns written so far are kept.
        let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
        let path = ["extensions", &self.extension, "record"];
        let answer = tokio::select! {
            _ = interrupt.recv() => bail!("stopped before the recording began"),
            answer = client.stream(Method::POST, &path, &bounds, within) => answer?,
        };
        let out = match file {
            Some(file) => {
                let made = annex_files::create(file, 0o600, self.force);
                Some(made.with_context(|| format!("cannot write {}", file.display()))?)
            }
            None => None,
        };
        let mut recording = ReceivedRecording { out, turns: 0, end: None, shows_counter: io::stderr().is_terminal() };
        let copied = tokio::select! {
            _ = interrupt.recv() => Ok(EndReason::Stopped),
            copied = recording.copy(answer) => copied,
        };
        if recording.shows_counter && recording.turns > 0 {
            output::prompt("\n");
        }
        recording.report(copied, file)
    }
}

/// A recording while it is received.
struct ReceivedRecording {
    /// The file; `None` for standard output.
    out: Option<File>,
    turns: u64,
    end: Option<RecordingEnd>,
    /// True if progress is shown as a counter. Otherwise each turn gets a line.
    shows_counter: bool,
}

/// The reason why a recording ended.
enum EndReason {
    /// The recording reached one of its bounds.
    Bounded,
    /// Ctrl-C stopped the recording.
    Stopped,
    /// The connection ended before the recording did. If an error ended it, this is the error.
    Broken(Option<reqwest::Error>),
}

/// The fields of a recording's line that progress messages show.
#[derive(Deserialize)]
struct SeenLine {
    recording: Option<SeenHead>,
    turn: Option<SeenTurn>,
    end: Option<RecordingEnd>,
}

#[derive(Deserialize)]
struct SeenHead {
    name: Line,
    component_version: Line,
}

#[derive(Deserialize)]
struct SeenTurn {
    operation: Line,
}

impl ReceivedRecording {
    /// Writes the recording until the recording or the connection ends. Only whole lines are written, so the file stays
    /// valid if this future is dropped.
    async fn copy(&mut self, mut answer: Response) -> anyhow::Result<EndReason> {
        let mut line = Vec::new();
        loop {
            let chunk = match answer.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(EndReason::Broken(None)),
                Err(error) => return Ok(EndReason::Broken(Some(error.without_url()))),
            };
            for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(piece);
                ensure!(
                    line.len() <= MAX_RECORDING_LINE,
                    "a line of the answer is longer than {MAX_RECORDING_LINE} bytes"
                );
                if line.ends_with(b"\n") {
                    self.take(&line)?;
                    line.clear();
                }
            }
            if self.end.is_some() {
                return Ok(EndReason::Bounded);
            }
        }
    }

    fn take(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let text = str::from_utf8(line).ok();
        let seen = text.and_then(|text| Some((text, serde_json::from_str::<SeenLine>(text).ok()?)));
        let (text, seen) = seen.context("the answer is no recording; is the server another version of Annex?")?;
        match &mut self.out {
            Some(file) => file.write_all(line).context("cannot write the recording")?,
            None => output::json(text)?,
        }
        if let Some(head) = seen.recording {
            output::note(&format!("recording {} {}; Ctrl-C ends it", head.name, head.component_version));
        }
        if let Some(turn) = seen.turn {
            self.turns += 1;
            if self.shows_counter {
                output::prompt(&format!("\r{}", counted(self.turns)));
            } else {
                output::note(&format!("turn {}: {}", self.turns, turn.operation));
            }
        }
        self.end = seen.end.or(self.end.take());
        Ok(())
    }

    fn report(&self, copied: anyhow::Result<EndReason>, file: Option<&Path>) -> anyhow::Result<()> {
        let place = file.map_or(String::new(), |file| format!(" in {}", annex_text::line(&file.display().to_string())));
        let turns = format!("{}{place}", counted(self.turns));
        let ended = copied.with_context(|| format!("{turns}, and the recording is not complete"))?;
        let how = match ended {
            EndReason::Stopped => ", stopped".to_owned(),
            EndReason::Bounded => self.end.as_ref().map_or(String::new(), ended_by),
            EndReason::Broken(None) => bail!("{turns}, and then the connection broke: the recording has no end"),
            EndReason::Broken(Some(error)) => {
                return Err(error)
                    .with_context(|| format!("{turns}, and then the connection broke: the recording has no end"));
            }
        };
        let text = format!("{turns}{how}\n");
        if file.is_some() {
            return output::write(&text);
        }
        output::note(text.trim_end());
        Ok(())
    }
}

fn ended_by(end: &RecordingEnd) -> String {
    let left_out = if end.left_out > 0 { format!(", {} left out", end.left_out) } else { String::new() };
    format!("{left_out}; ended by: {}", annex_text::line(&end.reason))
}

fn counted(turns: u64) -> String {
    let noun = if turns == 1 { "turn" } else { "turns" };
    format!("{turns} {noun}")
}

#[cfg(test)]
mod tests {
    use super::{bytes, seconds};

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!([seconds("90s"), seconds("10m"), seconds("1h")], [Ok(90), Ok(600), Ok(3_600)]);
        assert_eq!([bytes("16MiB"), bytes("1KiB"), bytes("7")], [Ok(16 << 20), Ok(1 << 10), Ok(7)]);
        for wrong in ["", "60", "0s", "-1s", "s", "99999999999999999999h", "18446744073709551615h"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "0", "1MB", "MiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}

//! Reads a recording line by line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use annex_files::Purpose;
use annex_runtime::{FORMAT_VERSION, Fault, RecordedTurn, RecordingEnd, RecordingHead, RecordingLine};
use serde::Deserialize;

use crate::case::file::CaseError;

/// The maximum size of a line, in bytes. A turn has at most a megabyte, and escapes in JSON make its line longer.
pub const MAX_RECORDING_LINE: usize = 4 << 20;

/// The reason why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("cannot read the recording {}; `annex record` makes one", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of reading the file.
        #[source]
        source: io::Error,
    },
    /// The file is not a recording.
    #[error("{} is not a recording: its first line has no `recording`; `annex record` makes one", path.display())]
    NoRecording {
        /// The path of the file.
        path: PathBuf,
    },
    /// The recording has another version of the format.
    #[error(
        "{} has version {found} of the format of recordings, and this program reads version {FORMAT_VERSION}; record \
         again, or replay with the program that recorded",
        path.display()
    )]
    Version {
        /// The path of the file.
        path: PathBuf,
        /// The version of the format in the file.
        found: u32,
    },
    /// A line is invalid.
    #[error("{}, line {number}: {reason}; remove the line, or record again", path.display())]
    Line {
        /// The path of the file.
        path: PathBuf,
        /// The number of the line, from 1.
        number: usize,
        /// The fault of the line.
        reason: String,
    },
    /// The component belongs to another extension.
    #[error("the recording is of {recorded}, and the component is {component}; replay a version of {recorded}")]
    OtherExtension {
        /// The URI of the recorded extension.
        recorded: String,
        /// The URI of the component's extension.
        component: String,
    },
    /// The component or its settings cannot be used.
    #[error("the component cannot be used with these settings; --settings FILE replaces the recording's")]
    Component(#[source] CaseError),
    /// The component fails to run.
    #[error("turn {number} cannot be replayed")]
    Turn {
        /// The number of the turn, from 1.
        number: u64,
        /// The error of the component.
        #[source]
        source: Fault,
    },
    /// A case file cannot be written.
    #[error("cannot write the case {}", path.display())]
    Case {
        /// The path of the file or folder.
        path: PathBuf,
        /// The error of writing the file.
        #[source]
        source: io::Error,
    },
    /// A case with this name exists.
    #[error("{} is there already, and no case was written; name another folder", path.display())]
    CaseExists {
        /// The path of the existing file.
        path: PathBuf,
    },
}

/// An open recording.
pub struct Recording {
    /// The head, which names the recorded extension.
    pub head: RecordingHead,
    /// The last line of the recording. `None` until that line was read, and always if the recording broke off.
    pub end: Option<RecordingEnd>,
    lines: Lines,
}

/// The part of the first line that all versions of the format share.
#[derive(Deserialize)]
struct AnyHead {
    recording: AnyVersion,
}

#[derive(Deserialize)]
struct AnyVersion {
    version: u32,
}

impl Recording {
    /// Opens a recording and reads its head.
    ///
    /// # Errors
    /// When the file cannot be read, is not a recording, or has another version.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let file = annex_files::open(path, Purpose::Named);
        let file = file.map_err(|source| RecordingError::File { path: path.to_owned(), source })?;
        let mut lines = Lines { path: path.to_owned(), file: BufReader::new(file), number: 0 };
        let no_recording = || RecordingError::NoRecording { path: path.to_owned() };
        let (first, _) = match lines.next() {
            Ok(line) => line.ok_or_else(no_recording)?,
            Err(RecordingError::Line { .. }) => return Err(no_recording()),
            Err(error) => return Err(error),
        };
        // The mark that some editors put before UTF-8.
        let first = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&first);
        let any: AnyHead = serde_json::from_slice(first).map_err(|_| no_recording())?;
        if any.recording.version != FORMAT_VERSION {
            return Err(RecordingError::Version { path: path.to_owned(), found: any.recording.version });
        }
        match serde_json::from_slice(first).map_err(|error| lines.wrong(error))? {
            RecordingLine::Recording(head) => Ok(Self { head, end: None, lines }),
            RecordingLine::Turn(_) | RecordingLine::End(_) => Err(no_recording()),
        }
    }

    /// Reads the next turn; `None` at the end of the recording.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is invalid.
    pub fn next_turn(&mut self) -> Result<Option<RecordedTurn>, RecordingError> {
        if self.end.is_some() {
            return Ok(None);
        }
        let Some((line, is_whole)) = self.lines.next()? else { return Ok(None) };
        match serde_json::from_slice(&line) {
            Ok(RecordingLine::Turn(turn)) => Ok(Some(turn)),
            Ok(RecordingLine::End(end)) => {
                self.end = Some(end);
                Ok(None)
            }
            Ok(RecordingLine::Recording(_)) => Err(self.lines.wrong("a second recording begins")),
            // A disk that is full, or a process that ends, leaves a part of a line.
            Err(_) if !is_whole => Ok(None),
            Err(error) => Err(self.lines.wrong(error)),
        }
    }
}

struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    number: usize,
}

impl Lines {
    /// Reads the next line. Also returns true if the line ends with a line break. `None` at the end of the file.
    fn next(&mut self) -> Result<Option<(Vec<u8>, bool)>, RecordingError> {
        let limit = u64::try_from(MAX_RECORDING_LINE).unwrap_or(u64::MAX).saturating_add(1);
        let mut line = Vec::new();
        let read = self.file.by_ref().take(limit).read_until(b'\n', &mut line);
        read.map_err(|source| RecordingError::File { path: self.path.clone(), source })?;
        self.number += 1;
        if line.len() > MAX_RECORDING_LINE {
            return Err(self.wrong(format!("it is longer than {} MiB", MAX_RECORDING_LINE >> 20)));
        }
        let is_whole = line.last() == Some(&b'\n');
        Ok((!line.is_empty()).then_some((line, is_whole)))
    }

    fn wrong(&self, reason: impl std::fmt::Display) -> RecordingError {
        let reason = annex_text::line(&reason.to_string()).into_owned();
        RecordingError::Line { path: self.path.clone(), number: self.number, reason }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const HEAD: &str = r#"{"recording":{"version":1,"uri":"https://a.example/v1","name":"a","component_version":"1","digest":"sha256:0","at":"2026-01-01T00:00:00Z","settings":{}}}"#;
    const TURN: &str = r#"{"turn":{"at":"2026-01-01T00:00:00Z","operation":"SendMessage","requested":[],"steps":[]}}"#;
    const END: &str = r#"{"end":{"turns":1,"left_out":0,"reason":"turns"}}"#;

    /// Reads a whole recording. Returns the number of its turns, and whether it has an end.
    fn read(text: &str) -> Result<(usize, bool), String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut recording = Recording::open(file.path()).map_err(|error| error.to_string())?;
        let mut turns = 0;
        while recording.next_turn().map_err(|error| error.to_string())?.is_some() {
            turns += 1;
        }
        Ok((turns, recording.end.is_some()))
    }

    #[test]
    fn turns_are_read_up_to_the_end_or_to_where_it_was_broken_off() {
        assert_eq!(read(&format!("{HEAD}\n{TURN}\n{TURN}\n{END}\n")), Ok((2, true)));
        assert_eq!(read(&format!("{HEAD}\n")), Ok((0, false)));
        assert_eq!(read(&format!("\u{feff}{HEAD}\n{TURN}\n")), Ok((1, false)), "an editor's mark");
        assert_eq!(read(&format!("{HEAD}\n{TURN}\n{}", TURN.split_at(40).0)), Ok((1, false)));
    }

    #[test]
    fn what_is_no_recording_is_told_from_a_broken_line_and_from_another_version() {
        let long = "x".repeat(MAX_RECORDING_LINE + 1);
        for (text, reason) in [
            (String::new(), "is not a recording"),
            ("{}\n".to_owned(), "is not a recording"),
            (format!("{TURN}\n"), "is not a recording"),
            (long.clone(), "is not a recording"),
            (
                HEAD.replace("\"version\":1", "\"version\":7"),
                "version 7 of the format of recordings, and this program reads version 1",
            ),
            (HEAD.replace("\"name\":\"a\",", ""), "line 1: missing field `name`"),
            (format!("{HEAD}\n{TURN}\nturn\n{END}\n"), "line 3: expected"),
            (format!("{HEAD}\n{HEAD}\n"), "line 2: a second recording begins"),
            (format!("{HEAD}\n{long}\n"), "line 2: it is longer than 4 MiB"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }
}

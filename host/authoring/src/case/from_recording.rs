//! Converts the turns of a recording to case files.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use annex_runtime::{Hook, RecordedTurn, RecordingHead};
use tempfile::{NamedTempFile, TempPath};
use toml::Table;

use super::file::CaseFile;
use super::recorded::{self, GivenTurn};
use super::runner::Runner;
use crate::recording::RecordingError;

/// New cases from a recording. The case files have temporary names until [`finish`](Self::finish).
pub struct NewCases {
    folder: PathBuf,
    /// True if the folder was created for these cases.
    is_new: bool,
    cases: Vec<(TempPath, PathBuf)>,
}

/// The result of converting a turn.
#[derive(Debug)]
pub enum NewCase {
    /// The case passes.
    Passes {
        /// The name of the case's file.
        name: String,
        /// The differences between the case and the recorded turn.
        remarks: Vec<&'static str>,
    },
    /// The component fails in the case. The case therefore has no expected outcome yet.
    Fails {
        /// The name of the case's file.
        name: String,
        /// The text of the component's error.
        fault: String,
    },
    /// The turn cannot be a case.
    LeftOut {
        /// The reason, such as a part of the turn that no case can express.
        reason: String,
    },
}

impl NewCases {
    /// Begins a set of cases in `folder`, and creates the folder if it is missing.
    ///
    /// # Errors
    /// When the folder cannot be created.
    pub fn in_folder(folder: &Path) -> Result<Self, RecordingError> {
        let is_new = !folder.exists();
        fs::create_dir_all(folder).map_err(|source| RecordingError::Case { path: folder.to_owned(), source })?;
        Ok(Self { folder: folder.to_owned(), is_new, cases: Vec::new() })
    }

    /// Converts the turn with the number `number` to a case, and runs the case with the runner's component. The outcome
    /// of this run becomes the expected outcome.
    ///
    /// # Errors
    /// When the file cannot be written, or a case of this name exists.
    pub async fn add(
        &mut self,
        number: u64,
        turn: &RecordedTurn,
        head: &RecordingHead,
        runner: &Runner<'_>,
    ) -> Result<NewCase, RecordingError> {
        let name = format!("turn-{number:03}.toml");
        let path = self.folder.join(&name);
        if fs::symlink_metadata(&path).is_ok() {
            return Err(RecordingError::CaseExists { path });
        }
        let GivenTurn { given, mut remarks } = match recorded::given(turn, &head.uri) {
            Ok(given) => given,
            Err(reason) => return Ok(NewCase::LeftOut { reason }),
        };
        if (given.contains_key("model") || given.contains_key("calls")) && runner.lacks(Hook::Steering) {
            remarks.push("The component has no hook steering. The case skips the calls of the model and of tools.");
        }
        let mut text = format!("# Turn {number} of a recording of {} {}\n", head.name, head.component_version);
        text = format!("{}\n", annex_text::line(text.trim_end()));
        remarks.iter().for_each(|remark| text.push_str(&format!("# {remark}\n")));
        text.push_str(&Table::from_iter([("given".to_owned(), given.into())]).to_string());
        let outcome = match CaseFile::parse(&text) {
            Ok(case) => runner.outcome(&case).await.map(|expect| (case, expect)),
            Err(error) => Err(error),
        };
        let (text, fault) = match outcome {
            // The author decides the expected outcome of a turn in which the component fails.
            Ok((_, expect)) if expect.contains_key("fault") => {
                (text, expect.get("fault").and_then(|fault| fault.as_str().map(str::to_owned)))
            }
            Ok((case, expect)) => match case.text(&expect) {
                Ok(text) => (text, None),
                Err(error) => return Ok(NewCase::LeftOut { reason: error.to_string() }),
            },
            Err(error) => return Ok(NewCase::LeftOut { reason: annex_text::with_causes(&error) }),
        };
        let written = self.write(&text).map_err(|source| RecordingError::Case { path: path.clone(), source })?;
        self.cases.push((written, path));
        Ok(match fault {
            Some(fault) => NewCase::Fails { name, fault },
            None => NewCase::Passes { name, remarks },
        })
    }

    fn write(&self, text: &str) -> io::Result<TempPath> {
        let mut file = NamedTempFile::with_prefix_in(".turn-", &self.folder)?;
        file.write_all(text.as_bytes())?;
        Ok(file.into_temp_path())
    }

    /// Gives all case files their final names, and returns the number of files. If one file cannot be renamed, all of
    /// them are deleted.
    ///
    /// # Errors
    /// When a file cannot be renamed.
    pub fn finish(mut self) -> Result<usize, RecordingError> {
        let mut named: Vec<PathBuf> = Vec::new();
        for (case, path) in std::mem::take(&mut self.cases) {
            let Err(error) = case.persist_noclobber(&path) else {
                named.push(path);
                continue;
            };
            for path in &named {
                // The fault that is reported is the first one.
                let _ = fs::remove_file(path);
            }
            return Err(match error.error.kind() {
                ErrorKind::AlreadyExists => RecordingError::CaseExists { path },
                _ => RecordingError::Case { path, source: error.error },
            });
        }
        self.is_new &= named.is_empty();
        Ok(named.len())
    }
}

impl Drop for NewCases {
    fn drop(&mut self) {
        self.cases.clear();
        if self.is_new {
            // A folder with other files stays.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

//! Test cases for extensions. A case is a turn, a call to a method, or a call that a client makes, with the expected
//! outcome.
//!
//! A case runs in the host's own chain, with the limits of the project's settings and without a server. Every input is
//! in the case, so that each run gives the same result: the clock stands still, random numbers come from a seed, keys
//! belong to the case, and HTTP requests get the case's responses.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

mod cost;
mod events;
pub(crate) mod file;
mod from_recording;
mod outcome;
mod reads;
mod recorded;
mod run;
mod runner;
mod scene;
mod steering;
mod toml_json;

pub use cost::{Cost, Measurement};
pub use file::CaseError;
use file::CaseFile;
pub use from_recording::{NewCase, NewCases};
pub use runner::{ReadSettings, Runner, config as runtime_config};
pub(crate) use toml_json::of as toml_of;

/// A case that was run.
#[derive(Debug)]
pub struct CaseRun {
    /// The path of the case's file.
    pub path: PathBuf,
    /// The result of comparing the actual outcome with the expected outcome.
    pub verdict: Verdict,
    /// The time that the run took.
    pub took: Duration,
}

/// The result of a case.
#[derive(Debug)]
pub enum Verdict {
    /// The outcome is as expected.
    Passed,
    /// The outcome differs.
    Different {
        /// The expected outcome, as TOML.
        expected: String,
        /// The actual outcome, as TOML.
        found: String,
        /// The extension's error and log lines that are not in `found`.
        words: Words,
    },
    /// The actual outcome has replaced the expected outcome in the file.
    Updated,
    /// The case cannot be run.
    Broken(CaseError),
}

/// The extension's error and log lines. They help an author whose case fails.
#[derive(Debug, Default)]
pub struct Words {
    /// The extension's error, with the stack of functions and their positions in the sources; `None` if the extension
    /// did not fail.
    pub fault: Option<String>,
    /// The log lines, each with its level.
    pub log: Vec<String>,
}

impl Words {
    fn of(found: &toml::Table) -> Self {
        let text = |value: &toml::Value| value.as_str().map(str::to_owned);
        let lines = found.get("log").and_then(toml::Value::as_array);
        Self { fault: found.get("fault").and_then(text), log: lines.into_iter().flatten().filter_map(text).collect() }
    }
}

/// Splits the outcome for printing. If the extension failed unexpectedly, its error and log lines are moved to
/// [`Words`], where each line is printed separately. Otherwise the outcome stays whole.
fn told_once(expected: &toml::Table, mut found: toml::Table) -> (toml::Table, Words) {
    if expected.contains_key("fault") || !found.contains_key("fault") {
        return (found, Words::default());
    }
    let mut words = Words::of(&found);
    found.remove("fault");
    if expected.contains_key("log") {
        words.log.clear();
    } else {
        found.remove("log");
    }
    (found, words)
}

impl fmt::Display for Words {
    /// Prints each function and each log line on a separate line.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(fault) = &self.fault {
            writeln!(formatter, "fault: {}", fault.replace(" < ", "\n    < "))?;
        }
        self.log.iter().try_for_each(|line| writeln!(formatter, "log:   {line}"))
    }
}

/// The case files in a folder, sorted by name.
///
/// # Errors
/// When the folder cannot be read.
pub fn cases_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths: io::Result<Vec<PathBuf>> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    Ok(paths)
}

impl Runner<'_> {
    /// Runs one case. With `update` the actual outcome replaces the expected one in the file.
    pub async fn run(&self, path: &Path, update: bool) -> CaseRun {
        let started = Instant::now();
        let verdict = self.verdict(path, update).await.unwrap_or_else(Verdict::Broken);
        CaseRun { path: path.to_owned(), verdict, took: started.elapsed() }
    }

    async fn verdict(&self, path: &Path, update: bool) -> Result<Verdict, CaseError> {
        let case = CaseFile::read(path)?;
        let found = self.outcome(&case).await?;
        if case.expect.as_ref() == Some(&found) {
            return Ok(Verdict::Passed);
        }
        if update {
            let expects_fault = case.expect.as_ref().is_some_and(|expect| expect.contains_key("fault"));
            // An unexpected failure must not become the expected outcome, because it would never be noticed again.
            let words = Words::of(&found);
            if words.fault.is_some() && !expects_fault {
                return Err(CaseError::Case(format!("it fails, which --update does not write\n{words}")));
            }
            case.write(path, &found)?;
            return Ok(Verdict::Updated);
        }
        let expected = case.expect.ok_or(CaseError::NothingExpected)?;
        let (found, words) = told_once(&expected, found);
        Ok(Verdict::Different { expected: outcome::text(&expected), found: outcome::text(&found), words })
    }
}

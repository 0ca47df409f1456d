//! Mistakes in a config, each with its line and column.

use std::fmt;
use std::path::PathBuf;

use annex_telemetry::fault;

/// The reasons why a config is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The text is not TOML, or has wrong keys or values.
    #[error("{}", listed(.0))]
    Problems(Vec<Problem>),
}

impl ConfigError {
    /// Returns these mistakes as an error. `Ok` if there are none.
    pub(crate) fn unless_none(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self::Problems(problems)) }
    }

    /// All mistakes. A file that cannot be read counts as one mistake.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        match self {
            Self::Problems(problems) => problems,
            Self::Read { path, source } => {
                let (key, reason) = (String::new(), format!("cannot be read: {source}"));
                vec![Problem { path, place: None, key, reason, example: None }]
            }
        }
    }

    /// One line per mistake, for logs and the admin API.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Self::Problems(problems) => problems.iter().map(Problem::line).collect(),
            Self::Read { .. } => vec![fault::text(self)],
        }
    }
}

/// One mistake in a config.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Line and column, both from 1. `None` if no part of the file is at fault, as with a missing table.
    pub place: Option<(usize, usize)>,
    /// The key as a dotted path. Empty if the text is not TOML and the key of the line is unknown.
    pub key: String,
    /// The mistake, and the values that the key accepts.
    pub reason: String,
    /// The corrected key and value. They contain the value of the config, which may be a secret. Therefore only the
    /// person who starts the server or checks the config sees this field. Logs and the admin API omit it.
    pub example: Option<String>,
}

impl Problem {
    /// The mistake in one line, without the example.
    pub(crate) fn line(&self) -> String {
        Self { example: None, ..self.clone() }.to_string()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, place, key, reason, example } = self;
        write!(formatter, "{}:", path.display())?;
        if let Some((line, column)) = place {
            write!(formatter, "{line}:{column}:")?;
        }
        if !key.is_empty() {
            write!(formatter, " {key}:")?;
        }
        // The reason may quote text of a stranger, so control characters are escaped.
        write!(formatter, " {}", annex_text::line(reason))?;
        match example {
            Some(example) => write!(formatter, "; write {}", annex_text::line(example)),
            None => Ok(()),
        }
    }
}

/// The mistakes, one line each.
fn listed(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    match lines.as_slice() {
        [only] => only.clone(),
        lines => format!("{} errors in the config\n{}", lines.len(), lines.join("\n")),
    }
}

//! What is wrong in a config, and where.

use std::fmt;
use std::path::PathBuf;

use annex_telemetry::fault;

/// The reasons for which a config cannot be used.
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
    /// It is not the TOML that it should be, or has values that cannot be used.
    #[error("{}", listed(.0))]
    Problems(Vec<Problem>),
}

impl ConfigError {
    /// All that is wrong, in a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Self::Problems(problems) => problems.iter().map(Problem::to_string).collect(),
            Self::Read { .. } => vec![fault::text(self)],
        }
    }
}

/// One thing that is wrong in a config.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// The line and the column in it, both from 1; `None` where nothing in the file has to do with it.
    pub place: Option<(usize, usize)>,
    /// The key, as a dotted path; empty for a text that is no TOML.
    pub key: String,
    /// The fault, and what is accepted.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, place, key, reason } = self;
        write!(formatter, "{}:", path.display())?;
        if let Some((line, column)) = place {
            write!(formatter, "{line}:{column}:")?;
        }
        if !key.is_empty() {
            write!(formatter, " {key}:")?;
        }
        // Parts of it may be somebody else's words.
        write!(formatter, " {}", annex_text::line(reason))
    }
}

/// All that is wrong, a line each.
fn listed(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    match lines.as_slice() {
        [only] => only.clone(),
        lines => format!("{} errors in the config\n{}", lines.len(), lines.join("\n")),
    }
}

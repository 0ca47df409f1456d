//! Checks the chain of an audit file from its first line to its last.

use std::io::{self, BufRead, Read};

use super::chain::{self, ChainEnd, Link, MAX_LINE_BYTES, NEW_CHAIN};

/// A file whose lines are one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedChain {
    /// The number of lines.
    pub lines: u64,
    /// The time of the first line.
    pub first_time: String,
    /// The time of the last line.
    pub last_time: String,
    /// The number in the last line. It differs from `lines` if the file continues another file.
    pub last_number: u64,
    /// The digest of the last line.
    pub last_digest: String,
    /// The digest of the last line of the file that this file continues. `None` if the chain begins in this file.
    pub continues: Option<String>,
}

/// The reasons why a file is not one chain.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The file cannot be read.
    #[error("the file cannot be read")]
    Read(#[from] io::Error),
    /// The file has no line.
    #[error("the file is empty")]
    Empty,
    /// A line does not continue the chain.
    #[error("line {line}: {reason}")]
    Broken {
        /// The line, from 1.
        line: u64,
        /// The fault of the line.
        reason: String,
    },
}

/// Reads an audit file and checks that its lines are one chain. It keeps one line in memory.
///
/// # Errors
/// [`VerifyError`], at the first line that does not continue the chain.
pub fn verify_audit(mut file: impl BufRead) -> Result<VerifiedChain, VerifyError> {
    let mut verified: Option<VerifiedChain> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut file).take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return verified.ok_or(VerifyError::Empty);
        }
        let number = verified.as_ref().map_or(1, |verified| verified.lines + 1);
        let broken = |reason: String| VerifyError::Broken { line: number, reason };
        verified = Some(next(verified, &line).map_err(broken)?);
    }
}

/// Checks one line with its line break, which follows the lines of `before`.
fn next(before: Option<VerifiedChain>, line: &[u8]) -> Result<VerifiedChain, String> {
    let too_long = format!("it has no end, or more than {MAX_LINE_BYTES} bytes");
    let line = line.strip_suffix(b"\n").ok_or(too_long)?;
    let link = Link::parse(line)?;
    if link.action == NEW_CHAIN {
        let reason = annex_text::line_within(link.reason.as_deref().unwrap_or_default(), 300);
        return Err(format!("the server has begun a new chain here, because of what it found: {reason}"));
    }
    let last_digest = chain::digest(line);
    let last_time = annex_text::line_within(&link.time, 100);
    let Some(before) = before else {
        return Ok(VerifiedChain {
            lines: 1,
            first_time: last_time.clone(),
            last_time,
            last_number: link.number,
            last_digest,
            continues: link.prev.map(|prev| annex_text::line_within(&prev, 100)),
        });
    };
    link.check_follows(&ChainEnd { number: before.last_number, digest: before.last_digest.clone() })?;
    Ok(VerifiedChain { lines: before.lines + 1, last_time, last_number: link.number, last_digest, ..before })
}

//! The chain of the lines of an audit file: each line has the digest of the line before it.

use annex_runtime::Digest;
use serde::Deserialize;

/// The maximum size of a line, in bytes, without the line break.
pub(super) const MAX_LINE_BYTES: usize = 128 << 10;
/// The number of the first line of a chain that continues no other file.
pub(super) const FIRST_NUMBER: u64 = 1;
/// The `action` of a line after which the file was changed by something else than Annex.
pub(super) const NEW_CHAIN: &str = "new_chain";

const INCOMPLETE: &str = "the last line has no end";
const NO_LINE: &str = "a line is no line of an audit file";
const UNLINKED: &str = "a line does not have the digest of the line before it";

/// The last line of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChainEnd {
    pub(super) number: u64,
    pub(super) digest: String,
}

/// The fields of a line that every check needs.
#[derive(Deserialize)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) time: String,
    pub(super) action: String,
    #[serde(default)]
    pub(super) reason: Option<String>,
    pub(super) prev: Option<String>,
}

/// The digest of a line without its line break, as the next line has it in `prev`.
pub(super) fn digest(line: &[u8]) -> String {
    Digest::of(line).to_string()
}

impl Link {
    pub(super) fn parse(line: &[u8]) -> Result<Self, &'static str> {
        serde_json::from_slice(line).map_err(|_| NO_LINE)
    }

    /// Checks that this line follows the line `before`.
    pub(super) fn check_follows(&self, before: &ChainEnd) -> Result<(), &'static str> {
        if self.prev.as_ref() != Some(&before.digest) {
            return Err(UNLINKED);
        }
        if before.number.checked_add(1) != Some(self.number) {
            return Err("a line does not have the number after that of the line before it");
        }
        Ok(())
    }
}

/// The end of a chain after the lines in `added`, which follow the line `before`.
pub(super) fn follow(added: &[u8], before: &ChainEnd) -> Result<ChainEnd, &'static str> {
    let lines = added.strip_suffix(b"\n").ok_or(INCOMPLETE)?;
    let mut end = before.clone();
    for line in lines.split(|byte| *byte == b'\n') {
        let link = Link::parse(line)?;
        link.check_follows(&end)?;
        end = ChainEnd { number: link.number, digest: digest(line) };
    }
    Ok(end)
}

/// The end of the chain of a file. `tail` is the end of the file, and `is_whole` is true if it is the whole file. The
/// last line must follow the line before it.
pub(super) fn last(tail: &[u8], is_whole: bool) -> Result<ChainEnd, &'static str> {
    let lines = tail.strip_suffix(b"\n").ok_or(INCOMPLETE)?;
    let mut lines = lines.rsplit(|byte| *byte == b'\n');
    let (Some(line), before, further) = (lines.next(), lines.next(), lines.next()) else { return Err(NO_LINE) };
    let link = Link::parse(line)?;
    // Without a further piece, the line before begins with the tail, perhaps in its middle.
    match before {
        Some(before) if is_whole || further.is_some() => {
            let before = ChainEnd { number: Link::parse(before)?.number, digest: digest(before) };
            link.check_follows(&before)?;
        }
        None if is_whole => {}
        _ => return Err("a line is longer than any line of an audit file"),
    }
    Ok(ChainEnd { number: link.number, digest: digest(line) })
}

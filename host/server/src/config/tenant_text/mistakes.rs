//! The mistakes in the text of a tenant, with their lines.

use std::path::Path;

use annex_text::line_within;
use serde::de::DeserializeOwned;
use toml::de::DeTable;

use super::super::document::syntax::{self, SyntaxMistake};
use super::super::document::{Document, without_indices};
use super::super::problems::Problem;

/// The maximum number of mistakes that are reported per text. Each mistake costs one more decoding.
const MAX_MISTAKES: usize = 20;
/// The maximum size of a reported mistake, in bytes. A mistake may quote keys and values of the text, which can be
/// long.
const MAX_LINE_BYTES: usize = 1 << 10;
/// The hint for unknown keys. Some unknown keys are allowed in the config of a server, but not in a text.
const NAMES_NO_FILES: &str = "a tenant that is added names no files, variables, programs or paths: name components by \
                              their digests, and secrets by the names that [tenants.secrets] of the server's config \
                              lends them under";

/// Finds all mistakes in the text. Returns the two fields of the error that lists these mistakes, `place` and `reason`.
/// `first` is the first mistake that the decoder found.
pub(super) fn of<T: DeserializeOwned>(text: &str, first: &toml::de::Error) -> (String, String) {
    // For invalid TOML only the first mistake is reported, because a parser that continues may find one in each byte.
    let problems = if DeTable::parse(text).is_ok() { problems::<T>(text) } else { Vec::new() };
    let is_unknown = problems.iter().any(|problem| problem.reason.starts_with("unknown key"));
    match problems.as_slice() {
        [] => {
            let span = first.span().unwrap_or_default();
            let before = text.get(..span.start).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            // Without the example, because the admin API shows the reason.
            let SyntaxMistake { key, reason, .. } = syntax::mistake(text, &span, first.message());
            let key = if key.is_empty() { key } else { format!(": {}", line_within(&key, MAX_LINE_BYTES)) };
            (format!("line {line}{key}"), line_within(&reason, MAX_LINE_BYTES))
        }
        [only] => {
            let hint = if is_unknown { format!("; {NAMES_NO_FILES}") } else { String::new() };
            let line = line(only);
            let (place, reason) = line.split_once(": ").unwrap_or(("the text", &line));
            (place.to_owned(), format!("{reason}{hint}"))
        }
        several => {
            let hint = is_unknown.then(|| NAMES_NO_FILES.to_owned());
            let lines: Vec<String> = several.iter().map(line).chain(hint).collect();
            let more = if several.len() < MAX_MISTAKES { "" } else { ", and there may be more" };
            (format!("{} errors in the text{more}", several.len()), format!("\n{}", lines.join("\n")))
        }
    }
}

/// Adds the hint about unknown keys to the last mistake that is an unknown key. Adds nothing if there is no such
/// mistake.
pub(crate) fn with_hint(mut problems: Vec<Problem>) -> Vec<Problem> {
    let unknown = problems.iter_mut().rfind(|problem| problem.reason.starts_with("unknown key"));
    if let Some(Problem { reason, .. }) = unknown {
        reason.push_str(&format!("; {NAMES_NO_FILES}"));
    }
    problems
}

/// Returns the two fields of the error that lists `wrong`, `place` and `reason`. `wrong` has pairs of key and reason,
/// without the lines of the keys.
pub(super) fn listed(mut wrong: Vec<(String, String)>) -> (String, String) {
    let within = |(key, reason): (String, String)| (key, line_within(&reason, MAX_LINE_BYTES));
    if wrong.len() == 1
        && let Some((key, reason)) = wrong.pop()
    {
        return within((without_indices(&key), reason));
    }
    let more = if wrong.len() <= MAX_MISTAKES { "" } else { ", of which these are the first" };
    let place = format!("{} errors in the text{more}", wrong.len());
    let lines = wrong.into_iter().take(MAX_MISTAKES).map(within);
    let lines: Vec<String> = lines.map(|(key, reason)| format!("{}: {reason}", without_indices(&key))).collect();
    (place, format!("\n{}", lines.join("\n")))
}

fn problems<T: DeserializeOwned>(text: &str) -> Vec<Problem> {
    let mut document = Document::parse(Path::new(""), text).with_most(MAX_MISTAKES);
    // Only the noted mistakes are of use here, not the value.
    drop(document.decode::<T>());
    document.into_problems()
}

fn line(problem: &Problem) -> String {
    let Problem { place, key, reason, .. } = problem;
    let place = place.map(|(line, column)| format!("line {line}, column {column}: ")).unwrap_or_default();
    line_within(&format!("{place}{key}: {reason}"), MAX_LINE_BYTES)
}

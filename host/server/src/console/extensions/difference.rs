//! The change of an extension's entry on the card.

use std::time::Duration;

use annex_protocol::AgentExtension;
use similar::{ChangeTag, TextDiff};

use crate::console::shown::{json, line};

/// The time for a comparison of two entries of a card. The rest of a slower comparison is one large change.
const DIFF_TIME: Duration = Duration::from_millis(100);

/// A line of the entry on the card.
pub(super) struct DiffLine {
    pub(super) text: String,
    pub(super) is_removed: bool,
    pub(super) is_added: bool,
}

/// A sentence about the entry on the card, and the lines of the entry with their changes. `before` is the entry that the card
/// has, and `preview` the entry of a component that was loaded to see it.
pub(super) fn change_of_card(
    uri: Option<&str>,
    before: Option<&AgentExtension>,
    preview: Option<&AgentExtension>,
) -> (String, Vec<DiffLine>) {
    let text = |entry: &AgentExtension| json(&serde_json::to_string(entry).unwrap_or_default());
    let old = before.map(text).unwrap_or_default();
    let uri = uri.map(line);
    if let Some(entry) = preview {
        let uri = line(entry.uri.as_str());
        let what = if before.is_some() { "changes in these lines" } else { "is new on the card" };
        let new = text(entry);
        let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(old.as_str(), new.as_str());
        let lines = diff.iter_all_changes().map(|change| DiffLine {
            text: change.value().trim_end_matches('\n').to_owned(),
            is_removed: change.tag() == ChangeTag::Delete,
            is_added: change.tag() == ChangeTag::Insert,
        });
        return (format!("The entry of {uri} {what}."), lines.collect());
    }
    let sentence = match (uri, before) {
        (Some(uri), Some(_)) => format!(
            "The card has an entry of {uri}, shown below. The component decides about its new entry when it is loaded."
        ),
        (Some(uri), None) => format!("The card gets a new entry, {uri}."),
        (None, _) => "The card gets a new entry. The URI is known when the component is loaded.".to_owned(),
    };
    let unchanged = |line: &str| DiffLine { text: line.to_owned(), is_removed: false, is_added: false };
    (sentence, old.lines().map(unchanged).collect())
}

//! Finds the links of an answer.

use serde::Serialize;

/// The largest number of links in the metadata of a message or an artifact.
const MAX_CITATIONS: usize = 100;

/// The longest link, in bytes. The beginning of a link is kept until its end arrives in a later chunk.
const MAX_LINK: usize = 2048;

/// A link to a source, in the form of agentstack's SDK. The indices count the characters of all text parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Citation {
    start_index: usize,
    end_index: usize,
    url: String,
    title: Option<String>,
    description: Option<String>,
}

/// The links in a text that arrives in pieces.
#[derive(Debug, Default)]
pub struct Citations {
    found: Vec<Citation>,
    /// The end of the text so far, if it may be the beginning of a link.
    pending: String,
    /// The number of characters before `pending`.
    read: usize,
}

impl Citations {
    /// Reads the next piece of the text.
    pub fn read(&mut self, text: &str) {
        self.pending.push_str(text);
        let text = std::mem::take(&mut self.pending);
        let mut rest = text.as_str();
        while let Some((before, link)) = split_at_bracket(rest) {
            self.read = self.read.saturating_add(before.chars().count());
            match parse(link) {
                Link::Whole { title, url, length } if self.found.len() < MAX_CITATIONS => {
                    let (whole, after) = link.split_at_checked(length).unwrap_or((link, ""));
                    let end_index = self.read.saturating_add(whole.chars().count());
                    self.found.push(Citation {
                        start_index: self.read,
                        end_index,
                        url: url.to_owned(),
                        title: Some(title.to_owned()).filter(|title| !title.is_empty()),
                        description: None,
                    });
                    self.read = end_index;
                    rest = after;
                }
                Link::Begins if link.len() <= MAX_LINK => {
                    link.clone_into(&mut self.pending);
                    return;
                }
                _ => {
                    self.read = self.read.saturating_add(1);
                    rest = link.get(1..).unwrap_or("");
                }
            }
        }
        self.read = self.read.saturating_add(rest.chars().count());
    }

    /// The links so far.
    #[must_use]
    pub fn found(&self) -> &[Citation] {
        &self.found
    }
}

/// The beginning of a text as Markdown reads it.
enum Link<'a> {
    /// `[title](url)`, with its length in bytes.
    Whole { title: &'a str, url: &'a str, length: usize },
    /// The text ends before the link does.
    Begins,
    /// Something else.
    None,
}

fn split_at_bracket(text: &str) -> Option<(&str, &str)> {
    text.split_at_checked(text.find('[')?)
}

/// Reads the link with which the text begins. The title has no bracket and no line break, and the URL has no space and
/// no parenthesis.
fn parse(text: &str) -> Link<'_> {
    let Some(after) = text.strip_prefix('[') else { return Link::None };
    // A link is short, so the search for its end is short too.
    let near = after.get(..after.floor_char_boundary(MAX_LINK)).unwrap_or(after);
    let Some(end) = near.find(['[', ']', '\n']) else {
        return if near.len() == after.len() { Link::Begins } else { Link::None };
    };
    let (title, after) = near.split_at_checked(end).unwrap_or((near, ""));
    let Some(after) = after.strip_prefix(']') else { return Link::None };
    if after.is_empty() && near.len() < MAX_LINK {
        return Link::Begins;
    }
    let Some(after) = after.strip_prefix('(') else { return Link::None };
    let is_web = |url: &str| ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
    let may_become_web = |url: &str| ["https://", "http://"].iter().any(|scheme| scheme.starts_with(url));
    let Some(end) = after.find([')', '(', '<', '>', '"', ' ', '\n']) else {
        let begins = is_web(after) || may_become_web(after);
        return if begins && near.len() < MAX_LINK { Link::Begins } else { Link::None };
    };
    let (url, after) = after.split_at_checked(end).unwrap_or((after, ""));
    if !after.starts_with(')') || !is_web(url) {
        return Link::None;
    }
    // The two brackets and the two parentheses.
    let length = title.len().saturating_add(url.len()).saturating_add(4);
    Link::Whole { title, url, length }
}

//! Sanitizes text from guests, clients, models and peers for a log, a terminal or a line of JSON.
//!
//! Control characters and invisible characters are written as escapes. These are control characters (Cc), format
//! characters (Cf, which include changes of the writing direction), and line and paragraph separators (Zl, Zp). A
//! backslash is not escaped, because the text is for reading and is never parsed back. Unassigned characters are not
//! escaped either: they may become letters or pictures, and have no effect until then.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Write};
use std::iter;

use unicode_general_category::{GeneralCategory, get_general_category};

mod nearest;

pub use nearest::{Nearest, instead, nearest};

/// True if a character is not visible itself, but controls the text around it or the display.
#[must_use]
pub fn steers(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    matches!(
        get_general_category(character),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    )
}

/// The text as one line, with escapes such as `\n` and `\u{202e}`.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_, _, _| false)
}

/// Like [`line()`], cut to at most `limit` bytes after a whole character.
#[must_use]
pub fn line_within(text: &str, limit: usize) -> String {
    let mut line = String::with_capacity(text.len().min(limit));
    for character in text.chars() {
        let escape = steers(character).then(|| character.escape_default());
        let length = escape.as_ref().map_or(character.len_utf8(), ExactSizeIterator::len);
        // A character and its escape are taken whole or not at all.
        if line.len() + length > limit {
            break;
        }
        match escape {
            Some(escape) => line.extend(escape),
            None => line.push(character),
        }
    }
    line
}

/// An error and its causes, joined by `: `. Line breaks in the messages stay.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    // An error does not repeat its cause, so the chain as a whole has the reason.
    let mut cause = error.source();
    while let Some(error) = cause {
        // Errors for clients are whole sentences, and their causes follow in the same line.
        if text.ends_with('.') {
            text.pop();
        }
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The text, cut to at most `limit` bytes after a whole character. A text that was cut ends with `…` in addition.
#[must_use]
pub fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push('…');
        // Frees the memory of the part that was cut off.
        text.shrink_to_fit();
    }
    text
}

/// The text, with its line breaks and tabs, for a reader who wants the whole text. Joiners (U+200C, U+200D) between two
/// visible characters stay too, because Persian and family emoji need them.
#[must_use]
pub fn block(text: &str) -> Cow<'_, str> {
    // A carriage return before a line feed belongs to the line break. Any other one is escaped.
    let text = if text.contains("\r\n") { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) };
    let stays = |before: Option<char>, character: char, after: Option<char>| match character {
        '\n' | '\t' => true,
        '\u{200c}' | '\u{200d}' => joins(before) && joins(after),
        _ => false,
    };
    match text {
        Cow::Borrowed(text) => escaped(text, stays),
        Cow::Owned(text) => Cow::Owned(escaped(&text, stays).into_owned()),
    }
}

/// Like [`block`], without the final line break. All lines except the first begin with `indent`, so that no line looks
/// like a line of the program itself.
#[must_use]
pub fn indented(text: &str, indent: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (number, line_of_text) in text.trim_end_matches(['\n', '\r']).lines().enumerate() {
        if number > 0 {
            shown.push('\n');
            shown.push_str(indent);
        }
        shown.push_str(&block(line_of_text));
    }
    shown
}

/// Equivalent JSON in which invisible characters are escaped: DEL, and the non-ASCII characters that [`steers`] finds.
/// Other ASCII control characters need no escape. Within strings JSON already escapes them, and between tokens only
/// white space is allowed.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    // Most log lines are plain ASCII, which is checked many bytes at a time.
    if text.is_ascii() && !text.as_bytes().contains(&0x7f) {
        return Cow::Borrowed(text);
    }
    let is_harmful = |character: char| character == '\x7f' || (!character.is_ascii() && steers(character));
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_harmful(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string never fails.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// A writer that escapes text as [`line()`] does before it passes the text on.
pub struct Line<W>(pub W);

impl<W: Write> Write for Line<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&line(text))
    }
}

/// Escapes the characters that [`steers`] finds, except those for which `stays` returns true. `stays` gets the
/// character before, the character, and the character after.
fn escaped(text: &str, stays: impl Fn(Option<char>, char, Option<char>) -> bool) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut before = None;
    let following = text.chars().skip(1).map(Some).chain(iter::once(None));
    for (character, after) in text.chars().zip(following) {
        if steers(character) && !stays(before, character, after) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
        before = Some(character);
    }
    Cow::Owned(shown)
}

/// True if a joiner next to this character may stay. Letters and pictures with joined forms are never ASCII.
fn joins(neighbour: Option<char>) -> bool {
    neighbour.is_some_and(|character| !character.is_ascii() && !steers(character))
}

#[cfg(test)]
mod tests;

//! Text that a guest, a client, a model or a peer wrote, fit for a log, a terminal or a line of JSON.
//!
//! A character that steers whatever shows it, or that cannot be seen, is written as an escape: control characters (Cc),
//! format characters (Cf: those that change the direction of writing, invisible ones), separators of lines and
//! paragraphs (Zl, Zp). A backslash stays as it is, because the text is for reading and is never parsed back.
//! Unassigned characters stay too: they may be new letters and pictures, and do nothing until somebody assigns them.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Write};
use std::iter;

use unicode_general_category::{GeneralCategory, get_general_category};

mod nearest;

pub use nearest::{Nearest, instead, nearest};

/// True if the character does something to the text around it, or to whatever shows it, instead of being seen.
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

/// The text in one line, as in `a\nb` and `\u{202e}`.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_, _, _| false)
}

/// The same, cut to `limit` bytes where one character ends.
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

/// An error and everything that caused it, with `: ` between one and the next. It is as many lines as they have.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    // An error does not repeat its cause, so the chain as a whole tells the reason.
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

/// The text, cut after at most `limit` bytes where a character ends; `…` says that there was more.
#[must_use]
pub fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push('…');
        // The rest must not hold the memory of the part that was cut off.
        text.shrink_to_fit();
    }
    text
}

/// The text in as many lines as it has, for somebody who asked for this text. Tabs stay, and so do the joiners of letters
/// and pictures (U+200C, U+200D) between two characters that are seen: Persian and families of emoji need them.
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

/// The same without its last line break, and all lines but the first begin with `indent`, so that none of them can be taken
/// for a line of the program's own.
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

/// JSON that says the same, with the escapes of JSON for what is not ASCII and steers, and for DEL. What steers and is
/// ASCII is escaped in any JSON already, and stands between its tokens.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    // Nearly all lines of a log are this plain, and their bytes are looked at many at once.
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

/// Passes on what is written to it in one line, as [`line()`] has it.
pub struct Line<W>(pub W);

impl<W: Write> Write for Line<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&line(text))
    }
}

/// Escapes what steers, unless it `stays` between the characters before and after it.
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

/// True if a joiner can stand beside this character: letters and pictures that have joined forms are not ASCII.
fn joins(neighbour: Option<char>) -> bool {
    neighbour.is_some_and(|character| !character.is_ascii() && !steers(character))
}

#[cfg(test)]
mod tests;

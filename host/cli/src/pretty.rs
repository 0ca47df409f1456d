//! JSON for people: indented, with every number and the order of keys as they arrived.

use annex_protocol::Json;

const INDENT: &str = "  ";

/// Formats a JSON value over several lines, without a line break at the end. Control characters are escaped as in JSON.
pub(crate) fn pretty(json: &Json) -> String {
    pretty_text(json.get())
}

/// Formats the text of a JSON value as [`pretty`] does.
pub(crate) fn pretty_text(json: &str) -> String {
    let json = annex_text::json(json);
    let mut text = String::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    let mut is_empty = false;
    for character in json.chars() {
        if in_string {
            // Strings are copied as they are, because brackets and commas in them are text.
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
            text.push(character);
            continue;
        }
        if character.is_ascii_whitespace() {
            continue;
        }
        let closes = matches!(character, '}' | ']');
        // The text is valid JSON, so each closing bracket has had an opening one.
        depth -= usize::from(closes);
        // The line break after an opening bracket is added only before a first value, so that an empty object stays
        // `{}`.
        if is_empty != closes {
            break_line(&mut text, depth);
        }
        text.push(character);
        match character {
            ',' => break_line(&mut text, depth),
            ':' => text.push(' '),
            _ => {}
        }
        is_empty = matches!(character, '{' | '[');
        depth += usize::from(is_empty);
        in_string = character == '"';
    }
    text
}

fn break_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n(INDENT, depth));
}

#[cfg(test)]
mod tests;

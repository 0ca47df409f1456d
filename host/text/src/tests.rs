use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Write};

use super::{Line, block, cut, indented, json, line, line_within, steers, with_causes};

/// Characters that hostile texts use, each with its effect.
const HARMFUL: [(&str, char); 16] = [
    ("begins an escape sequence", '\x1b'),
    ("begins one in a single character", '\u{9b}'),
    ("rings", '\x07'),
    ("goes back to the beginning of the line", '\r'),
    ("ends the line", '\n'),
    ("is a line's end of mainframes", '\u{85}'),
    ("ends the line, for JavaScript and Python", '\u{2028}'),
    ("ends the paragraph", '\u{2029}'),
    ("turns the direction", '\u{202e}'),
    ("isolates a direction", '\u{2066}'),
    ("marks a direction", '\u{200f}'),
    ("marks the direction of Arabic", '\u{61c}'),
    ("is no space", '\u{200b}'),
    ("marks the order of bytes", '\u{feff}'),
    ("breaks words unseen", '\u{ad}'),
    ("tags unseen", '\u{e0041}'),
];

/// All characters, in chunks of 4,096.
fn every_character() -> impl Iterator<Item = Vec<char>> {
    let all: Vec<char> = ('\0'..=char::MAX).collect();
    let parts: Vec<Vec<char>> = all.chunks(4096).map(<[char]>::to_vec).collect();
    parts.into_iter()
}

fn spaced(characters: &[char]) -> String {
    characters.iter().flat_map(|&character| ['a', character]).chain(['a']).collect()
}

#[test]
fn the_categories_match_an_independent_table() {
    let table = regex::Regex::new(r"[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]").expect("a pattern");
    for characters in every_character() {
        let text: String = characters.iter().collect();
        let expected: Vec<char> = table.find_iter(&text).flat_map(|found| found.as_str().chars()).collect();
        let found: Vec<char> = characters.into_iter().filter(|&character| steers(character)).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_line_escapes_all_controlling_characters_and_changes_no_others() {
    for characters in every_character() {
        let text = spaced(&characters);
        let escape = |character: char| {
            if steers(character) { character.escape_default().to_string() } else { character.to_string() }
        };
        let expected: String = text.chars().map(escape).collect();
        let shown = line(&text);
        assert_eq!(shown, expected);
        assert!(!shown.contains(steers));
        assert_eq!(line_within(&text, usize::MAX), shown);
    }
}

#[test]
fn blocks_keep_line_breaks_and_tabs_and_nothing_else_that_steers() {
    for characters in every_character() {
        let shown = block(&spaced(&characters)).into_owned();
        let left: Vec<char> = shown.chars().filter(|&left| steers(left)).collect();
        let expected: Vec<char> =
            characters.into_iter().filter(|&character| matches!(character, '\n' | '\t')).collect();
        assert_eq!(left, expected);
    }
}

#[test]
fn escaped_json_is_equivalent_and_has_no_controlling_characters() {
    for characters in every_character() {
        let value = spaced(&characters);
        let text = serde_json::to_string(&value).expect("JSON");
        let shown = json(&text);
        assert!(!shown.contains(steers));
        let read: String = serde_json::from_str(&shown).expect("JSON still");
        assert_eq!(read, value);
    }
}

#[test]
fn json_that_is_written_for_reading_keeps_its_lines() {
    let text = "{\n  \"a\": \"\u{2028}\"\n}";
    assert_eq!(json(text), "{\n  \"a\": \"\\u2028\"\n}");
}

#[test]
fn unsafe_characters_are_escaped_by_code_point() {
    for (what, character) in HARMFUL {
        assert!(steers(character), "{what}");
        let text = format!("a{character}b");
        assert_eq!(line(&text), format!("a{}b", character.escape_default()), "{what}");
    }
    assert_eq!(line("\u{202e}\u{1b}[2J"), "\\u{202e}\\u{1b}[2J");
}

#[test]
fn safe_text_is_borrowed() {
    for text in ["", "plain", "Zoë schrieb: \"新しい\" 👍🏽 \\n"] {
        assert!(matches!(line(text), Cow::Borrowed(shown) if shown == text), "{text}");
        assert!(matches!(block(text), Cow::Borrowed(_)) && matches!(json(text), Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn joiners_are_kept_only_between_visible_characters() {
    let family = "👩\u{200d}👧";
    let persian = "می\u{200c}خواهم";
    assert_eq!(block(family), family);
    assert_eq!(block(persian), persian);
    assert_eq!(line(family), "👩\\u{200d}👧");
    for hidden in ["pass\u{200d}word", "\u{200d}👧", "👩\u{200d}", "👩\u{200d}\u{200d}👧", "👩\u{200d}\u{202e}"]
    {
        assert!(block(hidden).contains("\\u{200d}"), "{hidden:?}");
    }
}

#[test]
fn crlf_is_a_line_break_and_a_lone_return_is_escaped() {
    assert_eq!(block("a\r\nb\rc"), "a\nb\\rc");
}

#[test]
fn further_lines_are_indented() {
    assert_eq!(indented("a\nerror: b\r\n\u{202e}c\n", "  "), "a\n  error: b\n  \\u{202e}c");
    assert_eq!(indented("", "  "), "");
}

#[test]
fn a_cut_line_keeps_characters_and_escapes_whole() {
    let expected = [("abc", 3, "abc"), ("abc", 2, "ab"), ("a\nb", 4, "a\\nb"), ("a\nb", 2, "a"), ("aé", 2, "a")];
    for (text, limit, cut) in expected {
        assert_eq!(line_within(text, limit), cut, "{text:?} in {limit} bytes");
    }
}

#[test]
fn text_written_in_pieces_becomes_one_line() {
    let mut shown = String::new();
    write!(Line(&mut shown), "a\nb").expect("a string takes it");
    assert_eq!(shown, "a\\nb");
}

#[test]
fn a_text_is_cut_where_a_character_ends_and_says_so() {
    assert_eq!(cut("Grüße".to_owned(), 7), "Grüße");
    assert_eq!(cut("Grüße".to_owned(), 4), "Grü…");
    assert_eq!(cut("Grüße".to_owned(), 3), "Gr…");
    assert_eq!(cut("a".repeat(1 << 20), 8).capacity(), "aaaaaaaa…".len());
}

/// An error with its cause.
#[derive(Debug)]
struct Failure(&'static str, Option<Box<Self>>);

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_deref().map(|cause| cause as _)
    }
}

#[test]
fn an_error_is_printed_with_all_its_causes() {
    let cause = Failure("no connection", Some(Box::new(Failure("the port is closed", None))));
    let error = Failure("the task is lost", Some(Box::new(cause)));
    assert_eq!(with_causes(&error), "the task is lost: no connection: the port is closed");
    assert_eq!(with_causes(&Failure("alone", None)), "alone");
    let sentence = Failure("Try again later.", Some(Box::new(Failure("cannot connect", None))));
    assert_eq!(with_causes(&sentence), "Try again later: cannot connect");
}

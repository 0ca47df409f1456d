//! Shapes of sentences that readers of this project had to read twice.
//!
//! A shape is a sign and not a fault: sometimes it is the plainest wording. In code bases that are easy to read, 2 to 5
//! of 100 doc comments have a shape, and almost none has two. The tests therefore only bound the share of passages with
//! a shape.

/// The shapes. Each row is one shape, written as sequences of adjacent words.
///
/// A space separates the words of a sequence, and `|` separates alternatives for a word. A word with a leading `!` must
/// not follow. A sequence with a leading `^` must begin the text, with a capital letter.
const SHAPES: [&[&str]; 8] = [
    // A pronoun after a preposition: its noun may be in another sentence.
    &["of|for|to|with|by|at|on|from it|them"],
    // A clause whose subject is a pronoun, such as "the turn that it began".
    &["that it|they|he|there|nobody|somebody|others|one"],
    // A clause as the subject, such as "Whoever waits".
    &["^That|Those|What|Whether|Who|Whoever|Whom|How|As|Of"],
    // "What was there", but not "there is a limit".
    &["is|are|was|were|be there|gone|over !a|an|no|any"],
    // A pronoun in place of a noun.
    &["no such", "one|those that", "whoever|somebody|nobody|whatever"],
    &["what is|was|it|they|has|have|comes|goes|no|a|an|the"],
    // Words that are rare outside of this project.
    &["in force|turn", "for good", "so long", "beside|besides|elsewhere|meanwhile"],
    // One verb of speech for logging, returning, notifying and labelling.
    &[
        "is|are|was|were|be told|said|asked|let|heard|meant",
        "is|are|was|were|be looked at",
        "is|are|was|were|be left out",
    ],
];

/// The number of shapes that a text has.
pub(crate) fn count(text: &str) -> usize {
    let words = words(text);
    SHAPES.iter().filter(|sequences| sequences.iter().any(|sequence| is_in(&words, sequence))).count()
}

/// A word of a text.
struct Word {
    text: String,
    /// True if exactly one space separates it from the previous word.
    is_adjacent: bool,
}

fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut gap = String::new();
    let mut in_word = false;
    for character in text.chars() {
        if !(character.is_alphanumeric() || character == '_') {
            in_word = false;
            gap.push(character);
            continue;
        }
        match words.last_mut() {
            Some(word) if in_word => word.text.push(character),
            _ => words.push(Word { text: character.to_string(), is_adjacent: gap == " " }),
        }
        gap.clear();
        in_word = true;
    }
    words
}

fn is_in(words: &[Word], sequence: &str) -> bool {
    match sequence.strip_prefix('^') {
        Some(begin) => words.first().is_some_and(|word| begin.split('|').any(|option| option == word.text)),
        None => (0..words.len()).any(|start| begins_at(words, start, sequence)),
    }
}

fn begins_at(words: &[Word], start: usize, sequence: &str) -> bool {
    sequence.split(' ').enumerate().all(|(index, options)| {
        let word = words.get(start + index).filter(|word| index == 0 || word.is_adjacent);
        let is_among = |options: &str| {
            word.is_some_and(|word| options.split('|').any(|option| option.eq_ignore_ascii_case(&word.text)))
        };
        match options.strip_prefix('!') {
            Some(options) => !is_among(options),
            None => is_among(options),
        }
    })
}

#[test]
fn each_shape_is_found_and_plain_sentences_have_none() {
    let shaped = [
        "The end of it.",
        "The turn that it began.",
        "Whoever waits.",
        "The file was there.",
        "There is no such file.",
        "Reads what was written.",
        "The turns in force.",
        "The client is told.",
    ];
    for text in shaped {
        assert!(count(text) > 0, "{text}");
    }
    let plain = [
        "True if there is a limit.",
        "There are over an hour of lines.",
        "The result of that. It ends here.",
        "Returns the number of rows.",
        "",
    ];
    for text in plain {
        assert_eq!(count(text), 0, "{text}");
    }
    assert_eq!(count("Whoever waits is told what was there."), 5);
}

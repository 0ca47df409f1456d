//! Checks the names of types. Some names say nothing of the type's content: bare participles such as `Kept`, and the
//! words `State` and `Place`.

use std::fs;
use std::path::Path;

use crate::passages::files;

/// The largest share of type names that are bare participles, in tenths of a percent.
const MOST_PARTICIPLES: usize = 20;
/// Names that several modules would use for different content, each with the most types that may have the name.
const COMMON: [(&str, usize); 2] = [("State", 2), ("Place", 1)];

/// Participles that do not end with `ed`.
const IRREGULAR: &[&str] = &[
    "Begun",
    "Broken",
    "Built",
    "Chosen",
    "Cut",
    "Drawn",
    "Found",
    "Given",
    "Gone",
    "Grown",
    "Heard",
    "Held",
    "Hidden",
    "Kept",
    "Known",
    "Left",
    "Lent",
    "Lost",
    "Made",
    "Met",
    "Said",
    "Seen",
    "Sent",
    "Shown",
    "Spent",
    "Split",
    "Taken",
    "Told",
    "Understood",
    "Won",
    "Written",
];
/// Nouns that end with `ed` and are not participles.
const NOUNS: &[&str] = &["Feed", "Need", "Seed", "Speed"];

/// The name of the type that a line defines, if the line is formatted by `rustfmt`. Indented aliases are skipped,
/// because almost all of them are associated types, whose names the trait chooses.
fn defined_in(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let text = text.strip_prefix("pub").map_or(text, |text| match text.strip_prefix('(') {
        Some(text) => text.split_once(')').map_or("", |(_, text)| text),
        None => text,
    });
    let (keyword, rest) = text.trim_start().split_once(' ')?;
    let is_definition = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let name = rest.split(|next: char| !next.is_alphanumeric() && next != '_').next()?;
    (is_definition && name.starts_with(char::is_uppercase)).then_some(name)
}

fn is_participle(name: &str) -> bool {
    let is_one_word = name.chars().filter(|letter| letter.is_uppercase()).count() == 1;
    is_one_word && !NOUNS.contains(&name) && (name.ends_with("ed") || IRREGULAR.contains(&name))
}

#[test]
fn type_names_are_nouns_that_say_their_content() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the root of the workspace");
    let mut all = Vec::new();
    for file in files(root).into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        let source = fs::read_to_string(&file).expect("a file in UTF-8");
        let path = file.strip_prefix(root).expect("a path below the root").display().to_string();
        all.extend(source.lines().filter_map(defined_in).map(|name| (name.to_owned(), path.clone())));
    }
    let participles: Vec<_> = all.iter().filter(|(name, _)| is_participle(name)).collect();
    let share = (participles.len() * 1000).div_ceil(all.len().max(1));
    println!("{} types, {} participles: {share} ‰", all.len(), participles.len());
    assert!(share <= MOST_PARTICIPLES, "{share} ‰ of the type names are bare participles: {participles:#?}");
    for (common, most) in COMMON {
        let types: Vec<_> = all.iter().filter(|(name, _)| name == common).collect();
        println!("{} types are called {common}", types.len());
        assert!(types.len() <= most, "more than {most} types are called {common}: {types:#?}");
    }
}

#[test]
fn definitions_and_participles_are_recognised() {
    let cases = [
        ("pub(crate) struct Kept<'a> {", Some("Kept")),
        ("    enum Listed {", Some("Listed")),
        ("pub type Sent = u8;", Some("Sent")),
        ("    type Error = Infallible;", None),
        ("impl Kept {", None),
        ("// A struct Kept", None),
    ];
    for (line, expected) in cases {
        assert_eq!(defined_in(line), expected, "{line}");
    }
    assert!(["Kept", "Listed", "Sent"].into_iter().all(is_participle));
    assert!(!["KeptVersion", "Seed", "Place"].into_iter().any(is_participle));
}

//! Passages of prose: the doc comments of Rust files and the sentences of Markdown pages.

use std::fs;
use std::path::{Path, PathBuf};

/// A passage: the number of its first line, and its text.
pub(crate) type Passage = (usize, String);

/// Names of folders that are not read: build outputs and generated files.
const SKIPPED: [&str; 4] = ["target", "node_modules", "snapshots", "sdk/src/bindings"];
/// The fewest words of a sentence that counts.
const FEWEST_WORDS: usize = 4;

/// All Rust and Markdown files below a folder, in order.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_skipped = is_hidden || SKIPPED.iter().any(|skipped| path.ends_with(skipped));
        if path.is_dir() && !path.is_symlink() && !is_skipped {
            files.extend(self::files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            files.push(path);
        }
    }
    files
}

/// The doc comments of a Rust file.
pub(crate) fn doc_comments(source: &str) -> Vec<Passage> {
    let mut comments: Vec<Passage> = Vec::new();
    let mut is_open = false;
    for (number, line) in (1..).zip(source.lines()) {
        let line = line.trim_start();
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_open = false;
            continue;
        };
        match comments.last_mut().filter(|_| is_open) {
            Some((_, comment)) => *comment += &format!(" {}", text.trim()),
            None => comments.push((number, text.trim().to_owned())),
        }
        is_open = true;
    }
    comments
}

/// The sentences and table cells of a Markdown page, without headings and code blocks.
pub(crate) fn sentences(page: &str) -> Vec<Passage> {
    let mut sentences = Vec::new();
    let mut paragraph: Option<Passage> = None;
    let mut is_fenced = false;
    for (number, line) in (1..).zip(page.lines()) {
        let is_item = ["- ", "* ", "| "].iter().any(|mark| line.trim_start().starts_with(mark));
        if is_item {
            sentences.extend(paragraph.take().into_iter().flat_map(split));
        }
        if line.starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced || line.trim().is_empty() || line.starts_with('#') {
            sentences.extend(paragraph.take().into_iter().flat_map(split));
        } else {
            match &mut paragraph {
                Some((_, text)) => *text += &format!(" {}", line.trim()),
                None => paragraph = Some((number, line.trim().to_owned())),
            }
        }
    }
    sentences.extend(paragraph.into_iter().flat_map(split));
    sentences
}

fn split((line, paragraph): Passage) -> Vec<Passage> {
    let cells = paragraph.split('|');
    let sentences = cells.flat_map(|cell| {
        let mut sentences = vec![String::new()];
        for word in cell.split_whitespace() {
            let sentence = sentences.last_mut().expect("one");
            *sentence += &format!("{}{word}", if sentence.is_empty() { "" } else { " " });
            if word.ends_with(['.', '!', '?', ':']) {
                sentences.push(String::new());
            }
        }
        sentences
    });
    let sentences = sentences.filter(|sentence| sentence.split_whitespace().count() >= FEWEST_WORDS);
    sentences.map(|sentence| (line, sentence)).collect()
}

#[test]
fn doc_comments_and_sentences_are_found_with_their_lines() {
    let source = "//! A crate.\n\n/// One\n/// comment.\nfn f() {}\n// No doc comment.\n    /// Another.\n";
    let expected = [(1, "A crate."), (3, "One comment."), (7, "Another.")];
    let expected: Vec<Passage> = expected.map(|(line, text)| (line, text.to_owned())).into();
    assert_eq!(doc_comments(source), expected);

    let page = "# A long heading of words\nOne sentence has four. Too short.\nIt goes\non: here and there too\n\n```\ncode with some more words\n```\n| a | cell of a table |\n";
    let expected = [(2, "One sentence has four."), (2, "here and there too"), (9, "cell of a table")];
    let expected: Vec<Passage> = expected.map(|(line, text)| (line, text.to_owned())).into();
    assert_eq!(sentences(page), expected);
}

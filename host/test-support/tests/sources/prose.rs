//! Bounds the share of doc comments and sentences that have to be read twice, for each crate and each kind of page.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::passages::{doc_comments, files, sentences};
use crate::shapes;

/// The largest allowed shares of the passages of a group, in tenths of a percent.
#[derive(Clone, Copy)]
struct Bounds {
    /// The share of passages with one shape or more.
    any: usize,
    /// The share of passages with two shapes or more.
    several: usize,
}

/// The bounds for the doc comments of a crate.
const COMMENTS: Bounds = Bounds { any: 60, several: 5 };
/// The bounds for the sentences of pages.
const PAGES: Bounds = Bounds { any: 80, several: 10 };

/// The most passages that a failure prints.
const MOST_SHOWN: usize = 20;
/// The most characters of a passage that a failure prints.
const MOST_CHARACTERS: usize = 200;

/// The passages of a crate, or of one kind of page.
#[derive(Default)]
struct Group {
    passages: usize,
    /// The passages that have a shape: the number of shapes, the file with the line, and the text.
    shaped: Vec<(usize, String, String)>,
}

/// The group of a file: its crate, or its kind of page.
fn group_of(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [area, name, ..] if path.ends_with(".rs") => format!("{area}/{name}"),
        ["host", "docs", "decisions", ..] => "decisions".to_owned(),
        ["host", "docs", ..] => "host/docs".to_owned(),
        [folder, _, ..] => format!("pages of {folder}"),
        _ => path.to_owned(),
    }
}

fn read_groups(root: &Path) -> BTreeMap<String, Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for file in files(root) {
        let path = file.strip_prefix(root).expect("a path below the root").to_str().expect("a path in UTF-8");
        let text = fs::read_to_string(&file).expect("a file in UTF-8");
        let passages = if path.ends_with(".rs") { doc_comments(&text) } else { sentences(&text) };
        let group = groups.entry(group_of(path)).or_default();
        group.passages += passages.len();
        for (line, text) in passages {
            let found = shapes::count(&text);
            if found > 0 {
                group.shaped.push((found, format!("{path}:{line}"), text));
            }
        }
    }
    groups
}

fn bounds_of(name: &str) -> Bounds {
    let is_crate = name.contains('/') && name != "host/docs";
    if is_crate { COMMENTS } else { PAGES }
}

impl Group {
    fn several(&self) -> usize {
        self.shaped.iter().filter(|(found, ..)| *found > 1).count()
    }

    /// The text of the failure if the group exceeds its bounds; `None` if it does not. A bound is rounded up to a whole
    /// passage.
    fn complaint(&mut self, name: &str, Bounds { any, several }: Bounds) -> Option<String> {
        let allowed = |bound: usize| (self.passages * bound).div_ceil(1000);
        let (with_any, with_several) = (self.shaped.len(), self.several());
        if with_any <= allowed(any) && with_several <= allowed(several) {
            return None;
        }
        let mut complaint = format!(
            "{name}: of {} passages {with_any} have to be read twice, and {} may; {with_several} have several reasons, \
             and {} may. The worst:\n",
            self.passages,
            allowed(any),
            allowed(several),
        );
        self.shaped.sort_by_key(|(found, ..)| Reverse(*found));
        for (_, place, text) in self.shaped.iter().take(MOST_SHOWN) {
            complaint += &format!("  {place}: {}\n", text.chars().take(MOST_CHARACTERS).collect::<String>());
        }
        Some(complaint)
    }
}

#[test]
fn few_doc_comments_and_sentences_of_pages_have_to_be_read_twice() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the root of the workspace");
    let mut complaints = String::new();
    for (name, mut group) in read_groups(root) {
        let share = |count: usize| (count * 1000).div_ceil(group.passages.max(1));
        println!("{name}: {} passages, {} and {} ‰", group.passages, share(group.shaped.len()), share(group.several()));
        complaints += &group.complaint(&name, bounds_of(&name)).unwrap_or_default();
    }
    assert!(complaints.is_empty(), "{complaints}");
}

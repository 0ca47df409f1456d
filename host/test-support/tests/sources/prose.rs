//! The share of doc comments and sentences that have to be read twice, per crate and kind of page.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::passages::{doc_comments, files, sentences};
use crate::shapes;

/// Bounds for the passages of a group, in tenths of a percent.
#[derive(Clone, Copy)]
struct Bounds {
    /// Passages with any shape.
    any: usize,
    /// Passages with two or more shapes.
    several: usize,
}

/// Bounds for doc comments.
const COMMENTS: Bounds = Bounds { any: 60, several: 5 };
/// Bounds for sentences of pages.
const PAGES: Bounds = Bounds { any: 80, several: 10 };

/// Groups that do not meet the bounds above yet, with their present shares of passages with any and with several shapes.
/// Lower an entry when its group improves, and remove the entry when the group meets the bounds.
const NOT_YET: &[(&str, usize, usize)] = &[
    ("ARCHITECTURE.md", 120, 10),
    ("CHANGELOG.md", 200, 20),
    ("CONTRIBUTING.md", 270, 35),
    ("README.md", 180, 10),
    ("SECURITY.md", 140, 15),
    ("decisions", 220, 65),
    ("guest/agent-gateway-protocol", 220, 45),
    ("guest/ap2", 330, 140),
    ("guest/compliance-badge", 200, 5),
    ("guest/generating-image", 370, 5),
    ("guest/in-task-authorization", 230, 50),
    ("guest/payment-cards", 170, 60),
    ("guest/sdk", 200, 60),
    ("guest/secure-passport", 130, 15),
    ("guest/session-sharing", 260, 30),
    ("guest/state-injection", 220, 90),
    ("guest/strict-parts", 210, 45),
    ("guest/task-history", 270, 30),
    ("guest/test-capabilities", 140, 5),
    ("guest/test-extension", 230, 25),
    ("guest/timestamp", 370, 95),
    ("guest/traceability", 320, 5),
    ("host/agent", 250, 60),
    ("host/auth", 190, 35),
    ("host/authoring", 190, 40),
    ("host/bench", 220, 45),
    ("host/cli", 230, 60),
    ("host/client", 220, 45),
    ("host/leases", 520, 245),
    ("host/components", 330, 30),
    ("host/docs", 100, 10),
    ("host/fuzz", 320, 80),
    ("host/grpc", 180, 40),
    ("host/protocol", 130, 25),
    ("host/session", 270, 65),
    ("host/tasks", 330, 95),
    ("host/upstream", 340, 110),
    ("pages of examples", 180, 20),
    ("pages of guest", 170, 30),
    ("pages of host", 250, 50),
    ("pages of wit", 150, 10),
];

/// Number of passages in a failure.
const MOST_SHOWN: usize = 20;
/// Characters of each passage in a failure.
const MOST_CHARACTERS: usize = 200;

/// The passages of a group.
#[derive(Default)]
struct Group {
    passages: usize,
    /// Number of shapes, place and text of each passage with a shape.
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
    let usual = if is_crate { COMMENTS } else { PAGES };
    let entry = NOT_YET.iter().find(|(listed, ..)| *listed == name);
    entry.map_or(usual, |(_, any, several)| Bounds { any: *any, several: *several })
}

impl Group {
    fn several(&self) -> usize {
        self.shaped.iter().filter(|(found, ..)| *found > 1).count()
    }

    /// Why the group exceeds its bounds. A bound is rounded up to a whole passage.
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

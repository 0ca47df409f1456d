//! The pages of this repository: every TOML block loads, every link has a target, and every named test exists.
//!
//! A TOML block is a part of a config. The tests add the missing card and agent. They add no card to a block with an
//! agent: such a block is a whole config, which readers use unchanged. A block that is not a config has a label:
//! `toml,settings` is the settings file of an extension, and `toml,cargo` is a file of Cargo.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use annex_server::{Config, ExtensionConfig};

use crate::incidents;

/// The folders with pages, apart from the top level.
const FOLDERS: [&str; 4] = ["examples", "guest", "host", "wit"];
/// Folders that tools fill.
const FOREIGN: [&str; 4] = ["artifacts", "corpus", "node_modules", "target"];
/// Pages that are read in one go, and how many bytes they may have.
const SHORT: [(&str, usize); 2] = [("README.md", 10_240), ("ARCHITECTURE.md", 12_000)];
/// The beginnings of the paragraphs of a decision, in their order.
const DECISION: [&str; 6] = ["Decided: ", "Because: ", "Measured: ", "Instead of: ", "Costs: ", "Look again when: "];

const CARD: &str = r#"
[card]
name = "n"
description = "d"
"#;
const AGENT: &str = r#"
[agent]
kind = "template"
name = "a"
instruction = "i"
[agent.model.scripted]
fallback = "f"
"#;

struct Page {
    path: PathBuf,
    text: String,
}

/// A fenced block.
struct Block {
    info: String,
    text: String,
    line: usize,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "md")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// The pages at the top level and below the folders.
fn pages() -> Vec<Page> {
    let mut paths: Vec<PathBuf> = entries(&root()).into_iter().filter(|path| path.is_file() && is_page(path)).collect();
    for folder in FOLDERS {
        find(&root().join(folder), &mut paths);
    }
    paths.into_iter().map(|path| Page { text: read(&path), path }).collect()
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in entries(folder) {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let is_foreign = name.starts_with('.') || FOREIGN.contains(&name);
        if path.is_dir() && !is_foreign {
            find(&path, found);
        } else if path.is_file() && is_page(&path) {
            found.push(path);
        }
    }
}

fn is_fence(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        if is_fence(line) {
            is_open = !is_open;
            if is_open {
                let info = line.trim().trim_start_matches('`').to_owned();
                blocks.push(Block { info, text: String::new(), line: index + 1 });
            }
        } else if is_open && let Some(block) = blocks.last_mut() {
            block.text.push_str(line);
            block.text.push('\n');
        }
    }
    blocks
}

/// The lines outside of fenced blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if is_fence(line) {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line);
        }
    }
    lines
}

/// The block with a card and an agent where it has neither.
fn whole(block: &str) -> Result<String, String> {
    let tables: toml::Table = toml::from_str(block).map_err(|error| error.to_string())?;
    let has_agent = tables.get("agent").is_some_and(|agent| agent.get("kind").is_some());
    let card = if has_agent || tables.contains_key("card") { "" } else { CARD };
    let agent = if has_agent { "" } else { AGENT };
    Ok(format!("{card}{agent}{block}"))
}

fn load(block: &Block) -> Result<(), String> {
    match block.info.as_str() {
        "toml" => {
            let config = Config::parse(Path::new("annex.toml"), &whole(&block.text)?);
            config.map(drop).map_err(|error| error.to_string())
        }
        "toml,settings" => ExtensionConfig::read_installation(&block.text, Path::new(".")).map(drop),
        "toml,cargo" => toml::from_str::<toml::Table>(&block.text).map(drop).map_err(|error| error.to_string()),
        other => Err(format!("{other:?} is none of toml, toml,settings and toml,cargo")),
    }
}

/// The anchor that GitHub makes of a heading, if no other heading of the page has the same.
fn anchor(heading: &str) -> String {
    let in_anchor = |letter: char| match letter {
        ' ' => Some('-'),
        letter => (letter.is_alphanumeric() || matches!(letter, '-' | '_')).then_some(letter),
    };
    heading.to_lowercase().chars().filter_map(in_anchor).collect()
}

/// The anchors that GitHub makes of the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(text).into_iter().filter(|line| line.starts_with('#')) {
        let name = anchor(line.trim_start_matches('#').trim());
        let repeated = (1..).map(|count| format!("{name}-{count}"));
        let free = iter::once(name.clone()).chain(repeated).find(|anchor| !anchors.contains(anchor));
        anchors.extend(free);
    }
    anchors
}

/// The targets of the links in a page.
fn links(text: &str) -> Vec<&str> {
    let after_texts = prose(text).into_iter().flat_map(|line| line.split("](").skip(1));
    after_texts.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// The fault of a link, if it has one.
fn fault(page: &Page, target: &str) -> Option<&'static str> {
    if target.contains("://") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    if path.starts_with('/') {
        return Some("leads out of the repository");
    }
    let file = if path.is_empty() { page.path.clone() } else { page.path.with_file_name("").join(path) };
    if !file.exists() {
        return Some("leads nowhere");
    }
    let is_there = anchor.is_empty() || !is_page(&file) || anchors(&read(&file)).contains(anchor);
    (!is_there).then_some("names no heading of that page")
}

#[test]
fn every_block_of_toml_in_the_pages_is_loaded() {
    let mut loaded = 0;
    let mut faults = Vec::new();
    for page in pages() {
        for block in blocks(&page.text).iter().filter(|block| block.info.starts_with("toml")) {
            loaded += 1;
            if let Err(reason) = load(block) {
                faults.push(format!("{}:{}: {reason}", page.path.display(), block.line));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(loaded > 20, "{loaded} blocks were found");
}

#[test]
fn every_link_in_the_pages_leads_to_a_file_and_a_heading() {
    let mut followed = 0;
    let mut faults = Vec::new();
    for page in pages() {
        for target in links(&page.text) {
            followed += 1;
            if let Some(fault) = fault(&page, target) {
                faults.push(format!("{}: {target} {fault}", page.path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(followed > 100, "{followed} links were found");
}

#[test]
fn anchors_are_those_that_a_reader_of_the_repository_gets() {
    let page = "# A title\n```sh\n# no heading\n```\n## `[auth]` & more\n## Two_words-3\n## A title\n";
    let expected = ["a-title", "a-title-1", "auth--more", "two_words-3"];
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn the_first_pages_are_short_enough_to_be_read_in_one_go() {
    for (name, most) in SHORT {
        let bytes = read(&root().join(name)).len();
        assert!(bytes <= most, "{name} has {bytes} bytes of at most {most}: move something to host/docs");
    }
}

/// The pages of a folder except its index, with their file names.
fn indexed_pages(folder: &str) -> Vec<(String, String)> {
    let files = entries(&root().join(folder)).into_iter().filter(|path| path.is_file() && !path.ends_with("README.md"));
    files.map(|path| (path.file_name().expect("a name").to_string_lossy().into_owned(), read(&path))).collect()
}

#[test]
fn every_page_for_operators_is_in_its_index() {
    let index = read(&root().join("host/docs/README.md"));
    let listed = links(&index);
    for (name, _) in indexed_pages("host/docs") {
        assert!(listed.contains(&name.as_str()), "{name} is not in the index of host/docs");
    }
}

#[test]
fn every_decision_is_in_the_index_of_decisions() {
    let index = read(&root().join("host/docs/decisions/README.md"));
    let mut found = 0;
    for (name, text) in indexed_pages("host/docs/decisions") {
        for heading in text.lines().filter_map(|line| line.strip_prefix("## ")) {
            found += 1;
            let entry = format!("- [{heading}]({name}#{})", anchor(heading));
            assert!(
                index.lines().any(|line| line == entry),
                "the index of host/docs/decisions lacks this line: {entry}"
            );
        }
    }
    assert!(found > 100, "{found} decisions were found");
}

#[test]
fn every_decision_has_its_paragraphs_in_order_and_none_without_content() {
    for (name, text) in indexed_pages("host/docs/decisions") {
        for section in text.split("\n## ").skip(1) {
            // Tables and further text may follow under headings of their own.
            let decision = section.split("\n### ").next().unwrap_or_default();
            let mut paragraphs = decision.trim_end().split("\n\n");
            let heading = paragraphs.next().unwrap_or_default();
            let label = |paragraph: &str| DECISION.into_iter().position(|start| paragraph.starts_with(start));
            let labels: Vec<Option<usize>> = paragraphs.map(label).collect();
            let place =
                format!("{name}, {heading:?}: the paragraphs of a decision begin with {DECISION:?}, in this order");
            assert_eq!(labels.first(), Some(&Some(0)), "{place}");
            assert!(labels.iter().all(Option::is_some) && labels.is_sorted_by(|a, b| a < b), "{place}");
            assert!(!section.contains("not recorded"), "{name}, {heading:?}: leave out a paragraph without content");
        }
    }
}

/// The code in which tests are looked up by their names.
fn code() -> String {
    let mut code = String::new();
    for folder in ["host", "guest"] {
        incidents::collect(&root().join(folder), &mut code);
    }
    code
}

/// The names in backquotes. Each must be the name of a test.
fn named_tests<'a>(text: &'a str, code: &str) -> Vec<&'a str> {
    let tests: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    for test in &tests {
        assert!(code.contains(&format!("fn {test}(")), "there is no test {test}");
    }
    tests
}

/// Each invariant names its tests, or states that there is none.
#[test]
fn every_test_that_the_page_on_architecture_names_is_there() {
    let page = read(&root().join("ARCHITECTURE.md"));
    let (_, invariants) = page.split_once("\n## Invariants\n").expect("the invariants");
    let code = code();
    let mut named = 0;
    for invariant in invariants.split("\n- ").skip(1) {
        let Some((_, tests)) = invariant.split_once("test: ") else {
            assert!(invariant.to_lowercase().contains("no test"), "neither a test nor \"no test\": {invariant}");
            continue;
        };
        named += named_tests(tests, &code).len();
    }
    assert!(named > 20, "{named} tests are named");
}

/// Each extension that can be written, also in part, has a test or a link as proof. Another test follows the links.
#[test]
fn every_extension_that_can_be_written_has_a_test_or_an_example() {
    let page = read(&root().join("host/docs/extensions.md"));
    let (_, table) = page.split_once("\n## Which extensions can be written\n").expect("the table");
    let code = code();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    for row in &rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, answer, how, proof] = cells[..] else { panic!("four columns: {row}") };
        assert!(!how.is_empty(), "hooks, or the reason: {row}");
        let has_proof = !named_tests(proof, &code).is_empty() || !links(proof).is_empty();
        match answer {
            "yes" | "yes, ships" | "yes, an example" | "in part" | "in part, an example" => {
                assert!(has_proof, "a test or an example: {row}")
            }
            "no" => assert!(has_proof || proof == "none", "a test, an example or \"none\": {row}"),
            _ => panic!("\"yes\", \"in part\" or \"no\": {row}"),
        }
    }
    assert!(rows.len() > 20, "{} rows", rows.len());
}

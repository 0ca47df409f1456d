//! Checks that only `host/leases` names the table of leases. Other crates embed the SQL of that crate, so that all
//! crates query leases in the same way.

use std::fs;
use std::path::{Path, PathBuf};

/// The SQL words that stand in front of the name of a table.
const BEFORE: [&str; 6] = ["FROM", "JOIN", "INTO", "UPDATE", "TABLE", "REFERENCES"];

#[test]
fn only_leases_names_its_table() {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates");
    let mut complaints = Vec::new();
    let mut owner = 0;
    for file in sources(host) {
        let text = fs::read_to_string(&file).expect("a file in UTF-8");
        let lines = text.lines().enumerate().filter(|(_, line)| names_table(line));
        if file.starts_with(host.join("leases")) {
            owner += lines.count();
        } else {
            complaints.extend(lines.map(|(number, line)| format!("{}:{}: {line}", file.display(), number + 1)));
        }
    }
    assert!(owner > 10, "the statements of the owner are not found: {owner}");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// The Rust and SQL files of all crates, including tests.
fn sources(host: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = ["src", "tests", "migrations"]
        .iter()
        .flat_map(|part| crates(host).into_iter().map(move |folder| folder.join(part)))
        .filter(|folder| folder.is_dir())
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "sql") {
                files.push(path);
            }
        }
    }
    files
}

/// The folders of all crates except this one, which contains the SQL words itself.
fn crates(host: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(host).expect("the folder of crates").map(|entry| entry.expect("a crate").path());
    folders.filter(|folder| !folder.ends_with("test-support")).collect()
}

/// True if a line contains SQL that names the table, such as `SELECT id FROM replica WHERE …`.
fn names_table(line: &str) -> bool {
    let words: Vec<&str> =
        line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty()).collect();
    words.windows(2).any(|pair| BEFORE.contains(&pair[0]) && pair[1] == "replica") || words.contains(&"lease_until")
}

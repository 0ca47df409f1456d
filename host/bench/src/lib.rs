//! The parts that the benches of this crate share: the filter on their command line, and an allocator that counts.

pub mod counting;

use std::env;

/// The first argument that is no option: `cargo bench -p annex-bench -- FILTER` hands it to each bench.
pub fn filter() -> Option<String> {
    // Cargo adds options of its own, such as `--bench`.
    env::args().skip(1).find(|argument| !argument.starts_with("--"))
}

/// Tells whether a part of this title is to be run: the title holds the filter, if there is one.
pub fn is_wanted(title: &str) -> bool {
    !is_help() && filter().is_none_or(|filter| title.contains(&filter))
}

/// Tells whether the titles are asked for, and nothing is to be run.
pub fn is_help() -> bool {
    env::args().any(|argument| argument == "--help")
}

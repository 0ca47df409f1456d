//! What all benches of this crate use: the filter on their command line, and an allocator that counts.

pub mod counting;

use std::env;

/// The filter: the first argument of the program that is not an option. `cargo bench -p annex-bench -- FILTER` passes
/// it to each bench.
pub fn filter() -> Option<String> {
    // Cargo adds options of its own, such as `--bench`.
    env::args().skip(1).find(|argument| !argument.starts_with("--"))
}

/// Tells whether to run the part with this title. That is so if there is no filter, or if the title contains the
/// filter.
pub fn is_wanted(title: &str) -> bool {
    !is_help() && filter().is_none_or(|filter| title.contains(&filter))
}

/// Tells whether only the titles of the parts are printed.
pub fn is_help() -> bool {
    env::args().any(|argument| argument == "--help")
}

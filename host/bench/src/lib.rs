//! The parts that the benches of this crate share: the filter on their command line, and an allocator that counts.

pub mod counting;

use std::env;

/// The first argument that is not an option. `cargo bench -p annex-bench -- FILTER` passes it to each bench.
pub fn filter() -> Option<String> {
    // Cargo adds options of its own, such as `--bench`.
    env::args().skip(1).find(|argument| !argument.starts_with("--"))
}

/// Tells whether to run a part with this title: there is no filter, or the title contains it.
pub fn is_wanted(title: &str) -> bool {
    !is_help() && filter().is_none_or(|filter| title.contains(&filter))
}

/// Tells whether only the titles are printed.
pub fn is_help() -> bool {
    env::args().any(|argument| argument == "--help")
}

//! `--version`: the program, its commit, and the engine that runs components.

use std::sync::LazyLock;

use annex_runtime::ENGINE_VERSION;

/// The text of `--version`, such as `0.1.0 (commit 0123456ab, wasmtime 48.0.1)`. The commit is left out if the program
/// was not built in a clone of the repository.
pub(crate) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let commit = option_env!("ANNEX_COMMIT").map_or(String::new(), |commit| format!("commit {commit}, "));
        format!("{} ({commit}wasmtime {ENGINE_VERSION})", env!("CARGO_PKG_VERSION"))
    });
    &VERSION
}

//! Instructions for installing the tools of each language.

/// The instruction for installing a missing program.
pub(super) fn how_to_get(program: &str) -> &'static str {
    match program {
        "cargo" | "rustc" | "rustup" => {
            "get Rust by https://rustup.rs, then run `rustup target add wasm32-unknown-unknown`"
        }
        "npm" | "npx" | "node" => "get Node.js 20 or newer, of which it is a part: https://nodejs.org",
        "python3" => "get Python 3.10 or newer with venv: https://www.python.org, on Debian `apt install python3-venv`",
        "go" => "get Go 1.27 or newer: https://go.dev/dl",
        name if name.starts_with("clang") => {
            "get clang 19 with lld and WASI's C library: on Debian and Ubuntu `apt install clang-19 lld-19 \
             libclang-rt-19-dev-wasm32 wasi-libc`"
        }
        _ => "build.command and build.setup in annex-extension.toml name the programs that build the project",
    }
}

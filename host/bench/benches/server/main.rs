//! The server under load: each binding and store, components, and the official server in Rust, in one run.
//!
//!     cargo bench -p annex-bench
//!     cargo bench -p annex-bench -- "1 KiB"    (only the parts whose title holds this)
//!
//! Each server is a process of its own; rounds of load go to them in turn, so that a machine that slows down slows all
//! of them down. What counts are the ratios and the CPU time per request, both from the same rounds.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

mod comparison;
mod echo;
mod grpc;
mod http1;
mod kind;
mod load;
mod many;
mod memory;
mod native;
mod neighbours;
mod official;
mod process;
mod request;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    annex_runtime::compile_if_asked();
    let result = match kind::asked_for() {
        Some((kind, folder)) => kind::serve(kind, folder),
        // Cargo also runs benches as tests; there is nothing to test here.
        None if std::env::args().any(|argument| argument == "--test") => Ok(()),
        None => measure(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> anyhow::Result<()> {
    // Cargo adds options of its own, such as `--bench`.
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let is_wanted = |title: &str| filter.as_ref().is_none_or(|filter| title.contains(filter.as_str()));
    for comparison in comparison::all() {
        if is_wanted(comparison.title) {
            comparison.run()?;
        }
    }
    for (title, part) in memory::PARTS.into_iter().chain([neighbours::PART, many::PART]) {
        if is_wanted(title) {
            println!("\n{title}");
            part()?;
        }
    }
    Ok(())
}

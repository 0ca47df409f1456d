//! The server under load: each binding and store, components, and the official server in Rust, in one run.
//!
//!     cargo bench -p annex-bench --bench server
//!     cargo bench -p annex-bench -- official    (only the parts whose title contains the word)
//!     cargo bench -p annex-bench -- --help      (all titles)
//!
//! Each server is a separate process. Rounds of load alternate between the servers, so that a slowdown of the machine
//! affects all alike. The results are ratios and CPU time per request, both from the same rounds. Each answer is
//! checked (`answer.rs`). The profile `bench` has the settings of `dist`, the profile of releases.
//!
//! `official` compares Annex with a2a-server-lf, the official server in Rust, once alone and once next to a process
//! that uses up memory bandwidth. Contenders that inject state do the same work: they read the state from the message's
//! metadata, validate it against one schema, call one scripted model, and answer with the state after the turn. Annex
//! also keeps a session; the official server has none. All servers store in memory only.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

mod answer;
mod burner;
mod comparison;
mod console;
mod echo;
mod floor;
mod grpc;
mod http1;
mod kind;
mod load;
mod many;
mod memory;
mod native;
mod neighbours;
mod official;
mod official_native;
mod open_loop;
mod orders;
mod process;
mod request;
mod scale;
mod tenants;
mod traces;
mod versus;

use std::process::ExitCode;

use annex_bench::counting::CountingAllocator;
use annex_bench::is_wanted;

#[global_allocator]
static ALLOCATOR: CountingAllocator<mimalloc::MiMalloc> = CountingAllocator(mimalloc::MiMalloc);

fn main() -> ExitCode {
    annex_runtime::compile_if_asked();
    if burner::is_asked_for() {
        burner::burn();
    }
    let result = match kind::asked_for() {
        Some(asked) => kind::serve(asked),
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
    let comparisons = comparison::all();
    let parts =
        memory::PARTS.into_iter().chain([neighbours::PART, many::PART]).chain(versus::PARTS).chain(scale::PARTS);
    let parts = parts.chain(tenants::PARTS).chain([traces::PART, console::PART]);
    if annex_bench::is_help() {
        let titles = comparisons.iter().map(|comparison| comparison.title).chain(parts.map(|(title, _)| title));
        titles.for_each(|title| println!("{title}"));
        return Ok(());
    }
    for comparison in comparisons {
        if is_wanted(comparison.title) {
            comparison.run()?;
        }
    }
    for (title, part) in parts {
        if is_wanted(title) {
            println!("\n{title}");
            part()?;
        }
    }
    Ok(())
}

//! The `annex` command: one file per subcommand.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod agent;
mod card;
mod extension;
mod inspect;
mod log;
mod output;
mod pretty;
mod send;
mod serve;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A2A extensions as WebAssembly components.
#[derive(Parser)]
#[command(name = "annex", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Serve),
    Send(send::Send),
    Card(card::Card),
    Inspect(inspect::Inspect),
    Extension(extension::Extension),
}

#[tokio::main]
async fn main() -> ExitCode {
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let result = match Arguments::parse().command {
        Command::Serve(serve) => serve.run().await,
        Command::Send(send) => send.run().await,
        Command::Card(card) => card.run().await,
        Command::Inspect(inspect) => inspect.run().await,
        Command::Extension(extension) => extension.run().await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<output::Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

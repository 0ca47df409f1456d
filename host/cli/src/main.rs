//! The `annex` command: one file per subcommand.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;

mod admin;
mod bench;
mod build;
mod card;
mod chat;
mod component;
mod connect;
mod dev;
mod extension;
mod inspect;
mod line;
mod log;
mod new;
mod output;
mod pretty;
mod record;
mod replay;
mod send;
mod serve;
mod session;
mod settings;
mod shell;
mod state;
mod template;
mod tenant;
mod test;
mod turn;
mod wit;
mod with;

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
    Chat(chat::Chat),
    Card(card::Card),
    Inspect(inspect::Inspect),
    Extension(extension::Extension),
    Session(session::Session),
    Tenant(tenant::Tenant),
    New(new::New),
    Wit(wit::Wit),
    Build(build::Build),
    Test(test::Test),
    Dev(dev::Dev),
    Bench(bench::Bench),
    Record(record::Record),
    Replay(replay::Replay),
}

fn main() -> ExitCode {
    // Components are compiled by processes of this program, which must not begin as the others do.
    annex_runtime::compile_if_asked();
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<output::Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("the asynchronous runtime does not start")?;
    let result = runtime.block_on(async {
        let result = match command {
            // Boxed, as the session command below: both futures are large, and the largest would set the size of all.
            Command::Serve(serve) => Box::pin(serve.run()).await,
            Command::Send(send) => send.run().await,
            Command::Chat(chat) => chat.run().await,
            Command::Card(card) => card.run().await,
            Command::Inspect(inspect) => inspect.run().await,
            Command::Extension(extension) => extension.run().await,
            Command::Session(session) => Box::pin(session.run()).await,
            Command::Tenant(tenant) => tenant.run().await,
            Command::New(new) => new.run(),
            Command::Wit(wit) => wit.run(),
            Command::Build(build) => build.run().await,
            Command::Test(test) => test.run().await,
            Command::Bench(bench) => bench.run().await,
            Command::Record(record) => record.run().await,
            Command::Replay(replay) => Box::pin(replay.run()).await,
            Command::Dev(dev) => Box::pin(dev.run()).await,
        };
        // Also those of agents that were being loaded, or were let go, when the server ended.
        annex_server::end_programs().await;
        result
    });
    // A name that resolves slowly, of a receiver for instance, must not keep the process. All else is over by now.
    runtime.shutdown_background();
    result
}

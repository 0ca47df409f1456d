//! The `annex` command: one file per subcommand. This page is also the way into the documentation of the other crates.
//!
//! | to | read |
//! |---|---|
//! | call an agent from a program | [`annex_client`] |
//! | use the types of A2A | [`annex_protocol`] |
//! | write an extension in Rust | [`annex_sdk`](../annex_sdk/index.html) |
//! | start a server inside a program, with an agent of its own | [`annex_server::App`], [`annex_agent`](../annex_agent/index.html) |
//! | load and call components without a server | [`annex_runtime`] |
//! | build and test projects of extensions | [`annex_authoring`] |
//! | follow a message | [`annex_server`], [`annex_operations`](../annex_operations/index.html) |
//! | store conversations and tasks | [`annex_conversation`](../annex_conversation/index.html) |
//! | validate JSON Schema of strangers | [`annex_schema`] |
//!
//! The code map in ARCHITECTURE.md has all crates, and what each may not know.

// The future of a server contains the futures of all its steps, which exceeds the default recursion limit.
#![recursion_limit = "256"]

use std::env;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tokio::runtime::Runtime;

mod admin;
mod audit;
mod bench;
mod build;
mod card;
mod chat;
mod check;
mod color;
mod component;
mod connect;
mod dev;
mod doctor;
mod exit;
mod extension;
mod generate;
mod health;
mod init;
mod inspect;
mod line;
mod log;
mod new;
mod new_file;
mod notes;
mod output;
mod pretty;
mod progress;
mod proxy;
mod receipt;
mod record;
mod registry;
mod replay;
mod replica;
mod send;
mod serve;
mod session;
mod settings;
mod shell;
mod shipped;
mod state;
mod template;
mod tenant;
mod test;
mod tls;
mod turn;
mod uploads;
mod version;
mod wit;
mod with;
mod wrap;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A2A server and proxy that loads extensions as WebAssembly components
#[derive(Parser)]
#[command(name = "annex", version = version::version(), arg_required_else_help = true, after_help = exit::HELP)]
struct Arguments {
    /// Use colours in output for people
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    color: color::Color,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Serve),
    Proxy(proxy::Proxy),
    Init(init::Init),
    Check(check::Check),
    Doctor(doctor::Doctor),
    Health(health::Health),
    Send(send::Send),
    Chat(chat::Chat),
    Card(card::Card),
    Inspect(inspect::Inspect),
    Extension(extension::Extension),
    Session(session::Session),
    Tenant(tenant::Tenant),
    #[command(name = "component")]
    Uploads(uploads::Uploads),
    Replica(replica::Replica),
    Receipt(receipt::Receipt),
    Audit(audit::Audit),
    Push(registry::push::Push),
    Pull(registry::pull::Pull),
    Sign(registry::sign::Sign),
    Verify(registry::verify::Verify),
    Login(registry::login::Login),
    Add(registry::add::Add),
    Lock(registry::lock::Lock),
    Outdated(registry::outdated::Outdated),
    Save(registry::save::Save),
    Load(registry::load::Load),
    New(new::New),
    Wit(wit::Wit),
    Build(build::Build),
    Test(test::Test),
    Dev(dev::Dev),
    Bench(bench::Bench),
    Record(record::Record),
    Replay(replay::Replay),
    Completions(generate::Completions),
    Man(generate::Man),
}

fn main() -> ExitCode {
    // A server starts this program to compile components. Such a process ends within this call.
    annex_runtime::compile_if_asked();
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let result = run(arguments().command);
    log::flush();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<output::OutputClosed>() => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&format!("{error:#}"));
            exit::code(&error)
        }
    }
}

/// Parses the arguments of the process. If they are wrong, prints the error and ends the process.
fn arguments() -> Arguments {
    let color = color::Color::among(env::args_os().map(|word| word.to_string_lossy().into_owned()));
    let matches = Arguments::command().color(color.into()).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    arguments.color.choose();
    arguments
}

fn run(command: Command) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("the asynchronous runtime does not start")?;
    let result = runtime.block_on(async {
        let result = match command {
            // Large futures are boxed, because the largest one sets the size of the whole future.
            Command::Serve(serve) => Box::pin(serve.run()).await,
            Command::Proxy(proxy) => Box::pin(proxy.run()).await,
            Command::Init(init) => init.run(),
            Command::Check(check) => Box::pin(check.run()).await,
            Command::Doctor(doctor) => Box::pin(doctor.run()).await,
            Command::Health(health) => health.run().await,
            Command::Send(send) => send.run().await,
            Command::Chat(chat) => chat.run().await,
            Command::Card(card) => card.run().await,
            Command::Inspect(inspect) => Box::pin(inspect.run()).await,
            Command::Extension(extension) => extension.run().await,
            Command::Session(session) => Box::pin(session.run()).await,
            Command::Tenant(tenant) => tenant.run().await,
            Command::Uploads(uploads) => uploads.run().await,
            Command::Replica(replica) => replica.run().await,
            Command::Receipt(receipt) => receipt.run(),
            Command::Audit(audit) => audit.run(),
            Command::Push(push) => Box::pin(push.run()).await,
            Command::Pull(pull) => Box::pin(pull.run()).await,
            Command::Sign(sign) => Box::pin(sign.run()).await,
            Command::Verify(verify) => Box::pin(verify.run()).await,
            Command::Login(login) => Box::pin(login.run()).await,
            Command::Add(add) => Box::pin(add.run()).await,
            Command::Lock(lock) => Box::pin(lock.run()).await,
            Command::Outdated(outdated) => Box::pin(outdated.run()).await,
            Command::Save(save) => Box::pin(save.run()).await,
            Command::Load(load) => load.run(),
            Command::New(new) => new.run(),
            Command::Wit(wit) => wit.run(),
            Command::Build(build) => build.run().await,
            Command::Test(test) => test.run().await,
            Command::Bench(bench) => bench.run().await,
            Command::Record(record) => record.run().await,
            Command::Replay(replay) => Box::pin(replay.run()).await,
            Command::Completions(completions) => completions.run(Arguments::command()),
            Command::Man(man) => man.run(Arguments::command()),
            Command::Dev(dev) => Box::pin(dev.run()).await,
        };
        // This also ends the programs of agents that were being loaded or dropped when the server ended.
        annex_server::end_programs().await;
        result
    });
    // A slow look-up of a name, for example of a receiver, must not delay the exit. All other work has ended by now.
    runtime.shutdown_background();
    result
}

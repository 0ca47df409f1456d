//! `annex serve`

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_runtime::{Activate, Extension};
use annex_server::{App, Config, Installers, Locations, ServeError, Server};
use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit;
use crate::log;
use crate::shell;
use crate::shipped;
use crate::state::takes_state;

mod credentials;

/// Serve an agent with its extensions.
#[derive(Args)]
#[command(after_help = "Example:\n  annex serve examples/specialist/annex.toml\n\nSIGTERM and Ctrl-C drain: running \
                        turns finish and new turns are refused. A second signal stops the server at once.\nSIGHUP reads the config \
                        again: changed extensions are swapped in while requests run, all of them or none.\nANNEX_LOG sets the log \
                        filter, e.g. ANNEX_LOG=debug.")]
pub(crate) struct Serve {
    /// The config, a TOML file
    config: PathBuf,
}

impl Serve {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        log::start()?;
        let served = Box::pin(serve(Config::read(&self.config)?, locations(&self.config))).await;
        served.map_err(|error| match error.downcast_ref::<ServeError>() {
            Some(ServeError::Listen { key, .. }) => {
                let config = self.config.display();
                exit::with_hint(
                    &error,
                    &format!("set {key} in {config} to a free address; annex doctor {config} checks it"),
                )
            }
            _ => error,
        })
    }
}

/// The listener of the admin API.
struct AdminListener {
    url: String,
    has_console: bool,
}

/// The example message in the command that `annex serve` suggests.
struct Example {
    question: String,
    /// The `annex send` option that passes the credentials, as text; `None` if the config has no `[auth]`.
    credentials: Option<String>,
}

/// Serves with this config until SIGINT or SIGTERM.
///
/// # Errors
/// When the config is invalid, a file in the config cannot be used, or an address is in use.
pub(crate) async fn serve(config: Config, locations: Locations) -> anyhow::Result<()> {
    let example = config.card.skills.iter().find_map(|skill| skill.examples.first());
    let example = Example {
        question: example.map_or("Hello", String::as_str).to_owned(),
        credentials: config.auth.as_ref().map(|auth| credentials::option(auth, &locations.config)),
    };
    let has_console = config.admin.as_ref().is_some_and(|admin| admin.console);
    let server = Server::bind(config).await?;
    let admin = server.admin_url().map(|url| AdminListener { url, has_console });
    let load = async |config: &Config, base_url: &str| App::load(config, &locations, base_url).await;
    // From now on, so that a hang-up while components are compiled does not end the process.
    let hangup = signal(SignalKind::hangup()).context("SIGHUP")?;
    let ready = |app: &App| {
        announce(app, admin.as_ref(), &example, &mut io::stdout().lock());
        tokio::spawn(reload_at(hangup, Arc::clone(app.installers())));
    };
    server.run(load, ready, shutdown()).await?;
    Ok(())
}

/// The locations that `annex serve` uses. Relative paths in the config start at the config's folder.
pub(crate) fn locations(config: &Path) -> Locations {
    let folder = config.parent().unwrap_or(Path::new("")).to_owned();
    Locations { config: folder, components: components(), cache: cache() }
}

/// The folder of the shipped components. If the executable has none, the components of the program are written to the cache.
pub(crate) fn components() -> PathBuf {
    let folder = components_of(&env::current_exe().unwrap_or_default());
    if folder.is_dir() {
        return folder;
    }
    cache_folder().and_then(|cache| shipped::folder(&cache)).unwrap_or(folder)
}

/// The folder `components` next to the executable. If it is missing and the executable is in the folder `bin` of a prefix,
/// `share/annex/components` of that prefix: package managers put nothing but programs into `bin`.
fn components_of(executable: &Path) -> PathBuf {
    let folder = executable.parent().unwrap_or(Path::new(""));
    let beside = folder.join("components");
    let shared = folder.with_file_name("share").join("annex").join("components");
    let is_in_prefix = folder.file_name().is_some_and(|name| name == "bin");
    if is_in_prefix && !beside.is_dir() && shared.is_dir() { shared } else { beside }
}

/// `annex/components` in the user's cache folder (XDG base directory specification).
pub(crate) fn cache() -> Option<PathBuf> {
    Some(cache_folder()?.join("components"))
}

/// `annex` in the user's cache folder.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    // The specification wants relative paths to be ignored.
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(home)?;
    Some(base.join("annex"))
}

/// Prints the agent's URLs, the installed extensions and a command to try. A closed standard output does not stop the
/// server.
fn announce(app: &App, admin: Option<&AdminListener>, example: &Example, out: &mut impl Write) {
    let url = app.base_url();
    let mut text = format!("Agent card  {url}/.well-known/agent-card.json\n");
    if let Some(AdminListener { url, has_console }) = admin {
        text.push_str(&format!("Admin API   {url}\n"));
        if *has_console {
            text.push_str(&format!("Console     {url}/\n"));
        }
    }
    text.push_str("Extensions");
    for extension in app.installed().iter() {
        text.push_str(&format!("\n  {}", line(extension)));
    }
    if app.installed().iter().next().is_none() {
        text.push_str("  none");
    }
    for (tenant, installer) in app.installers().tenants() {
        text.push_str(&format!("\nTenant {tenant}  {url}/{tenant}/.well-known/agent-card.json"));
        for extension in installer.installed().iter() {
            text.push_str(&format!("\n  {}", line(extension)));
        }
    }
    for (tenant, failure) in app.installers().failing() {
        text.push_str(&format!("\nTenant {tenant}  is not served, and is tried again: {}", failure.reason));
    }
    text.push_str(&format!("\n\nTry it from another terminal:\n  {}\n", suggestion(app, example)));
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn line(extension: &Extension) -> String {
    let how = if extension.was_compiled() { "compiled" } else { "from cache" };
    let required = if extension.is_required() { ", required" } else { "" };
    let active = match extension.selection().activate {
        Activate::Always => ", active for every message",
        Activate::Requested | Activate::Metadata => "",
    };
    format!(
        "{}\n    {}, {} KiB, loaded in {:.1} ms ({how}){required}{active}",
        extension.uri(),
        extension.digest(),
        extension.size().div_ceil(1024),
        extension.load_time().as_secs_f64() * 1e3,
    )
}

fn suggestion(app: &App, example: &Example) -> String {
    let executable = env::args().next().unwrap_or_else(|| "annex".to_owned());
    let mut command = format!("{executable} send {} '{}'", app.base_url(), example.question.replace('\'', "'\\''"));
    if let Some(credentials) = &example.credentials {
        command.push_str(&format!(" \\\n    {credentials}"));
    }
    // The server refuses a message that does not activate the required extensions, so the suggested command activates
    // them.
    let is_asked_for =
        |extension: &&Arc<Extension>| extension.is_required() && extension.selection().activate != Activate::Always;
    for extension in app.installed().iter().filter(is_asked_for) {
        command.push_str(&format!(" \\\n    --extension {}", shell::word(extension.uri().as_str())));
        if takes_state(&extension.card()) {
            let state = r#"{"user_info":{"name":"Ada","role":"Engineer","email":"ada@example.com"}}"#;
            command.push_str(&format!(" \\\n    --state '{state}'"));
        }
    }
    command
}

/// Reloads the config at each SIGHUP. A reload that fails is logged, and the installed extensions stay.
async fn reload_at(mut hangup: Signal, installers: Arc<Installers>) {
    while hangup.recv().await.is_some() {
        let _ = installers.reload().await;
    }
}

/// Resolves at the first SIGTERM or Ctrl-C after this call. The second such signal ends the process at once.
pub(crate) fn shutdown() -> impl Future<Output = ()> {
    // One pair for both signals: the second one may come before anybody waits for it.
    let signals = Signals::new();
    async {
        let mut signals = match signals {
            Ok(signals) => signals,
            Err(error) => {
                tracing::error!(%error, "signals cannot be watched; the server will not drain");
                // Returning would end the server at once.
                return std::future::pending().await;
            }
        };
        signals.next().await;
        tokio::spawn(async move {
            signals.next().await;
            annex_server::kill_programs();
            log::flush();
            // This is what shells report for a process that SIGINT ended: 128 and the number of the signal.
            std::process::exit(130);
        });
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
        Ok(Self { terminate, interrupt })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

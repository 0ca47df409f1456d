//! `annex dev`

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use annex_authoring::{BuiltComponent, Project};
use annex_runtime::Extension;
use annex_server::{App, Config, Installers, Locations, Server};
use anyhow::{Context, ensure};
use clap::Args;
use tempfile::TempDir;

use crate::{log, output, progress, serve, shell};

mod sources;

use sources::Watch;

/// Build and serve a project, and repeat both after each change
///
/// A scripted agent answers every message with an artifact. If a build fails, the last good version is still served.
/// The log of the extension goes to standard error. A trap is logged with the functions on its stack, and with their
/// source lines if the component has debug information.
#[derive(Args)]
#[command(
    after_help = "Example:\n  annex dev\n\nThe command watches only the files in build.watch of annex-extension.toml. \
                        Ctrl-C ends the command."
)]
pub(crate) struct Dev {
    /// The folder of the project
    #[arg(long, value_name = "DIR", default_value = ".")]
    project: PathBuf,
    /// The address to serve on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787")]
    listen: SocketAddr,
}

impl Dev {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        log::start()?;
        ensure!(
            self.listen.ip().is_loopback(),
            "annex dev serves this machine alone, without credentials; {} is not an address such as 127.0.0.1:8787",
            self.listen
        );
        // A port in use is reported before the first build, because the build may take long.
        let free = TcpListener::bind(self.listen);
        drop(free.with_context(|| format!("cannot listen on {}; --listen names another address", self.listen))?);
        let mut sources = Some(Watch::of(Project::open(&self.project)?));
        // Begun once: a signal between two waits would be lost otherwise.
        let mut shutdown = pin!(serve::shutdown());
        // A mistake in the first build is corrected like any later one, so it does not end the command.
        loop {
            let served = tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                built = build(&self.project) => match built {
                    Ok(built) => self.serve(built, &mut sources, shutdown.as_mut()).await,
                    Err(error) => Err(error),
                },
            };
            let Err(error) = served else { return Ok(()) };
            let Some(sources) = &mut sources else { return Err(error) };
            output::error(&format!("{error:#}\nNothing is served yet; waiting for a change."));
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                () = sources.changed() => {}
            }
        }
    }

    /// Serves the first build and each later build until SIGINT or SIGTERM. Once the first build is installed, each
    /// change of the sources leads to a new build.
    async fn serve(
        &self,
        (project, built): (Project, BuiltComponent),
        sources: &mut Option<Watch>,
        shutdown: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let config = DevConfig::new(self.listen)?;
        config.write(&project)?;
        let server = Server::bind(Config::read(&config.path)?).await?;
        // Paths in the settings begin at the project's folder, as they do for the other commands.
        let folder = self.project.canonicalize().context("cannot find the project")?;
        let locations = Locations { config: folder, components: serve::components(), cache: serve::cache() };
        let load = async |config: &Config, base_url: &str| App::load(config, &locations, base_url).await;
        let ready = |app: &App| {
            let url = app.base_url().to_owned();
            show(app.installed().iter().next(), &built, &url);
            if let Some(sources) = sources.take() {
                tokio::spawn(follow(self.project.clone(), config, sources, Arc::clone(app.installers()), url));
            }
        };
        server.run(load, ready, shutdown).await?;
        Ok(())
    }
}

async fn build(folder: &Path) -> anyhow::Result<(Project, BuiltComponent)> {
    let project = Project::open(folder)?;
    let building = progress::of("building");
    let built = annex_authoring::build(&project, |command| output::note(&format!("$ {command}"))).await?;
    drop(building);
    // The server loads it from there, and keeps the last good version when it refuses this one.
    built.place(&project)?;
    Ok((project, built))
}

/// Builds after each change and installs the result.
async fn follow(folder: PathBuf, config: DevConfig, mut sources: Watch, installers: Arc<Installers>, url: String) {
    loop {
        sources.changed().await;
        let replaced = async {
            let (project, built) = build(&folder).await?;
            // The manifest may name other files now.
            sources.follow(&project);
            config.write(&project)?;
            let outcome = installers.reload().await.context("it is not put in force")?;
            anyhow::Ok((built, outcome.changed))
        };
        match replaced.await {
            Ok((built, true)) => show(installers.own().installed().iter().next(), &built, &url),
            Ok((_, false)) => output::note("the component is the same as before"),
            Err(error) => output::error(&format!("{error:#}\nThe last good version stays in force.")),
        }
    }
}

/// Prints the installed version and a command to try the extension.
fn show(extension: Option<&Arc<Extension>>, built: &BuiltComponent, url: &str) {
    let Some(extension) = extension else { return };
    let descriptor = extension.descriptor();
    let hooks: Vec<&str> = extension.hooks().iter().map(|hook| hook.name()).collect();
    let size = extension.size().div_ceil(1024);
    let took = built.took.as_secs_f64();
    let text = format!(
        "\n{} {} is in force\n  uri      {}\n  digest   {}\n  built    {size} KiB in {took:.1} s, loaded in {:.0} ms\n  hooks    {}\n  try      annex send {url} Hello --extension {} --json\n\n",
        descriptor.name,
        descriptor.version,
        descriptor.uri,
        extension.digest(),
        extension.load_time().as_secs_f64() * 1e3,
        hooks.join(", "),
        shell::word(descriptor.uri.as_str()),
    );
    // Nobody may be reading, and the server goes on.
    let _ = output::show(&text);
}

/// The config of the server, in a temporary folder that is deleted when the command ends.
struct DevConfig {
    listen: SocketAddr,
    path: PathBuf,
    _folder: TempDir,
}

impl DevConfig {
    fn new(listen: SocketAddr) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for the server's config")?;
        Ok(Self { listen, path: folder.path().join("annex.toml"), _folder: folder })
    }

    fn write(&self, project: &Project) -> anyhow::Result<()> {
        let component = project.component();
        let component = component.canonicalize().with_context(|| format!("cannot find {}", component.display()))?;
        let mut extension = project.manifest.settings.clone();
        extension.insert("component".to_owned(), component.to_string_lossy().into_owned().into());
        let extensions = toml::Table::from_iter([("extension".to_owned(), vec![extension].into())]);
        let text = format!("{}\n{extensions}", self.head(&project.manifest.name));
        fs::write(&self.path, text).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn head(&self, name: &str) -> String {
        format!(
            r#"
[server]
listen = "{}"
[runtime]
watch = false
compile_seconds = 600
debug_info = true
quarantine = false
[card]
name = "{name}"
description = "Tries an extension"
[agent]
kind = "script"
name = "{name}"
[[agent.rule]]
steps = [
  {{ artifact = {{ id = "answer", parts = [{{ text = "Hello, world!" }}] }} }},
  {{ status = {{ state = "completed" }} }},
]
"#,
            self.listen
        )
    }
}

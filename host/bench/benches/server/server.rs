//! The servers under load, each a process of its own: this program, started with `--serve KIND`.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use annex_server::{App, AppError, Config, Locations, Server};
use anyhow::Context;

use crate::native;

const SPECIALIST: &str = include_str!("../../../../examples/specialist/annex.toml");

/// Which server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// State injection as a component.
    Component,
    /// The same logic compiled in.
    Native,
    /// The agent without extensions.
    Bare,
    /// The same agent with state injection installed but not required.
    Installed,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Component, Self::Native, Self::Bare, Self::Installed];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Component => "component",
            Self::Native => "native",
            Self::Bare => "bare",
            Self::Installed => "installed",
        }
    }

    /// The specialist with what this kind installs. Where no state is sent, the instruction asks for none.
    fn config(self) -> anyhow::Result<Config> {
        let mut config = Config::parse(Path::new("annex.toml"), SPECIALIST)?;
        config.server.listen.set_port(0);
        config.extensions.truncate(1);
        match self {
            Self::Component => {}
            Self::Native | Self::Bare => config.extensions.clear(),
            Self::Installed => config.extensions.iter_mut().for_each(|extension| extension.required = false),
        }
        if matches!(self, Self::Bare | Self::Installed) {
            config.agent.instruction = config.agent.instruction.replace("{user_info}", "{user_info?}");
        }
        Ok(config)
    }
}

/// The kind in this process's arguments.
pub(crate) fn asked_for() -> Option<Kind> {
    let mut arguments = env::args().skip_while(|argument| argument != "--serve").skip(1);
    let name = arguments.next()?;
    Kind::ALL.into_iter().find(|kind| kind.name() == name)
}

/// Serves until standard input closes.
#[tokio::main]
pub(crate) async fn run(kind: Kind) -> anyhow::Result<()> {
    let server = Server::bind(kind.config()?).await?;
    let address = server.address();
    let built = Path::new(annex_components::STATE_INJECTION);
    let components = built.parent().unwrap_or(built).to_owned();
    let locations = Locations { config: PathBuf::new(), components, cache: None };
    let load = async |config: &Config, url: &str| -> Result<App, AppError> {
        match kind {
            Kind::Native => {
                let agent = Arc::new(native::NativeInjection::new(config).map_err(AppError::Model)?);
                App::with_agent(config, &locations, url, agent).await
            }
            Kind::Component | Kind::Bare | Kind::Installed => App::load(config, &locations, url).await,
        }
    };
    let closed = tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new()));
    let shutdown = async {
        let _ = closed.await;
    };
    Ok(server.run(load, |_| println!("{address}"), shutdown).await?)
}

/// A server in another process, stopped when dropped.
pub(crate) struct ServerProcess {
    kind: Kind,
    process: Child,
    address: String,
}

impl ServerProcess {
    pub(crate) fn start(kind: Kind) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--serve", kind.name()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let output = process.stdout.take().context("the server's output")?;
        let mut address = String::new();
        BufReader::new(output).read_line(&mut address)?;
        Ok(Self { kind, process, address: address.trim().to_owned() })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn extension_header(&self) -> String {
        match self.kind {
            Kind::Component | Kind::Native => format!("a2a-extensions: {}\r\n", annex_test_support::STATE_INJECTION),
            Kind::Bare | Kind::Installed => String::new(),
        }
    }

    /// CPU time so far, user and system, all threads.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id()))?;
        let mut total = Duration::ZERO;
        for task in tasks {
            // Nanoseconds on the CPU stand first.
            let statistics = fs::read_to_string(task?.path().join("schedstat"))?;
            let nanoseconds = statistics.split(' ').next().context("schedstat")?;
            total += Duration::from_nanos(nanoseconds.parse()?);
        }
        Ok(total)
    }

    pub(crate) fn resident_mib(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1024.0)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

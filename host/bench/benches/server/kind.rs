//! The kinds of servers under load, and their configs.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_server::{AgentConfig, App, AppError, Config, InstancesConfig, Locations, Server};
use tokio::net::TcpListener;

use crate::answer::ExpectedAnswer;
use crate::{echo, floor, native, official, official_native, orders};

pub(crate) const SPECIALIST: &str = include_str!("../../../../examples/specialist/annex.toml");

/// A config without an agent. The echo agent is compiled in.
const ECHO: &str = r#"
[card]
name = "Echo"
description = "Says what it was told."
"#;

/// A kind of server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The specialist with state injection as a component.
    Component,
    /// Like `Component`, with instances that are kept between turns.
    Kept,
    /// The specialist with the logic of state injection compiled in instead of a component.
    Native,
    /// The specialist's agent without extensions.
    Bare,
    /// The specialist's agent with state injection installed, but not required.
    Installed,
    /// The echo agent with its tasks in memory.
    Memory,
    /// The echo agent with its tasks in a SQLite file.
    Sqlite,
    /// The echo agent on the official server in Rust, with its tasks in memory.
    Official,
    /// The specialist on the official server in Rust, with the logic of state injection compiled in.
    OfficialNative,
    /// The minimum work without A2A: axum receives the request, and serde_json parses it and encodes the specialist's
    /// answer.
    Floor,
    /// The specialist with state injection and an extension that loops on command, neither of which is required.
    Neighbours,
    /// The echo agent with all components in the folder `extensions` installed.
    Many,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Component,
        Self::Kept,
        Self::Native,
        Self::Bare,
        Self::Installed,
        Self::Memory,
        Self::Sqlite,
        Self::Official,
        Self::OfficialNative,
        Self::Floor,
        Self::Neighbours,
        Self::Many,
    ];

    /// The name of the kind as an argument of this program.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Component => "component",
            Self::Kept => "kept",
            Self::Native => "native",
            Self::Bare => "bare",
            Self::Installed => "installed",
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Official => "official",
            Self::OfficialNative => "official-native",
            Self::Floor => "floor",
            Self::Neighbours => "neighbours",
            Self::Many => "many",
        }
    }

    /// The name of the kind in tables.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Memory => "Annex, memory",
            Self::Sqlite => "Annex, SQLite",
            Self::Official | Self::OfficialNative => "a2a-server-lf 0.5.3",
            Self::Floor => "axum and serde_json",
            _ => self.name(),
        }
    }

    /// The expected answer of this server to a request that injects state.
    pub(crate) const fn answer(self) -> ExpectedAnswer {
        match self {
            Self::Component | Self::Kept | Self::OfficialNative | Self::Floor | Self::Neighbours => {
                ExpectedAnswer::StateAndHeader
            }
            // There is no extension that could be active.
            Self::Native => ExpectedAnswer::AnswerState,
            Self::Bare | Self::Installed => ExpectedAnswer::Unknown,
            Self::Memory | Self::Sqlite | Self::Official | Self::Many => ExpectedAnswer::Echo,
        }
    }

    /// The config of this kind, with additional tables. The instruction of an agent that may get no state makes the
    /// state optional.
    fn config(self, settings: &str) -> anyhow::Result<Config> {
        let text = match self {
            Self::Memory | Self::Sqlite | Self::Official => ECHO.to_owned(),
            Self::Many => format!("{ECHO}[runtime]\nextensions_dir = \"extensions\"\nwatch = false\n"),
            Self::Neighbours => {
                format!("{SPECIALIST}\n[[extension]]\ncomponent = {:?}\n", annex_components::TEST_EXTENSION)
            }
            Self::Component
            | Self::Kept
            | Self::Native
            | Self::Bare
            | Self::Installed
            | Self::OfficialNative
            | Self::Floor => SPECIALIST.to_owned(),
        };
        let mut config = Config::parse(Path::new("annex.toml"), &format!("{text}\n{settings}"))?;
        config.server.listen.set_port(0);
        // All clients have one address here.
        config.server.max_connections_per_address = config.server.max_connections;
        config.server.max_streams_per_caller = config.server.max_connections;
        config.server.max_streams = config.server.max_connections;
        if self == Self::Neighbours {
            config.extensions.drain(1..config.extensions.len().saturating_sub(1));
        } else {
            config.extensions.truncate(1);
        }
        match self {
            Self::Component | Self::Memory | Self::Official | Self::OfficialNative | Self::Floor | Self::Many => {}
            Self::Kept => {
                config.extensions.iter_mut().for_each(|extension| extension.instances = InstancesConfig::Kept)
            }
            Self::Sqlite => config.tasks.data_dir = Some("data".into()),
            Self::Native | Self::Bare => config.extensions.clear(),
            Self::Installed | Self::Neighbours => {
                config.extensions.iter_mut().for_each(|extension| extension.required = false)
            }
        }
        if let (Self::Bare | Self::Installed | Self::Neighbours, Some(AgentConfig::Template(template))) =
            (self, &mut config.agent)
        {
            template.instruction = template.instruction.replace("{user_info}", "{user_info?}");
        }
        Ok(config)
    }

    async fn load(self, config: &Config, locations: &Locations, url: &str) -> Result<App, AppError> {
        match self {
            Self::Native => {
                let agent = Arc::new(native::NativeInjection::new(config).map_err(AppError::Model)?);
                App::with_agent(config, locations, url, agent).await
            }
            Self::Memory | Self::Sqlite | Self::Many => {
                App::with_agent(config, locations, url, Arc::new(echo::Echo)).await
            }
            _ => App::load(config, locations, url).await,
        }
    }
}

/// The arguments of a process that runs a server.
pub(crate) struct ServerArguments {
    kind: Kind,
    /// The folder for the server's files.
    folder: PathBuf,
    /// Additional tables of the config.
    settings: String,
}

/// The arguments of this process after `--serve`; `None` if it runs no server.
pub(crate) fn asked_for() -> Option<ServerArguments> {
    let mut arguments = env::args().skip_while(|argument| argument != "--serve").skip(1);
    let name = arguments.next()?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name)?;
    Some(ServerArguments { kind, folder: arguments.next()?.into(), settings: arguments.next()? })
}

/// Runs the server until standard input closes. Executes the orders that arrive on standard input.
#[tokio::main]
pub(crate) async fn serve(asked: ServerArguments) -> anyhow::Result<()> {
    let config = asked.kind.config(&asked.settings)?;
    let closed = tokio::task::spawn_blocking(orders::follow);
    let shutdown = async {
        let _ = closed.await;
    };
    match asked.kind {
        Kind::Official => official::serve(listen().await?, official::Echo, shutdown).await,
        Kind::OfficialNative => {
            let agent = official_native::Specialist::new(&config)?;
            official::serve(listen().await?, agent, shutdown).await
        }
        Kind::Floor => floor::serve(listen().await?, shutdown).await,
        kind => serve_annex(kind, config, asked.folder, shutdown).await,
    }
}

async fn listen() -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    Ok(listener)
}

async fn serve_annex(
    kind: Kind,
    config: Config,
    folder: PathBuf,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let built = Path::new(annex_components::STATE_INJECTION);
    let components = built.parent().unwrap_or(built).to_owned();
    // The cache matters only where the start is measured.
    let cache = (kind == Kind::Many).then(|| folder.join("cache"));
    let locations = Locations { config: folder, components, cache };
    let server = Server::bind(config).await?;
    let address = server.address();
    let load = async |config: &Config, url: &str| kind.load(config, &locations, url).await;
    Ok(server.run(load, |_| println!("{address}"), shutdown).await?)
}

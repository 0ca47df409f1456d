//! The servers under load, and how each is put together.

use std::env;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_server::{AgentConfig, App, AppError, Config, Locations, Server};
use tokio::net::TcpListener;

use crate::{echo, native, official};

const SPECIALIST: &str = include_str!("../../../../examples/specialist/annex.toml");

/// Without an agent: the echo is compiled in.
const ECHO: &str = r#"
[card]
name = "Echo"
description = "Says what it was told."
"#;

/// Which server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The specialist with state injection as a component.
    Component,
    /// The same logic compiled in.
    Native,
    /// The specialist's agent without extensions.
    Bare,
    /// The same agent with state injection installed but not required.
    Installed,
    /// The echo, its tasks in memory.
    Memory,
    /// The echo, its tasks in a SQLite file.
    Sqlite,
    /// The echo on the official server in Rust, its tasks in memory.
    Official,
    /// The specialist with state injection and an extension that loops on command, neither of them required.
    Neighbours,
    /// The echo with all components of the folder `extensions` installed.
    Many,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Component,
        Self::Native,
        Self::Bare,
        Self::Installed,
        Self::Memory,
        Self::Sqlite,
        Self::Official,
        Self::Neighbours,
        Self::Many,
    ];

    /// Its name as an argument.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Component => "component",
            Self::Native => "native",
            Self::Bare => "bare",
            Self::Installed => "installed",
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Official => "official",
            Self::Neighbours => "neighbours",
            Self::Many => "many",
        }
    }

    /// Its name for people.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Memory => "Annex, memory",
            Self::Sqlite => "Annex, SQLite",
            Self::Official => "a2a-server-lf 0.5.3",
            _ => self.name(),
        }
    }

    /// The config of this kind. Where no state is sent, the instruction asks for none.
    fn config(self) -> anyhow::Result<Config> {
        let text = match self {
            Self::Memory | Self::Sqlite | Self::Official => ECHO.to_owned(),
            Self::Many => format!("{ECHO}[runtime]\nextensions_dir = \"extensions\"\nwatch = false\n"),
            Self::Neighbours => {
                format!("{SPECIALIST}\n[[extension]]\ncomponent = {:?}\n", annex_components::TEST_EXTENSION)
            }
            Self::Component | Self::Native | Self::Bare | Self::Installed => SPECIALIST.to_owned(),
        };
        let mut config = Config::parse(Path::new("annex.toml"), &text)?;
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
            Self::Component | Self::Memory | Self::Official | Self::Many => {}
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

/// The kind in this process's arguments, and the folder for its files.
pub(crate) fn asked_for() -> Option<(Kind, PathBuf)> {
    let mut arguments = env::args().skip_while(|argument| argument != "--serve").skip(1);
    let name = arguments.next()?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name)?;
    Some((kind, arguments.next()?.into()))
}

/// Serves until standard input closes.
#[tokio::main]
pub(crate) async fn serve(kind: Kind, folder: PathBuf) -> anyhow::Result<()> {
    let closed = tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new()));
    let shutdown = async {
        let _ = closed.await;
    };
    if kind == Kind::Official {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        return official::serve(listener, shutdown).await;
    }
    let built = Path::new(annex_components::STATE_INJECTION);
    let components = built.parent().unwrap_or(built).to_owned();
    // Only where starting is measured does it matter what was compiled before.
    let cache = (kind == Kind::Many).then(|| folder.join("cache"));
    let locations = Locations { config: folder, components, cache };
    let server = Server::bind(kind.config()?).await?;
    let address = server.address();
    let load = async |config: &Config, url: &str| kind.load(config, &locations, url).await;
    Ok(server.run(load, |_| println!("{address}"), shutdown).await?)
}

//! `annex login`

use std::io::{self, IsTerminal};

use annex_registry::{Credentials, Login as Account, Reference, RegistryError};
use clap::Args;

use super::password::{self, EndSignals};
use super::{RegistryArgs, failed};
use crate::exit::Failure;
use crate::output;

/// Store credentials for an OCI registry.
///
/// The password is asked for on a terminal, or is the first line of standard input. The registry is asked whether it
/// accepts the credentials before they are stored.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex login registry.example\n  annex login registry.example --user ada < \
                        token.txt\n\nThe credentials go where docker and podman look for them: into the file in \
                        REGISTRY_AUTH_FILE, or else into config.json in the folder DOCKER_CONFIG or ~/.docker, or \
                        into the helper that this file names. The file then has mode 0600.")]
pub(crate) struct Login {
    /// The registry: `HOST[:PORT]`
    #[arg(value_name = "HOST", value_parser = host)]
    host: String,
    /// The name of the user; default: asked for on a terminal
    #[arg(short, long, value_name = "NAME")]
    user: Option<String>,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl Login {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut signals = EndSignals::new()?;
        tokio::select! {
            ended = Box::pin(self.log_in()) => ended,
            () = signals.next() => Err(Failure::Usage.error("a signal has ended the log-in")),
        }
    }

    async fn log_in(self) -> anyhow::Result<()> {
        let Self { host, user, registry } = self;
        let user = match user {
            Some(user) => user,
            None if io::stdin().is_terminal() => password::read("User: ", true).await?,
            None => return Err(Failure::Usage.error("name the user with --user NAME; standard input has the password")),
        };
        let password = password::read(&format!("Password of {user} at {host}: "), false).await?;
        let account = Account { user, password };
        registry.client_with(&host, Some(account.clone())).log_in(&host).await.map_err(refused)?;
        let place = Credentials::from_env().store(&host, &account).await?;
        output::show(&format!("Stored the credentials for {host} in {place}\n"))
    }
}

/// Names no further log-in, because this is one.
fn refused(error: RegistryError) -> anyhow::Error {
    match error {
        RegistryError::Unauthorized { registry, reason } => {
            Failure::Refused.error(format!("{registry} refuses the log-in, and nothing was stored: {reason}"))
        }
        error => failed(error),
    }
}

fn host(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is no registry; write the host alone, as in registry.example or localhost:5000");
    let reference: Reference = format!("{text}/component").parse().map_err(|_| wrong())?;
    if reference.registry() == text { Ok(text.to_owned()) } else { Err(wrong()) }
}

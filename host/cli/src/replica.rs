//! `annex replica`

use annex_server::admin_api::replicas;
use clap::{Args, Subcommand};
use reqwest::Method;

use crate::admin::Admin;
use crate::line::Line;

type List = replicas::List<Line>;
type ReplicaAnswer = replicas::Replica<Line>;

/// Show the processes that share a running server's database, through its admin API.
#[derive(Args)]
#[command(after_help = "Example:\n  annex replica list\n\nThe server's config needs [admin]. The token is read from \
                        --token-file, or from the environment variable ANNEX_ADMIN_TOKEN.")]
pub(crate) struct Replica {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    admin: Admin,
}

#[derive(Subcommand)]
enum Command {
    /// List the processes, the oldest first
    List,
}

impl Replica {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let client = self.admin.client()?;
        let Command::List = self.command;
        let answer = client.call(Method::GET, &["replicas"], None::<&()>).await?;
        self.admin.print(&answer, list)
    }
}

fn list(list: &List) -> String {
    list.replicas.iter().map(listed).collect()
}

fn listed(replica: &ReplicaAnswer) -> String {
    let ReplicaAnswer { id, name, answers, since, version, address, phase, lease_left_ms } = replica;
    let known = |text: &Option<Line>| text.as_deref().unwrap_or("unknown").to_owned();
    let who = name.as_deref().or(id.as_deref()).unwrap_or("this process");
    let phase = known(phase);
    let standing = match lease_left_ms {
        // Such a process cannot report this itself.
        Some(left) if *left <= 0 => "gone, or stands still: its lease is over".to_owned(),
        Some(left) => format!("{phase}, lease for {}.{} s", left / 1_000, left % 1_000 / 100),
        None => phase,
    };
    let mark = if *answers && lease_left_ms.is_some() { " (answers)" } else { "" };
    let (address, version, since) = (known(address), known(version), known(since));
    format!("{who}{mark}  {standing}\n  {address}, version {version}, since {since}\n")
}

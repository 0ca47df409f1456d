//! `annex tenant`

use std::path::{Path, PathBuf};

use annex_files::Purpose;
use annex_server::admin_api::tenants::{self, Change, ServingState, Source};
use anyhow::Context;
use clap::{Args, Subcommand};
use reqwest::Method;
use reqwest::header::{IF_MATCH, IF_NONE_MATCH};

use crate::admin::{Admin, Client};
use crate::line::Line;

mod usage;

type TenantSummary = tenants::TenantSummary<Line>;
type List = tenants::List<Line>;
type TenantAnswer = tenants::Tenant<Line>;
type RemovedTenant = tenants::RemovedTenant<Line>;

/// The maximum size of a text that this command sends, in bytes. A server may have a lower limit.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// Show, add, change and remove tenants of a running server, through its admin API.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex tenant add acme ./acme.toml\n  annex tenant list\n  annex tenant suspend \
                        acme\n  annex tenant usage acme\n  annex tenant top\n\nThe server's config needs [admin] and [tenants]. The token is read from --token-file, or from \
                        the environment variable ANNEX_ADMIN_TOKEN. A tenant's file has [card], [agent] and [[extension]]; it \
                        names components by their digests and secrets as [tenants.secrets] lends them.")]
pub(crate) struct Tenant {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    admin: Admin,
}

#[derive(Subcommand)]
enum Command {
    /// List the tenants
    List,
    /// Show one tenant with its config
    Show {
        /// The tenant's name
        name: String,
    },
    /// Show the usage and the quotas of a tenant; without a name show all tenants, the costliest first
    #[command(visible_alias = "top")]
    Usage {
        /// The tenant's name
        name: Option<String>,
        /// Without a name: how many hours to add up, including this one, at most 168
        #[arg(long, default_value_t = 24, conflicts_with = "name")]
        hours: u64,
        /// Without a name: how many tenants to show, at most 1000
        #[arg(long, default_value_t = 20, conflicts_with = "name")]
        limit: usize,
    },
    /// Add a tenant
    Add {
        /// The tenant's name
        name: String,
        /// The tenant's config, a TOML file
        file: PathBuf,
        /// Add the tenant as suspended; `annex tenant resume` starts it
        #[arg(long)]
        suspended: bool,
    },
    /// Replace the config of a tenant
    Change {
        #[command(flatten)]
        named: TenantArgs,
        /// The tenant's config, a TOML file
        file: PathBuf,
    },
    /// Remove a tenant and cancel its turns
    Remove(TenantArgs),
    /// Refuse requests for a tenant until it is resumed; running turns continue to their ends
    Suspend(TenantArgs),
    /// Serve a suspended tenant again
    Resume(TenantArgs),
}

#[derive(Args)]
struct TenantArgs {
    /// The tenant's name
    name: String,
    /// Act only if this is the number of the tenant's last change; default: act in any case
    #[arg(long, value_name = "NUMBER")]
    rev: Option<u64>,
}

impl Tenant {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let client = self.admin.client()?;
        match &self.command {
            Command::List => self.admin.print(&all(&client).await?, list),
            Command::Show { name } => {
                let answer = client.call(Method::GET, &["tenants", name], None::<&()>).await?;
                self.admin.print(&answer, shown)
            }
            Command::Usage { name: Some(name), .. } => {
                let answer = client.call(Method::GET, &["tenants", name, "usage"], None::<&()>).await?;
                self.admin.print(&answer, usage::of_one)
            }
            Command::Usage { name: None, hours, limit } => {
                let (hours, limit) = (hours.to_string(), limit.to_string());
                let query = [("hours", hours.as_str()), ("limit", limit.as_str())];
                let answer = client.call_with(Method::GET, &["usage"], &query, None::<&()>).await?;
                self.admin.print(&answer, usage::of_all)
            }
            Command::Add { name, file, suspended } => {
                let state = suspended.then_some(ServingState::Suspended);
                let change = Change { config: Some(text(file)?), state };
                let condition = (IF_NONE_MATCH, "*".to_owned());
                let answer = client.call_if(Method::PUT, &["tenants", name], condition, Some(&change)).await?;
                self.admin.print(&answer, |tenant: &TenantAnswer| changed(tenant, "added"))
            }
            Command::Change { named, file } => {
                let change = Change { config: Some(text(file)?), state: None };
                self.put(&client, named, &change, "changed").await
            }
            Command::Suspend(named) => {
                let change = Change { config: None, state: Some(ServingState::Suspended) };
                self.put(&client, named, &change, "suspended").await
            }
            Command::Resume(named) => {
                let change = Change { config: None, state: Some(ServingState::Active) };
                self.put(&client, named, &change, "resumed").await
            }
            Command::Remove(named) => {
                let condition = (IF_MATCH, named.tag(&client).await?);
                let path = ["tenants", named.name.as_str()];
                let answer = client.call_if(Method::DELETE, &path, condition, None::<&()>).await?;
                self.admin.print(&answer, |gone: &RemovedTenant| {
                    format!("{} is removed (change {})\n", gone.removed, gone.rev)
                })
            }
        }
    }

    async fn put(&self, client: &Client, named: &TenantArgs, change: &Change, done: &str) -> anyhow::Result<()> {
        let condition = (IF_MATCH, named.tag(client).await?);
        let answer = client.call_if(Method::PUT, &["tenants", &named.name], condition, Some(change)).await?;
        self.admin.print(&answer, |tenant: &TenantAnswer| changed(tenant, done))
    }
}

impl TenantArgs {
    /// The value of `If-Match`: the revision from `--rev`, or without this option the tenant's current revision.
    async fn tag(&self, client: &Client) -> anyhow::Result<String> {
        let rev = match self.rev {
            Some(rev) => rev,
            None => {
                let answer = client.call(Method::GET, &["tenants", &self.name], None::<&()>).await?;
                let tenant: TenantAnswer =
                    serde_json::from_str(&answer).context("the answer is none of the admin API")?;
                // A tenant of the config has no revision. The server then answers that the tenant cannot be changed
                // over the API.
                tenant.listed.rev.unwrap_or_default()
            }
        };
        Ok(format!("\"{rev}\""))
    }
}

/// Reads all pages of the list and joins them into one, as JSON.
async fn all(client: &Client) -> anyhow::Result<String> {
    let mut whole: Option<tenants::List> = None;
    let mut after = String::new();
    loop {
        let query = [("after", after.as_str()), ("limit", "1000")];
        let answer = client.call_with(Method::GET, &["tenants"], &query, None::<&()>).await?;
        let page: tenants::List = serde_json::from_str(&answer).context("the answer is none of the admin API")?;
        let next = page.next.clone();
        match &mut whole {
            Some(whole) => whole.tenants.extend(page.tenants),
            None => whole = Some(tenants::List { next: None, ..page }),
        }
        match next {
            Some(next) if next > after => after = next,
            _ => break,
        }
    }
    Ok(serde_json::to_string(&whole)?)
}

fn text(file: &Path) -> anyhow::Result<String> {
    annex_files::read_text(file, Purpose::Named, MAX_TEXT_BYTES)
        .with_context(|| format!("cannot read {}", file.display()))
}

fn list(list: &List) -> String {
    if list.tenants.is_empty() {
        return "no tenants\n".to_owned();
    }
    list.tenants.iter().map(listed).collect()
}

fn listed(tenant: &TenantSummary) -> String {
    let TenantSummary { name, source, rev, state, loaded, failure } = tenant;
    let from = match (source, rev) {
        (Source::Config, _) => "in the server's config".to_owned(),
        (Source::Added, rev) => format!("change {}", rev.unwrap_or_default()),
    };
    let here = match (state, failure, loaded) {
        (ServingState::Suspended, ..) => "suspended".to_owned(),
        (ServingState::Active, Some(failure), _) => format!("not served: {failure}"),
        (ServingState::Active, None, true) => "loaded".to_owned(),
        (ServingState::Active, None, false) => "not loaded".to_owned(),
    };
    format!("{name}  {from}, {here}\n")
}

fn shown(tenant: &TenantAnswer) -> String {
    let config = tenant.config.as_deref().unwrap_or_default();
    let lines = config.lines().map(|line| format!("  {}\n", annex_text::line(line)));
    format!("{}{}", listed(&tenant.listed), lines.collect::<String>())
}

fn changed(tenant: &TenantAnswer, done: &str) -> String {
    format!("{} is {done} (change {})\n", tenant.listed.name, tenant.listed.rev.unwrap_or_default())
}

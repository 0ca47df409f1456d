//! `annex extension`

use std::fs;
use std::path::{Path, PathBuf};

use annex_server::admin_api::{Addition, Rollback, ShadowAddition};
use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use reqwest::Method;

use crate::admin::{self, Admin, OfTenant};
use crate::registry::upload::{Upload, UploadArgs};

mod shadow;
mod shown;

use shadow::Shadow;
use shown::Details;

/// Show and change the extensions of a running server, through its admin API.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex extension list\n  annex extension add ./my-extension.wasm --settings \
                        my-extension.toml\n  annex extension rollback https://example.com/my-extension/v1\n\nThe server's \
                        config needs [admin]. The token is read from --token-file, or from the environment variable \
                        ANNEX_ADMIN_TOKEN. An extension is named by its URI, or by its component's digest.")]
pub(crate) struct Extension {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    admin: Admin,
    #[command(flatten)]
    of: OfTenant,
}

#[derive(Subcommand)]
enum Command {
    /// List the installed extensions, and the sources that failed to load
    List,
    /// Show one extension with its grants, limits, calls and kept versions
    Show {
        /// URI or digest
        extension: String,
    },
    /// Install a component, or replace the installed one of the same name
    #[command(
        after_help = "Examples:\n  annex extension add ./my-extension.wasm --settings my-extension.toml\n  annex extension add \
                            oci://registry.example/acme/redact:1.2 --key acme.pub\n  annex extension add --locked \
                            oci://registry.example/acme/redact:1.2\n\nWith --locked the server's folder has the reference \
                            in annex.lock (`annex lock`), and the component is lost at a restart: for one that stays, \
                            write an [[extension]] with the reference. The \
                            settings have the keys of an [[extension]] without `component`, such as [grants]. Without \
                            --settings the current settings stay. With tasks in PostgreSQL either all replicas install and \
                            keep the component, or none does. With runtime.extensions_dir the component is kept in that \
                            folder, otherwise it is lost at a restart.\n\nA safe update:\n  annex extension add ./new.wasm --share 10 \\\n    \
                            --shadow https://example.com/my-extension/v1\n  annex extension show \
                            https://example.com/my-extension/v1\n  annex extension promote \
                            https://example.com/my-extension/v1"
    )]
    Add {
        #[command(flatten)]
        component: UploadArgs,
        /// Let the server take the component from its annex.lock and cache, and verify it by its `[trust]`
        #[arg(long, conflicts_with = "shadow")]
        locked: bool,
        /// A TOML file with grants, limits and parameters
        #[arg(long, value_name = "FILE")]
        settings: Option<PathBuf>,
        /// The name of the installed component; default: the file's name without .wasm, or the last part of the reference
        #[arg(long, conflicts_with = "shadow")]
        name: Option<String>,
        /// Try the component as a shadow of this extension: on copies of its turns, without any effect
        #[arg(long, value_name = "URI")]
        shadow: Option<String>,
        /// The percentage of turns that the shadow gets; default: 100
        #[arg(long, value_name = "N", requires = "shadow", value_parser = clap::value_parser!(u8).range(1..=100))]
        share: Option<u8>,
        /// Install the component even if some replicas cannot; those replicas serve nothing until they can install it
        #[arg(long, conflicts_with = "shadow")]
        force: bool,
    },
    /// Replace an extension by its shadow
    Promote {
        /// URI or digest of the version in force
        extension: String,
    },
    /// End the shadow of an extension
    Drop {
        /// URI or digest of the version in force
        extension: String,
    },
    /// Remove an extension; running turns continue to their ends
    Remove {
        /// URI or digest
        extension: String,
        /// Remove the extension even if some replicas cannot work without it; those replicas serve nothing until they can
        #[arg(long)]
        force: bool,
    },
    /// Put a replaced version back in force
    Rollback {
        /// URI or digest
        extension: String,
        /// The number of a kept version; default: the version that was replaced last
        #[arg(long, value_name = "NUMBER")]
        to: Option<u64>,
    },
    /// Read the server's config, its folder of extensions and the files of its tenants again, as SIGHUP does
    Reload,
    /// Print the latest log lines of an extension
    Log {
        /// URI or digest
        extension: String,
    },
}

impl Extension {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let client = self.admin.client()?.on(&self.of);
        match &self.command {
            Command::List => {
                let answer = client.call(Method::GET, &["extensions"], None::<&()>).await?;
                self.admin.print(&answer, shown::list)
            }
            Command::Show { extension } => {
                let answer = client.call(Method::GET, &["extensions", extension], None::<&()>).await?;
                self.admin.print(&answer, shown::details)
            }
            Command::Add { component, settings, shadow: Some(extension), share, .. } => {
                let Upload { bytes, .. } = component.read().await?;
                let settings = settings_text(settings.as_deref())?;
                let body = ShadowAddition { component: admin::base64(&bytes), settings, share: *share };
                let answer = client.call(Method::POST, &["extensions", extension, "shadow"], Some(&body)).await?;
                self.admin.print(&answer, |began: &Shadow| shadow::began(began))
            }
            Command::Promote { extension } => {
                let path = ["extensions", extension, "shadow", "promote"];
                let answer = client.call(Method::POST, &path, None::<&()>).await?;
                self.admin.print(&answer, |details: &Details| shown::changed(details, "promoted"))
            }
            Command::Drop { extension } => {
                let answer = client.call(Method::DELETE, &["extensions", extension, "shadow"], None::<&()>).await?;
                self.admin.print(&answer, |dropped: &Shadow| shadow::dropped(dropped))
            }
            Command::Add { component, locked, settings, name, shadow: None, force, .. } => {
                let settings = settings_text(settings.as_deref())?;
                let addition = if *locked {
                    let reference = Some(component.locked()?);
                    Addition { name: name.clone(), component: None, reference, settings }
                } else {
                    addition(component, settings, name.as_deref()).await?
                };
                let answer = client.call_with(Method::POST, &["extensions"], forced(*force), Some(&addition)).await?;
                self.admin.print(&answer, |details: &Details| shown::changed(details, "installed"))
            }
            Command::Remove { extension, force } => {
                let path = ["extensions", extension];
                let answer = client.call_with(Method::DELETE, &path, forced(*force), None::<&()>).await?;
                self.admin.print(&answer, shown::removed)
            }
            Command::Rollback { extension, to } => {
                let body = Rollback { to: *to };
                let answer = client.call(Method::POST, &["extensions", extension, "rollback"], Some(&body)).await?;
                self.admin.print(&answer, |details: &Details| shown::changed(details, "back in force"))
            }
            Command::Reload => {
                let answer = client.call(Method::POST, &["reload"], None::<&()>).await?;
                self.admin.print(&answer, shown::reloaded)
            }
            Command::Log { extension } => {
                let answer = client.call(Method::GET, &["extensions", extension, "log"], None::<&()>).await?;
                self.admin.print(&answer, shown::log)
            }
        }
    }
}

/// The query parameters of a request that changes extensions: `force=true`, or none.
fn forced(force: bool) -> &'static [(&'static str, &'static str)] {
    if force { &[("force", "true")] } else { &[] }
}

async fn addition(component: &UploadArgs, settings: Option<String>, name: Option<&str>) -> anyhow::Result<Addition> {
    let Upload { name: own, bytes } = component.read().await?;
    let name = name.map_or(own, str::to_owned);
    ensure!(!name.is_empty(), "the file has no name; give one with --name");
    Ok(Addition { name: Some(name), component: Some(admin::base64(&bytes)), reference: None, settings })
}

fn settings_text(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let read = |file: &Path| {
        fs::read_to_string(file)
            .map(annex_files::without_mark)
            .with_context(|| format!("cannot read {}", file.display()))
    };
    file.map(read).transpose()
}

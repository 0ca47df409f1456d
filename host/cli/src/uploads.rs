//! `annex component`

use annex_server::admin_api::components;
use clap::{Args, Subcommand};
use reqwest::Method;

use crate::admin::Admin;
use crate::line::Line;
use crate::registry::upload::UploadArgs;

type List = components::List<Line>;
type ComponentAnswer = components::Component<Line>;
type RemovedComponent = components::RemovedComponent<Line>;

/// Upload components to a running server, for its added tenants.
#[derive(Args)]
#[command(
    after_help = "Example:\n  annex component push ./my-extension.wasm\n\nName the component by the printed digest in the \
                        tenant's file: component = \"sha256:...\". The server's config needs [admin] and [tenants]. The token \
                        is read from --token-file, or from the environment variable ANNEX_ADMIN_TOKEN."
)]
pub(crate) struct Uploads {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    admin: Admin,
}

#[derive(Subcommand)]
enum Command {
    /// Upload a component
    Push {
        #[command(flatten)]
        component: UploadArgs,
    },
    /// List the uploaded components
    List,
    /// Remove a component that no tenant's config names
    Remove {
        /// The component's digest
        digest: String,
    },
}

impl Uploads {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let client = self.admin.client()?;
        match &self.command {
            Command::Push { component } => {
                let bytes = component.read().await?.bytes;
                self.admin.print(&client.upload(&["components"], bytes).await?, pushed)
            }
            Command::List => {
                let answer = client.call(Method::GET, &["components"], None::<&()>).await?;
                self.admin.print(&answer, list)
            }
            Command::Remove { digest } => {
                let answer = client.call(Method::DELETE, &["components", digest], None::<&()>).await?;
                self.admin.print(&answer, |removed: &RemovedComponent| format!("{} is removed\n", removed.removed))
            }
        }
    }
}

fn pushed(component: &ComponentAnswer) -> String {
    format!("component = \"{}\"\n", component.digest)
}

fn list(list: &List) -> String {
    let List { components, max_uploads, max_upload_bytes } = list;
    let bytes: u64 = components.iter().map(|component| component.size).sum();
    let lines = components.iter().map(|ComponentAnswer { digest, size, uploaded_at }| {
        let since = uploaded_at.as_ref().map(|at| format!(", since {at}")).unwrap_or_default();
        format!("{digest}\n  {} KiB{since}\n", size.div_ceil(1024))
    });
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let lines: String = lines.collect();
    format!(
        "{lines}{} of {max_uploads} components, {} of {} MiB\n",
        components.len(),
        mib(bytes),
        mib(*max_upload_bytes)
    )
}

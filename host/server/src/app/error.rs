//! The reasons for which the server cannot be put together.

use annex_agent::{McpError, ToolClash};
use annex_runtime::{RuntimeError, Source};
use annex_telemetry::fault;

use crate::admin::TokenError;
use crate::config::ConfigError;
use crate::config::tenant_text::TenantTextError;
use crate::installation::installer::InstallError;
use crate::installation::signing::SigningError;
use crate::stores::editions::EditionsOpenError;
use crate::stores::keyvalue_store::KeyValueStoreError;
use crate::stores::session_store::SessionStoreError;
use crate::stores::task_store::TaskStoreError;
use crate::stores::wake::WakeOpenError;

/// The reasons for which the server cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The config names no agent, or the file of a tenant cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The component runtime does not start.
    #[error("cannot start the component runtime")]
    Runtime(#[from] RuntimeError),
    /// An extension cannot be installed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The model cannot be set up.
    #[error("agent.model cannot be used")]
    Model(#[source] Source),
    /// An MCP server or one of its tools cannot be used.
    #[error("[[agent.mcp]] cannot be used")]
    Mcp(#[from] McpError),
    /// Two tools have one name, so the model could not tell them apart.
    #[error("[[agent.mcp]] cannot be used")]
    Tools(#[from] ToolClash),
    /// The agent lives elsewhere and cannot be used.
    #[error("[agent] cannot be used")]
    Upstream(#[from] annex_upstream::ConnectError),
    /// Cards cannot be signed.
    #[error("[card.signing] cannot be used")]
    Signing(#[from] SigningError),
    /// The sender of push notifications cannot be made.
    #[error("[push] cannot be used")]
    Push(#[from] annex_push::NotifierError),
    /// The authenticator cannot be made.
    #[error("[auth] cannot be used")]
    Auth(#[from] annex_auth::AuthConfigError),
    /// The token of the admin API cannot be used.
    #[error("[admin] cannot be used")]
    Admin(#[from] TokenError),
    /// Tasks cannot be kept.
    #[error("tasks cannot be kept")]
    Tasks(#[from] TaskStoreError),
    /// Other processes cannot be heard.
    #[error("other processes on the database of the tasks cannot be heard")]
    Wake(#[from] WakeOpenError),
    /// Processes cannot agree on what is installed.
    #[error("what all replicas have installed cannot be found out")]
    Editions(#[from] EditionsOpenError),
    /// Sessions cannot be kept.
    #[error("sessions cannot be kept")]
    Sessions(#[from] SessionStoreError),
    /// The agent of a tenant takes too long.
    #[error("[agent] was not there in time: it waited for {peers}")]
    AgentLate {
        /// Those that the agent needs, with their addresses.
        peers: String,
    },
    /// The text of a tenant cannot be used.
    #[error(transparent)]
    TenantText(#[from] TenantTextError),
    /// Keys of extensions cannot be kept.
    #[error("keys of extensions cannot be kept")]
    KeyValue(#[from] KeyValueStoreError),
}

impl AppError {
    /// The error and its causes without the lines of files that errors of TOML show.
    pub(super) fn public_text(&self) -> String {
        match self {
            Self::Config(error) => error.lines().join("; "),
            Self::Install(error) => error.public_text(),
            error => fault::text(error),
        }
    }
}

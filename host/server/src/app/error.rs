//! The reasons why the app cannot be loaded.

use annex_agent::{McpError, ToolClash};
use annex_conversation::StoreError;
use annex_runtime::{RuntimeError, Source};
use annex_telemetry::fault;

use crate::admin::TokenError;
use crate::audit::AuditError;
use crate::config::ConfigError;
use crate::config::tenant_text::TenantTextError;
use crate::installation::denied::DenyFileError;
use crate::installation::installer::InstallError;
use crate::installation::signing::SigningError;
use crate::stores::conversation_store::ConversationStoreError;
use crate::stores::editions::EditionsOpenError;
use crate::stores::keyvalue_store::KeyValueStoreError;
use crate::stores::tenant_store::TenantStoreOpenError;
use crate::stores::turn_places::TurnPlacesOpenError;
use crate::stores::wake::WakeOpenError;
use crate::traces::TracesError;

/// The reasons why the app cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The config names no agent, or the file of a tenant is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The component runtime does not start.
    #[error("cannot start the component runtime")]
    Runtime(#[from] RuntimeError),
    /// The file with the components that must not run cannot be used.
    #[error("trust.deny_file cannot be used")]
    DenyFile(#[from] DenyFileError),
    /// An extension cannot be installed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The model cannot be set up.
    #[error("agent.model cannot be used")]
    Model(#[source] Source),
    /// An MCP server or one of its tools cannot be used.
    #[error("[[agent.mcp]] cannot be used")]
    Mcp(#[from] McpError),
    /// Two tools have the same name. The model could not tell the tools apart.
    #[error("[[agent.mcp]] cannot be used")]
    Tools(#[from] ToolClash),
    /// The upstream agent cannot be used.
    #[error("[agent]")]
    Upstream(#[from] annex_upstream::ConnectError),
    /// Cards cannot be signed.
    #[error("[card.signing] cannot be used")]
    Signing(#[from] SigningError),
    /// The sender of push notifications cannot be created.
    #[error("[push] cannot be used")]
    Push(#[from] annex_push::NotifierError),
    /// The authenticator cannot be created.
    #[error("[auth] cannot be used")]
    Auth(#[from] annex_auth::AuthConfigError),
    /// The sender of spans cannot be created.
    #[error("[traces] cannot be used")]
    Traces(#[from] TracesError),
    /// The token of the admin API cannot be used.
    #[error("[admin] cannot be used")]
    Admin(#[from] TokenError),
    /// The audit file cannot be opened.
    #[error("[admin] cannot be used")]
    Audit(#[from] AuditError),
    /// The store of conversations and tasks cannot be opened.
    #[error("cannot open the store of conversations and tasks")]
    Conversations(#[from] ConversationStoreError),
    /// The turns of dead processes cannot be taken over.
    #[error("cannot end the turns of processes that have ended")]
    LostTurns(#[from] StoreError),
    /// The store of tenants cannot be opened.
    #[error("cannot open the store of tenants")]
    Tenants(#[from] TenantStoreOpenError),
    /// The store of turn places cannot be opened. This store counts the running turns of all processes that share the
    /// database of the tasks.
    #[error("cannot count the turns of the processes on the database of the tasks")]
    TurnPlaces(#[from] TurnPlacesOpenError),
    /// The channel for wake-ups from other processes cannot be opened.
    #[error("cannot receive wake-ups from the other processes on the database of the tasks")]
    Wake(#[from] WakeOpenError),
    /// The table of editions, by which replicas agree on the installed extensions, cannot be opened.
    #[error("cannot read which extensions the replicas have installed")]
    Editions(#[from] EditionsOpenError),
    /// The agent of a tenant takes too long to load.
    #[error("[agent] took too long to load: it waited for {peers}")]
    AgentLate {
        /// The peers that the agent waits for, with their addresses.
        peers: String,
    },
    /// The text of a tenant cannot be used.
    #[error(transparent)]
    TenantText(#[from] TenantTextError),
    /// The store for the keys of extensions cannot be opened.
    #[error("cannot open the store for the keys of extensions")]
    KeyValue(#[from] KeyValueStoreError),
}

impl AppError {
    /// The error and its causes, without the excerpts of files in TOML errors.
    pub(super) fn public_text(&self) -> String {
        match self {
            Self::Config(error) => error.lines().join("; "),
            Self::Install(error) => error.public_text(),
            error => fault::text(error),
        }
    }
}

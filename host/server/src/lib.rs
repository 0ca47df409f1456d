//! The A2A server: bindings, connections, installation of extensions, the admin API, stores, and the life of the
//! process.
//!
//! A message goes through `process/routes.rs`, a binding, `operations.rs` and the operations of `annex-operations`. The
//! answer leaves through the same binding. Only `app.rs` connects all parts of the server.

// The future of a request contains the futures of all its steps, which exceeds the default recursion limit.
#![recursion_limit = "256"]

mod access_log;
mod admin;
pub mod admin_api;
mod app;
mod audit;
mod authentication;
mod bindings;
mod config;
mod connections;
mod console;
mod doctor;
mod installation;
mod locations;
pub mod lock;
mod metrics_sender;
mod operations;
mod paths;
mod process;
mod redaction;
mod requests;
mod settings;
mod stores;
mod tenants;
mod traces;

pub use admin::TokenError;
pub use annex_agent::{end_programs, kill_programs};
pub use app::{App, AppError, CheckReport, Counts, check, check_extensions, check_tenant_text};
pub use audit::{AuditError, VerifiedChain, VerifyError, verify_audit};
pub use config::{
    ActivateConfig, AdminConfig, AdminTokenConfig, AgentConfig, AgentStepsGrantConfig, BindingConfig,
    CallerGrantConfig, CardConfig, ClientCertificatesConfig, Config, ConfigError, ConfigFile, CorsOrigins,
    ExtensionConfig, GrantsConfig, HttpGrantConfig, HttpRuleConfig, HttpSchemeConfig, InstancesConfig,
    KeyValueGrantConfig, LimitsConfig, LiveCardGrantConfig, LogConfig, ModelConfig, OnFailureConfig, PostgresConfig,
    Problem, ProviderConfig, ReadsConfig, ReceiptsConfig, RegistryConfig, ReplicaConfig, RequestShare, RuntimeSection,
    SecretConfig, ServerConfig, SessionStateGrantConfig, SessionsConfig, SkillConfig, StateScopeConfig,
    StoredTenantsConfig, TasksConfig, TemplateConfig, TenantComponents, TenantConfig, TlsConfig, TracesConfig,
    TracesProtocol,
};
pub use connections::tls::TlsError;
pub use doctor::{Finding, Gravity, advisories, examine};
pub use installation::denied::{Denial, DenyFileError};
pub use installation::installer::{InstallError, Installer, Origin, ReloadOutcome};
pub use locations::Locations;
pub use process::readiness_gate::Phase;
pub use process::serve::{ServeError, Server};
pub use stores::conversation_store::ConversationStoreError;
pub use stores::sessions::{MAX_SHOWN, SessionFilter, SessionName, Sessions, SessionsError};
pub use stores::state::StateOwner;
pub use tenants::{Installers, ReloadError, TenantFailure};
pub use traces::TracesError;

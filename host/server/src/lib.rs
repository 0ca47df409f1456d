//! The A2A server: bindings, activation, tasks, card, and the life of the process.
//!
//! A message takes a straight line: routes → JSON-RPC → activation → the extensions' hooks → session → agent → hooks
//! again → task store → reader. `handler.rs` reads like that list. `app.rs` is the only place where parts are
//! joined.

mod accept;
mod activation;
mod admin;
mod answer;
mod answer_body;
mod app;
mod budget;
mod call;
mod caller;
mod cancellation;
mod card;
mod claim;
mod config;
mod connection;
mod counters;
mod descriptors;
mod doors;
mod edition;
mod fault;
mod front;
mod grpc;
mod handler;
mod hosts;
mod input_modes;
mod installer;
mod issuer;
mod jsonrpc;
mod keyvalue_store;
mod list;
mod listener;
mod long_work;
mod methods;
mod notes;
mod pins;
mod places;
mod push;
mod readers;
mod request_body;
mod request_check;
mod rest;
mod resumption;
mod routes;
mod scoped_keys;
mod serve;
mod services;
mod session_store;
mod sessions;
mod signing;
mod sse;
mod streams;
mod task_log;
mod task_record;
mod task_store;
mod tasks;
mod tenants;
mod turn;
mod v0_3;
mod watch;
mod write_limit;

pub use admin::TokenError;
pub use app::{App, AppError, Locations};
pub use config::{
    AdminConfig, AgentConfig, BindingConfig, CardConfig, Config, ConfigError, ConfigFile, ExtensionConfig,
    GrantsConfig, HttpGrantConfig, HttpRuleConfig, HttpSchemeConfig, KeyValueGrantConfig, LimitsConfig, ModelConfig,
    OnFailureConfig, ProviderConfig, RuntimeSection, SecretConfig, ServerConfig, SessionStateGrantConfig,
    SessionsConfig, SkillConfig, StateScopeConfig, TasksConfig, TemplateConfig, TenantConfig,
};
pub use front::Phase;
pub use installer::{InstallError, Installer, Origin, Reloaded};
pub use serve::{ServeError, Server};
pub use session_store::SessionStoreError;
pub use sessions::{
    DeletedSession, MAX_SHOWN, SessionFilter, SessionList, SessionName, Sessions, SessionsError, ShownEvents,
    ShownSession,
};
pub use task_store::TaskStoreError;
pub use tenants::Installers;

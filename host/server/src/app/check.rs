//! Checks of a config and of everything that it names. They open no port, call no database or peer, and compile no
//! component, except in [`check_extensions`].

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use annex_agent::unclosed_placeholder;
use annex_auth::{AuthConfig, Authenticator};
use annex_files::Purpose;
use annex_runtime::{Installed, KeyValueStore, MemoryKeyValueStore, Runtime};
use annex_telemetry::fault;
use annex_upstream::ConnectError;

use super::error::AppError;
use super::tenants::{ComponentsOf, admit};
use super::{agents, open_folder, runtime};
use crate::admin;
use crate::config::served::ServedConfig;
use crate::config::tenant_text::{TenantText, TenantTextError};
use crate::config::{AgentConfig, Config, ConfigError, Document, Problem, SecretConfig, TenantConfig, tenant};
use crate::installation::installer::{Folder, Installer, Parts};
use crate::installation::issuer::Issuer;
use crate::installation::named;
use crate::locations::Locations;
use crate::settings::located;
use crate::stores::postgres::PostgresDatabases;

/// The result of a check without errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The number of extensions of the config and of its tenants.
    pub extensions: usize,
    /// The number of tenants of the config.
    pub tenants: usize,
    /// Probable mistakes that do not keep a server from starting.
    pub warnings: Vec<Problem>,
}

/// Checks a config and its tenants, with the files and environment variables that they name.
///
/// # Errors All mistakes, ordered by file and line.
pub async fn check(path: &Path, locations: &Locations) -> Result<CheckReport, ConfigError> {
    let text = fs::read_to_string(path).map(annex_files::without_mark);
    let text = text.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let mut document = Document::parse(path, &text);
    let Some(config) = Config::decode(&mut document) else { return document.into_checked(None) };
    let config = Arc::new(config);
    check_own(&config, locations, true, &mut document).await;
    check_later(&config, locations, &mut document);
    let warnings = warnings(&ServedConfig::own(&config), &document);
    let mut checked = CheckReport { extensions: config.extensions.len(), tenants: config.tenants.len(), warnings };
    let mut of_tenants = Vec::new();
    for (number, tenant) in config.tenants.iter().enumerate() {
        match check_tenant_file(tenant, &config, locations).await {
            Ok(of_tenant) => {
                checked.extensions += of_tenant.extensions;
                checked.warnings.extend(of_tenant.warnings);
            }
            Err(ConfigError::Problems(problems)) => of_tenants.extend(problems),
            Err(error @ ConfigError::Read { .. }) => {
                document.wrong(&format!("tenant[{number}].config"), fault::text(&error));
            }
        }
    }
    let mut problems = document.into_problems();
    problems.extend(of_tenants);
    if problems.is_empty() { Ok(checked) } else { Err(ConfigError::Problems(problems)) }
}

/// The warning about a component that is not a local file.
const NOT_HERE: &str = "is not a component of the config; the server accepts the text only if this component was \
                        uploaded (`annex component push`)";

/// Checks the text of a tenant as the admin API does before it loads components. Without `config` only the keys of the
/// text are checked, because the config lists the secrets, hosts and components that a text may name.
///
/// # Errors All mistakes in the text, or in the config.
pub async fn check_tenant_text(
    file: &Path,
    config: Option<&Path>,
    locations: &Locations,
) -> Result<CheckReport, ConfigError> {
    let text = tenant::text(file)?;
    let parsed = TenantText::parse(&text).map_err(|error| error.in_file(file, &text))?;
    let Some(config) = config.map(Config::read).transpose()? else {
        return Ok(CheckReport { extensions: parsed.extensions(), ..CheckReport::default() });
    };
    let config = Arc::new(config);
    let stored = config.stored_tenants.clone().ok_or_else(|| no_tenants().in_file(file, &text))?;
    let components = ComponentsOf::new(Arc::clone(&config), locations).allowed;
    let admitted = admit(parsed, &stored, &components).map_err(|error| error.in_file(file, &text))?;
    let served = ServedConfig::of_added(admitted, &config);
    let served = served.map_err(|(key, reason)| TenantTextError::new(key, reason).in_file(file, &text))?;
    let mut document = Document::parse(file, &text);
    check_served(&served, locations, true, &mut document).await;
    let mut warnings = warnings(&served, &document);
    for (number, extension) in served.extensions.iter().enumerate() {
        if let Some(digest) = extension.uploaded() {
            let key = format!("extension[{number}].component");
            warnings.extend(document.remark(&key, format!("{digest} {NOT_HERE}")));
        }
    }
    document.into_checked(Some(CheckReport { extensions: served.extensions.len(), tenants: 0, warnings }))
}

fn no_tenants() -> TenantTextError {
    TenantTextError::new("", "the config has no [tenants], so its server accepts no tenants; add that table")
}

/// Loads the extensions of a config and of its tenants as a start does, each agent's set separately. Starts nothing
/// else. Returns the failures.
///
/// # Errors The config or the file of a tenant is wrong.
pub async fn check_extensions(path: &Path, locations: &Locations) -> Result<Vec<AppError>, ConfigError> {
    let config = Arc::new(Config::read(path)?);
    let keys: Arc<dyn KeyValueStore> = Arc::new(MemoryKeyValueStore::default());
    let runtime = match runtime(&config, locations, &keys) {
        Ok(runtime) => runtime,
        Err(error) => return Ok(vec![error.into()]),
    };
    let mut failures = Vec::new();
    failures.extend(load(ServedConfig::own(&config), locations.clone(), &runtime).await.err());
    for tenant in &config.tenants {
        let served = ServedConfig::of_tenant(tenant, &config, &locations.config)?;
        failures.extend(load(served, of_tenant(tenant, locations), &runtime).await.err());
    }
    Ok(failures)
}

/// The locations for a tenant's file, whose relative paths start at its own folder.
fn of_tenant(tenant: &TenantConfig, locations: &Locations) -> Locations {
    let path = locations.config.join(&tenant.config);
    Locations { config: path.parent().unwrap_or(&locations.config).to_owned(), ..locations.clone() }
}

async fn load(served: ServedConfig, locations: Locations, runtime: &Runtime) -> Result<(), AppError> {
    let issuer = Issuer::new(&served, "", BASE_URL, None, &locations)?;
    // Opening a missing folder would create it.
    let folder = served.extensions_dir().map(|folder| locations.config.join(folder)).filter(|folder| folder.is_dir());
    let folder = folder.map(open_folder).transpose()?;
    let (runtime, pins) = (runtime.of_tenant(""), Arc::default());
    let tenant = String::new();
    let parts = Parts { tenant, runtime, issuer, locations, folder, pins, watcher: None, peers: None, uploads: None };
    // The future of a load is large, so it is boxed.
    Box::pin(Installer::start(&served, parts)).await?;
    Ok(())
}

/// A placeholder URL, for checking that cards can be issued.
const BASE_URL: &str = "http://localhost";

/// Checks everything that a config names, before the server starts. `has_agent` is false for a program that brings its
/// own agent.
///
/// # Errors All mistakes.
pub(super) async fn check_start(config: &Config, locations: &Locations, has_agent: bool) -> Result<(), ConfigError> {
    let Some(text) = &config.text else { return Ok(()) };
    let mut document = text.document();
    check_own(&Arc::new(config.clone()), locations, has_agent, &mut document).await;
    document.into_checked(Some(()))
}

/// Checks a tenant's file and everything that it names.
async fn check_tenant_file(
    tenant: &TenantConfig,
    config: &Arc<Config>,
    locations: &Locations,
) -> Result<CheckReport, ConfigError> {
    let path = locations.config.join(&tenant.config);
    let text = tenant::text(&path)?;
    let mut document = Document::parse(&path, &text);
    let Some(served) = ServedConfig::decode_tenant(tenant, config, &mut document) else {
        return document.into_checked(None);
    };
    check_served(&served, &of_tenant(tenant, locations), true, &mut document).await;
    let warnings = warnings(&served, &document);
    document.into_checked(Some(CheckReport { extensions: served.extensions.len(), tenants: 0, warnings }))
}

/// Probable mistakes that do not keep an agent from being served.
fn warnings(served: &ServedConfig, document: &Document<'_>) -> Vec<Problem> {
    let Ok(AgentConfig::Template(template)) = served.agent() else { return Vec::new() };
    let open = unclosed_placeholder(&template.instruction);
    let warning = open.and_then(|name| {
        let reason = format!(
            "the brace before {name} is not closed, so the model gets the text as it is; write {{{name}}} for the value in \
             the session's state"
        );
        document.remark("agent.instruction", reason)
    });
    warning.into_iter().collect()
}

/// Checks everything that the config names, except in its tenants' files.
async fn check_own(config: &Arc<Config>, locations: &Locations, has_agent: bool, document: &mut Document<'_>) {
    if has_agent && config.agent.is_none() {
        document.wrong("agent", crate::config::NO_AGENT);
    }
    if let Some(auth) = &config.auth {
        check_auth(&located(auth, &locations.config), document);
    }
    if let Some(Err(error)) = config.admin.as_ref().map(|admin| admin::check_tokens(admin, &locations.config)) {
        document.wrong("admin", fault::text(&error));
    }
    if let Err((key, reason)) = config.replica.name() {
        document.wrong(key, reason);
    }
    check_databases(config, document);
    check_served(&ServedConfig::own(config), locations, has_agent, document).await;
}

/// Checks entries that do not keep a server from starting, but fail later.
fn check_later(config: &Config, locations: &Locations, document: &mut Document<'_>) {
    if let Some(added) = &config.stored_tenants {
        for (number, component) in added.components.iter().enumerate() {
            named::check_component(component, locations, &format!("tenants.components[{number}]"), document);
        }
        for (name, secret) in &added.secrets {
            check_secret(secret, locations, &format!("tenants.secrets.{name}"), document);
        }
    }
    // Opening a missing folder would create it.
    let folder = config.runtime.extensions_dir.as_ref().map(|folder| locations.config.join(folder));
    if let Some(folder) = folder.filter(|folder| folder.is_dir()) {
        match Folder::open(folder).and_then(|folder| folder.broken_settings()) {
            Ok(broken) => broken.into_iter().for_each(|reason| document.wrong("runtime.extensions_dir", reason)),
            Err(error) => document.wrong("runtime.extensions_dir", fault::text(&error)),
        }
    }
}

/// Checks one agent: its extensions, the settings of its kind, and its card.
async fn check_served(served: &ServedConfig, locations: &Locations, has_agent: bool, document: &mut Document<'_>) {
    named::check(&served.extensions, locations, &served.process, document);
    if let Ok(agent) = served.agent()
        && has_agent
    {
        check_agent(agent, document).await;
    }
    match Issuer::new(served, "", BASE_URL, None, locations) {
        Err(error) => document.wrong("card.signing", fault::text(&error)),
        Ok(issuer) => {
            if let Err(error) = issuer.cards(&Installed::default()) {
                document.wrong("card", fault::text(&error));
            }
        }
    }
}

async fn check_agent(agent: &AgentConfig, document: &mut Document<'_>) {
    match agents::check(agent).await {
        Ok(()) => {}
        Err(AppError::Upstream(ConnectError::Config(annex_upstream::ConfigError::Value { key, reason }))) => {
            document.wrong(&format!("agent.{key}"), reason);
        }
        Err(error @ AppError::Mcp(_)) => document.wrong("agent.mcp", cause(&error)),
        Err(error @ AppError::Model(_)) => document.wrong("agent.model", cause(&error)),
        Err(error) => document.wrong("agent", cause(&error)),
    }
}

/// The cause of an error. The error's own text only names the key, which the problem shows anyway.
fn cause(error: &(dyn Error + 'static)) -> String {
    error.source().map_or_else(|| fault::text(error), fault::text)
}

/// Checks each key of `[auth]` separately and then all together, so that every wrong key is reported.
fn check_auth(auth: &AuthConfig, document: &mut Document<'_>) {
    let alone = |api_key, jwt| AuthConfig { api_key, jwt, ..auth.clone() };
    let mut is_sound = true;
    for (number, key) in auth.api_key.iter().enumerate() {
        if let Err(error) = Authenticator::new(&alone(vec![key.clone()], None)) {
            is_sound = false;
            document.wrong(&format!("auth.api_key[{number}]"), fault::text(&error));
        }
    }
    if auth.jwt.is_some()
        && let Err(error) = Authenticator::new(&alone(Vec::new(), auth.jwt.clone()))
    {
        is_sound = false;
        document.wrong("auth.jwt", fault::text(&error));
    }
    if is_sound && let Err(error) = Authenticator::new(auth) {
        document.wrong("auth", fault::text(&error));
    }
}

/// Checks that the environment variables for databases are set and contain URLs.
fn check_databases(config: &Config, document: &mut Document<'_>) {
    let databases = PostgresDatabases::new(&config.postgres);
    let variables = [
        ("tasks.postgres_env", &config.tasks.postgres_env),
        ("sessions.postgres_env", &config.sessions.postgres_env),
        ("keyvalue.postgres_env", &config.keyvalue.postgres_env),
        ("postgres.listen_env", &config.postgres.listen_env),
    ];
    for (key, variable) in variables {
        let Some(name) = variable else { continue };
        match env::var(name).map(|url| databases.at(&url)) {
            Ok(Ok(_)) => {}
            // The URL is not shown, because it may contain a password.
            Ok(Err(_)) => {
                document.wrong(key, format!("the environment variable {name} is no URL of a PostgreSQL database"))
            }
            Err(_) => document.wrong(key, format!("the environment variable {name} is not set")),
        }
    }
}

fn check_secret(secret: &SecretConfig, locations: &Locations, key: &str, document: &mut Document<'_>) {
    let failed = match secret {
        SecretConfig::Env(name) if env::var(name).is_err() => {
            Some(format!("the environment variable {name} is not set to text"))
        }
        SecretConfig::Env(_) => None,
        SecretConfig::File(path) => {
            let path = locations.config.join(path);
            let opened = annex_files::open(&path, Purpose::Secret);
            opened.err().map(|error| format!("cannot read {}: {error}", path.display()))
        }
    };
    if let Some(reason) = failed {
        document.wrong(key, reason);
    }
}

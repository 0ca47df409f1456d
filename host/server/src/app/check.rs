//! Checks of a config and of everything that it names. They open no port, call no database or peer, and compile no
//! component, except in [`check_extensions`].

use std::env;
use std::fs;
use std::path::{Path, absolute};
use std::sync::Arc;

use annex_auth::{AuthConfig, AuthConfigError, Authenticator, DeclareConfig};
use annex_runtime::{KeyValueStore, MemoryKeyValueStore, Runtime};
use annex_telemetry::fault;

use super::error::AppError;
use super::{deny_file, open_folder, runtime};
use crate::admin;
use crate::config::served::ServedConfig;
use crate::config::{Config, ConfigError, Document, TenantConfig, environment, registries, tenant};
use crate::installation::denied::{self, DeniedComponents};
use crate::installation::installer::{Folder, Installer, Parts};
use crate::installation::issuer::Issuer;
use crate::installation::named;
use crate::locations::Locations;
use crate::process::listeners_tls::{ListenersTls, WrongTls};
use crate::settings::located;
use crate::stores::postgres::PostgresDatabases;
use crate::traces::wrong_headers;

mod answers;
mod callers;
mod served;
mod tenant_text;

use served::{BASE_URL, warnings, wrong_in_served};
pub use served::{CheckReport, Counts};
pub use tenant_text::check_tenant_text;

/// Checks a config, the files of its tenants, and all files and environment variables that these name. The report has
/// all mistakes, ordered by file and line.
pub async fn check(path: &Path, locations: &Locations) -> CheckReport {
    match fs::read_to_string(path).map(annex_files::without_mark) {
        Ok(text) => check_text(path, &text, locations).await,
        Err(source) => {
            CheckReport { warnings: Vec::new(), outcome: Err(ConfigError::Read { path: path.to_owned(), source }) }
        }
    }
}

async fn check_text(path: &Path, text: &str, locations: &Locations) -> CheckReport {
    let mut warnings = warnings(path, text);
    let mut document = Document::parse(path, text);
    let Some(config) = Config::decode(&mut document) else {
        return CheckReport { warnings, outcome: document.into_checked(None) };
    };
    let config = Arc::new(config);
    warnings.extend(callers::warnings(path, text, config.auth.as_ref()));
    check_own(&config, locations, true, &mut document).await;
    check_later(&config, locations, &mut document);
    let mut counts = Counts { extensions: config.extensions.len(), tenants: config.tenants.len() };
    let mut of_tenants = Vec::new();
    for (number, tenant) in config.tenants.iter().enumerate() {
        let checked = check_tenant_file(tenant, &config, locations).await;
        warnings.extend(checked.warnings);
        match checked.outcome {
            Ok(of_tenant) => counts.extensions += of_tenant.extensions,
            Err(ConfigError::Problems(problems)) => of_tenants.extend(problems),
            Err(ConfigError::Read { path, source }) => {
                let path = absolute(&path).unwrap_or(path);
                let reason = format!("cannot read {:?}, which is {}: {source}", tenant.config, path.display());
                document.wrong(&format!("tenant[{number}].config"), reason);
            }
        }
    }
    let mut problems = document.into_problems();
    problems.extend(of_tenants);
    CheckReport { warnings, outcome: ConfigError::unless_none(problems).map(|()| counts) }
}

/// Loads the extensions of a config and of its tenants, as a start of the server does, and returns the failures. The
/// extensions of each agent are loaded separately. Starts no agent and opens no port.
///
/// # Errors
/// The config or the file of a tenant is wrong.
pub async fn check_extensions(path: &Path, locations: &Locations) -> Result<Vec<AppError>, ConfigError> {
    let config = Arc::new(Config::read(path)?);
    let keys: Arc<dyn KeyValueStore> = Arc::new(MemoryKeyValueStore::default());
    let runtime = match runtime(&config, locations, &keys) {
        Ok(runtime) => runtime,
        Err(error) => return Ok(vec![error.into()]),
    };
    let denied = match deny_file(&config, locations).map(|path| DeniedComponents::read(&path)).transpose() {
        Ok(denied) => Arc::new(denied.unwrap_or_default()),
        Err(error) => return Ok(vec![error.into()]),
    };
    let shared = SharedByAgents { runtime, denied };
    let mut failures = Vec::new();
    failures.extend(load(ServedConfig::own(&config), locations.clone(), &shared).await.err());
    for tenant in &config.tenants {
        let served = ServedConfig::of_tenant(tenant, &config, &locations.config)?;
        failures.extend(load(served, of_tenant(tenant, locations), &shared).await.err());
    }
    let each = |failure| match failure {
        AppError::Install(error) => error.into_each().into_iter().map(AppError::Install).collect(),
        other => vec![other],
    };
    Ok(failures.into_iter().flat_map(each).collect())
}

/// The locations for reading a tenant's file. Relative paths in the file start at the file's own folder.
fn of_tenant(tenant: &TenantConfig, locations: &Locations) -> Locations {
    let path = locations.config.join(&tenant.config);
    Locations { config: path.parent().unwrap_or(&locations.config).to_owned(), ..locations.clone() }
}

/// The parts that all agents share when their extensions are loaded for a check.
struct SharedByAgents {
    runtime: Runtime,
    denied: Arc<DeniedComponents>,
}

async fn load(served: ServedConfig, locations: Locations, shared: &SharedByAgents) -> Result<(), AppError> {
    let issuer = Issuer::new(&served, "", BASE_URL, None, &locations)?;
    // Opening a missing folder would create it.
    let folder = served.extensions_dir().map(|folder| locations.config.join(folder)).filter(|folder| folder.is_dir());
    let folder = folder.map(open_folder).transpose()?;
    let parts = Parts {
        tenant: String::new(),
        runtime: shared.runtime.of_tenant(""),
        issuer,
        locations,
        folder,
        pins: Arc::default(),
        watcher: None,
        peers: None,
        uploads: None,
        denied: Arc::clone(&shared.denied),
    };
    // The future of a load is large, so it is boxed.
    Box::pin(Installer::start(&served, parts)).await?;
    Ok(())
}

/// Checks everything that a config names, before the server starts. `has_agent` is false for a program that brings its
/// own agent.
///
/// # Errors
/// All mistakes.
pub(super) async fn check_start(config: &Config, locations: &Locations, has_agent: bool) -> Result<(), ConfigError> {
    let Some(text) = &config.text else { return Ok(()) };
    let mut document = text.document();
    check_own(&Arc::new(config.clone()), locations, has_agent, &mut document).await;
    document.into_checked(Some(()))
}

/// Checks a tenant's file and everything that it names.
async fn check_tenant_file(tenant: &TenantConfig, config: &Arc<Config>, locations: &Locations) -> CheckReport {
    let path = locations.config.join(&tenant.config);
    let text = match tenant::text(&path) {
        Ok(text) => text,
        Err(error) => return CheckReport { warnings: Vec::new(), outcome: Err(error) },
    };
    let mut warnings = warnings(&path, &text);
    warnings.extend(callers::warnings(&path, &text, config.auth.as_ref()));
    let mut document = Document::parse(&path, &text);
    let Some(served) = ServedConfig::decode_tenant(tenant, config, &mut document) else {
        return CheckReport { warnings, outcome: document.into_checked(None) };
    };
    for (key, reason) in wrong_in_served(&served, &of_tenant(tenant, locations), true).await {
        document.wrong(&key, reason);
    }
    let counts = Counts { extensions: served.extensions.len(), tenants: 0 };
    CheckReport { warnings, outcome: document.into_checked(Some(counts)) }
}

/// Checks everything that the config names, except in its tenants' files.
async fn check_own(config: &Arc<Config>, locations: &Locations, has_agent: bool, document: &mut Document<'_>) {
    if has_agent && config.agent.is_none() {
        document.wrong("agent", crate::config::NO_AGENT);
    }
    if let Some(auth) = &config.auth {
        check_auth(&located(auth, &locations.config), document);
    }
    for (key, reason) in config.admin.iter().flat_map(|admin| admin::wrong_tokens(admin, &locations.config)) {
        document.wrong(&key, reason);
    }
    for (key, reason) in config.traces.iter().flat_map(|traces| wrong_headers(traces, &locations.config)) {
        document.wrong(&key, reason);
    }
    for WrongTls { key, error } in ListenersTls::wrong(config, &locations.config) {
        document.wrong(&key, fault::text(&error));
    }
    for (key, reason) in config.trust.iter().flat_map(|trust| registries::wrong_trust(trust, config.folder())) {
        document.wrong(&key, reason);
    }
    for (host, registry) in &config.registries {
        if let Some(reason) = registry.unreadable(config.folder()) {
            document.wrong(&format!("registries.\"{host}\".ca_file"), reason);
        }
    }
    if let Some(Err(error)) = deny_file(config, locations).map(|path| denied::read(&path)) {
        document.wrong("trust.deny_file", fault::text(&error));
    }
    if let Err((key, reason)) = config.replica.name() {
        document.wrong(key, reason);
    }
    check_databases(config, document);
    for (key, reason) in wrong_in_served(&ServedConfig::own(config), locations, has_agent).await {
        document.wrong(&key, reason);
    }
}

/// Checks the settings whose mistakes would show only after the start: components and secrets for added tenants, and
/// the settings files in the folder of extensions.
fn check_later(config: &Config, locations: &Locations, document: &mut Document<'_>) {
    if let Some(added) = &config.stored_tenants {
        for (number, reason) in named::unusable(&added.components, locations, config) {
            document.wrong(&format!("tenants.components[{number}]"), reason);
        }
        for (name, secret) in &added.secrets {
            if let Some(reason) = secret.fault(&locations.config) {
                document.wrong(&format!("tenants.secrets.{name}.{}", secret.key()), reason);
            }
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

/// Checks each key of `[auth]` separately and then all together, so that every wrong key is reported.
fn check_auth(auth: &AuthConfig, document: &mut Document<'_>) {
    let alone = |api_key, jwt| AuthConfig {
        api_key,
        jwt,
        introspection: None,
        client_certificate: None,
        declare: None,
        ..auth.clone()
    };
    let mut is_sound = true;
    for (number, key) in auth.api_key.iter().enumerate() {
        if let Err(error) = Authenticator::new(&alone(vec![key.clone()], None)) {
            is_sound = false;
            let (inner, reason) = match &error {
                AuthConfigError::KeyVariable { variable, .. } => (".key_env", environment::unusable(variable)),
                AuthConfigError::File { .. } => (".key_file", fault::text(&error)),
                AuthConfigError::KeyDigest { .. } => (".key_sha256", fault::text(&error)),
                _ => ("", fault::text(&error)),
            };
            document.wrong(&format!("auth.api_key[{number}]{inner}"), reason);
        }
    }
    if auth.jwt.is_some()
        && let Err(error) = Authenticator::new(&alone(Vec::new(), auth.jwt.clone()))
    {
        is_sound = false;
        let (inner, reason) = match &error {
            AuthConfigError::Jwt { field, problem } => (format!(".{field}"), (*problem).to_owned()),
            AuthConfigError::File { .. } | AuthConfigError::Keys { .. } => {
                (".jwks_file".to_owned(), fault::text(&error))
            }
            _ => (String::new(), fault::text(&error)),
        };
        document.wrong(&format!("auth.jwt{inner}"), reason);
    }
    let introspection = AuthConfig { introspection: auth.introspection.clone(), ..alone(Vec::new(), None) };
    if auth.introspection.is_some()
        && let Err(error) = Authenticator::new(&introspection)
    {
        is_sound = false;
        let (inner, reason) = match error {
            AuthConfigError::Introspection { field, problem } => (format!(".{field}"), problem),
            AuthConfigError::File { .. } => (".client_secret_file".to_owned(), fault::text(&error)),
            _ => (String::new(), fault::text(&error)),
        };
        document.wrong(&format!("auth.introspection{inner}"), reason);
    }
    for (key, problem) in auth.declare.iter().flat_map(DeclareConfig::mistakes) {
        is_sound = false;
        document.wrong(&format!("auth.declare.{key}"), problem);
    }
    if is_sound && let Err(error) = Authenticator::new(auth) {
        let is_declared = matches!(error, AuthConfigError::DeclareWithoutTokens);
        document.wrong(if is_declared { "auth.declare" } else { "auth" }, fault::text(&error));
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
            Err(_) => document.wrong(key, environment::unusable(name)),
        }
    }
}

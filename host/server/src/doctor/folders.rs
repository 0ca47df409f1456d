//! Checks of folders and files: whether they exist, and which users can read or write them.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_files::Purpose;
use rustix::fs::Access;

use super::finding::Finding;
use crate::config::served::ServedConfig;
use crate::config::{AgentConfig, CardConfig, Config, ExtensionConfig, SecretConfig};
use crate::locations::Locations;
use crate::process::listeners_tls::tables;

/// The permission bit that lets other users enter a folder.
const OTHERS_ENTER: u32 = 0o001;
/// The permission bit that lets other users read a file.
const OTHERS_READ: u32 = 0o004;
/// The maximum number of files of one folder that a check examines.
const MAX_FILES: usize = 10_000;
/// The magic bytes at the beginning of an SQLite file.
const SQLITE: &[u8] = b"SQLite format 3\0";

pub(super) fn examine(config: &Arc<Config>, locations: &Locations) -> Vec<Finding> {
    let mut findings = Vec::new();
    let data = [
        ("tasks.data_dir", &config.tasks.data_dir),
        ("sessions.data_dir", &config.sessions.data_dir),
        ("keyvalue.data_dir", &config.keyvalue.data_dir),
    ];
    let mut seen: Vec<PathBuf> = Vec::new();
    for (key, folder) in data {
        let Some(folder) = folder.as_ref().map(|folder| locations.config.join(folder)) else { continue };
        if !seen.contains(&folder) {
            findings.extend(data_folder(key, &folder));
            seen.push(folder);
        }
    }
    if config.tasks.data_dir.is_none() && config.tasks.postgres_env.is_none() {
        let text = "tasks are kept in memory only and are lost at a stop; set tasks.data_dir or tasks.postgres_env to keep them";
        findings.push(Finding::warning("tasks", text));
    }
    findings.push(cache(config, locations));
    if let Some(folder) = &config.runtime.extensions_dir {
        findings.push(extensions_folder(&locations.config.join(folder)));
    }
    findings.extend(secrets(config, locations));
    findings
}

/// Checks the folder of a database. The server creates a missing folder.
fn data_folder(key: &'static str, folder: &Path) -> Vec<Finding> {
    if let Err(finding) = writable("folder", key, folder) {
        return vec![finding];
    }
    let Ok(metadata) = fs::metadata(folder) else {
        return vec![Finding::fine("folder", format!("{key}: {} will be made", folder.display()))];
    };
    let can_be_entered = metadata.permissions().mode() & OTHERS_ENTER != 0;
    let mut findings = vec![Finding::fine("folder", format!("{key}: {} can be written", folder.display()))];
    let files = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_FILES).map(|file| file.path());
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "sqlite")) {
        findings.push(database_file(&file, can_be_entered));
    }
    findings
}

fn database_file(file: &Path, folder_can_be_entered: bool) -> Finding {
    let shown = file.display();
    let read = fs::File::open(file).and_then(|mut opened| {
        let mut start = [0; SQLITE.len()];
        let length = std::io::Read::read(&mut opened, &mut start)?;
        Ok((opened.metadata()?, length == 0 || start == *SQLITE))
    });
    match read {
        Err(error) => Finding::error("database", format!("cannot read {shown}: {error}")),
        Ok((_, false)) => Finding::error("database", format!("{shown} is not an SQLite database; move it away")),
        Ok((metadata, true)) if folder_can_be_entered && metadata.permissions().mode() & OTHERS_READ != 0 => {
            let text = format!("others can read {shown}, which has the messages of users; run `chmod o-rwx {shown}`");
            Finding::warning("database", text)
        }
        Ok((metadata, true)) => Finding::fine("database", format!("{shown} has {} KiB", metadata.len().div_ceil(1024))),
    }
}

/// Checks that the server can write into the folder, or can create it.
///
/// # Errors
/// The finding, if nothing can be written there.
fn writable(about: &'static str, key: &str, folder: &Path) -> Result<(), Finding> {
    // The server creates a missing folder below its nearest existing ancestor, so that one must be writable.
    let there = folder.ancestors().find(|folder| folder.as_os_str().is_empty() || folder.exists());
    let there = there.filter(|there| !there.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let wrong = |reason: String| Finding::error(about, format!("{key}: {reason}"));
    if !there.is_dir() {
        return Err(wrong(format!("{} is not a folder; name another place", there.display())));
    }
    let access = rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK);
    access.map_err(|error| {
        wrong(format!(
            "nothing can be written in {} ({error}); give the user who runs the server the right",
            there.display()
        ))
    })
}

/// Checks the cache of compiled components. Without the cache each start compiles all components.
fn cache(config: &Config, locations: &Locations) -> Finding {
    let own = config.runtime.cache_dir.as_ref().map(|folder| locations.config.join(folder));
    let Some(folder) = own.or_else(|| locations.cache.clone()) else {
        let text = "there is no folder for compiled components, so each start compiles; set runtime.cache_dir, or HOME";
        return Finding::warning("cache", text);
    };
    if let Err(Finding { text, .. }) = writable("cache", "runtime.cache_dir", &folder) {
        return Finding::warning("cache", format!("{text}; each start compiles until then"));
    }
    let shown = folder.display();
    match annex_files::remark(&folder, Purpose::Private) {
        Err(error) if error.kind() == ErrorKind::NotFound => Finding::fine("cache", format!("{shown} will be made")),
        Err(error) => Finding::warning("cache", format!("{shown}: {error}; each start compiles until then")),
        Ok(Some(remark)) => Finding::warning("cache", format!("{shown}: {remark}")),
        Ok(None) => {
            let files = fs::read_dir(&folder).into_iter().flatten().flatten().take(MAX_FILES);
            let bytes: u64 = files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
            let room = config.runtime.cache_bytes >> 20;
            Finding::fine("cache", format!("{shown} has {} MiB of {room} (runtime.cache_bytes)", bytes >> 20))
        }
    }
}

fn extensions_folder(folder: &Path) -> Finding {
    let shown = folder.display();
    match annex_files::remark(folder, Purpose::Managed) {
        Err(error) if error.kind() == ErrorKind::NotFound => match writable("folder", "runtime.extensions_dir", folder)
        {
            Ok(()) => Finding::fine("folder", format!("runtime.extensions_dir: {shown} will be made")),
            Err(finding) => finding,
        },
        Err(error) => Finding::error("folder", format!("runtime.extensions_dir: {shown}: {error}")),
        Ok(remark) => {
            let remark = remark.map(|remark| format!("; {remark}")).unwrap_or_default();
            Finding::fine("folder", format!("runtime.extensions_dir: {shown} can be read{remark}"))
        }
    }
}

/// Warns about each file with a secret that other users can read. If the server cannot read such a file, the check of
/// the config reports this.
fn secrets(config: &Arc<Config>, locations: &Locations) -> Vec<Finding> {
    let lent = config.stored_tenants.iter().flat_map(|tenants| tenants.secrets.values());
    let of_callers = config.auth.iter().flat_map(|auth| auth.api_key.iter().filter_map(|key| key.key_file.as_ref()));
    let tokens = config.admin.iter().flat_map(|admin| admin.all_tokens().into_iter().chain(admin.metrics_token()));
    let of_admin = tokens.filter_map(|token| token.token_file);
    let of_client = config.auth.iter().filter_map(|auth| auth.introspection.as_ref()?.client_secret_file.as_ref());
    let of_tls = tables(config).into_iter().flatten().map(|(_, tls)| tls.key.clone());
    let own = of_agent(&config.card, config.agent.as_ref(), &config.extensions)
        .chain(lent.filter_map(secret_file))
        .chain(of_callers)
        .chain(of_client)
        .cloned()
        .chain(of_admin)
        .chain(of_tls);
    let mut files: Vec<PathBuf> = own.map(|file| locations.config.join(file)).collect();
    for tenant in &config.tenants {
        // `app::check` reports a tenant whose file is unreadable.
        let Ok(served) = ServedConfig::of_tenant(tenant, config, &locations.config) else { continue };
        let path = locations.config.join(&tenant.config);
        let folder = path.parent().unwrap_or(Path::new(""));
        files.extend(of_agent(&served.card, served.agent().ok(), &served.extensions).map(|file| folder.join(file)));
    }
    let remarks = files.iter().filter_map(|file| {
        let remark = annex_files::remark(file, Purpose::Secret).ok()??;
        Some(Finding::warning("keys", format!("{}: {remark}", file.display())))
    });
    let mut findings: Vec<Finding> = remarks.collect();
    if findings.is_empty() && !files.is_empty() {
        findings.push(Finding::fine("keys", format!("files with keys that only the server can read: {}", files.len())));
    }
    findings
}

/// The files with secrets of one agent: the secrets that its extensions may read, the key that signs its card, and the
/// secret of the server at the authorization server of an upstream agent.
fn of_agent<'a>(
    card: &'a CardConfig,
    agent: Option<&'a AgentConfig>,
    extensions: &'a [ExtensionConfig],
) -> impl Iterator<Item = &'a PathBuf> {
    let client = agent.and_then(|agent| match agent {
        AgentConfig::Upstream { upstream, .. } => upstream.oauth.as_ref()?.client_secret_file.as_ref(),
        AgentConfig::Template(_) | AgentConfig::Script { .. } => None,
    });
    let granted = extensions.iter().flat_map(|extension| extension.grants.secrets.values()).filter_map(secret_file);
    granted.chain(card.signing.iter().filter_map(|signing| signing.key_file.as_ref())).chain(client)
}

fn secret_file(secret: &SecretConfig) -> Option<&PathBuf> {
    match secret {
        SecretConfig::File(path) => Some(path),
        SecretConfig::Env(_) => None,
    }
}

//! Credentials in the config files of docker and podman, and in the programs that keep credentials for them.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use annex_files::Purpose;
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::client::Login;
use crate::helper::{Helper, HelperError};
use crate::reference::is_docker_hub;

/// The maximum size of a file with credentials in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;
/// The key under which docker stores the credentials of Docker Hub.
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";
/// The user name with which a helper marks a token that only an OAuth server takes.
const IDENTITY_TOKEN: &str = "<token>";
/// Some tools write base64 without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The file with credentials for registries. The file may name helpers: programs such as `docker-credential-pass`.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    file: Option<PathBuf>,
}

/// The reasons why credentials cannot be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// No file is known.
    #[error("there is no place for credentials; name a file in REGISTRY_AUTH_FILE, or a folder in DOCKER_CONFIG")]
    NoFile,
    /// The file cannot be read.
    #[error("cannot read the credentials in {file}")]
    Read {
        /// The file.
        file: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The file is not a config of docker. The error has no part of the text, which can be a password.
    #[error("{file} is not a config of docker: line {line}, column {column} is not as docker writes it")]
    NotAConfig {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// The credentials of a registry have another form.
    #[error("{file} has credentials for {registry} that cannot be used: {reason}; log in with: annex login {registry}")]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The registry.
        registry: String,
        /// The reason.
        reason: &'static str,
    },
    /// A helper fails.
    #[error("{file} names a credential helper that fails")]
    Helper {
        /// The file that names the helper.
        file: PathBuf,
        /// The reason.
        #[source]
        source: HelperError,
    },
    /// A user's name has a colon, which ends a name in HTTP (RFC 7617, section 2).
    #[error("the user name {0:?} has a colon, which no user name may have")]
    Colon(String),
    /// The file cannot be written.
    #[error("cannot write {file}")]
    Write {
        /// The file.
        file: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DockerConfig {
    #[serde(default)]
    auths: Option<BTreeMap<String, Auth>>,
    #[serde(default)]
    creds_store: Option<String>,
    #[serde(default)]
    cred_helpers: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
struct Auth {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    identitytoken: Option<String>,
}

impl Credentials {
    /// The file that the environment names: `REGISTRY_AUTH_FILE`, or else `config.json` in the folder `DOCKER_CONFIG` or
    /// in `~/.docker`.
    #[must_use]
    pub fn from_env() -> Self {
        Self::by(|name| env::var_os(name).filter(|value| !value.is_empty()))
    }

    /// The credentials in this file, which may be missing.
    #[must_use]
    pub fn in_file(file: PathBuf) -> Self {
        Self { file: Some(file) }
    }

    fn by(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let folder = || {
            let home = || variable("HOME").map(|home| Path::new(&home).join(".docker"));
            variable("DOCKER_CONFIG").map(PathBuf::from).or_else(home)
        };
        let file = variable("REGISTRY_AUTH_FILE").map(PathBuf::from);
        Self { file: file.or_else(|| folder().map(|folder| folder.join("config.json"))) }
    }

    /// The credentials for a registry. `None` if there are none.
    ///
    /// # Errors
    /// [`CredentialsError`].
    pub async fn find(&self, registry: &str) -> Result<Option<Login>, CredentialsError> {
        let Some((file, text)) = self.read()? else { return Ok(None) };
        let config: DockerConfig = parse(file, &text)?;
        let unusable =
            |reason| CredentialsError::Unusable { file: file.to_owned(), registry: registry.to_owned(), reason };
        if let Some(helper) = config.helper_of(registry) {
            return ask(helper, file, registry).await;
        }
        let auths = config.auths.iter().flatten();
        let own = auths.filter(|(key, _)| is_key_of(key, registry)).find_map(|(_, auth)| auth.login().transpose());
        match (own, &config.creds_store) {
            (Some(login), _) => login.map(Some).map_err(unusable),
            (None, Some(helper)) => ask(helper, file, registry).await,
            (None, None) => Ok(None),
        }
    }

    /// Stores credentials for a registry: in the helper that the file names, or else in the file, which then has mode
    /// 0600. Everything else in the file stays. Returns the name of the helper's program or of the file.
    ///
    /// # Errors
    /// [`CredentialsError`].
    pub async fn store(&self, registry: &str, login: &Login) -> Result<String, CredentialsError> {
        if login.user.contains(':') {
            return Err(CredentialsError::Colon(login.user.clone()));
        }
        let file = self.file.as_deref().ok_or(CredentialsError::NoFile)?;
        let text = self.read()?.map_or_else(|| "{}".to_owned(), |(_, text)| text);
        let config: DockerConfig = parse(file, &text)?;
        if let Some(helper) = config.helper_of(registry).or(config.creds_store.as_deref()) {
            let helper = Helper::new(helper).map_err(|source| of_helper(file, source))?;
            helper.store(key_of(registry), login).await.map_err(|source| of_helper(file, source))?;
            return Ok(helper.program().to_owned());
        }
        let mut whole: Map<String, Value> = parse(file, &text)?;
        let auth = json!({"auth": BASE64.encode(format!("{}:{}", login.user, login.password))});
        let auths = whole.entry("auths").or_insert(Value::Null);
        if auths.is_null() {
            *auths = json!({});
        }
        // It is an object, because the whole text has been read as a config of docker.
        if let Some(auths) = auths.as_object_mut() {
            auths.retain(|key, _| !is_key_of(key, registry));
            auths.insert(key_of(registry).to_owned(), auth);
        }
        write(file, &whole)?;
        Ok(file.display().to_string())
    }

    /// The file and its text. `None` if there is no file.
    fn read(&self) -> Result<Option<(&Path, String)>, CredentialsError> {
        let Some(file) = self.file.as_deref() else { return Ok(None) };
        match annex_files::read_text(file, Purpose::Secret, MAX_FILE_BYTES) {
            Ok(text) => Ok(Some((file, text))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CredentialsError::Read { file: file.to_owned(), source }),
        }
    }
}

impl DockerConfig {
    /// The helper for this registry alone.
    fn helper_of(&self, registry: &str) -> Option<&str> {
        let mut helpers = self.cred_helpers.iter().flatten();
        helpers.find(|(key, _)| is_key_of(key, registry)).map(|(_, helper)| helper.as_str())
    }
}

impl Auth {
    /// The user and the password. `None` in an entry of docker that only says that a helper has the password.
    fn login(&self) -> Result<Option<Login>, &'static str> {
        if self.identitytoken.as_ref().is_some_and(|token| !token.is_empty()) {
            return Err("they are an identity token, which Annex cannot use in place of a user and a password");
        }
        if let Some(auth) = self.auth.as_deref().filter(|auth| !auth.is_empty()) {
            let decoded = BASE64.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let pair = decoded.as_deref().and_then(|decoded| decoded.split_once(':'));
            let (user, password) = pair.ok_or("`auth` is not the base64 of USER:PASSWORD")?;
            return Ok(Some(Login { user: user.to_owned(), password: password.to_owned() }));
        }
        let (Some(user), Some(password)) = (&self.username, &self.password) else { return Ok(None) };
        Ok(Some(Login { user: user.clone(), password: password.clone() }))
    }
}

async fn ask(helper: &str, file: &Path, registry: &str) -> Result<Option<Login>, CredentialsError> {
    let helper = Helper::new(helper).map_err(|source| of_helper(file, source))?;
    let login = helper.get(key_of(registry)).await.map_err(|source| of_helper(file, source))?;
    match login {
        Some(login) if login.user == IDENTITY_TOKEN => Err(CredentialsError::Unusable {
            file: file.to_owned(),
            registry: registry.to_owned(),
            reason: "its helper has an identity token, which Annex cannot use in place of a user and a password",
        }),
        login => Ok(login),
    }
}

fn of_helper(file: &Path, source: HelperError) -> CredentialsError {
    CredentialsError::Helper { file: file.to_owned(), source }
}

fn parse<T: for<'de> Deserialize<'de>>(file: &Path, text: &str) -> Result<T, CredentialsError> {
    let wrong = |error: serde_json::Error| CredentialsError::NotAConfig {
        file: file.to_owned(),
        line: error.line(),
        column: error.column(),
    };
    serde_json::from_str(text).map_err(wrong)
}

fn write(file: &Path, config: &Map<String, Value>) -> Result<(), CredentialsError> {
    let failed = |source| CredentialsError::Write { file: file.to_owned(), source };
    let text = serde_json::to_string_pretty(config).map_err(|error| failed(error.into()))?;
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    }
    // A symbolic link stays, and its target is replaced.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    annex_files::replace(&file, format!("{text}\n").as_bytes(), 0o600).map_err(failed)
}

/// The key of a registry in `auths`, which is also its name for helpers.
fn key_of(registry: &str) -> &str {
    if is_docker_hub(registry) { DOCKER_HUB_KEY } else { registry }
}

/// True if the key of `auths` means the whole registry. Docker also writes keys such as `https://index.docker.io/v1/`.
fn is_key_of(key: &str, registry: &str) -> bool {
    let rest = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_whole = matches!(path.trim_end_matches('/'), "" | "v1" | "v2");
    let is_hub = is_docker_hub(host) && is_docker_hub(registry);
    is_whole && (is_hub || host.eq_ignore_ascii_case(registry))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use super::{Credentials, is_key_of};

    #[test]
    fn the_environment_names_the_file() {
        let of = |variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(other, _)| *other == name);
            Credentials::by(|name| find(name).map(|(_, value)| OsString::from(value))).file
        };
        let all = [("REGISTRY_AUTH_FILE", "/a.json"), ("DOCKER_CONFIG", "/d"), ("HOME", "/home/ada")];
        for (variables, expected) in
            [(&all[..], "/a.json"), (&all[1..], "/d/config.json"), (&all[2..], "/home/ada/.docker/config.json")]
        {
            assert_eq!(of(variables).as_deref(), Some(Path::new(expected)));
        }
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_key_means_a_whole_registry_or_nothing() {
        for key in ["registry.example", "https://registry.example", "https://registry.example/v2/", "Registry.Example"]
        {
            assert!(is_key_of(key, "registry.example"), "{key}");
        }
        for key in
            ["registry.example/acme", "registry.example:5000", "x.registry.example", "https://registry.example/v3"]
        {
            assert!(!is_key_of(key, "registry.example"), "{key}");
        }
        assert!(is_key_of("https://index.docker.io/v1/", "docker.io"));
    }
}

//! `[admin]`: the admin API, which lists and changes the installed extensions.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::tenant_name::check_name;
use super::tls::TlsConfig;

/// `[admin]`. Without this table the server has no admin API.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Address and port of the admin listener. Default `127.0.0.1:9998`.
    pub listen: SocketAddr,
    /// Allows an address that is not a loopback address in `listen` and `metrics_listen`. Default: no.
    pub allow_remote: bool,
    /// Host names that clients may use, in addition to loopback names and the address of `listen`. Default: none.
    pub hosts: Vec<String>,
    /// A file with the admin token, which has at least 16 bytes. The log calls the holder of the token `admin`.
    /// Excludes `token_env`.
    pub token_file: Option<PathBuf>,
    /// The environment variable with the admin token. Excludes `token_file`.
    pub token_env: Option<String>,
    /// Named tokens. The log shows the name with each change. Default: none.
    #[serde(rename = "token")]
    pub tokens: Vec<AdminTokenConfig>,
    /// A file with a token for `/metrics` alone, which has at least 16 bytes. Default: none.
    pub metrics_token_file: Option<PathBuf>,
    /// The environment variable with the token for `/metrics`. Default: none.
    pub metrics_token_env: Option<String>,
    /// Address and port of a second listener that serves `/metrics` alone. The listener requires a token only if a
    /// token for `/metrics` is set. Default: none.
    pub metrics_listen: Option<SocketAddr>,
    /// The file to which each change over the admin API is appended. Default: none.
    pub audit_file: Option<PathBuf>,
    /// The number of requests that the admin API and the console can show, at most 10,000. 0 keeps none. Default: 1,000.
    pub requests: usize,
    /// Allows holders of a token to record turns, which contain the words of users. Default: no.
    pub allow_recording: bool,
    /// Serves the console, the web pages for operators. Default: yes.
    pub console: bool,
    /// The TLS of `listen` and `metrics_listen`. Default: plain HTTP.
    pub tls: Option<TlsConfig>,
}

/// `[[admin.token]]`. Exactly one of `token_file`, `token_env` and `token_sha256` is set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminTokenConfig {
    /// The name of the token's holder: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// A file with the token, which has at least 16 bytes.
    pub token_file: Option<PathBuf>,
    /// The environment variable with the token.
    pub token_env: Option<String>,
    /// The SHA-256 digest of the token, 64 hexadecimal digits. The token must be random, because a short or guessable
    /// token can be found from its digest.
    pub token_sha256: Option<String>,
    /// The roles of the token's holder: `read`, `operate`, `install` and `tenant:NAME`. Default: everything.
    pub roles: Option<Vec<String>>,
}

/// A role of an admin token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdminRole {
    /// Read everything that the admin API shows.
    Read,
    /// Roll back, end shadows, reload, record, and delete sessions and state.
    Operate,
    /// Change which components run, their grants and limits, and the tenants.
    Install,
    /// The other roles count for this tenant only.
    Tenant(String),
}

impl AdminRole {
    /// Reads the name of a role. `None` for an unknown name.
    pub(crate) fn parse(role: &str) -> Option<Self> {
        match role {
            "read" => Some(Self::Read),
            "operate" => Some(Self::Operate),
            "install" => Some(Self::Install),
            _ => {
                let tenant = role.strip_prefix("tenant:")?;
                check_name(tenant).is_ok().then(|| Self::Tenant(tenant.to_owned()))
            }
        }
    }
}

impl AdminTokenConfig {
    /// The roles of the token. `None` for all roles.
    pub(crate) fn admin_roles(&self) -> Option<Vec<AdminRole>> {
        // The check of the config refuses unknown names. Here they open nothing.
        self.roles.as_ref().map(|roles| roles.iter().filter_map(|role| AdminRole::parse(role)).collect())
    }

    fn has_wrong_roles(&self) -> bool {
        let is_wrong =
            |roles: &Vec<String>| roles.is_empty() || roles.iter().any(|role| AdminRole::parse(role).is_none());
        self.roles.as_ref().is_some_and(is_wrong)
    }
}

/// The name that the log shows for the token in `token_file` or `token_env`.
const UNNAMED: &str = "admin";
/// The maximum of `requests`. Each request needs up to 8 KiB.
const MAX_REQUESTS: usize = 10_000;
/// The maximum size of a token's name, in bytes.
const MAX_NAME_BYTES: usize = 64;

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9998)),
            allow_remote: false,
            hosts: Vec::new(),
            token_file: None,
            token_env: None,
            tokens: Vec::new(),
            metrics_token_file: None,
            metrics_token_env: None,
            metrics_listen: None,
            audit_file: None,
            requests: 1_000,
            allow_recording: false,
            console: true,
            tls: None,
        }
    }
}

impl AdminConfig {
    /// Checks keys that depend on each other. The error is a pair of key and reason.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let has_own = self.token_file.is_some() || self.token_env.is_some();
        if (self.token_file.is_some() && self.token_env.is_some()) || (!has_own && self.tokens.is_empty()) {
            return Err(("admin", "needs exactly one of token_file and token_env, or [[admin.token]]"));
        }
        self.check_tokens()?;
        if self.requests > MAX_REQUESTS {
            return Err((
                "admin.requests",
                "is too large; write at most 10000, because each request needs up to 8 KiB",
            ));
        }
        if !self.allow_remote && !self.listen.ip().is_loopback() {
            let reason = "is no loopback address; set admin.allow_remote = true if other machines must reach it";
            return Err(("admin.listen", reason));
        }
        if self.metrics_token_file.is_some() && self.metrics_token_env.is_some() {
            return Err(("admin", "takes one of metrics_token_file and metrics_token_env; leave one out"));
        }
        if !self.allow_remote && self.metrics_listen.is_some_and(|listen| !listen.ip().is_loopback()) {
            let reason = "is no loopback address; set admin.allow_remote = true if other machines must reach it";
            return Err(("admin.metrics_listen", reason));
        }
        Ok(())
    }

    /// Checks that no two listeners have the same address and port. `server` is `server.listen`. The error is a pair of
    /// key and reason.
    pub(super) fn check_listeners(&self, server: SocketAddr) -> Result<(), (&'static str, String)> {
        let mut listeners = vec![("server.listen", server), ("admin.listen", self.listen)];
        listeners.extend(self.metrics_listen.map(|listen| ("admin.metrics_listen", listen)));
        for (number, (key, address)) in listeners.iter().enumerate() {
            let before = listeners.iter().take(number).find(|(_, other)| share_a_port(*address, *other));
            if let Some((taken_by, other)) = before {
                let reason = format!("is {address}, where {taken_by} ({other}) listens too; take another port");
                return Err((key, reason));
            }
        }
        Ok(())
    }

    /// The token that gives access to `/metrics` alone.
    pub(crate) fn metrics_token(&self) -> Option<AdminTokenConfig> {
        let (token_file, token_env) = (self.metrics_token_file.clone(), self.metrics_token_env.clone());
        let is_set = token_file.is_some() || token_env.is_some();
        is_set.then(|| AdminTokenConfig {
            name: "metrics".to_owned(),
            token_file,
            token_env,
            token_sha256: None,
            roles: None,
        })
    }

    fn check_tokens(&self) -> Result<(), (&'static str, &'static str)> {
        let mut names = HashSet::new();
        for token in self.all_tokens() {
            if token.has_wrong_roles() {
                let reason = "takes one or several of \"read\", \"operate\", \"install\" and \"tenant:NAME\"; without the key \
                              the token opens everything";
                return Err(("admin.token.roles", reason));
            }
            let AdminTokenConfig { name, token_file, token_env, token_sha256, roles: _ } = token;
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_plain) {
                return Err(("admin.token.name", "takes 1 to 64 letters, digits, `-`, `_` and `.`"));
            }
            let places = [token_file.is_some(), token_env.is_some(), token_sha256.is_some()];
            if places.into_iter().filter(|is_there| *is_there).count() != 1 {
                return Err((
                    "admin.token",
                    "needs exactly one of token_file, token_env and token_sha256 for each name",
                ));
            }
            if !names.insert(name) {
                let reason = "stands there twice; each token has a name of its own, and `admin` is that of admin.token_file \
                              and admin.token_env";
                return Err(("admin.token.name", reason));
            }
        }
        Ok(())
    }

    /// All admin tokens, including the unnamed one.
    pub(crate) fn all_tokens(&self) -> Vec<AdminTokenConfig> {
        let own = (self.token_file.is_some() || self.token_env.is_some()).then(|| AdminTokenConfig {
            name: UNNAMED.to_owned(),
            token_file: self.token_file.clone(),
            token_env: self.token_env.clone(),
            token_sha256: None,
            roles: None,
        });
        own.into_iter().chain(self.tokens.iter().cloned()).collect()
    }
}

/// True if two listeners cannot use both addresses at the same time. Port 0 never conflicts, because the kernel picks a
/// free port each time. The address `::` covers all addresses of IPv6 and IPv4. The address `0.0.0.0` covers all
/// addresses of IPv4.
fn share_a_port(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |whole: SocketAddr, part: SocketAddr| {
        whole.ip() == part.ip() || whole.ip().is_unspecified() && (whole.is_ipv6() || part.is_ipv4())
    };
    one.port() == other.port() && one.port() != 0 && (covers(one, other) || covers(other, one))
}

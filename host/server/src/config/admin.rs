//! `[admin]`: the API that shows and changes what is installed.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

/// `[admin]`; without it there is no admin API.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Address and port of its own listener. Default `127.0.0.1:9998`.
    pub listen: SocketAddr,
    /// Allows `listen` to be another address than a loopback one. Default: no.
    pub allow_remote: bool,
    /// Names that clients may use for this host, besides loopback names and the address itself. Default: none.
    pub hosts: Vec<String>,
    /// A file with a token that lets callers in, at least 16 bytes. Its name in the log is `admin`. This or `token_env`.
    pub token_file: Option<PathBuf>,
    /// The environment variable with that token. This or `token_file`.
    pub token_env: Option<String>,
    /// Tokens with names of their own, which the log shows with each change. Default: none.
    #[serde(rename = "token")]
    pub tokens: Vec<AdminTokenConfig>,
    /// A file with a token that lets callers read `/metrics` and nothing else, at least 16 bytes. Default: none.
    pub metrics_token_file: Option<PathBuf>,
    /// The environment variable with that token. Default: none.
    pub metrics_token_env: Option<String>,
    /// Address and port of a further listener, which has `/metrics` alone. Without a token for metrics it asks for none. Default:
    /// none.
    pub metrics_listen: Option<SocketAddr>,
    /// Lets who has a token record turns, with what users wrote in them. Default: no.
    pub allow_recording: bool,
}

/// `[[admin.token]]`: exactly one of `token_file`, `token_env` and `token_sha256` says where the token is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminTokenConfig {
    /// The name of whoever has the token: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// A file with the token, at least 16 bytes.
    pub token_file: Option<PathBuf>,
    /// The environment variable with the token.
    pub token_env: Option<String>,
    /// The SHA-256 digest of the token, 64 hexadecimal digits. The token must be random: a digest does not hide one that can be
    /// guessed.
    pub token_sha256: Option<String>,
}

/// The name of the token of the table itself.
const UNNAMED: &str = "admin";
/// The longest name of a token, in bytes.
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
            allow_recording: false,
        }
    }
}

impl AdminConfig {
    /// Checks the keys that depend on each other. An error is the key and the reason.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let has_own = self.token_file.is_some() || self.token_env.is_some();
        if (self.token_file.is_some() && self.token_env.is_some()) || (!has_own && self.tokens.is_empty()) {
            return Err(("admin", "needs exactly one of token_file and token_env, or [[admin.token]]"));
        }
        self.check_tokens()?;
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

    /// Finds a listener that another one leaves no room for. `server` is `server.listen`. The value is the key and the reason.
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

    /// The token that opens `/metrics` alone.
    pub(crate) fn metrics_token(&self) -> Option<AdminTokenConfig> {
        let (token_file, token_env) = (self.metrics_token_file.clone(), self.metrics_token_env.clone());
        let is_set = token_file.is_some() || token_env.is_some();
        is_set.then(|| AdminTokenConfig { name: "metrics".to_owned(), token_file, token_env, token_sha256: None })
    }

    fn check_tokens(&self) -> Result<(), (&'static str, &'static str)> {
        let mut names = HashSet::new();
        for AdminTokenConfig { name, token_file, token_env, token_sha256 } in self.all_tokens() {
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

    /// All tokens, that of the table itself among them.
    pub(crate) fn all_tokens(&self) -> Vec<AdminTokenConfig> {
        let own = (self.token_file.is_some() || self.token_env.is_some()).then(|| AdminTokenConfig {
            name: UNNAMED.to_owned(),
            token_file: self.token_file.clone(),
            token_env: self.token_env.clone(),
            token_sha256: None,
        });
        own.into_iter().chain(self.tokens.iter().cloned()).collect()
    }
}

/// True if only one of the two can be listened on. Port 0 is a free one each time. The unspecified address of IPv6 has those of
/// IPv4 with it.
fn share_a_port(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |whole: SocketAddr, part: SocketAddr| {
        whole.ip() == part.ip() || whole.ip().is_unspecified() && (whole.is_ipv6() || part.is_ipv4())
    };
    one.port() == other.port() && one.port() != 0 && (covers(one, other) || covers(other, one))
}

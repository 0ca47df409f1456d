//! `[admin]`: the API that shows and changes what is installed.

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
    /// A file with the token that callers must have, at least 16 bytes. This or `token_env`.
    pub token_file: Option<PathBuf>,
    /// The environment variable with the token. This or `token_file`.
    pub token_env: Option<String>,
    /// Lets who has the token record turns, with what users wrote in them. Default: no.
    pub allow_recording: bool,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9998)),
            allow_remote: false,
            hosts: Vec::new(),
            token_file: None,
            token_env: None,
            allow_recording: false,
        }
    }
}

impl AdminConfig {
    /// Checks the keys that depend on each other. An error is the key and the reason.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.token_file.is_some() == self.token_env.is_some() {
            return Err(("admin", "needs exactly one of token_file and token_env"));
        }
        if !self.allow_remote && !self.listen.ip().is_loopback() {
            let reason = "is no loopback address; set admin.allow_remote = true if other machines must reach it";
            return Err(("admin.listen", reason));
        }
        Ok(())
    }
}

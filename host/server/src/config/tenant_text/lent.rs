//! Secrets and hosts that the operator lends to texts by name.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use annex_egress::{AllowedDestination, Screen, ScreenConfig, SystemResolver};
use annex_runtime::HostPattern;
use axum::http::Uri;

use super::super::{SecretConfig, StoredTenantsConfig};

/// The resolver of all tenants. One resolver bounds its threads, however many tenants look up names.
static RESOLVER: LazyLock<Arc<SystemResolver>> = LazyLock::new(Arc::default);

/// A key and the reason why its value is refused.
pub(super) type Wrong = (&'static str, String);

/// The resources of `[tenants]`, for checking a text.
pub(super) struct LentResources<'a>(pub(super) &'a StoredTenantsConfig);

impl SecretConfig {
    /// The environment variable or the file. Exactly one is set.
    pub(super) fn places(&self) -> (Option<String>, Option<PathBuf>) {
        match self {
            Self::Env(variable) => (Some(variable.clone()), None),
            Self::File(path) => (None, Some(path.clone())),
        }
    }
}

impl LentResources<'_> {
    /// Finds a lent secret by its name.
    pub(super) fn secret(&self, key: &'static str, name: &str) -> Result<&SecretConfig, Wrong> {
        let refused = || {
            let reason =
                format!("{name:?} is not a lent secret; ask the operator to add it to [tenants.secrets] of the config");
            (key, reason)
        };
        self.0.secrets.get(name).ok_or_else(refused)
    }

    /// The environment variable of a lent secret. A secret in a file is refused.
    pub(super) fn variable(&self, key: &'static str, name: &str) -> Result<String, Wrong> {
        self.secret(key, name)?.places().0.ok_or_else(|| {
            let reason = format!("{name:?} is lent as a file, and agents take variables; lend it with `env`");
            (key, reason)
        })
    }

    /// Checks a number against a limit that applies only to texts. These numbers increase the host's memory or compile
    /// time.
    pub(super) fn check_most(&self, key: &'static str, (given, most): (Option<usize>, usize)) -> Result<(), Wrong> {
        match given {
            Some(given) if given > most => {
                Err((key, format!("{given} is more than a tenant may have: at most {most}")))
            }
            _ => Ok(()),
        }
    }

    /// The addresses that the agents of texts may connect to: public ones, those in `hosts`, and those of
    /// `allow_private`.
    pub(super) fn screen(&self) -> Screen {
        let written_out = self.0.hosts.iter().filter_map(HostPattern::address).map(AllowedDestination::from);
        let allow = written_out.chain(self.0.allow_private.iter().cloned()).collect();
        Screen::with_resolver(ScreenConfig { allow, https_only: false }, RESOLVER.clone())
    }

    /// Checks that a URL of an agent is on a lent host and has no credentials.
    pub(super) fn check_url(&self, key: &'static str, url: &str) -> Result<(), Wrong> {
        let parsed = url.parse::<Uri>().ok().filter(|url| matches!(url.scheme_str(), Some("http" | "https")));
        let Some(authority) = parsed.as_ref().and_then(Uri::authority) else {
            return Err((key, "is no URL; write it as in \"https://agent.example.com\"".to_owned()));
        };
        if authority.as_str().contains('@') {
            let reason = "has a user or a password in it; let the operator lend it in [tenants.secrets], and name it";
            return Err((key, reason.to_owned()));
        }
        if self.0.hosts.iter().any(|host| host.is_of(url)) {
            return Ok(());
        }
        let host = authority.host();
        Err((
            key,
            format!(
                "{host} is not a host that agents may call; ask the operator to add it to tenants.hosts of the config"
            ),
        ))
    }
}

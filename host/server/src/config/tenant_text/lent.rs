//! Secrets and hosts that the operator lends to texts by name.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use annex_egress::{AllowedDestination, Screen, ScreenConfig, SystemResolver};
use annex_registry::Reference;
use annex_runtime::HostPattern;
use axum::http::Uri;

use super::super::{CallerGrantConfig, LiveCardGrantConfig, SecretConfig, StoredTenantsConfig};

/// The resolver that all tenants share. A single resolver has a bounded number of threads for any number of tenants.
static RESOLVER: LazyLock<Arc<SystemResolver>> = LazyLock::new(Arc::default);

/// A key and the reason why its value is refused.
pub(super) type Wrong = (String, String);

/// Checks a text against `[tenants]`, and notes all mistakes.
pub(super) struct Admission<'a> {
    /// The table `[tenants]`. `None` if the config of the server is unknown. In that case every name of a secret or
    /// host is accepted, and [`secret`](Self::secret) returns `None`.
    allowed: Option<&'a StoredTenantsConfig>,
    wrong: Vec<Wrong>,
}

impl SecretConfig {
    /// The environment variable and the file of the secret. Exactly one of the two is set.
    pub(super) fn places(&self) -> (Option<String>, Option<PathBuf>) {
        match self {
            Self::Env(variable) => (Some(variable.clone()), None),
            Self::File(path) => (None, Some(path.clone())),
        }
    }
}

impl<'a> Admission<'a> {
    pub(super) fn new(allowed: Option<&'a StoredTenantsConfig>) -> Self {
        Self { allowed, wrong: Vec::new() }
    }

    /// The mistakes that were noted so far.
    pub(super) fn into_wrong(self) -> Vec<Wrong> {
        self.wrong
    }

    /// Notes a mistake.
    pub(super) fn refuse(&mut self, key: impl Into<String>, reason: impl Into<String>) {
        self.wrong.push((key.into(), reason.into()));
    }

    /// Checks that the operator lets texts name a component of a registry. Returns true if the component is pulled for the
    /// tenant, and false if it is in the operator's `annex.lock` or is refused.
    pub(super) fn check_reference(&mut self, key: &str, reference: &str) -> bool {
        let Some(allowed) = self.allowed else { return false };
        if allowed.components.iter().any(|component| component == reference) {
            return false;
        }
        let refusal = match reference.parse::<Reference>() {
            Err(error) => error.to_string(),
            Ok(parsed) if !allowed.has_registry(&parsed.place()) => format!(
                "{reference:?} is not one of the operator's components, and not in a registry of tenants.registries; ask \
                 the operator to add it to tenants.components of the config and to run `annex lock`"
            ),
            Ok(parsed) if parsed.digest().is_none() => format!(
                "{reference:?} has no digest, and no tag is looked up for a tenant; write the digest of its manifest after \
                 it, as `annex inspect` shows it (`@sha256:…`)"
            ),
            Ok(_) => return true,
        };
        self.refuse(key, refusal);
        false
    }

    /// The maximum number of tenants that are loaded at the same time.
    pub(super) fn max_loaded(&self) -> usize {
        self.allowed.map_or_else(|| StoredTenantsConfig::default().max_loaded, |allowed| allowed.max_loaded)
    }

    /// Finds a lent secret by its name. If no secret has the name, notes a mistake and returns `None`.
    pub(super) fn secret(&mut self, key: &str, name: &str) -> Option<&'a SecretConfig> {
        let found = self.allowed?.secrets.get(name);
        if found.is_none() {
            let reason =
                format!("{name:?} is not a lent secret; ask the operator to add it to [tenants.secrets] of the config");
            self.refuse(key, reason);
        }
        found
    }

    /// The environment variable of a lent secret. Notes a mistake and returns `None` if no secret has the name, or if
    /// the secret is in a file.
    pub(super) fn variable(&mut self, key: &str, name: &str) -> Option<String> {
        let variable = self.secret(key, name)?.places().0;
        if variable.is_none() {
            self.refuse(key, format!("{name:?} is lent as a file, and agents take variables; lend it with `env`"));
        }
        variable
    }

    /// Checks a number against a limit that applies only to texts. Such limits bound the memory and the compile time
    /// that a text can cost the host.
    pub(super) fn check_most(&mut self, key: &str, (given, most): (Option<usize>, usize)) {
        if let Some(given) = given.filter(|given| *given > most) {
            self.refuse(key, format!("{given} is more than a tenant may have: at most {most}"));
        }
    }

    /// Checks how often an extension may declare its entry on the card. The host asks for each declaration without a
    /// request, and signs the cards again if the entry has changed. `key` is the config key of the grant.
    pub(super) fn check_live_card(&mut self, key: &str, live_card: LiveCardGrantConfig) {
        let Some(least) = self.allowed.map(|allowed| allowed.live_card_at_least_seconds) else { return };
        let given = live_card.at_least_seconds;
        if given < least {
            let reason = format!(
                "{given} is less than a tenant may have: at least {least}; ask the operator to lower \
                 tenants.live_card_at_least_seconds of the config"
            );
            self.refuse(format!("{key}.at_least_seconds"), reason);
        }
    }

    /// Checks that all claims and header fields of the grant are lent. Otherwise the author of a text could read what the
    /// operator's identity provider and proxies say about callers. `key` is the config key of the grant.
    pub(super) fn check_caller(&mut self, key: &str, caller: &CallerGrantConfig) {
        let Some(allowed) = self.allowed else { return };
        if let Some(claim) = caller.claims.iter().find(|claim| !allowed.claims.contains(claim)) {
            let reason = format!("{claim:?} is not lent; ask the operator to add it to tenants.claims of the config");
            self.refuse(format!("{key}.claims"), reason);
        }
        let is_lent = |name: &String| allowed.headers.iter().any(|lent| lent.eq_ignore_ascii_case(name));
        if let Some(name) = caller.headers.iter().find(|name| !is_lent(name)) {
            let reason = format!("{name:?} is not lent; ask the operator to add it to tenants.headers of the config");
            self.refuse(format!("{key}.headers"), reason);
        }
    }

    /// The addresses that the agents of added tenants may connect to: public addresses, and the addresses in `hosts`
    /// and `allow_private`.
    pub(super) fn screen(&self) -> Screen {
        let hosts = self.allowed.iter().flat_map(|allowed| &allowed.hosts).filter_map(HostPattern::address);
        let private = self.allowed.iter().flat_map(|allowed| &allowed.allow_private).cloned();
        let allow = hosts.map(AllowedDestination::from).chain(private).collect();
        Screen::with_resolver(ScreenConfig { allow, https_only: false }, RESOLVER.clone())
    }

    /// Checks that the URL of an agent has a lent host and contains no credentials.
    pub(super) fn check_url(&mut self, key: &str, url: &str) {
        if let Err(reason) = self.url_fault(url) {
            self.refuse(key, reason);
        }
    }

    fn url_fault(&self, url: &str) -> Result<(), String> {
        let parsed = url.parse::<Uri>().ok().filter(|url| matches!(url.scheme_str(), Some("http" | "https")));
        let Some(authority) = parsed.as_ref().and_then(Uri::authority) else {
            return Err("is no URL; write it as in \"https://agent.example.com\"".to_owned());
        };
        if authority.as_str().contains('@') {
            let reason = "has a user or a password in it; let the operator lend it in [tenants.secrets], and name it";
            return Err(reason.to_owned());
        }
        if self.allowed.is_none_or(|allowed| allowed.hosts.iter().any(|host| host.is_of(url))) {
            return Ok(());
        }
        let host = authority.host();
        Err(format!(
            "{host} is not a host that agents may call; ask the operator to add it to tenants.hosts of the config"
        ))
    }
}

//! The tokens and hosts that may use the admin API, and the scope of each token. A reload of the config replaces them.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::HeaderMap;

use super::roles::Permission;
use super::token::{TokenError, Tokens};
use crate::config::AdminConfig;
use crate::process::hosts::Hosts;

/// The access rules in use. If they are replaced, all clones get the new rules.
#[derive(Clone)]
pub(crate) struct Access(Arc<RwLock<Arc<AccessRules>>>);

/// The access rules from one reading of the config.
pub(crate) struct AccessRules {
    pub(crate) tokens: Tokens,
    /// Tokens that open only `/metrics`.
    metrics: Option<Tokens>,
    /// True if requests on the listener of `/metrics` must name an allowed host. False if other machines can reach this
    /// listener, because such machines may use any name for this server.
    pub(super) checks_metrics_hosts: bool,
    /// The host names under which clients may call the listener.
    pub(crate) hosts: Hosts,
    /// The value of `admin.allow_recording`: true if holders of a token may record turns.
    pub(super) allow_recording: bool,
    /// The value of `admin.console`: true if the listener serves the console.
    pub(crate) has_console: bool,
    /// True if cookies may travel over TLS only: beyond loopback, or with `[admin.tls]`.
    pub(crate) secure_cookies: bool,
}

impl AccessRules {
    /// Reads the tokens. Relative paths of token files start at `folder`.
    ///
    /// # Errors
    /// When a token cannot be read or used.
    pub(crate) fn read(config: &AdminConfig, folder: &Path) -> Result<Self, TokenError> {
        let tokens = Tokens::read(config, folder)?;
        Ok(Self {
            metrics: Tokens::read_metrics(config, folder, &tokens)?,
            tokens,
            checks_metrics_hosts: config.metrics_listen.is_none_or(|listen| listen.ip().is_loopback()),
            hosts: Hosts::of_admin(config),
            allow_recording: config.allow_recording,
            has_console: config.console,
            secure_cookies: config.tls.is_some() || !config.listen.ip().is_loopback(),
        })
    }
}

impl AccessRules {
    /// True if the request has the token that opens only `/metrics`.
    pub(super) fn reads_metrics(&self, headers: &HeaderMap) -> bool {
        self.metrics.as_ref().is_some_and(|metrics| metrics.holder_of(headers).is_some())
    }

    /// True if the request may read `/metrics` on the listener that serves only this page. If the config sets no token
    /// for `/metrics`, every request may read the page.
    pub(super) fn reads_metrics_alone(&self, headers: &HeaderMap) -> bool {
        let may_read = |headers| {
            let holder = self.tokens.holder_of(headers);
            holder.is_some_and(|holder| holder.check(Permission::Read, None).is_ok())
        };
        self.metrics.is_none() || self.reads_metrics(headers) || may_read(headers)
    }
}

impl Access {
    pub(crate) fn new(rules: AccessRules) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(rules))))
    }

    /// The current rules.
    pub(crate) fn rules(&self) -> Arc<AccessRules> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the rules.
    pub(crate) fn set(&self, rules: AccessRules) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }
}

//! The grant `caller`: what an extension sees of the caller.

use annex_runtime::CallerGrant;
use axum::http::HeaderName;
use serde::{Deserialize, Serialize};

use crate::config::credentials;

/// The key `caller = { principal = …, claims = […], … }`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "a table such as { principal = true }")]
pub struct CallerGrantConfig {
    /// Shows the principal. Default: false.
    pub principal: bool,
    /// The claims of the caller's token that the extension sees. Default: none.
    pub claims: Vec<String>,
    /// The header fields of the request that the extension sees. Fields with credentials cannot be named. Default: none.
    pub headers: Vec<String>,
    /// Leaves what the extension sees of the caller out of recordings. Default: false.
    pub hide: bool,
}

impl CallerGrantConfig {
    pub(super) fn to_grant(&self) -> Result<CallerGrant, (&'static str, String)> {
        let Self { principal, claims, headers, hide } = self;
        if !principal && claims.is_empty() && headers.is_empty() {
            return Err(("grants.caller", "shows nothing; set principal = true, or list claims or headers".to_owned()));
        }
        for (key, names) in [("grants.caller.claims", claims), ("grants.caller.headers", headers)] {
            if names.len() > CallerGrant::MAX_NAMES {
                return Err((key, format!("names {}; at most {} are allowed", names.len(), CallerGrant::MAX_NAMES)));
            }
        }
        if claims.iter().any(|name| name.trim().is_empty()) {
            return Err(("grants.caller.claims", "has an empty name; name claims as tokens have them".to_owned()));
        }
        let headers = headers.iter().map(|name| {
            // Case does not count in names of header fields, and `from_bytes` writes them in lower case.
            let read = HeaderName::from_bytes(name.as_bytes());
            let read = read.map_err(|_| format!("{name:?} is no name of a header field"))?;
            if credentials::is_never_shown(name) {
                return Err(credentials::refusal(name));
            }
            Ok(read)
        });
        let headers = headers.collect::<Result<_, _>>().map_err(|reason| ("grants.caller.headers", reason))?;
        Ok(CallerGrant { principal: *principal, claims: claims.clone(), headers, hide: *hide })
    }
}

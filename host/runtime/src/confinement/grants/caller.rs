//! The grant for the import `caller`.

use http::HeaderName;

/// What an extension may see of the caller. Credentials are never shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerGrant {
    /// True if the extension sees the principal.
    pub principal: bool,
    /// The claims of the caller's token that the extension sees.
    pub claims: Vec<String>,
    /// The header fields of the request that the extension sees.
    pub headers: Vec<HeaderName>,
    /// True if recordings do not contain what the extension sees of the caller.
    pub hide: bool,
}

impl CallerGrant {
    /// Maximum number of claims, and also of header fields, that a grant may name.
    pub const MAX_NAMES: usize = 16;
}

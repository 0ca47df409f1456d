//! The caller of the turn or of the method (import `caller`, needs the grant of that name).

use crate::imports::caller;
use crate::members::Members;
use crate::{Identity, Presence};

/// The caller, as far as the grant shows it.
///
/// # Errors
/// The claims or the header fields exceed the limits.
pub fn current() -> Result<Identity, String> {
    caller::current()
}

impl Identity {
    /// The text of a claim. `None` if the token has no such claim, if the grant does not name it, or if the claim is no
    /// string. `claims` has claims of other types.
    ///
    /// ```
    /// use annex_sdk::{Identity, Presence};
    ///
    /// let ada = Identity {
    ///     presence: Presence::Authenticated,
    ///     principal: Some("ada".into()),
    ///     claims: r#"{"org":"acme","level":3}"#.into(),
    ///     headers: Vec::new(),
    /// };
    /// assert_eq!(ada.claim("org").as_deref(), Some("acme"));
    /// assert_eq!(ada.claim("level"), None);
    /// ```
    #[must_use]
    pub fn claim(&self, name: &str) -> Option<String> {
        serde_json::from_str(Members::of(&self.claims)?.get(name)?).ok()
    }

    /// The first value of a header field. The case of `name` does not matter.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let field = self.headers.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        field.map(|(_, value)| value.as_str())
    }

    /// True if the server has authenticated the caller.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.presence == Presence::Authenticated
    }
}

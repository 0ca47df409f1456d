//! The caller of a turn or a method, and the part of it that a grant shows.

use std::sync::Arc;

use annex_protocol::JsonObject;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::confinement::grants::CallerGrant;

/// Maximum size of the claims that a grant shows, names and values together, in bytes.
const MAX_CLAIM_BYTES: usize = 16 << 10;
/// Maximum size of the header fields that a grant shows, names and values together, in bytes.
const MAX_HEADER_BYTES: usize = 8 << 10;

/// How the host knows the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// The request had no credentials.
    Anonymous,
    /// The request had credentials, and the host accepted them.
    Authenticated,
    /// There is no request any more. Claims and header fields of requests are not stored.
    #[default]
    Earlier,
}

/// The caller of a turn or a method, with everything that a grant may show.
#[derive(Clone, Default)]
pub struct Caller {
    /// How the host knows the caller.
    pub presence: Presence,
    /// The principal. `None` for an anonymous caller.
    pub principal: Option<String>,
    /// The claims of the caller's token.
    pub claims: JsonObject,
    /// Header fields of the request, at least those that the grants of installed extensions name.
    pub headers: Option<Arc<HeaderMap>>,
}

/// The part of a caller that the grant of an extension shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VisibleCaller {
    /// How the host knows the caller.
    pub presence: Presence,
    /// The principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The claims that the grant names.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub claims: JsonObject,
    /// The header fields that the grant names, with names in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// True if stored recordings contain none of the values.
    #[serde(skip)]
    pub(crate) hide: bool,
}

impl Caller {
    /// The part of the caller that `grant` shows.
    ///
    /// # Errors
    /// The claims or the header fields are too large. The text is for the extension.
    pub(crate) fn shown_by(&self, grant: &CallerGrant) -> Result<VisibleCaller, String> {
        let claims = grant.claims.iter().filter_map(|name| Some((name, self.claims.get(name)?)));
        check_size("claims", claims.clone().map(|(name, value)| name.len() + value.get().len()), MAX_CLAIM_BYTES)?;
        let headers: Vec<(&str, &str)> = match &self.headers {
            Some(headers) => grant.headers.iter().flat_map(|name| texts(headers, name)).collect(),
            None => Vec::new(),
        };
        check_size("header fields", headers.iter().map(|(name, value)| name.len() + value.len()), MAX_HEADER_BYTES)?;
        Ok(VisibleCaller {
            presence: self.presence,
            principal: self.principal.clone().filter(|_| grant.principal),
            claims: claims.map(|(name, value)| (name.clone(), value.clone())).collect(),
            headers: headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            hide: grant.hide,
        })
    }
}

/// The values of a header field with the name of the field. The contract has only text, so values that are not UTF-8 are
/// left out.
fn texts<'a>(headers: &'a HeaderMap, name: &'a HeaderName) -> impl Iterator<Item = (&'a str, &'a str)> {
    let texts = headers.get_all(name).into_iter().filter_map(|value| str::from_utf8(value.as_bytes()).ok());
    texts.map(|text| (name.as_str(), text))
}

fn check_size(what: &str, sizes: impl Iterator<Item = usize>, limit: usize) -> Result<(), String> {
    let bytes: usize = sizes.sum();
    if bytes > limit { Err(format!("the {what} have {bytes} bytes; at most {limit} are shown")) } else { Ok(()) }
}

/// Restores the caller of a recorded turn.
impl From<&VisibleCaller> for Caller {
    fn from(shown: &VisibleCaller) -> Self {
        let VisibleCaller { presence, principal, claims, headers, hide: _ } = shown;
        let mut restored = HeaderMap::new();
        for (name, value) in headers {
            // A file can contain fields that no request has. Such a field is left out.
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value.as_bytes())) {
                restored.append(name, value);
            }
        }
        Self {
            presence: *presence,
            principal: principal.clone(),
            claims: claims.clone(),
            headers: Some(Arc::new(restored)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use annex_protocol::JsonObject;
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{Caller, Presence, VisibleCaller};
    use crate::confinement::grants::CallerGrant;

    fn ada() -> Caller {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-scope", "one"), ("authorization", "Bearer secret"), ("x-scope", "two")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers.append("x-scope", HeaderValue::from_bytes(b"\xff").expect("a value"));
        Caller {
            presence: Presence::Authenticated,
            principal: Some("ada".to_owned()),
            claims: JsonObject::parse(r#"{"org":"acme","salary":1.0}"#).expect("claims"),
            headers: Some(Arc::new(headers)),
        }
    }

    #[test]
    fn an_extension_sees_only_the_claims_and_header_fields_that_its_grant_names() {
        let nothing = ada().shown_by(&CallerGrant::default()).expect("a caller");
        assert_eq!(nothing, VisibleCaller { presence: Presence::Authenticated, ..VisibleCaller::default() });
        let grant = CallerGrant {
            principal: true,
            claims: vec!["org".to_owned(), "absent".to_owned()],
            headers: vec![HeaderName::from_static("x-absent"), HeaderName::from_static("x-scope")],
            hide: false,
        };
        let shown = ada().shown_by(&grant).expect("a caller");
        assert_eq!(shown.principal.as_deref(), Some("ada"));
        assert_eq!(shown.claims.to_json_string(), r#"{"org":"acme"}"#);
        let scopes = ["one", "two"].map(|value| ("x-scope".to_owned(), value.to_owned()));
        assert_eq!(shown.headers, scopes, "a value that is not UTF-8 is left out");
        let again = Caller::from(&shown).shown_by(&grant).expect("a caller");
        assert_eq!(again, shown);
    }

    #[test]
    fn claims_and_header_fields_beyond_the_limits_are_an_error_with_their_size() {
        let grant = CallerGrant {
            claims: vec!["org".to_owned()],
            headers: vec![HeaderName::from_static("x-scope")],
            ..CallerGrant::default()
        };
        let large = "a".repeat(1 << 20);
        let mut caller = ada();
        caller.claims = JsonObject::parse(&format!(r#"{{"org":"{large}"}}"#)).expect("claims");
        let error = caller.shown_by(&grant).expect_err("too many bytes");
        assert_eq!(error, "the claims have 1048581 bytes; at most 16384 are shown");
        let mut headers = HeaderMap::new();
        headers.append("x-scope", HeaderValue::from_str(&large).expect("a value"));
        let caller = Caller { headers: Some(Arc::new(headers)), ..ada() };
        let error = caller.shown_by(&grant).expect_err("too many bytes");
        assert_eq!(error, "the header fields have 1048583 bytes; at most 8192 are shown");
    }
}

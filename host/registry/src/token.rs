//! The challenges of registries, and tokens (the token authentication of the CNCF's distribution registry).

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use serde::Deserialize;

/// The authentication that a registry asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    Basic,
    /// A token of another server.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

/// The answer of a token server.
#[derive(Deserialize)]
pub(crate) struct TokenAnswer {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl TokenAnswer {
    pub(crate) fn token(self) -> Option<String> {
        self.token.or(self.access_token).filter(|token| !token.is_empty())
    }
}

impl Challenge {
    /// The first challenge that Annex can answer. A token is preferred, because it opens one repository only.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let texts = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let mut found = None;
        for text in texts {
            for challenge in http_auth::parse_challenges(text).unwrap_or_default() {
                let parameter = |wanted: &str| {
                    let is_wanted = |(name, _): &&(&str, http_auth::ParamValue<'_>)| name.eq_ignore_ascii_case(wanted);
                    challenge.params.iter().find(is_wanted).map(|(_, value)| value.to_unescaped())
                };
                if challenge.scheme.eq_ignore_ascii_case("bearer") {
                    let Some(realm) = parameter("realm") else { continue };
                    return Some(Self::Bearer { realm, service: parameter("service"), scope: parameter("scope") });
                }
                if challenge.scheme.eq_ignore_ascii_case("basic") {
                    found = Some(Self::Basic);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};

    use super::Challenge;

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let challenge = |texts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for text in texts {
                headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(text));
            }
            Challenge::of(&headers)
        };
        let bearer = r#"Bearer realm="https://token.example/t",service="registry",scope="repository:a:pull""#;
        let expected = Challenge::Bearer {
            realm: "https://token.example/t".to_owned(),
            service: Some("registry".to_owned()),
            scope: Some("repository:a:pull".to_owned()),
        };
        assert_eq!(challenge(&[r#"Basic realm="x""#, bearer]), Some(expected));
        assert_eq!(challenge(&[r#"basic realm="x""#]), Some(Challenge::Basic));
        for nothing in [&[][..], &["Bearer"], &["Bearer service=\"x\""], &["Digest realm=\"x\""], &["\"\""]] {
            assert_eq!(challenge(nothing), None, "{nothing:?}");
        }
    }
}

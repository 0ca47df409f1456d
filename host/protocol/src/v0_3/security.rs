//! Security schemes: OpenAPI objects whose kind is in `type` (A2A 0.3 section 5.5.3).

use indexmap::IndexMap;
use serde::Serialize;

use crate::{OAuthFlows, SecurityRequirement};

/// A security scheme, written as 0.3 JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum SecurityScheme<'a> {
    /// A key in a header, the query or a cookie.
    #[serde(rename = "apiKey")]
    ApiKey {
        /// A description for people.
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        /// `query`, `header` or `cookie`.
        r#in: &'a str,
        /// The name of the header, query parameter or cookie.
        name: &'a str,
    },
    /// The HTTP `Authorization` header.
    #[serde(rename = "http")]
    HttpAuth {
        /// A description for people.
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        /// The name of the HTTP authentication scheme.
        scheme: &'a str,
        /// The form of a bearer token.
        #[serde(skip_serializing_if = "Option::is_none")]
        bearer_format: Option<&'a str>,
    },
    /// OAuth 2.0.
    #[serde(rename = "oauth2")]
    OAuth2 {
        /// A description for people.
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        /// The flow by its name. Empty for the device code flow, which does not exist in 0.3.
        flows: IndexMap<&'static str, OAuthFlow<'a>>,
        /// The URL of the authorization server's metadata.
        #[serde(skip_serializing_if = "Option::is_none")]
        oauth2_metadata_url: Option<&'a str>,
    },
    /// OpenID Connect, with the URL of its discovery document.
    #[serde(rename = "openIdConnect")]
    OpenIdConnect {
        /// A description for people.
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        /// The URL of the discovery document.
        open_id_connect_url: &'a str,
    },
    /// A client certificate.
    #[serde(rename = "mutualTLS")]
    MutualTls {
        /// A description for people.
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
    },
}

/// One OAuth 2.0 flow. It always has the URLs that its kind of flow requires. Such a URL may be empty.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuthFlow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    authorization_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_url: Option<&'a str>,
    scopes: &'a IndexMap<String, String>,
}

impl<'a> From<&'a crate::SecurityScheme> for SecurityScheme<'a> {
    fn from(scheme: &'a crate::SecurityScheme) -> Self {
        use crate::SecurityScheme as Scheme;

        match scheme {
            Scheme::ApiKey(scheme) => {
                Self::ApiKey { description: scheme.description.as_deref(), r#in: &scheme.location, name: &scheme.name }
            }
            Scheme::HttpAuth(scheme) => Self::HttpAuth {
                description: scheme.description.as_deref(),
                scheme: &scheme.scheme,
                bearer_format: scheme.bearer_format.as_deref(),
            },
            Scheme::OAuth2(scheme) => Self::OAuth2 {
                description: scheme.description.as_deref(),
                flows: scheme.flows.iter().filter_map(flow).collect(),
                oauth2_metadata_url: scheme.oauth2_metadata_url.as_deref(),
            },
            Scheme::OpenIdConnect(scheme) => Self::OpenIdConnect {
                description: scheme.description.as_deref(),
                open_id_connect_url: &scheme.open_id_connect_url,
            },
            Scheme::MutualTls(scheme) => Self::MutualTls { description: scheme.description.as_deref() },
        }
    }
}

fn flow(flows: &OAuthFlows) -> Option<(&'static str, OAuthFlow<'_>)> {
    let (name, flow) = match flows {
        OAuthFlows::AuthorizationCode(flow) => (
            "authorizationCode",
            OAuthFlow {
                authorization_url: Some(&flow.authorization_url),
                token_url: Some(&flow.token_url),
                refresh_url: flow.refresh_url.as_deref(),
                scopes: &flow.scopes,
            },
        ),
        OAuthFlows::ClientCredentials(flow) => (
            "clientCredentials",
            OAuthFlow {
                authorization_url: None,
                token_url: Some(&flow.token_url),
                refresh_url: flow.refresh_url.as_deref(),
                scopes: &flow.scopes,
            },
        ),
        OAuthFlows::Implicit(flow) => (
            "implicit",
            OAuthFlow {
                // 0.3 requires the URL and 1.0 does not: a client of 0.3 would refuse a card without the field.
                authorization_url: Some(flow.authorization_url.as_deref().unwrap_or_default()),
                token_url: None,
                refresh_url: flow.refresh_url.as_deref(),
                scopes: &flow.scopes,
            },
        ),
        OAuthFlows::Password(flow) => (
            "password",
            OAuthFlow {
                authorization_url: None,
                token_url: Some(flow.token_url.as_deref().unwrap_or_default()),
                refresh_url: flow.refresh_url.as_deref(),
                scopes: &flow.scopes,
            },
        ),
        // 0.3 has no device code flow. The scheme stays on the card, because requirements refer to its name.
        OAuthFlows::DeviceCode(_) => return None,
    };
    Some((name, flow))
}

/// The scopes that a request needs, by the name of the security scheme.
pub(super) type Requirement<'a> = IndexMap<&'a str, &'a [String]>;

pub(super) fn requirements(requirements: &[SecurityRequirement]) -> Vec<Requirement<'_>> {
    requirements.iter().map(requirement).collect()
}

fn requirement(requirement: &SecurityRequirement) -> Requirement<'_> {
    requirement.schemes.iter().map(|(name, scopes)| (name.as_str(), scopes.list.as_slice())).collect()
}

//! Security schemes and requirements.

use annex_protocol::{OAuthFlows, SecurityRequirement, SecurityScheme, StringList};

use crate::convert::{FieldError, IntoProto, text, write_map};
use crate::pb::v0_3 as pb;

impl IntoProto<pb::Security> for SecurityRequirement {
    fn into_proto(self) -> Result<pb::Security, FieldError> {
        Ok(pb::Security { schemes: write_map("schemes", self.schemes)? })
    }
}

impl IntoProto<pb::StringList> for StringList {
    fn into_proto(self) -> Result<pb::StringList, FieldError> {
        Ok(pb::StringList { list: self.list })
    }
}

impl IntoProto<pb::SecurityScheme> for SecurityScheme {
    fn into_proto(self) -> Result<pb::SecurityScheme, FieldError> {
        use pb::security_scheme::Scheme;

        let scheme = match self {
            Self::ApiKey(scheme) => Scheme::ApiKeySecurityScheme(pb::ApiKeySecurityScheme {
                description: text(scheme.description),
                location: scheme.location,
                name: scheme.name,
            }),
            Self::HttpAuth(scheme) => Scheme::HttpAuthSecurityScheme(pb::HttpAuthSecurityScheme {
                description: text(scheme.description),
                scheme: scheme.scheme,
                bearer_format: text(scheme.bearer_format),
            }),
            Self::OAuth2(scheme) => Scheme::Oauth2SecurityScheme(pb::OAuth2SecurityScheme {
                description: text(scheme.description),
                flows: scheme.flows.map(flows),
                oauth2_metadata_url: text(scheme.oauth2_metadata_url),
            }),
            Self::OpenIdConnect(scheme) => Scheme::OpenIdConnectSecurityScheme(pb::OpenIdConnectSecurityScheme {
                description: text(scheme.description),
                open_id_connect_url: scheme.open_id_connect_url,
            }),
            Self::MutualTls(scheme) => {
                Scheme::MtlsSecurityScheme(pb::MutualTlsSecurityScheme { description: text(scheme.description) })
            }
        };
        Ok(pb::SecurityScheme { scheme: Some(scheme) })
    }
}

/// The flow for 0.3. 0.3 has no device code flow. Its scheme stays on the card without a flow, because requirements refer to
/// its name.
fn flows(flows: OAuthFlows) -> pb::OAuthFlows {
    use pb::o_auth_flows::Flow;

    let flow = match flows {
        OAuthFlows::AuthorizationCode(flow) => Some(Flow::AuthorizationCode(pb::AuthorizationCodeOAuthFlow {
            authorization_url: flow.authorization_url,
            token_url: flow.token_url,
            refresh_url: text(flow.refresh_url),
            scopes: flow.scopes.into_iter().collect(),
        })),
        OAuthFlows::ClientCredentials(flow) => Some(Flow::ClientCredentials(pb::ClientCredentialsOAuthFlow {
            token_url: flow.token_url,
            refresh_url: text(flow.refresh_url),
            scopes: flow.scopes.into_iter().collect(),
        })),
        OAuthFlows::Implicit(flow) => Some(Flow::Implicit(pb::ImplicitOAuthFlow {
            authorization_url: text(flow.authorization_url),
            refresh_url: text(flow.refresh_url),
            scopes: flow.scopes.into_iter().collect(),
        })),
        OAuthFlows::Password(flow) => Some(Flow::Password(pb::PasswordOAuthFlow {
            token_url: text(flow.token_url),
            refresh_url: text(flow.refresh_url),
            scopes: flow.scopes.into_iter().collect(),
        })),
        OAuthFlows::DeviceCode(_) => None,
    };
    pb::OAuthFlows { flow }
}

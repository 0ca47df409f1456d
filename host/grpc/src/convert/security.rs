//! Converts security schemes and requirements from and to Protobuf.

use annex_protocol::{
    ApiKeySecurityScheme, AuthorizationCodeOAuthFlow, ClientCredentialsOAuthFlow, DeviceCodeOAuthFlow,
    HttpAuthSecurityScheme, ImplicitOAuthFlow, MutualTlsSecurityScheme, OAuth2SecurityScheme, OAuthFlows,
    OpenIdConnectSecurityScheme, PasswordOAuthFlow, SecurityRequirement, SecurityScheme, StringList,
};

use super::{FieldError, FromProto, IntoProto, non_empty, read_map, read_optional, text, write_map, write_optional};
use crate::pb;

impl IntoProto<pb::SecurityRequirement> for SecurityRequirement {
    fn into_proto(self) -> Result<pb::SecurityRequirement, FieldError> {
        Ok(pb::SecurityRequirement { schemes: write_map("schemes", self.schemes)? })
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
            Self::ApiKey(scheme) => Scheme::ApiKeySecurityScheme(api_key(scheme)),
            Self::HttpAuth(scheme) => Scheme::HttpAuthSecurityScheme(http_auth(scheme)),
            Self::OAuth2(scheme) => Scheme::Oauth2SecurityScheme(oauth2(scheme)?),
            Self::OpenIdConnect(scheme) => Scheme::OpenIdConnectSecurityScheme(open_id_connect(scheme)),
            Self::MutualTls(MutualTlsSecurityScheme { description }) => {
                Scheme::MtlsSecurityScheme(pb::MutualTlsSecurityScheme { description: text(description) })
            }
        };
        Ok(pb::SecurityScheme { scheme: Some(scheme) })
    }
}

fn api_key(scheme: ApiKeySecurityScheme) -> pb::ApiKeySecurityScheme {
    pb::ApiKeySecurityScheme { description: text(scheme.description), location: scheme.location, name: scheme.name }
}

fn http_auth(scheme: HttpAuthSecurityScheme) -> pb::HttpAuthSecurityScheme {
    pb::HttpAuthSecurityScheme {
        description: text(scheme.description),
        scheme: scheme.scheme,
        bearer_format: text(scheme.bearer_format),
    }
}

fn oauth2(scheme: OAuth2SecurityScheme) -> Result<pb::OAuth2SecurityScheme, FieldError> {
    Ok(pb::OAuth2SecurityScheme {
        description: text(scheme.description),
        flows: write_optional("flows", scheme.flows)?,
        oauth2_metadata_url: text(scheme.oauth2_metadata_url),
    })
}

fn open_id_connect(scheme: OpenIdConnectSecurityScheme) -> pb::OpenIdConnectSecurityScheme {
    pb::OpenIdConnectSecurityScheme {
        description: text(scheme.description),
        open_id_connect_url: scheme.open_id_connect_url,
    }
}

#[expect(deprecated, reason = "a card may still declare a deprecated flow")]
impl IntoProto<pb::OAuthFlows> for OAuthFlows {
    fn into_proto(self) -> Result<pb::OAuthFlows, FieldError> {
        use pb::o_auth_flows::Flow;

        let flow = match self {
            Self::AuthorizationCode(flow) => Flow::AuthorizationCode(authorization_code(flow)),
            Self::ClientCredentials(flow) => Flow::ClientCredentials(client_credentials(flow)),
            Self::Implicit(flow) => Flow::Implicit(implicit(flow)),
            Self::Password(flow) => Flow::Password(password(flow)),
            Self::DeviceCode(flow) => Flow::DeviceCode(device_code(flow)),
        };
        Ok(pb::OAuthFlows { flow: Some(flow) })
    }
}

fn authorization_code(flow: AuthorizationCodeOAuthFlow) -> pb::AuthorizationCodeOAuthFlow {
    pb::AuthorizationCodeOAuthFlow {
        authorization_url: flow.authorization_url,
        token_url: flow.token_url,
        refresh_url: text(flow.refresh_url),
        scopes: flow.scopes.into_iter().collect(),
        pkce_required: flow.pkce_required,
    }
}

fn client_credentials(flow: ClientCredentialsOAuthFlow) -> pb::ClientCredentialsOAuthFlow {
    pb::ClientCredentialsOAuthFlow {
        token_url: flow.token_url,
        refresh_url: text(flow.refresh_url),
        scopes: flow.scopes.into_iter().collect(),
    }
}

fn implicit(flow: ImplicitOAuthFlow) -> pb::ImplicitOAuthFlow {
    pb::ImplicitOAuthFlow {
        authorization_url: text(flow.authorization_url),
        refresh_url: text(flow.refresh_url),
        scopes: flow.scopes.into_iter().collect(),
    }
}

fn password(flow: PasswordOAuthFlow) -> pb::PasswordOAuthFlow {
    pb::PasswordOAuthFlow {
        token_url: text(flow.token_url),
        refresh_url: text(flow.refresh_url),
        scopes: flow.scopes.into_iter().collect(),
    }
}

fn device_code(flow: DeviceCodeOAuthFlow) -> pb::DeviceCodeOAuthFlow {
    pb::DeviceCodeOAuthFlow {
        device_authorization_url: flow.device_authorization_url,
        token_url: flow.token_url,
        refresh_url: text(flow.refresh_url),
        scopes: flow.scopes.into_iter().collect(),
    }
}

impl FromProto<pb::SecurityRequirement> for SecurityRequirement {
    fn from_proto(proto: pb::SecurityRequirement) -> Result<Self, FieldError> {
        Ok(Self { schemes: read_map("schemes", proto.schemes)? })
    }
}

impl FromProto<pb::StringList> for StringList {
    fn from_proto(proto: pb::StringList) -> Result<Self, FieldError> {
        Ok(Self { list: proto.list })
    }
}

impl FromProto<pb::SecurityScheme> for SecurityScheme {
    fn from_proto(proto: pb::SecurityScheme) -> Result<Self, FieldError> {
        use pb::security_scheme::Scheme;

        Ok(match proto.scheme {
            Some(Scheme::ApiKeySecurityScheme(scheme)) => Self::ApiKey(ApiKeySecurityScheme {
                description: non_empty(scheme.description),
                location: scheme.location,
                name: scheme.name,
            }),
            Some(Scheme::HttpAuthSecurityScheme(scheme)) => Self::HttpAuth(HttpAuthSecurityScheme {
                description: non_empty(scheme.description),
                scheme: scheme.scheme,
                bearer_format: non_empty(scheme.bearer_format),
            }),
            Some(Scheme::Oauth2SecurityScheme(scheme)) => Self::OAuth2(OAuth2SecurityScheme {
                description: non_empty(scheme.description),
                // An unknown flow must not make the whole scheme unusable.
                flows: read_optional("flows", scheme.flows.filter(|flows| flows.flow.is_some()))?,
                oauth2_metadata_url: non_empty(scheme.oauth2_metadata_url),
            }),
            Some(Scheme::OpenIdConnectSecurityScheme(scheme)) => Self::OpenIdConnect(OpenIdConnectSecurityScheme {
                description: non_empty(scheme.description),
                open_id_connect_url: scheme.open_id_connect_url,
            }),
            Some(Scheme::MtlsSecurityScheme(scheme)) => {
                Self::MutualTls(MutualTlsSecurityScheme { description: non_empty(scheme.description) })
            }
            None => return Err(FieldError::new("", "a security scheme of an unknown kind")),
        })
    }
}

#[expect(deprecated, reason = "a card may still declare a deprecated flow")]
impl FromProto<pb::OAuthFlows> for OAuthFlows {
    fn from_proto(proto: pb::OAuthFlows) -> Result<Self, FieldError> {
        use pb::o_auth_flows::Flow;

        Ok(match proto.flow {
            Some(Flow::AuthorizationCode(flow)) => Self::AuthorizationCode(AuthorizationCodeOAuthFlow {
                authorization_url: flow.authorization_url,
                token_url: flow.token_url,
                refresh_url: non_empty(flow.refresh_url),
                scopes: flow.scopes.into_iter().collect(),
                pkce_required: flow.pkce_required,
            }),
            Some(Flow::ClientCredentials(flow)) => Self::ClientCredentials(ClientCredentialsOAuthFlow {
                token_url: flow.token_url,
                refresh_url: non_empty(flow.refresh_url),
                scopes: flow.scopes.into_iter().collect(),
            }),
            Some(Flow::Implicit(flow)) => Self::Implicit(ImplicitOAuthFlow {
                authorization_url: non_empty(flow.authorization_url),
                refresh_url: non_empty(flow.refresh_url),
                scopes: flow.scopes.into_iter().collect(),
            }),
            Some(Flow::Password(flow)) => Self::Password(PasswordOAuthFlow {
                token_url: non_empty(flow.token_url),
                refresh_url: non_empty(flow.refresh_url),
                scopes: flow.scopes.into_iter().collect(),
            }),
            Some(Flow::DeviceCode(flow)) => Self::DeviceCode(DeviceCodeOAuthFlow {
                device_authorization_url: flow.device_authorization_url,
                token_url: flow.token_url,
                refresh_url: non_empty(flow.refresh_url),
                scopes: flow.scopes.into_iter().collect(),
            }),
            None => return Err(FieldError::new("", "a flow of an unknown kind")),
        })
    }
}

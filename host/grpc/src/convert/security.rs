//! Security schemes and requirements.

use annex_protocol::{
    ApiKeySecurityScheme, AuthorizationCodeOAuthFlow, ClientCredentialsOAuthFlow, DeviceCodeOAuthFlow,
    HttpAuthSecurityScheme, ImplicitOAuthFlow, MutualTlsSecurityScheme, OAuth2SecurityScheme, OAuthFlows,
    OpenIdConnectSecurityScheme, PasswordOAuthFlow, SecurityRequirement, SecurityScheme, StringList,
};

use super::{FieldError, IntoProto, text, write_map, write_optional};
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

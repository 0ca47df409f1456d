//! The ways to authenticate to an agent, as its card declares them (specification section 4.5).

use indexmap::IndexMap;

use crate::proto_json::{message, one_of};

one_of! {
    /// One way to authenticate.
    pub enum SecurityScheme {
        /// A key in a header, the query or a cookie.
        ApiKey(ApiKeySecurityScheme) => "apiKeySecurityScheme",
        /// The HTTP `Authorization` header.
        HttpAuth(HttpAuthSecurityScheme) => "httpAuthSecurityScheme",
        /// OAuth 2.0.
        OAuth2(OAuth2SecurityScheme) => "oauth2SecurityScheme",
        /// OpenID Connect, with the URL of its discovery document.
        OpenIdConnect(OpenIdConnectSecurityScheme) => "openIdConnectSecurityScheme",
        /// A client certificate.
        MutualTls(MutualTlsSecurityScheme) => "mtlsSecurityScheme",
    }

    /// The OAuth 2.0 flow of a scheme.
    pub enum OAuthFlows {
        /// Authorization code (RFC 6749, section 4.1).
        AuthorizationCode(AuthorizationCodeOAuthFlow) => "authorizationCode",
        /// Client credentials (RFC 6749, section 4.4).
        ClientCredentials(ClientCredentialsOAuthFlow) => "clientCredentials",
        /// Implicit; deprecated by the specification.
        Implicit(ImplicitOAuthFlow) => "implicit",
        /// Password; deprecated by the specification.
        Password(PasswordOAuthFlow) => "password",
        /// Device code (RFC 8628).
        DeviceCode(DeviceCodeOAuthFlow) => "deviceCode",
    }
}

message! {
    /// Schemes that a request must satisfy together.
    pub struct SecurityRequirement {
        /// The scopes that the request needs, by the name of the security scheme.
        pub schemes: IndexMap<String, StringList> => "schemes",
    }

    /// A list of strings, wrapped because proto maps cannot hold lists.
    pub struct StringList {
        /// The strings.
        pub list: Vec<String> => "list",
    }

    /// A key in a header, the query or a cookie.
    pub struct ApiKeySecurityScheme {
        /// A description for people.
        pub description: Option<String> => "description" optional,
        /// `query`, `header` or `cookie`.
        pub location: String => "location" required,
        /// The name of the header, query parameter or cookie.
        pub name: String => "name" required,
    }

    /// The HTTP `Authorization` header.
    pub struct HttpAuthSecurityScheme {
        /// A description for people.
        pub description: Option<String> => "description" optional,
        /// The name of the HTTP authentication scheme, such as `Bearer`.
        pub scheme: String => "scheme" required,
        /// The form of a bearer token, such as `JWT`; a hint for people.
        pub bearer_format: Option<String> => "bearerFormat" optional,
    }

    /// OAuth 2.0.
    pub struct OAuth2SecurityScheme {
        /// A description for people.
        pub description: Option<String> => "description" optional,
        /// The flow; every valid card has one.
        pub flows: Option<OAuthFlows> => "flows" optional,
        /// The URL of the authorization server's metadata (RFC 8414).
        pub oauth2_metadata_url: Option<String> => "oauth2MetadataUrl" optional,
    }

    /// OpenID Connect, with the URL of its discovery document.
    pub struct OpenIdConnectSecurityScheme {
        /// A description for people.
        pub description: Option<String> => "description" optional,
        /// The URL of the discovery document.
        pub open_id_connect_url: String => "openIdConnectUrl" required,
    }

    /// A client certificate.
    pub struct MutualTlsSecurityScheme {
        /// A description for people.
        pub description: Option<String> => "description" optional,
    }

    /// The authorization code flow (RFC 6749, section 4.1).
    pub struct AuthorizationCodeOAuthFlow {
        /// The page where the user grants access.
        pub authorization_url: String => "authorizationUrl" required,
        /// The URL of the token endpoint.
        pub token_url: String => "tokenUrl" required,
        /// The URL for refreshing tokens.
        pub refresh_url: Option<String> => "refreshUrl" optional,
        /// The meaning of each scope.
        pub scopes: IndexMap<String, String> => "scopes" lenient,
        /// True if the server requires PKCE (RFC 7636).
        pub pkce_required: bool => "pkceRequired",
    }

    /// The client credentials flow (RFC 6749, section 4.4).
    pub struct ClientCredentialsOAuthFlow {
        /// The URL of the token endpoint.
        pub token_url: String => "tokenUrl" required,
        /// The URL for refreshing tokens.
        pub refresh_url: Option<String> => "refreshUrl" optional,
        /// The meaning of each scope.
        pub scopes: IndexMap<String, String> => "scopes" lenient,
    }

    /// The implicit flow (RFC 6749, section 4.2), which the specification of A2A deprecates.
    pub struct ImplicitOAuthFlow {
        /// The page where the user grants access.
        pub authorization_url: Option<String> => "authorizationUrl",
        /// The URL for refreshing tokens.
        pub refresh_url: Option<String> => "refreshUrl" optional,
        /// The meaning of each scope.
        pub scopes: IndexMap<String, String> => "scopes" optional,
    }

    /// The password flow (RFC 6749, section 4.3), which the specification of A2A deprecates.
    pub struct PasswordOAuthFlow {
        /// The URL of the token endpoint.
        pub token_url: Option<String> => "tokenUrl",
        /// The URL for refreshing tokens.
        pub refresh_url: Option<String> => "refreshUrl" optional,
        /// The meaning of each scope.
        pub scopes: IndexMap<String, String> => "scopes" optional,
    }

    /// The device code flow (RFC 8628).
    pub struct DeviceCodeOAuthFlow {
        /// The URL where the device requests a code.
        pub device_authorization_url: String => "deviceAuthorizationUrl" required,
        /// The URL of the token endpoint.
        pub token_url: String => "tokenUrl" required,
        /// The URL for refreshing tokens.
        pub refresh_url: Option<String> => "refreshUrl" optional,
        /// The meaning of each scope.
        pub scopes: IndexMap<String, String> => "scopes" lenient,
    }
}

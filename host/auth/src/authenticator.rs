//! Determines the principal of a request from its headers and its client certificate.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use annex_protocol::{
    ApiKeySecurityScheme, HttpAuthSecurityScheme, JsonObject, MutualTlsSecurityScheme, Secret, SecurityRequirement,
    SecurityScheme, StringList,
};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use indexmap::IndexMap;

use crate::api_key::ApiKeys;
use crate::introspection::Introspector;
use crate::jwt::{self, JwtVerifier, TokenError};
use crate::{
    AuthConfig, AuthConfigError, AuthError, CertificateField, CertificateSummary, DeclareConfig, MTLS_SCHEME, Principal,
};

/// The name of the API key scheme in the Agent Card.
pub const API_KEY_SCHEME: &str = "apiKey";
/// The name of the token scheme in the Agent Card.
pub const JWT_SCHEME: &str = "jwt";
/// The name of the scheme for opaque tokens in the Agent Card.
pub const INTROSPECTION_SCHEME: &str = "bearer";

/// Authenticates callers. It is created once at start, and all requests use it.
pub struct Authenticator {
    api_keys: Option<ApiKeys>,
    jwt: Option<JwtVerifier>,
    introspector: Option<Arc<Introspector>>,
    /// The field that names the caller in a client certificate. `None` if certificates name no callers.
    certificate_field: Option<CertificateField>,
    declared: DeclareConfig,
}

/// The Agent Card's fields about authentication (specification section 4.5).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SecurityDeclaration {
    /// The value of `securitySchemes`.
    pub schemes: IndexMap<String, SecurityScheme>,
    /// The value of `securityRequirements`. It has one requirement for each scheme, because any one scheme suffices.
    pub requirements: Vec<SecurityRequirement>,
}

impl Authenticator {
    /// Creates an authenticator. Keys are read from the environment and from files. A JWKS URL is fetched when the
    /// first token arrives, so that a server can start while the issuer is down.
    ///
    /// # Errors
    /// When the configuration cannot work.
    pub fn new(config: &AuthConfig) -> Result<Self, AuthConfigError> {
        Self::made(config, config.jwt.as_ref().map(JwtVerifier::load).transpose()?)
    }

    /// Creates an authenticator from a reloaded config. If the JWKS URL is the same as before, the issuer's keys that
    /// were fetched from it stay in use, so that callers are accepted while the issuer is down. Opaque tokens are asked
    /// about again.
    ///
    /// # Errors
    /// When the configuration cannot work.
    pub fn read_again(&self, config: &AuthConfig) -> Result<Self, AuthConfigError> {
        let jwt = match (&config.jwt, &self.jwt) {
            (Some(config), Some(before)) => Some(JwtVerifier::load_after(config, before)?),
            (Some(config), None) => Some(JwtVerifier::load(config)?),
            (None, _) => None,
        };
        Self::made(config, jwt)
    }

    fn made(config: &AuthConfig, jwt: Option<JwtVerifier>) -> Result<Self, AuthConfigError> {
        let api_keys = match config.api_key.as_slice() {
            [] => None,
            keys => Some(ApiKeys::load(keys, &config.api_key_header)?),
        };
        config.check_issuers()?;
        let introspector = config.introspection.as_ref().map(Introspector::load).transpose()?;
        let certificate_field = config.client_certificate.as_ref().map(|certificates| certificates.principal);
        if api_keys.is_none() && !config.accepts_tokens() && certificate_field.is_none() {
            return Err(AuthConfigError::NoScheme);
        }
        let declared = config.declare.clone().unwrap_or_default();
        declared.check()?;
        if config.declare.is_some() && !config.accepts_tokens() {
            return Err(AuthConfigError::DeclareWithoutTokens);
        }
        Ok(Self { api_keys, jwt, introspector, certificate_field, declared })
    }

    /// Determines the principal of a request with these headers from a client in `network`. For gRPC, `headers` is the
    /// metadata. `certificate` is the client's certificate, which TLS has verified. It is ignored if certificates name no
    /// callers. Clients share the limits of their network: its IPv4 address, or the first address of its IPv6 prefix.
    ///
    /// A request must have exactly one credential. Two credentials, or a repeated header, are invalid, because the principal
    /// would be ambiguous. An `Authorization` header with another scheme than `Bearer` is ignored.
    ///
    /// The keys of a token's issuer are fetched if they are unknown or ten minutes old. They are fetched at most twice a
    /// minute, with a timeout of five seconds. The authorization server is asked about an opaque token at most once a second,
    /// with a timeout of five seconds.
    ///
    /// # Errors
    /// [`AuthError::Missing`] without a credential, [`AuthError::Invalid`] with invalid credentials, and
    /// [`AuthError::Unavailable`] if the issuer's keys cannot be fetched or the authorization server gives no usable answer.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        network: IpAddr,
        certificate: Option<&CertificateSummary>,
    ) -> Result<Principal, AuthError> {
        let key = match &self.api_keys {
            Some(keys) => {
                only(headers, &keys.header).map_err(|RepeatedHeader| self.invalid())?.map(|value| (keys, value))
            }
            None => None,
        };
        let token = if self.accepts_tokens() { self.bearer_token(headers)? } else { None };
        if let (Some(field), Some(certificate)) = (self.certificate_field, certificate) {
            let is_only = key.is_none() && token.is_none();
            return of_certificate(certificate, field).filter(|_| is_only).ok_or_else(|| self.invalid());
        }
        match (key, token) {
            (None, None) => Err(AuthError::Missing { challenge: self.challenge(r#"Bearer realm="annex""#) }),
            (Some(_), Some(_)) => Err(self.invalid()),
            (Some((keys, value)), None) => {
                let id = keys.principal_of(value.as_bytes()).ok_or_else(|| self.invalid())?.to_owned();
                Ok(Principal { id, scheme: API_KEY_SCHEME, scopes: Vec::new(), claims: JsonObject::new() })
            }
            (None, Some(token)) => self.principal_of(token, network).await.map_err(|refused| match refused {
                TokenError::Invalid => self.invalid(),
                TokenError::Unavailable => AuthError::Unavailable,
            }),
        }
    }

    /// The bearer token of a request with these headers, which [`authenticate`](Self::authenticate) has mapped to
    /// `principal`. `None` if the principal has an API key or a certificate.
    pub fn token_of(&self, headers: &HeaderMap, principal: &Principal) -> Option<Secret> {
        if matches!(principal.scheme, API_KEY_SCHEME | MTLS_SCHEME) {
            return None;
        }
        self.bearer_token(headers).ok().flatten().map(Secret::new)
    }

    /// The header field that carries API keys. `None` without API keys.
    pub fn key_header(&self) -> Option<&HeaderName> {
        self.api_keys.as_ref().map(|keys| &keys.header)
    }

    async fn principal_of(&self, token: &str, network: IpAddr) -> Result<Principal, TokenError> {
        match (&self.jwt, &self.introspector) {
            // The authorization server is not asked about a token that this server can verify itself.
            (Some(jwt), None) => jwt.principal_of(token).await,
            (Some(jwt), Some(_)) if jwt::has_its_form(token) => jwt.principal_of(token).await,
            (_, Some(introspector)) => introspector.principal_of(token, network).await,
            (None, None) => Err(TokenError::Invalid),
        }
    }

    fn accepts_tokens(&self) -> bool {
        self.jwt.is_some() || self.introspector.is_some()
    }

    /// The Agent Card's fields about the configured schemes.
    pub fn security_schemes(&self) -> SecurityDeclaration {
        let api_key = self.api_keys.as_ref().map(|keys| {
            let location = "header".to_owned();
            let name = keys.header.to_string();
            (API_KEY_SCHEME, SecurityScheme::ApiKey(ApiKeySecurityScheme { description: None, location, name }))
        });
        let jwt = self.jwt.as_ref().map(|_| {
            let scheme = "Bearer".to_owned();
            let bearer_format = Some("JWT".to_owned());
            let http = HttpAuthSecurityScheme { description: None, scheme, bearer_format };
            (JWT_SCHEME, SecurityScheme::HttpAuth(http))
        });
        let opaque = self.introspector.as_ref().map(|_| {
            let scheme = "Bearer".to_owned();
            let http = HttpAuthSecurityScheme { description: None, scheme, bearer_format: None };
            (INTROSPECTION_SCHEME, SecurityScheme::HttpAuth(http))
        });
        let certificate = self
            .certificate_field
            .map(|_| (MTLS_SCHEME, SecurityScheme::MutualTls(MutualTlsSecurityScheme { description: None })));
        let mut declaration = SecurityDeclaration::default();
        let own = api_key.into_iter().chain(jwt).chain(opaque).chain(certificate);
        for (name, scheme) in own.chain(self.declared.schemes()) {
            // Entries of the list are alternatives; the schemes of one entry would all be needed.
            let schemes = IndexMap::from([(name.to_owned(), StringList::default())]);
            declaration.requirements.push(SecurityRequirement { schemes });
            declaration.schemes.insert(name.to_owned(), scheme);
        }
        declaration
    }

    fn bearer_token<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a str>, AuthError> {
        let Some(value) = only(headers, &AUTHORIZATION).map_err(|RepeatedHeader| self.invalid())? else {
            return Ok(None);
        };
        let (scheme, token) = value.as_bytes().split_at(value.len().min("Bearer ".len()));
        // `Bearer` without a token counts as a credential, and an invalid one.
        if !scheme.eq_ignore_ascii_case(b"Bearer ") && !value.as_bytes().eq_ignore_ascii_case(b"Bearer") {
            return Ok(None);
        }
        // RFC 9110, section 11.4, allows more than one space behind the scheme.
        std::str::from_utf8(token).map(|token| Some(token.trim_matches(' '))).map_err(|_| self.invalid())
    }

    fn invalid(&self) -> AuthError {
        AuthError::Invalid { challenge: self.challenge(r#"Bearer realm="annex", error="invalid_token""#) }
    }

    /// The value of `WWW-Authenticate`, which lists all configured schemes (RFC 9110 section 11.6.1). `bearer` is the
    /// challenge for tokens. API keys and certificates have no registered scheme.
    fn challenge(&self, bearer: &'static str) -> HeaderValue {
        let api_key = r#"ApiKey realm="annex""#;
        let both = || format!("{bearer}, {api_key}");
        match (self.accepts_tokens(), &self.api_keys) {
            (true, Some(_)) => HeaderValue::try_from(both()).unwrap_or(HeaderValue::from_static("Bearer")),
            (true, None) => HeaderValue::from_static(bearer),
            (false, Some(_)) => HeaderValue::from_static(api_key),
            (false, None) => HeaderValue::from_static(r#"Certificate realm="annex""#),
        }
    }
}

/// Writes no keys and no digests of keys, so that logs do not contain them.
impl fmt::Debug for Authenticator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

/// The principal of a client with this certificate. `None` if the certificate has ended, or names no caller. A connection
/// can outlive its certificate, so the dates are checked for each request.
fn of_certificate(certificate: &CertificateSummary, field: CertificateField) -> Option<Principal> {
    let name = certificate.name_in(field).filter(|_| certificate.is_valid_at(SystemTime::now()))?;
    let id = format!("{MTLS_SCHEME}#{name}");
    Some(Principal { id, scheme: MTLS_SCHEME, scopes: Vec::new(), claims: JsonObject::new() })
}

struct RepeatedHeader;

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, RepeatedHeader> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(RepeatedHeader),
    }
}

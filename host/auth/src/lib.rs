//! Authentication of callers, signatures of Agent Cards, and receipts of turns.
//!
//! [`Authenticator`] maps the headers and the client certificate of a request to a [`Principal`], by API key, JSON Web
//! Token, opaque token or certificate (specification sections 4.5 and 7). [`TokenSource`] gets access tokens for other
//! servers. [`signature`] signs and verifies Agent Cards (section 8.4). [`receipt`] makes and verifies receipts of turns. What
//! a principal may do is decided by other crates.
//!
//! All cryptography is from ring, which TLS uses as well.

#![warn(missing_docs)]

mod algorithm;
mod answer;
mod api_key;
mod authenticator;
mod certificate;
mod config;
mod declare;
mod error;
mod flights;
mod introspection;
mod jwks;
mod jwks_source;
mod jwt;
mod oauth_client;
mod oauth_config;
mod pem;
mod principal;
mod provider;
pub mod receipt;
pub mod signature;
mod token_cache;
mod token_source;
mod url;

pub use algorithm::Algorithm;
pub use authenticator::{API_KEY_SCHEME, Authenticator, INTROSPECTION_SCHEME, JWT_SCHEME, SecurityDeclaration};
pub use certificate::{CertificateError, CertificateField, CertificateSummary, ClientCertificateConfig, MTLS_SCHEME};
pub use config::{ApiKeyConfig, ApiKeyHeaderConfig, AuthConfig, IntrospectionConfig, JwtConfig};
pub use declare::{
    AuthorizationCodeConfig, ClientCredentialsConfig, DeclareConfig, DeviceCodeConfig, WrongDeclaration,
};
pub use error::{AuthConfigError, AuthError, KeyError, VariableError};
pub use jwks::Jwks;
pub use oauth_config::{ClientAuthentication, Fallback, Grant, OAuthConfig, OAuthConfigError};
pub use principal::Principal;
pub use token_source::{AccessToken, TokenFetchError, TokenSource};

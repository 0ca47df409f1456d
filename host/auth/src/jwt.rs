//! JSON Web Tokens (RFC 7519) as bearer tokens, checked as RFC 8725 recommends.

use std::sync::Arc;

use annex_files::Purpose;
use annex_protocol::JsonObject;
use jsonwebtoken::{Validation, decode, decode_header};

use crate::config::JwtConfig;
use crate::jwks_source::{JwksSource, NoKey, RemoteJwks};
use crate::{Algorithm, AuthConfigError, JWT_SCHEME, Jwks, Principal, principal};

/// The longest token, in bytes. A longer token is refused before it is parsed.
pub(crate) const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// The maximum size of a file with keys, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;
const MAX_LEEWAY_SECONDS: u64 = 300;

pub(crate) struct JwtVerifier {
    config: JwtConfig,
    keys: JwksSource,
}

/// The reason why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenError {
    Invalid,
    Unavailable,
}

impl JwtVerifier {
    pub(crate) fn load(config: &JwtConfig) -> Result<Self, AuthConfigError> {
        check(config)?;
        Ok(Self { keys: keys(config)?, config: config.clone() })
    }

    /// Loads a reloaded config. If the JWKS URL is the same as in `before`, the keys that `before` has fetched stay in
    /// use.
    pub(crate) fn load_after(config: &JwtConfig, before: &Self) -> Result<Self, AuthConfigError> {
        check(config)?;
        let known = match &before.keys {
            JwksSource::Url(remote) if config.jwks_file.is_none() && config.jwks_url == before.config.jwks_url => {
                Some(JwksSource::Url(Arc::clone(remote)))
            }
            JwksSource::Url(_) | JwksSource::File(_) => None,
        };
        let keys = known.map_or_else(|| keys(config), Ok)?;
        Ok(Self { keys, config: config.clone() })
    }

    /// Verifies a token, and returns its principal.
    pub(crate) async fn principal_of(&self, token: &str) -> Result<Principal, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::Invalid);
        }
        let header = decode_header(token).map_err(|_| TokenError::Invalid)?;
        // No extension of JWS is understood here, so none may be critical (RFC 7515 section 4.1.11).
        if header.crit.is_some() {
            return Err(TokenError::Invalid);
        }
        // The algorithm is not the token's choice (RFC 8725, section 3.1).
        let allowed = |algorithm: &Algorithm| self.config.algorithms.contains(algorithm);
        let algorithm = Algorithm::from_jws(header.alg).filter(allowed).ok_or(TokenError::Invalid)?;
        let key = self.keys.key(header.kid.as_deref(), algorithm).await.map_err(|missing| match missing {
            NoKey::Unknown => TokenError::Invalid,
            NoKey::Unavailable => TokenError::Unavailable,
        })?;
        let token = decode::<JsonObject>(token, &key.key, &self.validation(algorithm));
        let claims = token.map_err(|_| TokenError::Invalid)?.claims;
        self.principal(&claims).ok_or(TokenError::Invalid)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm.to_jws());
        // jsonwebtoken ignores a missing claim unless it is listed as required.
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(&self.config.audience);
        validation.validate_nbf = true;
        validation.leeway = self.config.leeway_seconds;
        validation
    }

    fn principal(&self, claims: &JsonObject) -> Option<Principal> {
        // jsonwebtoken also takes a list of issuers, which RFC 7519 does not know.
        if principal::text(claims, "iss")? != self.config.issuer {
            return None;
        }
        let names = (self.config.issuer.as_str(), self.config.principal_claim.as_str());
        principal::of_claims(names, JWT_SCHEME, claims)
    }
}

/// True if a token has the form of a JSON Web Token, whether it is valid or not.
pub(crate) fn has_its_form(token: &str) -> bool {
    token.len() <= MAX_TOKEN_BYTES && decode_header(token).is_ok()
}

fn check(config: &JwtConfig) -> Result<(), AuthConfigError> {
    let refuse = |field, problem| Err(AuthConfigError::Jwt { field, problem });
    if !principal::is_name(&config.issuer) || config.issuer.contains('#') {
        return refuse("issuer", "must be 1 to 255 bytes without `#` and control characters");
    }
    if config.audience.is_empty() || config.audience.iter().any(String::is_empty) {
        return refuse("audience", "must name at least one audience, and no empty one");
    }
    if config.algorithms.is_empty() {
        return refuse("algorithms", "must name at least one algorithm");
    }
    if config.principal_claim.is_empty() {
        return refuse("principal_claim", "must not be empty");
    }
    if config.leeway_seconds > MAX_LEEWAY_SECONDS {
        return refuse("leeway_seconds", "must be at most 300");
    }
    Ok(())
}

fn keys(config: &JwtConfig) -> Result<JwksSource, AuthConfigError> {
    match (&config.jwks_url, &config.jwks_file) {
        (Some(url), None) => Ok(JwksSource::Url(RemoteJwks::new(url)?)),
        (None, Some(path)) => {
            // The keys are public, but their author decides which callers are accepted, so the file's permissions are
            // checked.
            let text = annex_files::read_text(path, Purpose::Named, MAX_FILE_BYTES);
            let text = text.map_err(|source| AuthConfigError::File { path: path.clone(), source })?;
            let jwks = Jwks::parse(&text).map_err(|source| AuthConfigError::Keys { path: path.clone(), source })?;
            if jwks.is_empty() {
                return Err(AuthConfigError::Keys { path: path.clone(), source: crate::KeyError::NoUsableKey });
            }
            Ok(JwksSource::File(jwks))
        }
        _ => Err(AuthConfigError::Jwt {
            field: "jwks_url",
            problem: "must be set, or jwks_file in its place, and not both",
        }),
    }
}

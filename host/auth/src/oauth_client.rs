//! This server as a client of an authorization server: its secret, its authentication (RFC 6749, section 2.3) and the address
//! of an endpoint.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use annex_egress::{AllowedDestination, InvalidDestination, Screen, ScreenConfig};
use annex_files::Purpose;
use annex_protocol::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use reqwest::Url;

use crate::AuthConfigError;
use crate::error::VariableError;
use crate::url::{UNSAFE, is_on_this_machine, is_safe};

/// The media type of a form.
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";
/// The maximum length of the secret of an OAuth client, in bytes.
const MAX_SECRET_BYTES: usize = 1024;
/// The maximum size of a file with a secret, in bytes.
const MAX_FILE_BYTES: usize = 64 << 10;

/// The reason why the settings of an OAuth client cannot work.
pub(crate) enum ClientFault {
    /// A key has a value that cannot work. The problem contains no secret.
    Setting { field: &'static str, problem: String },
    /// The file with the secret cannot be read.
    File { path: PathBuf, source: io::Error },
}

impl From<ClientFault> for AuthConfigError {
    fn from(fault: ClientFault) -> Self {
        match fault {
            ClientFault::Setting { field, problem } => Self::Introspection { field, problem },
            ClientFault::File { path, source } => Self::File { path, source },
        }
    }
}

/// Reads the secret of this server from an environment variable or a file. Exactly one of the two is set.
pub(crate) fn secret(env: Option<&str>, file: Option<&Path>) -> Result<Secret, ClientFault> {
    let refuse = |field, problem: String| ClientFault::Setting { field, problem };
    let (field, secret) = match (env, file) {
        (Some(variable), None) => {
            let field = "client_secret_env";
            let wrong = |reason: VariableError| refuse(field, format!("the environment variable {variable} {reason}"));
            (field, std::env::var(variable).map_err(|error| wrong(error.into()))?)
        }
        (None, Some(path)) => {
            let text = annex_files::read_text(path, Purpose::Secret, MAX_FILE_BYTES);
            let text = text.map_err(|source| ClientFault::File { path: path.to_owned(), source })?;
            // Editors end a file with a line break that is no part of the secret.
            ("client_secret_file", text.trim_end_matches(['\r', '\n']).to_owned())
        }
        _ => return Err(refuse("client_secret_env", "or client_secret_file is required, and not both".to_owned())),
    };
    if secret.is_empty() || secret.len() > MAX_SECRET_BYTES {
        return Err(refuse(field, format!("must name a secret of 1 to {MAX_SECRET_BYTES} bytes")));
    }
    Ok(Secret::new(secret))
}

/// The URL of an endpoint of the authorization server, and the screen that its address must pass. `field` is the key of
/// `url`.
pub(crate) fn screened(field: &'static str, url: &str, allow_private: &[String]) -> Result<(Url, Screen), ClientFault> {
    let parsed = safe(field, url)?;
    let local = is_on_this_machine(&parsed);
    let own = parsed.host_str().filter(|_| local).map(|host| host.trim_start_matches('[').trim_end_matches(']'));
    let allowed = allow_private.iter().map(String::as_str).chain(own).map(AllowedDestination::from_str);
    let allow = allowed
        .collect::<Result<Vec<_>, InvalidDestination>>()
        .map_err(|error| ClientFault::Setting { field: "allow_private", problem: error.to_string() })?;
    let screen = Screen::new(ScreenConfig { allow, https_only: !local });
    let url = screen.parse(url).map_err(|refusal| ClientFault::Setting {
        field,
        problem: format!("cannot be called: {refusal}; a private address must stand in allow_private"),
    })?;
    Ok((url, screen))
}

/// Parses the URL of an endpoint, which is https, or http on this machine.
pub(crate) fn safe(field: &'static str, url: &str) -> Result<Url, ClientFault> {
    let refuse = |problem: &str| ClientFault::Setting { field, problem: problem.to_owned() };
    let url = Url::parse(url).map_err(|_| refuse("is not a URL"))?;
    if is_safe(&url) { Ok(url) } else { Err(refuse(UNSAFE)) }
}

/// The header `Authorization` for a client with a secret (RFC 6749, section 2.3.1).
pub(crate) fn basic(client: &str, secret: &Secret) -> Result<HeaderValue, ClientFault> {
    let pair = format!("{}:{}", encoded(client), encoded(secret.expose()));
    let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)));
    let mut value = value.map_err(|_| ClientFault::Setting {
        field: "client_id",
        problem: "and the secret cannot be sent in a header field".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Encodes a text as in a form.
pub(crate) fn encoded(text: &str) -> String {
    form(&[("", text)]).trim_start_matches('=').to_owned()
}

/// Encodes pairs as a form.
pub(crate) fn form(pairs: &[(&str, &str)]) -> String {
    // The query of a URL has the encoding of a form. The host stands for nothing.
    let Ok(mut url) = Url::parse("http://form.invalid/") else { return String::new() };
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

/// True if a text of at most `limit` bytes has the form of a bearer token (RFC 6750, section 2.1).
pub(crate) fn is_bearer_token(text: &str, limit: usize) -> bool {
    let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    !text.is_empty() && text.len() <= limit && text.bytes().all(is_token_byte)
}

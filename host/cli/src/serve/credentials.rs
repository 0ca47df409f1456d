//! The credentials in the command that `annex serve` suggests, if the config has `[auth]`.

use std::path::Path;

use annex_auth::{ApiKeyConfig, AuthConfig};

use crate::shell;

/// The `annex send` option that passes the first API key of the config. The API key is never printed: the shell reads
/// it from its file or environment variable. If the shell cannot read it, or the config has no API key, a placeholder
/// in capitals stands for the credentials.
pub(super) fn option(auth: &AuthConfig, folder: &Path) -> String {
    if auth.api_key.is_empty() && !auth.accepts_tokens() && auth.client_certificate.is_some() {
        return "--client-cert CERTIFICATE --client-key KEY".to_owned();
    }
    let name = &auth.api_key_header.name;
    let header = match auth.api_key.first() {
        Some(ApiKeyConfig { key_env: Some(variable), .. }) if is_variable(variable) => format!("{name}: ${variable}"),
        Some(ApiKeyConfig { key_file: Some(file), .. }) => {
            format!("{name}: $(cat {})", shell::word(&folder.join(file).to_string_lossy()))
        }
        Some(_) => format!("{name}: KEY"),
        None => "authorization: Bearer TOKEN".to_owned(),
    };
    format!("--header \"{header}\"")
}

/// True for a name that can be an environment variable in a shell.
fn is_variable(name: &str) -> bool {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_plain && !name.starts_with(|first: char| first.is_ascii_digit()) && !name.is_empty()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use annex_auth::{ApiKeyConfig, AuthConfig};

    use super::option;

    fn check(key: Option<ApiKeyConfig>, expected: &str) {
        let auth = AuthConfig { api_key: key.into_iter().collect(), ..AuthConfig::default() };
        assert_eq!(option(&auth, Path::new("/etc/annex")), expected);
    }

    #[test]
    fn a_key_is_taken_from_where_the_config_says_that_it_is() {
        let key = ApiKeyConfig { principal: "ada".to_owned(), key_env: None, key_file: None, key_sha256: None };
        let in_variable = |name: &str| Some(ApiKeyConfig { key_env: Some(name.to_owned()), ..key.clone() });
        check(in_variable("ADAS_KEY"), "--header \"x-api-key: $ADAS_KEY\"");
        check(in_variable("A;reboot"), "--header \"x-api-key: KEY\"");
        let in_file = ApiKeyConfig { key_file: Some("a key".into()), ..key.clone() };
        check(Some(in_file), "--header \"x-api-key: $(cat '/etc/annex/a key')\"");
        check(Some(key), "--header \"x-api-key: KEY\"");
        check(None, "--header \"authorization: Bearer TOKEN\"");
    }
}

//! The security schemes of a card, which say how a client authenticates.

use std::fmt::{self, Write};

use annex_protocol::{AgentCard, OAuthFlows, SecurityRequirement, SecurityScheme};
use annex_text::line;

use crate::turn;

/// Writes a scheme, and the option of `annex send` that sends its credentials.
pub(super) fn describe(name: &str, scheme: &SecurityScheme, text: &mut String) -> fmt::Result {
    let (kind, description) = kind(scheme);
    writeln!(text, "  {}: {}", line(name), line(&kind))?;
    if let Some(description) = description.as_deref().filter(|description| !description.is_empty()) {
        writeln!(text, "    {}", line(description))?;
    }
    match turn::credential(scheme) {
        Some(option) => writeln!(text, "    annex send takes it as {}", line(&option)),
        None => writeln!(text, "    annex send cannot send it"),
    }
}

/// Writes the schemes that a call must satisfy.
pub(super) fn describe_requirements(card: &AgentCard, text: &mut String) -> fmt::Result {
    let requirements = &card.security_requirements;
    match requirements.as_slice() {
        [] if card.security_schemes.is_empty() => Ok(()),
        [] => writeln!(text, "  A call may do without; the card requires no scheme."),
        [only] if card.security_schemes.len() == 1 && only.schemes.values().all(|scopes| scopes.list.is_empty()) => {
            Ok(())
        }
        several => {
            let ways: Vec<String> = several.iter().map(together).collect();
            writeln!(text, "  A call needs {}.", ways.join(", or "))
        }
    }
}

/// Joins the schemes that a client must satisfy together for one requirement, as in `key and token (read, write)`.
fn together(requirement: &SecurityRequirement) -> String {
    let schemes: Vec<String> = requirement
        .schemes
        .iter()
        .map(|(name, scopes)| match scopes.list.as_slice() {
            [] => line(name).into_owned(),
            scopes => format!("{} ({})", line(name), line(&scopes.join(", "))),
        })
        .collect();
    if schemes.is_empty() { "nothing".to_owned() } else { schemes.join(" and ") }
}

/// Returns a text about the credentials that a scheme requires, and the description of the scheme on the card.
fn kind(scheme: &SecurityScheme) -> (String, &Option<String>) {
    match scheme {
        SecurityScheme::ApiKey(key) => {
            let place = match key.location.as_str() {
                "header" => "header field",
                "query" => "query parameter",
                place => place,
            };
            (format!("an API key in the {place} {}", key.name), &key.description)
        }
        SecurityScheme::HttpAuth(http) => {
            let format = http.bearer_format.as_ref().map(|format| format!(" ({format})")).unwrap_or_default();
            (format!("HTTP authentication {}{format}", http.scheme), &http.description)
        }
        SecurityScheme::OAuth2(oauth) => {
            let from = oauth.flows.as_ref().map(flow).or_else(|| oauth.oauth2_metadata_url.clone());
            let from = from.map(|from| format!(", {from}")).unwrap_or_default();
            (format!("a token of OAuth 2.0{from}"), &oauth.description)
        }
        SecurityScheme::OpenIdConnect(connect) => {
            (format!("a token of OpenID Connect, {}", connect.open_id_connect_url), &connect.description)
        }
        SecurityScheme::MutualTls(certificate) => {
            ("a client certificate (mutual TLS)".to_owned(), &certificate.description)
        }
    }
}

/// Describes an OAuth flow by its name and the URL at which it begins.
fn flow(flow: &OAuthFlows) -> String {
    match flow {
        OAuthFlows::AuthorizationCode(flow) => format!("authorization code from {}", flow.authorization_url),
        OAuthFlows::ClientCredentials(flow) => format!("client credentials at {}", flow.token_url),
        OAuthFlows::DeviceCode(flow) => format!("device code from {}", flow.device_authorization_url),
        OAuthFlows::Implicit(flow) => {
            format!("implicit flow from {}", flow.authorization_url.as_deref().unwrap_or("an unnamed URL"))
        }
        OAuthFlows::Password(flow) => {
            format!("password flow at {}", flow.token_url.as_deref().unwrap_or("an unnamed URL"))
        }
    }
}

#[cfg(test)]
mod tests {
    use annex_protocol::{AgentCard, SecurityScheme};

    use super::{describe, describe_requirements};

    fn shown(scheme: &str) -> String {
        let scheme: SecurityScheme = serde_json::from_str(scheme).expect("a scheme");
        let mut text = String::new();
        describe("s", &scheme, &mut text).expect("a text");
        text
    }

    #[test]
    fn each_kind_of_scheme_says_what_to_send() {
        let cases = [
            (
                r#"{"apiKeySecurityScheme": {"location": "header", "name": "x-key", "description": "ask Ada"}}"#,
                "  s: an API key in the header field x-key\n    ask Ada\n    annex send takes it as --header 'x-key: KEY'\n",
            ),
            (
                r#"{"apiKeySecurityScheme": {"location": "query", "name": "k"}}"#,
                "  s: an API key in the query parameter k\n    annex send cannot send it\n",
            ),
            (
                r#"{"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}}"#,
                "  s: HTTP authentication Bearer (JWT)\n    annex send takes it as --header 'authorization: Bearer CREDENTIALS'\n",
            ),
            (
                r#"{"oauth2SecurityScheme": {"flows": {"clientCredentials": {"tokenUrl": "https://a/t", "scopes": {}}}}}"#,
                "  s: a token of OAuth 2.0, client credentials at https://a/t\n    annex send takes it as --header \
                 'authorization: Bearer TOKEN'\n",
            ),
            (
                r#"{"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://a"}}"#,
                "  s: a token of OpenID Connect, https://a\n    annex send takes it as --header 'authorization: Bearer TOKEN'\n",
            ),
            (
                r#"{"mtlsSecurityScheme": {}}"#,
                "  s: a client certificate (mutual TLS)\n    annex send takes it as --client-cert CERTIFICATE --client-key KEY\n",
            ),
        ];
        for (scheme, expected) in cases {
            assert_eq!(shown(scheme), expected, "{scheme}");
        }
    }

    #[test]
    fn schemes_that_a_call_needs_together_are_told_from_those_of_which_one_is_enough() {
        let key = r#"{"apiKeySecurityScheme": {"location": "header", "name": "x-key"}}"#;
        let needs = |requirements: &str, others: &str| {
            let card = format!(r#""securitySchemes": {{"a": {key}{others}}}, "securityRequirements": {requirements}"#);
            let card = format!(
                r#"{{"name": "n", "description": "d", "version": "1", "supportedInterfaces": [], "capabilities": {{}},
                   "defaultInputModes": [], "defaultOutputModes": [], "skills": [], {card}}}"#
            );
            let card: AgentCard = serde_json::from_str(&card).expect("a card");
            let mut text = String::new();
            describe_requirements(&card, &mut text).expect("a text");
            text
        };
        let other = format!(r#", "b": {key}"#);
        assert_eq!(needs(r#"[{"schemes": {"a": {"list": []}}}]"#, ""), "");
        let both = r#"[{"schemes": {"a": {"list": []}, "b": {"list": ["x", "y"]}}}, {"schemes": {"a": {"list": []}}}]"#;
        assert_eq!(needs(both, &other), "  A call needs a and b (x, y), or a.\n");
        assert_eq!(needs("[]", &other), "  A call may do without; the card requires no scheme.\n");
    }
}

//! The ways to get a token, which the card declares.

use annex_auth::{AuthConfigError, Authenticator, DeclareConfig};
use annex_protocol::AgentCard;
use serde_json::{Value, json};

use crate::support::{authenticator, config, jwt_config};

const ALL: &str = "
[declare]
openid_connect_url = 'https://issuer.example/.well-known/openid-configuration'
oauth2_metadata_url = 'https://issuer.example/.well-known/oauth-authorization-server'
[declare.authorization_code]
authorization_url = 'https://issuer.example/authorize'
token_url = 'https://issuer.example/token'
refresh_url = 'https://issuer.example/refresh'
scopes = { 'agent:ask' = 'Ask the agent', 'agent:read' = '' }
pkce_required = true
[declare.client_credentials]
token_url = 'https://issuer.example/token'
[declare.device_code]
device_authorization_url = 'https://issuer.example/device'
token_url = 'http://[::1]:8080/token?realm=a'
";

/// The mistakes in the table with this text.
fn mistakes(declare: &str) -> Vec<(String, &'static str)> {
    config(declare).declare.as_ref().map(DeclareConfig::mistakes).unwrap_or_default()
}

#[test]
fn the_card_declares_each_way_to_a_token_as_an_alternative() {
    let declaration = authenticator(&format!("{}{ALL}", jwt_config(""))).security_schemes();
    let card = AgentCard {
        security_schemes: declaration.schemes,
        security_requirements: declaration.requirements,
        ..AgentCard::default()
    };
    let card: Value = serde_json::to_value(&card).unwrap();
    let metadata = "https://issuer.example/.well-known/oauth-authorization-server";
    let oauth2 = |flow: Value| json!({"oauth2SecurityScheme": {"flows": flow, "oauth2MetadataUrl": metadata}});
    let code = json!({"authorizationCode": {
        "authorizationUrl": "https://issuer.example/authorize", "tokenUrl": "https://issuer.example/token",
        "refreshUrl": "https://issuer.example/refresh", "pkceRequired": true,
        "scopes": {"agent:ask": "Ask the agent", "agent:read": ""}}});
    let schemes = &card["securitySchemes"];
    assert_eq!(schemes["jwt"], json!({"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}}));
    let discovery = "https://issuer.example/.well-known/openid-configuration";
    assert_eq!(schemes["openIdConnect"], json!({"openIdConnectSecurityScheme": {"openIdConnectUrl": discovery}}));
    assert_eq!(schemes["oauth2AuthorizationCode"], oauth2(code));
    let client = &schemes["oauth2ClientCredentials"]["oauth2SecurityScheme"]["flows"]["clientCredentials"];
    assert_eq!(client["tokenUrl"], "https://issuer.example/token");
    let device = &schemes["oauth2DeviceCode"]["oauth2SecurityScheme"]["flows"]["deviceCode"];
    assert_eq!(device["deviceAuthorizationUrl"], "https://issuer.example/device");
    let names: Vec<&String> = schemes.as_object().unwrap().keys().collect();
    let requirements = card["securityRequirements"].as_array().unwrap();
    assert_eq!((names.len(), requirements.len()), (5, 5));
    for name in names {
        assert!(requirements.contains(&json!({"schemes": {name: {}}})), "{name}");
    }
}

#[test]
fn what_no_client_could_use_is_refused_by_its_key() {
    assert!(mistakes(ALL).is_empty());
    let long = format!("https://issuer.example/{}", "x".repeat(2048));
    for url in [
        "",
        "issuer.example/token",
        "http://issuer.example/token",
        "http://localhost.example/token",
        "http://127.0.0.1@issuer.example/token",
        "https://user:secret@issuer.example/token",
        "https://issuer.example/token#part",
        "javascript:alert(1)",
        "file:///etc/passwd",
        &long,
    ] {
        let text =
            format!("[declare]\nopenid_connect_url = '{url}'\n[declare.client_credentials]\ntoken_url = '{url}'\n");
        let keys: Vec<String> = mistakes(&text).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["openid_connect_url", "client_credentials.token_url"], "{url}");
        let error = Authenticator::new(&config(&format!("{}\n{text}", jwt_config("")))).unwrap_err();
        assert!(matches!(&error, AuthConfigError::Declare { key, .. } if key == "openid_connect_url"), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let many = (0..101).map(|number| format!("s{number} = ''")).collect::<Vec<_>>().join(", ");
    for scopes in ["'' = 'm'", "'two words' = 'm'", "'\"' = 'm'", "'ä' = 'm'", "a = \"line\\nline\"", &many] {
        let urls = "device_authorization_url = 'https://i/d'\ntoken_url = 'https://i/t'";
        let text = format!("[declare.device_code]\n{urls}\nscopes = {{ {scopes} }}\n");
        let keys: Vec<String> = mistakes(&text).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["device_code.scopes"], "{scopes}");
    }
    let alone = mistakes("[declare]\noauth2_metadata_url = 'https://issuer.example/m'\n");
    assert!(matches!(alone.as_slice(), [(key, _)] if key == "oauth2_metadata_url"), "{alone:?}");
}

#[test]
fn nothing_is_declared_about_tokens_that_nobody_accepts() {
    let key = format!("[[api_key]]\nprincipal = 'ci'\nkey_sha256 = '{}'\n", "0".repeat(64));
    let refused = Authenticator::new(&config(&format!("{key}{ALL}"))).unwrap_err();
    assert!(matches!(refused, AuthConfigError::DeclareWithoutTokens), "{refused}");
}

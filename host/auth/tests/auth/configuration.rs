use annex_auth::{AuthConfig, AuthConfigError, Authenticator};
use annex_protocol::AgentCard;
use serde_json::json;

use crate::support::{authenticator, config, fixture_path, jwt_config};

const KEY: &str = "[[api_key]]\nprincipal = 'ci'\nkey_env = 'CARGO_MANIFEST_DIR'\n";

fn refusal(toml: &str) -> AuthConfigError {
    Authenticator::new(&config(toml)).unwrap_err()
}

#[test]
fn a_misspelt_field_is_an_error_that_names_it() {
    for toml in [
        "[[api_keys]]\nprincipal = 'ci'\n",
        "[[api_key]]\nprincipal = 'ci'\nkey = 'in-the-configuration'\n",
        "[api_key_header]\nnam = 'x'\n",
        "[jwt]\nissuer = 'i'\naudience = ['a']\njwks = 'x'\n",
    ] {
        let error = toml::from_str::<AuthConfig>(toml).unwrap_err().to_string();
        assert!(error.contains("unknown field"), "{error}");
    }
}

#[test]
fn symmetric_algorithms_and_none_cannot_be_configured() {
    for algorithm in ["HS256", "none", "RS1", "es256"] {
        let text = jwt_config(&format!("algorithms = ['{algorithm}']"));
        assert!(toml::from_str::<AuthConfig>(&text).unwrap_err().to_string().contains("unknown variant"));
    }
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let jwt = config(&jwt_config("")).jwt.unwrap();
    assert_eq!((jwt.principal_claim.as_str(), jwt.leeway_seconds), ("sub", 30));
    assert_eq!(json!(jwt.algorithms), json!(["RS256", "ES256", "EdDSA"]));
    assert_eq!(config("").api_key_header.name, "x-api-key");
}

#[test]
fn a_server_without_any_scheme_is_refused() {
    assert!(matches!(refusal(""), AuthConfigError::NoScheme));
}

#[test]
fn a_key_has_exactly_one_source() {
    assert!(matches!(refusal("[[api_key]]\nprincipal = 'ci'\n"), AuthConfigError::KeySource { .. }));
    assert!(matches!(refusal(&format!("{KEY}key_file = 'x'\n")), AuthConfigError::KeySource { .. }));
}

#[test]
fn keys_that_cannot_work_are_refused_without_being_shown() {
    let with = |source: &str| refusal(&format!("[[api_key]]\nprincipal = 'ci'\n{source}\n"));
    assert!(matches!(with("key_env = 'ANNEX_NO_SUCH_VARIABLE'"), AuthConfigError::KeyVariable { .. }));
    assert!(matches!(with("key_file = '/no/such/file'"), AuthConfigError::File { .. }));
    for digest in ["", "00", &"g".repeat(64), &"0".repeat(65), &"é".repeat(32)] {
        assert!(matches!(with(&format!("key_sha256 = '{digest}'")), AuthConfigError::KeyDigest { .. }), "{digest}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    for key in ["", "short", "fifteen bytes..\n\n", &"k".repeat(1025)] {
        std::fs::write(file.path(), key).unwrap();
        let error = with(&format!("key_file = '{}'", file.path().display()));
        assert!(matches!(error, AuthConfigError::KeyLength { .. }), "{error}");
        assert!(key.is_empty() || !format!("{error:?}").contains(key));
    }
}

#[test]
fn one_key_cannot_be_two_principals() {
    let twice = format!("{KEY}{}", KEY.replace("'ci'", "'ops'"));
    assert!(matches!(refusal(&twice), AuthConfigError::DuplicateKey { principal } if principal == "ops"));
}

#[test]
fn a_principal_cannot_look_like_one_of_a_token() {
    for principal in ["", "https://issuer.example#ada", "two\\nlines", &"p".repeat(256)] {
        let toml = KEY.replace("'ci'", &format!("\"{principal}\""));
        assert!(matches!(refusal(&toml), AuthConfigError::Principal { .. }), "{principal}");
    }
}

#[test]
fn the_header_of_keys_is_a_header_and_not_that_of_tokens() {
    for name in ["Authorization", "", "two words"] {
        let toml = format!("{KEY}[api_key_header]\nname = '{name}'\n");
        assert!(matches!(refusal(&toml), AuthConfigError::HeaderName { .. }), "{name}");
    }
}

#[test]
fn token_settings_that_cannot_work_are_refused_by_name() {
    let file = format!("jwks_file = '{}'", fixture_path("jwks.json"));
    let changed = |from: &str, to: &str| jwt_config("").replace(from, to);
    for (field, toml) in [
        ("issuer", changed("'https://issuer.example'", "''")),
        ("issuer", changed("issuer.example", "issuer.example#a")),
        ("audience", changed("['annex', 'other']", "[]")),
        ("audience", changed("'annex'", "''")),
        ("algorithms", jwt_config("algorithms = []")),
        ("principal_claim", jwt_config("principal_claim = ''")),
        ("leeway_seconds", jwt_config("leeway_seconds = 301")),
        ("jwks_url", jwt_config("jwks_url = 'https://issuer.example/jwks.json'")),
        ("jwks_url", changed(&file, "")),
        ("jwks_url", changed(&file, "jwks_url = 'jwks.json'")),
        ("jwks_url", changed(&file, "jwks_url = 'http://issuer.example/jwks.json'")),
        ("jwks_url", changed(&file, "jwks_url = 'http://localhost.example/jwks.json'")),
        ("jwks_url", changed(&file, "jwks_url = 'http://127.0.0.1@issuer.example/jwks.json'")),
        ("jwks_url", changed(&file, "jwks_url = 'file:///etc/passwd'")),
    ] {
        let error = refusal(&toml);
        assert!(matches!(error, AuthConfigError::Jwt { field: actual, .. } if actual == field), "{toml}: {error}");
    }
    for url in ["https://issuer.example/k", "http://localhost:1/k", "http://127.0.0.1:1/k", "http://[::1]:1/k"] {
        assert!(Authenticator::new(&config(&changed(&file, &format!("jwks_url = '{url}'")))).is_ok(), "{url}");
    }
}

#[test]
fn a_key_file_needs_a_usable_key() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let toml = jwt_config("").replace(&fixture_path("jwks.json"), file.path().to_str().unwrap());
    for text in ["", "[]", r#"{"keys":{}}"#, r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#] {
        std::fs::write(file.path(), text).unwrap();
        assert!(matches!(refusal(&toml), AuthConfigError::Keys { .. }), "{text}");
    }
}

#[test]
fn the_card_offers_each_scheme_as_an_alternative() {
    let declaration = authenticator(&format!("{KEY}{}", jwt_config(""))).security_schemes();
    let card = AgentCard {
        security_schemes: declaration.schemes,
        security_requirements: declaration.requirements,
        ..AgentCard::default()
    };
    let card: serde_json::Value = serde_json::to_value(&card).unwrap();
    assert_eq!(
        card["securitySchemes"],
        json!({
            "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}},
            "jwt": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
        })
    );
    assert_eq!(card["securityRequirements"], json!([{"schemes": {"apiKey": {}}}, {"schemes": {"jwt": {}}}]));
    let keys_only = authenticator(KEY).security_schemes();
    assert_eq!((keys_only.schemes.len(), keys_only.requirements.len()), (1, 1));
}

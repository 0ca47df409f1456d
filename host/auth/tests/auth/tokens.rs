use annex_auth::{AuthError, JWT_SCHEME};
use serde_json::json;

use crate::support::token::{claims, signed, time, token};
use crate::support::{HERE, authenticate_token, authenticator, headers, is_invalid, jwt_config};

#[tokio::test]
async fn a_token_names_its_principal_by_issuer_and_subject() {
    let authenticator = authenticator(&jwt_config(""));
    for (key, algorithm) in [("rsa", "RS256"), ("p256", "ES256"), ("ed25519", "EdDSA")] {
        let token = signed(key, &json!({"alg": algorithm, "kid": key}), &claims(&json!({"scope": "read  write"})));
        let caller = authenticate_token(&authenticator, &token).await.unwrap();
        assert_eq!(caller.id, "https://issuer.example#ada", "{algorithm}");
        assert_eq!(caller.scheme, JWT_SCHEME);
        assert_eq!(caller.scopes, ["read", "write"]);
        assert_eq!(caller.claims.get("scope").map(|scope| scope.get()), Some(r#""read  write""#));
    }
}

#[tokio::test]
async fn another_claim_can_name_the_principal() {
    let authenticator = authenticator(&jwt_config("principal_claim = 'client_id'"));
    let caller = authenticate_token(&authenticator, &token(&json!({"client_id": "batch"}))).await.unwrap();
    assert_eq!(caller.id, "https://issuer.example#batch");
    assert!(is_invalid(&authenticate_token(&authenticator, &token(&json!({}))).await));
}

#[tokio::test]
async fn claims_within_their_bounds_are_accepted() {
    let authenticator = authenticator(&jwt_config(""));
    for changes in [
        json!({"aud": ["someone", "other"]}),
        json!({"exp": time(-10)}),
        json!({"nbf": time(10)}),
        json!({"exp": 99_999_999_999_u64, "nbf": 0}),
        json!({"scope": ""}),
    ] {
        assert!(authenticate_token(&authenticator, &token(&changes)).await.is_ok(), "{changes}");
    }
}

#[tokio::test]
async fn the_scheme_is_named_in_any_case() {
    let authenticator = authenticator(&jwt_config(""));
    for scheme in ["Bearer", "bearer", "BEARER "] {
        let value = format!("{scheme} {}", token(&json!({})));
        assert!(authenticator.authenticate(&headers(&[("authorization", &value)]), HERE, None).await.is_ok());
    }
}

#[tokio::test]
async fn a_request_without_a_token_is_told_what_to_send() {
    let authenticator = authenticator(&jwt_config(""));
    for request in [headers(&[]), headers(&[("authorization", "Basic YTpi")]), headers(&[("authorization", "Bearerx")])]
    {
        let missing = authenticator.authenticate(&request, HERE, None).await.unwrap_err();
        assert!(matches!(missing, AuthError::Missing { .. }));
        assert_eq!(missing.www_authenticate().unwrap(), r#"Bearer realm="annex""#);
    }
}

#[tokio::test]
async fn a_refusal_says_invalid_token_and_no_more() {
    let authenticator = authenticator(&jwt_config(""));
    let mut answers = Vec::new();
    for token in [token(&json!({"exp": 1})), token(&json!({"iss": "x"})), "not.a.token".to_owned(), String::new()] {
        let refused = authenticate_token(&authenticator, &token).await.unwrap_err();
        assert_eq!(refused.www_authenticate().unwrap(), r#"Bearer realm="annex", error="invalid_token""#);
        answers.push(refused);
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn a_token_without_key_id_needs_a_set_of_one_key() {
    let token = claims(&json!({}));
    let header = json!({"alg": "EdDSA"});
    let token = signed("ed25519", &header, &token);
    assert!(is_invalid(&authenticate_token(&authenticator(&jwt_config("")), &token).await));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    let all: serde_json::Value = serde_json::from_str(&crate::support::fixture("jwks.json")).unwrap();
    std::fs::write(&path, json!({"keys": [all["keys"][0]]}).to_string()).unwrap();
    let config = jwt_config("").replace(&crate::support::fixture_path("jwks.json"), path.to_str().unwrap());
    assert!(authenticate_token(&authenticator(&config), &token).await.is_ok());
}

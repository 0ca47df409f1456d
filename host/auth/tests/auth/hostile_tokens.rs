//! Tokens that each have one fault and must be refused.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::support::token::{claims, signed, signed_symmetrically, signed_text, time, token, unsigned};
use crate::support::{authenticate_token, authenticator, fixture, is_invalid, jwt_config};

async fn check_refused(name: &str, token: &str) {
    let result = authenticate_token(&authenticator(&jwt_config("")), token).await;
    assert!(is_invalid(&result), "{name}: {result:?}");
}

#[tokio::test]
async fn without_a_signature() {
    let good = claims(&json!({})).to_string();
    for algorithm in ["none", "None", "NONE", "", "ES256"] {
        let header = json!({"alg": algorithm, "kid": "p256"}).to_string();
        check_refused(algorithm, &format!("{}.", unsigned(&header, &good))).await;
        check_refused(algorithm, &unsigned(&header, &good)).await;
        let signed = signed_text("p256", &json!({"alg": "none", "kid": "p256"}).to_string(), &good);
        check_refused(algorithm, &signed).await;
    }
    check_refused("no algorithm", &signed_text("p256", r#"{"kid":"p256"}"#, &good)).await;
}

#[tokio::test]
async fn signed_with_the_public_key_as_secret() {
    let jwks: Value = serde_json::from_str(&fixture("jwks.json")).unwrap();
    let modulus = URL_SAFE_NO_PAD.decode(jwks["keys"][3]["n"].as_str().unwrap()).unwrap();
    let secrets =
        [fixture("rsa.pub.pem").into_bytes(), fixture("rsa.pub.pem").trim().as_bytes().to_vec(), modulus, Vec::new()];
    for secret in secrets {
        for algorithm in ["HS256", "RS256"] {
            let header = json!({"alg": algorithm, "kid": "rsa"});
            check_refused(algorithm, &signed_symmetrically(&secret, &header, &claims(&json!({})))).await;
        }
    }
}

#[tokio::test]
async fn signed_by_another_key_or_for_another_algorithm() {
    let good = claims(&json!({}));
    check_refused("other key", &signed("other-p256", &json!({"alg": "ES256", "kid": "p256"}), &good)).await;
    check_refused("key of another type", &signed("p256", &json!({"alg": "ES256", "kid": "rsa"}), &good)).await;
    check_refused("other algorithm", &signed("rsa", &json!({"alg": "RS512", "kid": "rsa"}), &good)).await;
    check_refused("own key in the header", &{
        let jwks: Value = serde_json::from_str(&fixture("jwks.json")).unwrap();
        signed("other-p256", &json!({"alg": "ES256", "kid": "p256", "jwk": jwks["keys"][2]}), &good)
    })
    .await;
    let narrow = authenticator(&jwt_config("algorithms = ['EdDSA']"));
    assert!(is_invalid(&authenticate_token(&narrow, &token(&json!({}))).await));
}

#[tokio::test]
async fn key_ids_that_are_paths_queries_or_absent() {
    for kid in ["", "../../../../dev/null", "/etc/passwd", "p256'--", "p256\u{0}", "P256", "https://evil.example/jwks"]
    {
        check_refused(kid, &signed("p256", &json!({"alg": "ES256", "kid": kid}), &claims(&json!({})))).await;
        check_refused(kid, &signed_symmetrically(b"", &json!({"alg": "HS256", "kid": kid}), &claims(&json!({})))).await;
    }
    for header in [json!({"alg": "ES256"}), json!({"alg": "ES256", "kid": 1}), json!({"alg": "ES256", "kid": ["p256"]})]
    {
        check_refused("kid", &signed("p256", &header, &claims(&json!({})))).await;
    }
}

#[tokio::test]
async fn claims_that_are_wrong_or_missing() {
    for changes in [
        json!({"aud": "somebody-else"}),
        json!({"aud": []}),
        json!({"aud": ["a", "b"]}),
        json!({"aud": {"annex": true}}),
        json!({"aud": null}),
        json!({"iss": "https://issuer.example/"}),
        json!({"iss": "https://evil.example"}),
        json!({"iss": ["https://issuer.example", "https://evil.example"]}),
        json!({"iss": null}),
        json!({"exp": time(-60)}),
        json!({"exp": -1}),
        json!({"exp": "9999999999"}),
        json!({"exp": null}),
        json!({"nbf": time(60)}),
        json!({"nbf": "0"}),
        json!({"sub": null}),
        json!({"sub": ""}),
        json!({"sub": 7}),
        json!({"sub": ["ada"]}),
        json!({"sub": "ada\nroot"}),
        json!({"sub": "a".repeat(300)}),
        json!({"scope": ["admin"]}),
    ] {
        check_refused(&changes.to_string(), &token(&changes)).await;
    }
}

#[tokio::test]
async fn claims_that_come_twice() {
    let header = json!({"alg": "ES256", "kid": "p256"}).to_string();
    let good = claims(&json!({})).to_string();
    check_refused("sub twice", &signed_text("p256", &header, &good.replacen('{', r#"{"sub":"root","#, 1))).await;
    check_refused("exp twice", &signed_text("p256", &header, &good.replacen('{', r#"{"exp":9999999999,"#, 1))).await;
    let twice = header.replacen('{', r#"{"alg":"none","#, 1);
    check_refused("alg twice", &signed_text("p256", &twice, &good)).await;
}

#[tokio::test]
async fn critical_headers_that_nobody_here_understands() {
    let header = json!({"alg": "ES256", "kid": "p256", "crit": ["b64"], "b64": false});
    check_refused("crit", &signed("p256", &header, &claims(&json!({})))).await;
    check_refused("crit", &signed("p256", &json!({"alg": "ES256", "kid": "p256", "crit": []}), &claims(&json!({}))))
        .await;
}

#[tokio::test]
async fn changed_after_they_were_signed() {
    let token = token(&json!({}));
    for index in 0..token.len() {
        let mut bytes = token.clone().into_bytes();
        bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
        check_refused(&format!("byte {index}"), &String::from_utf8(bytes).unwrap()).await;
    }
    for changed in [format!("{token}="), format!("{token}."), format!(".{token}"), token.replacen('.', "..", 1)] {
        check_refused(&changed, &changed).await;
    }
    let [header, _, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    let payload = URL_SAFE_NO_PAD.encode(claims(&json!({"sub": "root"})).to_string());
    check_refused("other claims", &format!("{header}.{payload}.{signature}")).await;
}

#[tokio::test]
async fn longer_than_any_token() {
    check_refused("padded", &token(&json!({"padding": "a".repeat(9000)}))).await;
    check_refused("dots", &".".repeat(1_000_000)).await;
    let fits = authenticate_token(&authenticator(&jwt_config("")), &token(&json!({"padding": "a".repeat(5000)}))).await;
    assert!(fits.is_ok());
}

#[tokio::test]
async fn nested_as_deeply_as_they_can_be() {
    let header = json!({"alg": "ES256", "kid": "p256"}).to_string();
    let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(2900), "]".repeat(2900));
    check_refused("claims", &signed_text("p256", &header, &deep)).await;
    let deep = format!(r#"{{"alg":"ES256","kid":"p256","x":{}{}}}"#, "[".repeat(2500), "]".repeat(2500));
    check_refused("header", &signed_text("p256", &deep, &claims(&json!({})).to_string())).await;
}

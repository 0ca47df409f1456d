//! Mandates that no honest wallet signs, and mandates that were changed after their signature.

use p256::ecdsa::{Signature, SigningKey};
use serde_json::{Value, json};

use super::{CHECKOUT, checkout_jwt, claims_of, closed, disclosure, host, refused_checkout, signed, vector};
use crate::jws;
use crate::tests::samples::{NOW_SECONDS, issuer, jwk, key, send, token, user, with};

#[test]
fn a_forged_signature_or_another_algorithm_is_refused() {
    let whole = vector("direct", "checkout");
    let (jwt, rest) = whole.split_once('~').unwrap();
    let claims = jwt.split('.').nth(1).unwrap();
    let by = |key: &SigningKey, header: Value| {
        let claims: Value = jws::decoded(claims).unwrap();
        format!("{}~{rest}", token(key, &header, &claims))
    };
    let unsigned = jws::encode(json!({"alg": "none", "kid": "w-1"}).to_string().as_bytes());
    let cases = [
        (by(&user(), json!({"alg": "ES256", "kid": "w-1"})), "has a signature that does not verify"),
        (by(&issuer(), json!({"alg": "HS256", "kid": "w-1"})), "has another algorithm than ES256"),
        (format!("{unsigned}.{claims}.~{rest}"), "has another algorithm than ES256"),
        (by(&issuer(), json!({"alg": "ES256"})), "cannot be verified: no key of its issuer is known here"),
        (
            by(&issuer(), json!({"alg": "ES256", "kid": "w-1", "typ": "kb+sd-jwt"})),
            "begins with a token that delegates another one",
        ),
        (jwt.to_owned(), "lacks the `~` behind its last disclosure"),
    ];
    for (mandate, reason) in cases {
        assert_eq!(refused_checkout(&host(), &mandate), format!("invalid_credential: {reason}"));
    }
}

#[test]
fn the_second_signature_of_a_token_is_no_second_use() {
    let host = host();
    let whole = vector("direct", "checkout");
    assert_eq!(send(&host, &json!({CHECKOUT: whole})), Ok(()));
    let (jwt, rest) = whole.split_once('~').unwrap();
    let (signed, _) = jwt.rsplit_once('.').unwrap();
    let claims: Value = jws::decoded(jwt.split('.').nth(1).unwrap()).unwrap();
    assert_eq!(claims["_sd_alg"], "sha-256");
    // ECDSA: if (r, s) is a signature, (r, -s) is one, too.
    let signature = p256::ecdsa::signature::Signer::<Signature>::sign(&issuer(), signed.as_bytes());
    let other = Signature::from_scalars(signature.r(), -signature.s()).unwrap();
    for signature in [signature, other] {
        let again = format!("{signed}.{}~{rest}", jws::encode(&signature.to_bytes()));
        assert_eq!(refused_checkout(&host, &again), "was used before");
    }
}

#[test]
fn what_the_issuer_did_not_sign_is_not_disclosed() {
    let whole = vector("direct", "checkout");
    let jwt = checkout_jwt();
    let hidden = disclosure(&json!(["salt", "checkout_jwt", jwt]));
    let name = jws::hash(&hidden);
    let mandate =
        json!({"vct": "mandate.checkout.1", "checkout_hash": jws::hash(&jwt), "exp": NOW_SECONDS + 60, "_sd": [name]});
    assert_eq!(send(&host(), &json!({CHECKOUT: signed(&claims_of(&mandate), &[&hidden])})), Ok(()));
    let element = disclosure(&json!(["salt", closed(&jwt)]));
    let bare = json!({"delegate_payload": [jws::hash(&element)]});
    assert_eq!(send(&host(), &json!({CHECKOUT: signed(&bare, &[&element])})), Ok(()));

    let exp = disclosure(&json!(["salt", "exp", NOW_SECONDS + 9_999]));
    let twice = with(mandate.clone(), "/_sd", json!([name, name]));
    let double = with(mandate.clone(), "/checkout_jwt", json!(jwt));
    let reserved = disclosure(&json!(["salt", "_sd", ["x"]]));
    let other_hash = with(claims_of(&mandate), "/_sd_alg", json!("sha-512"));
    let no_list = with(mandate.clone(), "/_sd", json!("x"));
    let repeated = jws::encode(br#"["salt", "checkout_jwt", {"a": 1, "a": 2}]"#);
    let of_repeated = with(mandate.clone(), "/_sd", json!([jws::hash(&repeated)]));
    let of_reserved = with(mandate.clone(), "/_sd", json!([jws::hash(&reserved)]));
    let of_element = with(mandate.clone(), "/_sd", json!([jws::hash(&element)]));
    let cases = [
        (format!("{whole}{exp}~"), "has a disclosure without a signed digest"),
        (signed(&claims_of(&mandate), &[&hidden, &hidden]), "has a disclosure twice"),
        (signed(&claims_of(&twice), &[&hidden]), "has a digest twice"),
        (signed(&claims_of(&double), &[&hidden]), "has a claim twice"),
        (signed(&claims_of(&of_reserved), &[&reserved]), "has a disclosure whose name does not fit its digest"),
        (signed(&claims_of(&of_element), &[&element]), "has a disclosure whose name does not fit its digest"),
        (signed(&other_hash, &[&hidden]), "has digests of another algorithm than sha-256"),
        (signed(&claims_of(&no_list), &[]), "has an `_sd` that is no list of digests"),
        (signed(&claims_of(&of_repeated), &[&repeated]), "has a disclosure that cannot be read"),
        (signed(&claims_of(&mandate), &["A"]), "has a disclosure that cannot be read"),
        (signed(&claims_of(&json!({"...": "x"})), &[]), "must disclose exactly one mandate"),
        (signed(&json!({"delegate_payload": [mandate, mandate]}), &[&hidden]), "has a digest twice"),
        (signed(&claims_of(&json!({"a": {"...": "x"}})), &[]), "has the digest of an element outside of an array"),
    ];
    for (mandate, reason) in cases {
        assert_eq!(refused_checkout(&host(), &mandate), format!("invalid_credential: {reason}"));
    }
    let withheld = refused_checkout(&host(), &signed(&claims_of(&mandate), &[]));
    assert!(withheld.starts_with("invalid_mandate: cannot be read"), "{withheld}");
}

#[test]
fn what_the_user_demands_in_an_open_mandate_is_not_withheld() {
    let (jwt, agent) = (checkout_jwt(), key(9));
    let chain = |more: &Value, shown: &[&str]| {
        let mut open =
            json!({"vct": "mandate.checkout.open.1", "cnf": {"jwk": jwk(&agent, "a")}, "exp": NOW_SECONDS + 60});
        open.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let open = signed(&claims_of(&open), shown);
        let claims = json!({
            "delegate_payload": [closed(&jwt)], "iat": NOW_SECONDS, "nonce": jws::hash(&jwt),
            "aud": "https://processor.example", "sd_hash": jws::hash(&open),
        });
        format!("{open}~{}~", token(&agent, &json!({"alg": "ES256", "typ": "kb+sd-jwt"}), &claims))
    };
    let other = json!({"type": "checkout.allowed_merchants", "allowed": [{"id": "https://other.example"}]});
    let hidden = disclosure(&json!(["salt", other]));
    let element = json!({"constraints": [{"...": jws::hash(&hidden)}]});
    let reason =
        "unresolved_constraint: does not meet the constraint `checkout.allowed_merchants`: the merchant is not allowed";
    assert_eq!(refused_checkout(&host(), &chain(&element, &[&hidden])), reason);
    let withheld = [
        element,
        json!({"constraints": [], "_sd": [jws::hash(&hidden)]}),
        json!({"constraints": [{"type": "checkout.line_items", "items": [], "_sd": [jws::hash(&hidden)]}]}),
    ];
    for more in withheld {
        let reason = "withholds more of an open mandate than elements of `allowed` and `acceptable_items`";
        let found = refused_checkout(&host(), &chain(&more, &[]));
        assert_eq!(found, format!("invalid_credential: {reason}"), "{more}");
    }
    let allowed = json!([{"...": jws::hash(&hidden)}, {"id": "https://shop.example"}]);
    let choice = json!({"constraints": [{"type": "checkout.allowed_merchants", "allowed": allowed}]});
    assert_eq!(send(&host(), &json!({CHECKOUT: chain(&choice, &[])})), Ok(()));
}

#[test]
fn a_date_is_never_disclosed_selectively() {
    let jwt = checkout_jwt();
    let end = disclosure(&json!(["salt", "exp", NOW_SECONDS + 60]));
    let mut mandate = with(closed(&jwt), "/iat", json!(NOW_SECONDS));
    mandate.as_object_mut().unwrap().remove("exp");
    let mandate = with(mandate, "/_sd", json!([jws::hash(&end)]));
    let found = refused_checkout(&host(), &signed(&claims_of(&mandate), &[&end]));
    assert_eq!(found, "invalid_credential: has a date that could be withheld: `exp`");
}

#[test]
fn the_size_of_a_mandate_is_bounded() {
    let claims = claims_of(&closed(&checkout_jwt()));
    let many: Vec<String> = (0..65).map(|number| disclosure(&json!(["salt", format!("name-{number}"), 1]))).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    // Each disclosure refers to the one before it.
    let mut chain = vec![disclosure(&json!(["salt", "end", 1]))];
    for _ in 0..40 {
        let digest = jws::hash(chain.last().unwrap());
        chain.push(disclosure(&json!(["salt", "next", {"_sd": [digest]}])));
    }
    let deep = claims_of(&json!({"_sd": [jws::hash(chain.last().unwrap())]}));
    let chain: Vec<&str> = chain.iter().map(String::as_str).collect();
    let one = signed(&claims, &[]);
    let cases = [
        ("A".repeat(65_537), "is longer than 65536 bytes"),
        (signed(&claims, &many), "has more than 64 disclosures"),
        (signed(&deep, &chain), "is too deep with its disclosures"),
        (format!("{}{one}", one.repeat(4).replace('~', "~~")), "has more than 4 tokens"),
        (format!("{}~", "~~".repeat(30_000)), "has more than 4 tokens"),
    ];
    for (mandate, reason) in cases {
        assert_eq!(refused_checkout(&host(), &mandate), format!("invalid_credential: {reason}"));
    }
    let nested = format!(r#"{{"delegate_payload":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let header = jws::encode(br#"{"alg":"ES256","kid":"w-1"}"#);
    let found = refused_checkout(&host(), &format!("{header}.{}.AAAA~", jws::encode(nested.as_bytes())));
    assert_eq!(found, "invalid_credential: lacks claims, or has some of the wrong type");
}

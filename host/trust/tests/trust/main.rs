//! Policies, signatures and deny lists.
#![cfg(test)]

use std::collections::HashMap;
use std::io;

use annex_trust::{
    DenyList, DenyListError, KeyError, MAX_BUNDLE_BYTES, MAX_BUNDLES, Policy, PrivateKey, PublicKey, TrustConfig, sign,
    verify_file,
};
use serde_json::{Value, json};

mod keyless;
mod sigstore;

const PLACE: &str = "registry.example/acme/redact";

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

/// Keys by the names of their files.
struct Keys(HashMap<&'static str, PrivateKey>);

impl Keys {
    fn new() -> Self {
        let make = |name| (name, PrivateKey::generate().expect("a key").0);
        Self(["a.pub", "b.pub", "c.pub"].into_iter().map(make).collect())
    }

    fn policy(&self, text: &str) -> Policy {
        self.try_policy(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn try_policy(&self, text: &str) -> Result<Policy, String> {
        let config: TrustConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        let read = |file: &str| match file {
            "empty.pub" => Ok(Vec::new()),
            "rsa.pub" => Ok(include_bytes!("../data/rsa.pub").to_vec()),
            "p256.pub" => Ok(include_bytes!("../data/p256.pub").to_vec()),
            "ed25519.pub" => Ok(include_bytes!("../data/ed25519.pub").to_vec()),
            _ => {
                let key = self.0.get(file).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                Ok(key.public().to_pem().into_bytes())
            }
        };
        config.policy(read).map_err(|error| error.to_string())
    }

    fn bundle(&self, name: &str) -> Vec<u8> {
        sign(&self.0[name], &digest('1'), PLACE).expect("a bundle")
    }

    /// A bundle of `a.pub` that is changed before it is read.
    fn changed(&self, change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut bundle = serde_json::from_slice(&self.bundle("a.pub")).expect("JSON");
        change(&mut bundle);
        bundle.to_string().into_bytes()
    }
}

const ALL: &str = "all_of = [{ key = 'a.pub' }, { key = 'b.pub' }]";
const ANY: &str = "any_of = { minimum = 2, signers = [{ key = 'a.pub' }, { key = 'b.pub' }, { key = 'c.pub' }] }";

#[test]
fn a_policy_is_satisfied_by_the_signers_that_it_names() {
    let keys = Keys::new();
    for (policy, signed_by, expected) in [
        (ALL, &["a.pub", "b.pub"][..], Ok(&["a.pub", "b.pub"][..])),
        (ALL, &["a.pub", "c.pub"], Err("trust.all_of[1], b.pub, has not signed it; signature 2 does not count")),
        (ALL, &[], Err("trust.all_of[0], a.pub, has not signed it; it has no signature")),
        (ANY, &["c.pub", "a.pub"], Ok(&["a.pub", "c.pub"])),
        // Two signatures by one key are those of one signer.
        (ANY, &["a.pub", "a.pub"], Err("trust.any_of needs 2 of 3 signers, and 1 have signed it")),
        ("", &["a.pub"], Err("trust requires signatures and names no signer")),
        ("default = 'allow'", &[], Ok(&[])),
        // Named signers are needed whatever the default is.
        ("default = 'allow'\nall_of = [{ key = 'a.pub' }]", &[], Err("a.pub, has not signed it")),
    ] {
        let bundles: Vec<_> = signed_by.iter().map(|name| keys.bundle(name)).collect();
        let verified = keys.policy(policy).verify(PLACE, &digest('1'), &bundles);
        match (verified, expected) {
            (Ok(verified), Ok(signers)) => assert_eq!(verified.signers, signers, "{policy} {signed_by:?}"),
            (Err(refusal), Err(reason)) => {
                assert!(refusal.to_string().contains(reason), "{policy} {signed_by:?}: {refusal}");
                assert!(refusal.to_string().starts_with(PLACE), "{refusal}");
            }
            (verified, _) => panic!("{policy} {signed_by:?}: {verified:?}"),
        }
    }
}

#[test]
fn what_openssl_has_signed_counts() {
    let keys = Keys::new();
    for (name, bundle) in [
        ("p256.pub", include_bytes!("../data/p256.bundle.json").to_vec()),
        ("ed25519.pub", include_bytes!("../data/ed25519.bundle.json").to_vec()),
    ] {
        let policy = keys.policy(&format!("all_of = [{{ key = '{name}' }}]"));
        let verified = policy.verify(PLACE, &digest('1'), &[bundle]).expect(name);
        assert_eq!(verified.signers, [name]);
    }
}

#[test]
fn the_rule_with_the_longest_prefix_applies() {
    let keys = Keys::new();
    let policy = keys.policy(
        "default = 'allow'
         [[rule]]
         prefix = 'registry.example'
         [[rule]]
         prefix = 'registry.example/acme'
         all_of = [{ key = 'a.pub' }]
         [[rule]]
         prefix = 'registry.example/acme/tests'
         default = 'allow'",
    );
    for (place, expected) in [
        ("other.example/acme/redact", None),
        ("registry.example.evil.example/x", None),
        ("registry.example/other", Some("trust.rule[0] requires signatures and names no signer")),
        ("registry.example/acmes/redact", Some("trust.rule[0] requires signatures")),
        ("registry.example/acme", Some("trust.rule[1].all_of[0], a.pub, has not signed it")),
        ("registry.example/acme/redact", Some("trust.rule[1].all_of[0]")),
        ("registry.example/acme/tests/x", None),
    ] {
        let refusal = policy.verify(place, &digest('1'), &[]).err().map(|refusal| refusal.to_string());
        match expected {
            None => assert_eq!(refusal, None, "{place}"),
            Some(text) => assert!(refusal.as_ref().is_some_and(|refusal| refusal.contains(text)), "{refusal:?}"),
        }
    }
}

#[test]
fn a_rule_for_docker_hub_is_for_each_of_its_names() {
    let keys = Keys::new();
    let names = ["docker.io", "index.docker.io", "registry-1.docker.io"];
    for rule in names {
        let text = format!("default = 'allow'\n[[rule]]\nprefix = '{rule}/acme'\nall_of = [{{ key = 'a.pub' }}]");
        let policy = keys.policy(&text);
        for name in names {
            let refused = policy.verify(&format!("{name}/acme/redact"), &digest('1'), &[]);
            assert!(refused.is_err(), "{name} escapes the rule for {rule}");
            policy.verify(&format!("{name}/other"), &digest('1'), &[]).expect("the rule is for acme alone");
        }
        policy.verify("x.docker.io/acme/redact", &digest('1'), &[]).expect("another registry");
    }
    let twice = "[[rule]]\nprefix = 'docker.io'\n[[rule]]\nprefix = 'registry-1.docker.io'";
    let error = keys.try_policy(twice).expect_err("one rule for each registry").to_string();
    assert!(error.contains("\"registry-1.docker.io\" has a rule already"), "{error}");
}

#[test]
fn another_spelling_of_a_registry_does_not_escape_its_rule() {
    let keys = Keys::new();
    let policy = keys.policy(
        "default = 'allow'
         [[rule]]
         prefix = 'registry.example/acme'
         all_of = [{ key = 'a.pub' }]",
    );
    for place in [
        "registry.example/acme/redact",
        "Registry.Example/acme/redact",
        "registry.example./acme/redact",
        "registry.example:443/acme/redact",
        "registry.example:80/acme/redact",
        "registry.example:0443/acme/redact",
        "registry.example:/acme/redact",
        "registry.example//acme/redact",
        "registry.example/./acme/redact",
        "registry.example/x/../acme/redact",
        "registry.example/%61cme/redact",
        "registry.example/acme:1.2",
        "oci://registry.example/acme/redact",
        "user@registry.example/acme/redact",
        "/acme/redact",
        "",
    ] {
        assert!(policy.verify(place, &digest('1'), &[]).is_err(), "{place}");
    }
    for other in ["other.example/acme/redact", "registry.example:5000/acme/redact", "[::1]:5000/acme", "[::443]/acme"] {
        policy.verify(other, &digest('1'), &[]).expect(other);
    }
}

#[test]
fn a_tenant_makes_the_policy_of_the_process_stricter_and_never_weaker() {
    let keys = Keys::new();
    let only_a = "all_of = [{ key = 'a.pub' }]";
    let only_b = "all_of = [{ key = 'b.pub' }]";
    let allowed_below = "[[rule]]\nprefix = 'registry.example/acme'\ndefault = 'allow'";
    for (process, tenant, signed_by, expected) in [
        (only_a, "default = 'allow'", &["a.pub"][..], Ok(&["a.pub"][..])),
        (only_a, "default = 'allow'", &["b.pub"], Err("trust.all_of[0], a.pub, has not signed it")),
        (only_a, allowed_below, &[], Err("trust.all_of[0], a.pub, has not signed it")),
        (only_a, only_b, &["a.pub", "b.pub"], Ok(&["a.pub", "b.pub"])),
        (only_a, only_b, &["b.pub"], Err(": trust.all_of[0], a.pub, has not signed it")),
        (only_a, only_b, &["a.pub"], Err("the tenant's trust.all_of[0], b.pub, has not signed it")),
        ("default = 'allow'", only_b, &[], Err("the tenant's trust.all_of[0]")),
        ("default = 'allow'", "", &["a.pub"], Err("the tenant's trust requires signatures and names no signer")),
        ("", "default = 'allow'", &["a.pub"], Err(": trust requires signatures and names no signer")),
        ("default = 'allow'", "default = 'allow'", &[], Ok(&[])),
    ] {
        let bundles: Vec<_> = signed_by.iter().map(|name| keys.bundle(name)).collect();
        let policy = keys.policy(process).strengthened(&keys.policy(tenant));
        match (policy.verify(PLACE, &digest('1'), &bundles), expected) {
            (Ok(verified), Ok(signers)) => assert_eq!(verified.signers, signers, "{process} {tenant}"),
            (Err(refusal), Err(reason)) => assert!(refusal.to_string().contains(reason), "{refusal}"),
            (verified, _) => panic!("{process} {tenant} {signed_by:?}: {verified:?}"),
        }
    }
}

#[test]
fn no_byte_of_a_bundle_can_be_changed() {
    let keys = Keys::new();
    for (name, bundle) in [
        ("p256.pub", include_str!("../data/p256.bundle.json")),
        ("ed25519.pub", include_str!("../data/ed25519.bundle.json")),
    ] {
        let policy = keys.policy(&format!("all_of = [{{ key = '{name}' }}]"));
        // The material is a hint about the key, which is not read.
        let hint =
            bundle.find("verificationMaterial").expect("a hint")..bundle.find("dsseEnvelope").expect("an envelope");
        for position in (0..bundle.trim_end().len()).filter(|position| !hint.contains(position)) {
            for bit in 0..7 {
                let mut changed = bundle.as_bytes().to_vec();
                changed[position] ^= 1 << bit;
                assert!(policy.verify(PLACE, &digest('1'), &[changed]).is_err(), "{name}, byte {position}, bit {bit}");
            }
        }
    }
}

#[test]
fn a_bundle_with_any_change_does_not_count() {
    let keys = Keys::new();
    let policy = keys.policy("all_of = [{ key = 'a.pub' }]");
    let verify = |bundle: Vec<u8>| policy.verify(PLACE, &digest('1'), &[bundle]);
    assert!(verify(keys.changed(|_| ())).is_ok());
    // Only a hint.
    assert!(verify(keys.changed(|bundle| bundle["verificationMaterial"]["publicKey"]["hint"] = json!("x"))).is_ok());
    let other = keys.bundle("b.pub");
    let other: Value = serde_json::from_slice(&other).expect("JSON");
    let large = vec![b' '; MAX_BUNDLE_BYTES + 1];
    for (bundle, reason) in [
        (keys.changed(|bundle| bundle["mediaType"] = json!("application/json")), "its media type is"),
        (keys.changed(|bundle| bundle["dsseEnvelope"]["payloadType"] = json!("text")), "its payload type is"),
        (keys.changed(|bundle| bundle["dsseEnvelope"]["payload"] = json!("!")), "its payload is not base64"),
        (keys.changed(|bundle| bundle["dsseEnvelope"]["signatures"] = json!([])), "has 0 signatures"),
        (keys.changed(|bundle| bundle["dsseEnvelope"]["signatures"] = json!([{"sig": ""}, {"sig": ""}])), "has 2"),
        (keys.changed(|bundle| bundle["dsseEnvelope"]["signatures"][0]["sig"] = json!("?")), "its signature is not"),
        (
            keys.changed(|bundle| bundle["dsseEnvelope"]["payload"] = other["dsseEnvelope"]["payload"].clone()),
            // The same statement: the payloads are equal, and the signature is that of the right key.
            "",
        ),
        (
            keys.changed(|bundle| bundle["dsseEnvelope"]["signatures"] = other["dsseEnvelope"]["signatures"].clone()),
            "no key of the policy has signed it",
        ),
        (keys.changed(|bundle| bundle["dsseEnvelope"] = Value::Null), "not a bundle with a DSSE envelope"),
        (b"{}".to_vec(), "not a bundle"),
        (Vec::new(), "not a bundle"),
        (large, "at most 65536 are read"),
    ] {
        match (verify(bundle), reason) {
            (Ok(_), "") => {}
            (verified, _) => {
                let refusal = verified.expect_err(reason).to_string();
                assert!(refusal.contains(reason), "{reason}: {refusal}");
            }
        }
    }
}

#[test]
fn a_signature_of_another_manifest_or_of_another_statement_does_not_count() {
    let keys = Keys::new();
    let policy = keys.policy("all_of = [{ key = 'a.pub' }]");
    let refusal = policy.verify(PLACE, &digest('2'), &[keys.bundle("a.pub")]).expect_err("another digest");
    assert!(refusal.to_string().contains("signature 1 does not count: it signs another manifest"), "{refusal}");
    for digest in ["sha256:1", "sha512:1", "", &digest('G'), &digest('1').to_uppercase()] {
        assert!(sign(&keys.0["a.pub"], digest, PLACE).is_err(), "{digest}");
        assert!(policy.verify(PLACE, digest, &[keys.bundle("a.pub")]).is_err(), "{digest}");
    }
}

#[test]
fn a_file_is_verified_by_its_digest_and_one_key() {
    let keys = Keys::new();
    let (signer, other) = (keys.0["a.pub"].public(), keys.0["b.pub"].public());
    let bundle = keys.bundle("a.pub");
    verify_file("SHA256SUMS", &digest('1'), &bundle, &signer).expect("the key has signed the file");
    let changed = |pointer: &str, value: Value| {
        keys.changed(|bundle| *bundle.pointer_mut(pointer).expect("a member of the bundle") = value)
    };
    let not_signed = format!("the key {} has not signed it", other.id());
    for (digest, bundle, key, reason) in [
        (digest('1'), bundle.clone(), &other, not_signed.as_str()),
        (digest('2'), bundle.clone(), &signer, "it was changed after it was signed"),
        ("sha256:1".to_owned(), bundle.clone(), &signer, "it was changed after it was signed"),
        (digest('1'), changed("/dsseEnvelope/signatures", json!([])), &signer, "has 0 signatures"),
        (digest('1'), changed("/mediaType", json!("text\n")), &signer, "its media type is"),
        (digest('1'), changed("/dsseEnvelope/payload", json!("")), &signer, "has not signed it"),
        (digest('1'), Vec::new(), &signer, "does not count: it is not a bundle"),
    ] {
        let refusal = verify_file("SHA256SUMS", &digest, &bundle, key).expect_err(reason).to_string();
        assert!(refusal.starts_with("SHA256SUMS is not trusted: ") && refusal.contains(reason), "{reason}: {refusal}");
    }
}

#[test]
fn what_a_stranger_wrote_is_one_short_line_of_the_refusal() {
    let keys = Keys::new();
    let policy = keys.policy("all_of = [{ key = 'a.pub' }]");
    let hostile = keys.changed(|bundle| bundle["mediaType"] = json!(format!("\n\u{1b}[31m{}", "x".repeat(5_000))));
    let refusal = policy.verify(PLACE, &digest('1'), &[hostile.clone(), hostile]).expect_err("refused").to_string();
    assert!(refusal.len() <= 2_000 && !refusal.contains(['\n', '\u{1b}']), "{refusal}");
    // One signature cannot hide the reasons of the next ones.
    assert!(refusal.contains("signature 1 does not count") && refusal.contains("signature 2 does not"), "{refusal}");
    let stranger = vec![keys.bundle("b.pub"); MAX_BUNDLES];
    let refusal = policy.verify(PLACE, &digest('1'), &stranger).expect_err("refused").to_string();
    assert!(refusal.len() <= 2_000 && refusal.ends_with("; 92 more do not count"), "{refusal}");
    let many = vec![keys.bundle("a.pub"); MAX_BUNDLES + 1];
    let refusal = policy.verify(PLACE, &digest('1'), &many).expect_err("refused").to_string();
    assert!(refusal.contains("has 101 signatures; at most 100 are read"), "{refusal}");
}

#[test]
fn a_policy_that_cannot_work_is_refused_with_its_key() {
    let keys = Keys::new();
    for (text, expected) in [
        ("default = 'maybe'", "unknown variant"),
        ("all_off = []", "unknown field"),
        // A list that names nobody would be satisfied by nobody's signature.
        ("default = 'allow'\nall_of = []", "the list of signers is empty"),
        ("[[rule]]\nprefix = 'x'\ndefault = 'allow'\nall_of = []", "the list of signers is empty"),
        ("all_of = [{ key = 'a.pub', keys = [] }]", "unknown field"),
        ("any_of = { minimum = 1, signers = [{ key = 'a.pub' }], most = 2 }", "unknown field"),
        ("[[rule]]\nprefx = 'x'", "unknown field"),
        ("any_of = { signers = [{ key = 'a.pub' }] }", "missing field `minimum`"),
        ("all_of = [{}]", "trust.all_of[0] needs a key"),
        ("all_of = [{ key = 'none.pub' }]", "trust.all_of[0].key \"none.pub\" cannot be read"),
        ("all_of = [{ key = 'empty.pub' }]", "\"empty.pub\" has no key in PEM"),
        ("all_of = [{ key = 'rsa.pub' }]", "\"rsa.pub\" has a key of a kind that is not supported"),
        ("all_of = [{ key = 'a.pub' }, { key = 'a.pub' }]", "trust.all_of[1].key is the key of \"a.pub\" again"),
        (
            "all_of = [{ issuer = 'https://a.example', subject = 'x' }]",
            "trust.root_file is missing, and trust.all_of[0]",
        ),
        ("any_of = { minimum = 0, signers = [{ key = 'a.pub' }] }", "trust.any_of.minimum must be from 1 to"),
        ("any_of = { minimum = 2, signers = [{ key = 'a.pub' }] }", "trust.any_of.minimum must be from 1 to"),
        ("any_of = { minimum = 1, signers = [] }", "trust.any_of.minimum must be from 1 to"),
        ("[[rule]]\nprefix = 'oci://registry.example'", "trust.rule[0].prefix"),
        ("[[rule]]\nprefix = 'registry.example/'", "trust.rule[0].prefix"),
        ("[[rule]]\nprefix = ''", "trust.rule[0].prefix \"\" cannot be used"),
        ("[[rule]]\nprefix = 'registry.example/redact:1.2'", "a tag; write it like registry.example/acme"),
        ("[[rule]]\nprefix = 'x'\n[[rule]]\nprefix = 'x'", "trust.rule[1].prefix \"x\" has a rule already"),
    ] {
        let error = keys.try_policy(text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn keys_survive_pem() {
    let (key, pem) = PrivateKey::generate().expect("a key");
    let again = PrivateKey::from_pem(pem.as_bytes()).expect("a key");
    assert_eq!(again.public(), key.public());
    assert_eq!(PublicKey::from_pem(key.public().to_pem().as_bytes()).expect("a key"), key.public());
    assert!(!format!("{key:?}").contains(pem.lines().nth(1).expect("a line")));
    let read_as_public = PublicKey::from_pem(pem.as_bytes());
    assert!(matches!(read_as_public, Err(KeyError::NotPem { label: "PUBLIC KEY", .. })));
}

#[test]
fn a_file_with_any_other_number_of_keys_is_refused_without_its_text() {
    let public = |_| PrivateKey::generate().expect("a key").0.public().to_pem();
    let both: String = (0..2).map(public).collect();
    let error = PublicKey::from_pem(both.as_bytes()).expect_err("two keys").to_string();
    assert!(error.contains("it has more than one block") && error.contains("BEGIN PUBLIC KEY"), "{error}");
    let (_, pem) = PrivateKey::generate().expect("a key");
    let secret = pem.lines().nth(1).expect("a line").to_owned();
    for (text, expected) in [
        (format!("{pem}{pem}"), "more than one block"),
        (pem.replace("-----END", "----END"), "a BEGIN line has no END line"),
        (pem.replace("KEY-----\n", "KEY----\n"), "a BEGIN line does not end with five hyphens"),
        (pem.replace(&secret, &format!("{secret}!")), "is not Base64"),
        (pem.replace("PRIVATE KEY", "EC PRIVATE KEY"), "it has no such block"),
        (pem.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"), "`openssl pkcs8 -topk8 -nodes` writes it"),
        (String::new(), "it has no such block"),
    ] {
        let error = PrivateKey::from_pem(text.as_bytes()).expect_err(expected);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert!(!format!("{error} {error:?}").contains(&secret), "{error:?}");
    }
}

#[test]
fn a_deny_list_has_a_digest_on_each_line() {
    let text = format!("# revoked\n\n{} # by mail\n  {}\r\n", digest('1'), digest('2'));
    let list = DenyList::parse(&text).expect("a list");
    assert!(list.contains(&digest('1')) && list.contains(&digest('2')) && !list.contains(&digest('3')));
    assert_eq!(DenyList::parse(&format!("{}\nsha256:12", digest('1'))), Err(DenyListError::Line(2)));
    assert!(!DenyList::parse("").expect("a list").contains(&digest('1')));
    let mut merged = DenyList::parse(&digest('4')).expect("a list");
    merged.merge(list);
    assert!(merged.contains(&digest('1')) && merged.contains(&digest('4')));
}

//! Keyless identities in policies.

use annex_trust::{MAX_BUNDLE_BYTES, Policy, PrivateKey, TrustConfig, TrustError, sign};
use serde_json::{Value, json};

use crate::sigstore::{SIGNED_AT, Signing, Sigstore};
use crate::{PLACE, digest};

/// A day in seconds.
const DAY: i64 = 86_400;
const GITHUB: &str = "https://token.actions.githubusercontent.com";
const ACCOUNTS: &str = "https://accounts.example";
const WORKFLOW: &str = "https://github.com/acme/redact/.github/workflows/release.yml@refs/heads/main";

const ADA: &str = "all_of = [{ issuer = 'https://accounts.example', subject = 'ada@example.com' }]";
const REPOSITORY: &str =
    "all_of = [{ issuer = 'https://token.actions.githubusercontent.com', repository = 'acme/redact' }]";

fn statement(digit: char) -> Value {
    let hex = digit.to_string().repeat(64);
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{ "digest": { "sha256": hex } }],
        "predicateType": "https://sigstore.dev/cosign/sign/v1",
        "predicate": {},
    })
}

fn ada() -> Signing {
    Signing {
        issuer: ACCOUNTS,
        subject: "ada@example.com",
        repository: None,
        time: SIGNED_AT,
        statement: statement('1'),
    }
}

fn workflow() -> Signing {
    Signing { issuer: GITHUB, subject: WORKFLOW, repository: Some("https://github.com/acme/redact"), ..ada() }
}

fn mistakes(text: &str, root: &Value) -> Vec<TrustError> {
    let config: TrustConfig = toml::from_str(text).expect(text);
    config.mistakes(|file| read(file, root))
}

fn read(file: &str, root: &Value) -> std::io::Result<Vec<u8>> {
    match file {
        "root.json" => Ok(root.to_string().into_bytes()),
        "p256.pub" => Ok(include_bytes!("../data/p256.pub").to_vec()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    }
}

fn policy(text: &str, root: &Value) -> Policy {
    let config: TrustConfig = toml::from_str(&format!("root_file = 'root.json'\n{text}")).expect(text);
    config.policy(|file| read(file, root)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn verify(policy: &Policy, bundles: &[&Value]) -> Result<Vec<String>, String> {
    let bundles: Vec<_> = bundles.iter().map(|bundle| bundle.to_string().into_bytes()).collect();
    let verified = policy.verify(PLACE, &digest('1'), &bundles);
    verified.map(|verified| verified.signers).map_err(|refusal| refusal.to_string())
}

/// Checks that the policy for `ada@example.com` refuses the only signature, names its rule, and gives this reason.
fn refused(root: &Value, bundle: &Value, reason: &str) {
    let refusal = verify(&policy(ADA, root), &[bundle]).expect_err(reason);
    let rule = format!("{PLACE} is not trusted: trust.all_of[0], ada@example.com ({ACCOUNTS}), has not signed it; ");
    let whole = format!("{rule}signature 1 does not count: {reason}");
    assert!(refusal.starts_with(&whole), "expected {whole:?}, got {refusal:?}");
}

#[test]
fn a_certified_signer_satisfies_the_rule_that_names_the_identity() {
    let sigstore = Sigstore::new();
    let root = sigstore.root();
    let by_key: Value = serde_json::from_slice(include_bytes!("../data/p256.bundle.json")).expect("JSON");
    let (ada, workflow) = (sigstore.sign(&ada()), sigstore.sign(&workflow()));
    let by_ada = format!("ada@example.com ({ACCOUNTS})");
    let by_repository = format!("https://github.com/acme/redact ({GITHUB})");
    let by_workflow = format!("{WORKFLOW} ({GITHUB})");
    let url = REPOSITORY.replace("'acme/redact'", "'https://github.com/acme/redact'");
    let subject = format!("all_of = [{{ issuer = '{GITHUB}', subject = '{WORKFLOW}' }}]");
    let both = format!("{ADA}\n[any_of]\nminimum = 2\nsigners = [{{ key = 'p256.pub' }}, {}", &REPOSITORY[10..]);
    for (text, bundles, signers) in [
        (ADA, &[&ada][..], &[by_ada.as_str()][..]),
        (ADA, &[&workflow, &by_key, &ada], &[&by_ada]),
        (REPOSITORY, &[&workflow], &[&by_repository]),
        (&url, &[&workflow], &[&by_repository]),
        (&subject, &[&workflow], &[&by_workflow]),
        (&both, &[&workflow, &by_key, &ada], &[&by_ada, &by_repository, "p256.pub"]),
        // A rule without an identity, beside one with an identity.
        (&format!("{ADA}\n[[rule]]\nprefix = 'registry.example'\ndefault = 'allow'"), &[], &[]),
    ] {
        assert_eq!(
            verify(&policy(text, &root), bundles).as_deref(),
            Ok(&signers.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
            "{text}"
        );
    }
}

#[test]
fn an_identity_of_another_issuer_subject_or_repository_is_refused_with_the_rule() {
    let sigstore = Sigstore::new();
    let root = sigstore.root();
    let other = Signing { issuer: "https://other.example", ..ada() };
    refused(&root, &sigstore.sign(&other), "the policy does not name ada@example.com (https://other.example)");
    let other = Signing { subject: "eve@example.com", ..ada() };
    refused(&root, &sigstore.sign(&other), &format!("the policy does not name eve@example.com ({ACCOUNTS})"));
    let policy = policy(REPOSITORY, &root);
    for repository in [
        Some("https://github.com/acme/redact2"),
        Some("https://github.com/eve/redact"),
        Some("https://gitlab.com/acme/redact"),
        // The URI of a workflow of the repository shows who owns the workflow, not who has run it.
        None,
    ] {
        let refusal = verify(&policy, &[&sigstore.sign(&Signing { repository, ..workflow() })]).expect_err("another");
        let rule = format!("trust.all_of[0], https://github.com/acme/redact ({GITHUB}), has not signed it; ");
        assert!(
            refusal.contains(&(rule + "signature 1 does not count: the policy does not name https://github.com/acme")),
            "{refusal}"
        );
    }
    let elsewhere = Signing { issuer: ACCOUNTS, ..workflow() };
    assert!(
        verify(&policy, &[&sigstore.sign(&elsewhere)]).is_err(),
        "an issuer decides which repositories it confirms"
    );
}

#[test]
fn a_component_without_a_keyless_signature_is_refused_with_the_rule() {
    let sigstore = Sigstore::new();
    let root = sigstore.root();
    let refusal = verify(&policy(ADA, &root), &[]).expect_err("no signature");
    assert!(
        refusal.ends_with(
            "trust.all_of[0], ada@example.com (https://accounts.example), has not signed it; it has no signature"
        ),
        "{refusal}"
    );
    let (key, _) = PrivateKey::generate().expect("a key");
    let by_key = serde_json::from_slice(&sign(&key, &digest('1'), PLACE).expect("a bundle")).expect("JSON");
    refused(&root, &by_key, "no key of the policy has signed it");
    // Without an identity in the rule, certificates are not read.
    let refusal = verify(&policy("all_of = [{ key = 'p256.pub' }]", &root), &[&sigstore.sign(&ada())]);
    let refusal = refusal.expect_err("another signer");
    assert!(
        refusal.contains("trust.all_of[0], p256.pub, has not signed it; signature 1 does not count: no key of"),
        "{refusal}"
    );
}

#[test]
fn a_certificate_counts_only_at_a_proved_time_at_which_it_was_valid() {
    let sigstore = Sigstore::new();
    let root = sigstore.root();
    for time in [SIGNED_AT - DAY, SIGNED_AT + DAY] {
        let bundle = sigstore.sign(&Signing { time, ..ada() });
        refused(&root, &bundle, "it was not made while its certificate was valid");
    }
    let mut bundle = sigstore.sign(&ada());
    bundle["verificationMaterial"]["tlogEntries"][0]["integratedTime"] = json!((SIGNED_AT + 1).to_string());
    refused(&root, &bundle, "its log entry is not proved by a log of the trust root: invalid inclusion promise");
    let mut bundle = sigstore.sign(&ada());
    let entry = bundle["verificationMaterial"]["tlogEntries"][0].as_object_mut().expect("an entry");
    entry.remove("inclusionPromise");
    refused(&root, &bundle, "neither its log entry nor a timestamp proves when it was made");
}

#[test]
fn what_openssl_has_signed_without_a_key_counts_at_the_time_of_its_timestamp() {
    let root: Value = serde_json::from_slice(include_bytes!("../data/keyless.root.json")).expect("JSON");
    let bundle: Value = serde_json::from_slice(include_bytes!("../data/keyless.bundle.json")).expect("JSON");
    let by_repository = policy(REPOSITORY, &root);
    let signers = verify(&by_repository, &[&bundle]).expect("a signature");
    assert_eq!(signers, [format!("https://github.com/acme/redact ({GITHUB})")]);
    let refused = |root: &Value, bundle: &Value, reason: &str| {
        let refusal = verify(&policy(REPOSITORY, root), &[bundle]).expect_err(reason);
        assert!(
            refusal.contains(&format!("signature 1 does not count: {reason}")),
            "expected {reason:?}, got {refusal:?}"
        );
    };
    let timestamps = "/verificationMaterial/timestampVerificationData/rfc3161Timestamps";
    let mut without = bundle.clone();
    *without.pointer_mut(timestamps).expect("timestamps") = json!([]);
    refused(&root, &without, "neither its log entry nor a timestamp proves when it was made");
    let mut no_clock = root.clone();
    no_clock["timestampAuthorities"] = json!([]);
    refused(&no_clock, &bundle, "its timestamp is not of the trust root");
    let mut other_clock = root.clone();
    other_clock["timestampAuthorities"][0]["validFor"] =
        json!({ "start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z" });
    refused(&other_clock, &bundle, "its timestamp is not of the trust root: RFC 3161 timestamp");
    // The last bytes of a timestamp are its signature.
    let mut changed = bundle.clone();
    let timestamp = changed.pointer_mut(timestamps).expect("timestamps")[0]["signedTimestamp"].take();
    let timestamp = timestamp.as_str().expect("a text").trim_end_matches('=').to_owned();
    let (start, end) = timestamp.split_at(timestamp.len() - 8);
    let end: String = end.chars().map(|letter| if letter == 'A' { 'B' } else { 'A' }).collect();
    let padding = "=".repeat((4 - timestamp.len() % 4) % 4);
    changed.pointer_mut(timestamps).expect("timestamps")[0]["signedTimestamp"] =
        json!(format!("{start}{end}{padding}"));
    let refusal = verify(&by_repository, &[&changed]).expect_err("a changed timestamp");
    assert!(refusal.contains("signature 1 does not count: its "), "{refusal}");
    // The log has an entry of version 2 for this statement alone.
    let other: Value = serde_json::from_slice(include_bytes!("../data/p256.bundle.json")).expect("JSON");
    let mut moved = bundle.clone();
    moved["dsseEnvelope"]["signatures"] = other["dsseEnvelope"]["signatures"].clone();
    refused(&root, &moved, "its timestamp is not of the trust root");
}

#[test]
fn a_certificate_of_another_trust_root_is_refused() {
    let (sigstore, other) = (Sigstore::new(), Sigstore::new());
    let bundle = sigstore.sign(&ada());
    for (table, reason) in [
        ("certificateAuthorities", "its certificate is not of the trust root: certificate chain validation failed"),
        ("ctlogs", "no Certificate Transparency log of the trust root has its certificate"),
        ("tlogs", "its log entry is not proved by a log of the trust root"),
    ] {
        let mut root = sigstore.root();
        root[table] = other.root()[table].clone();
        refused(&root, &bundle, reason);
    }
    let mut ended = sigstore.root();
    ended["certificateAuthorities"][0]["validFor"]["end"] = json!("2025-05-01T00:00:00Z");
    refused(
        &ended,
        &bundle,
        "it was not made while its certificate was valid: no trusted certificate authority is valid",
    );
}

#[test]
fn a_signature_without_its_own_log_entry_is_refused() {
    let sigstore = Sigstore::new();
    let root = sigstore.root();
    let bundle = sigstore.sign(&ada());
    let with = |change: &dyn Fn(&mut Value)| {
        let mut bundle = bundle.clone();
        change(&mut bundle["verificationMaterial"]["tlogEntries"]);
        bundle
    };
    refused(&root, &with(&|entries| *entries = json!([])), "it has no entry of a transparency log");
    let other = sigstore.sign(&ada());
    let others = &other["verificationMaterial"]["tlogEntries"];
    refused(&root, &with(&|entries| *entries = others.clone()), "its log entry is for another signature");
    // A second entry does not hide behind the right one.
    let both = with(&|entries| entries.as_array_mut().expect("entries").push(others[0].clone()));
    refused(&root, &both, "its log entry is for another signature");
    let without_proof = with(&|entries| {
        entries[0].as_object_mut().expect("an entry").remove("inclusionProof");
    });
    refused(&root, &without_proof, "it has no entry of a transparency log");
    let not_proved = "its log entry is not proved by a log of the trust root";
    let hash = others[0]["inclusionProof"]["rootHash"].clone();
    refused(&root, &with(&|entries| entries[0]["inclusionProof"]["hashes"][0] = hash.clone()), not_proved);
    let state = &others[0]["inclusionProof"]["checkpoint"];
    refused(&root, &with(&|entries| entries[0]["inclusionProof"]["checkpoint"] = state.clone()), not_proved);
}

#[test]
fn a_keyless_signature_of_another_manifest_or_statement_is_refused() {
    let sigstore = Sigstore::new();
    let root = sigstore.root();
    let other = Signing { statement: statement('2'), ..ada() };
    refused(&root, &sigstore.sign(&other), "it signs another manifest");
    let mut provenance = statement('1');
    provenance["predicateType"] = json!("https://slsa.dev/provenance/v1");
    let provenance = Signing { statement: provenance, ..ada() };
    refused(&root, &sigstore.sign(&provenance), "its statement has the type");
    // The statement of one signature with the signature of another one.
    let (mut bundle, other) = (sigstore.sign(&ada()), sigstore.sign(&other));
    bundle["dsseEnvelope"]["signatures"] = other["dsseEnvelope"]["signatures"].clone();
    refused(&root, &bundle, "its certificate has not signed it");
}

#[test]
fn a_keyless_bundle_is_bounded_before_it_is_read() {
    let sigstore = Sigstore::new();
    let root = sigstore.root();
    let mut large = sigstore.sign(&ada());
    large["verificationMaterial"]["padding"] = json!("x".repeat(MAX_BUNDLE_BYTES));
    refused(&root, &large, "it has ");
    assert!(verify(&policy(ADA, &root), &[&large]).is_err_and(|refusal| refusal.ends_with("at most 65536 are read")));
    let mut many = sigstore.sign(&ada());
    let entries = many["verificationMaterial"]["tlogEntries"].as_array_mut().expect("entries");
    *entries = vec![entries[0].clone(); 5];
    refused(&root, &many, "it has 5 log entries; at most 4 are read");
    let mut many = sigstore.sign(&ada());
    many["verificationMaterial"]["timestampVerificationData"] =
        json!({ "rfc3161Timestamps": vec![json!({ "signedTimestamp": "AAAA" }); 5] });
    refused(&root, &many, "it has 5 timestamps; at most 4 are read");
    let mut many = sigstore.sign(&ada());
    let state = &mut many["verificationMaterial"]["tlogEntries"][0]["inclusionProof"]["checkpoint"]["envelope"];
    let text = state.as_str().expect("a text").to_owned();
    let signature = text.lines().last().expect("a signature");
    *state = json!(text.clone() + &format!("{signature}\n").repeat(16));
    refused(&root, &many, "it has 17 signatures of a log's state; at most 16 are read");
}

#[test]
fn one_keyless_signer_counts_once() {
    let sigstore = Sigstore::new();
    let policy = policy(
        "any_of = { minimum = 2, signers = [
             { issuer = 'https://accounts.example', subject = 'ada@example.com' },
             { issuer = 'https://accounts.example', subject = 'eve@example.com' },
         ] }",
        &sigstore.root(),
    );
    let refusal = verify(&policy, &[&sigstore.sign(&ada()), &sigstore.sign(&ada())]).expect_err("one signer");
    assert!(refusal.ends_with("trust.any_of needs 2 of 2 signers, and 1 have signed it"), "{refusal}");
    let eve = Signing { subject: "eve@example.com", ..ada() };
    verify(&policy, &[&sigstore.sign(&ada()), &sigstore.sign(&eve)]).expect("two signers");
}

#[test]
fn a_changed_keyless_bundle_counts_for_nobody_else() {
    let sigstore = Sigstore::new();
    let policy = policy(ADA, &sigstore.root());
    let by_ada = sigstore.sign(&ada()).to_string();
    let of_openssl: Value = serde_json::from_slice(include_bytes!("../data/keyless.root.json")).expect("JSON");
    for (policy, bundle) in [
        (policy, by_ada.as_str()),
        (crate::keyless::policy(REPOSITORY, &of_openssl), include_str!("../data/keyless.bundle.json")),
    ] {
        let signers = policy.verify(PLACE, &digest('1'), &[bundle.into()]).expect("a signature").signers;
        for position in (0..bundle.len()).step_by(53) {
            let mut changed = bundle.to_owned().into_bytes();
            changed[position] ^= 1;
            // A few texts, such as the name of the log's signer, are signed by nobody.
            if let Ok(verified) = policy.verify(PLACE, &digest('1'), &[changed.clone()]) {
                assert_eq!(verified.signers, signers, "byte {position}");
            }
            assert!(policy.verify(PLACE, &digest('2'), &[changed]).is_err(), "byte {position}");
        }
    }
}

#[test]
fn keyless_identities_that_cannot_be_verified_are_refused_with_their_keys() {
    let root = Sigstore::new().root();
    let signers = |signers: &str| format!("root_file = 'root.json'\nall_of = [{signers}]");
    for (text, expected) in [
        (ADA.to_owned(), &["trust.root_file is missing, and trust.all_of[0] is a keyless identity"][..]),
        (format!("root_file = 'none.json'\n{ADA}"), &["trust.root_file \"none.json\" cannot be read"]),
        (format!("root_file = 'p256.pub'\n{ADA}"), &["trust.root_file \"p256.pub\" is not a trusted_root.json: "]),
        (
            signers("{ subject = 'ada@example.com' }, { issuer = 'accounts.example', subject = '' }"),
            &[
                "trust.all_of[0].issuer is missing",
                "trust.all_of[1].issuer \"accounts.example\" is no issuer",
                "trust.all_of[1].subject \"\" cannot be a subject",
            ],
        ),
        (
            signers(
                "{ issuer = 'https://a.example' }, { issuer = 'https://a.example', subject = 'x', repository = 'x' }",
            ),
            &["trust.all_of[0] needs a subject or a repository", "trust.all_of[1] has a subject and a repository"],
        ),
        (
            signers("{ key = 'p256.pub', issuer = 'https://a.example' }, {}"),
            &["trust.all_of[0] is a key and a keyless identity", "trust.all_of[1] needs a key"],
        ),
        (
            signers(&format!(
                "{{ issuer = '{GITHUB}', repository = 'acme' }},
                 {{ issuer = '{GITHUB}', repository = 'https://github.com/acme/redact/' }},
                 {{ issuer = 'https://gitlab.com', repository = 'acme/redact' }}"
            )),
            &[
                "trust.all_of[0].repository \"acme\" cannot be a repository",
                "trust.all_of[1].repository \"https://github.com/acme/redact/\" cannot be a repository",
                "trust.all_of[2].repository \"acme/redact\" needs its URL",
            ],
        ),
        (
            signers(&format!(
                "{{ issuer = '{GITHUB}', repository = 'acme/redact' }},
                 {{ issuer = '{GITHUB}', repository = 'https://github.com/acme/redact' }},
                 {{ issuer = '{GITHUB}', subject = '{WORKFLOW}' }}"
            )),
            &[
                "trust.all_of[1] is the identity \"https://github.com/acme/redact (https://token.actions",
                "trust.all_of[2] can be the same signer as \"https://github.com/acme/redact (https://token.actions",
            ],
        ),
    ] {
        let found: Vec<_> = mistakes(&text, &root).iter().map(ToString::to_string).collect();
        let agree =
            found.len() == expected.len() && found.iter().zip(expected).all(|(one, text)| one.starts_with(text));
        assert!(agree, "{text}: expected {expected:?}, got {found:?}");
    }
}

#[test]
fn a_trust_root_that_verifies_nothing_is_refused_with_its_key() {
    let root = Sigstore::new().root();
    for (table, missing) in [
        ("certificateAuthorities", "certificate authority"),
        ("tlogs", "transparency log"),
        ("ctlogs", "Certificate Transparency log"),
    ] {
        let mut without = root.clone();
        without[table] = json!([]);
        let found = mistakes(&format!("root_file = 'root.json'\n{ADA}"), &without);
        let expected =
            format!("trust.root_file \"root.json\" has no {missing}, so no keyless identity can be verified");
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    }
    let mut broken = root;
    broken["tlogs"][0]["publicKey"]["rawBytes"] = json!("AAAA");
    let found = mistakes(&format!("root_file = 'root.json'\n{ADA}"), &broken);
    assert!(found[0].to_string().contains("has an authority or a log that cannot be used: "), "{found:?}");
}

//! A Sigstore of the tests: an authority that certifies signers, the log of its certificates, and the log of signatures.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, PublicKeyData, SanType, SerialNumber, SigningKey, date_time_ymd,
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// A time at which the certificates of signers are valid, in seconds since 1970: 2025-06-01 at noon.
pub(crate) const SIGNED_AT: i64 = 1_748_779_200;

const ISSUER: [u64; 9] = [1, 3, 6, 1, 4, 1, 57264, 1, 8];
const SOURCE_REPOSITORY: [u64; 9] = [1, 3, 6, 1, 4, 1, 57264, 1, 12];
const CERTIFICATE_TIMESTAMPS: [u64; 10] = [1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

pub(crate) struct Sigstore {
    authority: Issuer<'static, KeyPair>,
    /// The certificate of the authority in DER.
    certificate: Vec<u8>,
    certificate_log: KeyPair,
    log: KeyPair,
}

/// Who signs what.
#[derive(Clone)]
pub(crate) struct Signing {
    pub(crate) issuer: &'static str,
    /// An e-mail address or a URI.
    pub(crate) subject: &'static str,
    pub(crate) repository: Option<&'static str>,
    /// The time that the log of signatures notes, in seconds since 1970.
    pub(crate) time: i64,
    pub(crate) statement: Value,
}

impl Sigstore {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "The authority of the tests");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").der().to_vec();
        let [certificate_log, log] = [(); 2].map(|()| KeyPair::generate().expect("a key"));
        Self { authority: Issuer::new(params, key), certificate, certificate_log, log }
    }

    /// The `trusted_root.json` of this Sigstore.
    pub(crate) fn root(&self) -> Value {
        let log = |url: &str, key: &KeyPair| {
            json!([{
                "baseUrl": url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": base64(key.subject_public_key_info()),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": { "start": "2025-01-01T00:00:00Z" },
                },
                "logId": { "keyId": base64(id(key)) },
            }])
        };
        json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": log("https://log.example", &self.log),
            "ctlogs": log("https://certificates.example", &self.certificate_log),
            "certificateAuthorities": [{
                "subject": { "organization": "tests", "commonName": "authority" },
                "uri": "https://authority.example",
                "certChain": { "certificates": [{ "rawBytes": base64(&self.certificate) }] },
                "validFor": { "start": "2025-01-01T00:00:00Z" },
            }],
        })
    }

    /// Certifies a signer, signs with the signer's key, and makes the entry of the log.
    pub(crate) fn sign(&self, signing: &Signing) -> Value {
        let key = KeyPair::generate().expect("a key");
        let certificate = self.certify(&key, signing);
        let payload = signing.statement.to_string();
        let message = format!("DSSEv1 {} {PAYLOAD_TYPE} {} {payload}", PAYLOAD_TYPE.len(), payload.len());
        let signature = sign(&key, message.as_bytes());
        let verifier = base64(certificate.pem());
        let body = json!({ "apiVersion": "0.0.1", "kind": "dsse", "spec": {
            "envelopeHash": { "algorithm": "sha256", "value": hex(sha256(b"not verified")) },
            "payloadHash": { "algorithm": "sha256", "value": hex(sha256(payload.as_bytes())) },
            "signatures": [{ "signature": base64(&signature), "verifier": verifier }],
        }});
        json!({
            "mediaType": annex_trust::BUNDLE_MEDIA_TYPE,
            "verificationMaterial": {
                "certificate": { "rawBytes": base64(certificate.der()) },
                "tlogEntries": [self.entry(body.to_string().as_bytes(), signing.time)],
            },
            "dsseEnvelope": {
                "payload": base64(&payload),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{ "sig": base64(signature) }],
            },
        })
    }

    /// A certificate for one day, which the log of certificates has signed.
    fn certify(&self, key: &KeyPair, signing: &Signing) -> rcgen::Certificate {
        let subject = || signing.subject.try_into().expect("a name");
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.serial_number = Some(SerialNumber::from_slice(&[1, 2, 3]));
        (params.not_before, params.not_after) = (date_time_ymd(2025, 6, 1), date_time_ymd(2025, 6, 2));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        params.subject_alt_names = vec![if signing.subject.contains("://") {
            SanType::URI(subject())
        } else {
            SanType::Rfc822Name(subject())
        }];
        let repository = signing.repository.map(|url| (&SOURCE_REPOSITORY, url));
        let claims = [Some((&ISSUER, signing.issuer)), repository].into_iter().flatten();
        let extension =
            |(oid, text): (&[u64; 9], &str)| CustomExtension::from_oid_content(oid, tlv(0x0c, text.as_bytes()));
        params.custom_extensions = claims.map(extension).collect();
        // The log signs the certificate without the extension that has its signature (RFC 6962, section 3.2).
        let without = params.signed_by(key, &self.authority).expect("a certificate");
        let timestamp = self.certificate_timestamp(body_of(without.der()));
        params.custom_extensions.push(CustomExtension::from_oid_content(&CERTIFICATE_TIMESTAMPS, timestamp));
        params.signed_by(key, &self.authority).expect("a certificate")
    }

    /// The list with the one signed timestamp of a certificate (RFC 6962, section 3.3).
    fn certificate_timestamp(&self, body: &[u8]) -> Vec<u8> {
        let time = u64::try_from(SIGNED_AT * 1_000).expect("a time after 1970").to_be_bytes();
        let authority = sha256(&self.authority.key().subject_public_key_info());
        let length = u32::try_from(body.len()).expect("a length").to_be_bytes();
        // Version 1, a timestamp of a certificate, and of one without the timestamp; no extensions.
        let signed = [&[0, 0], &time[..], &[0, 1], &authority, &length[1..], body, &[0, 0]].concat();
        let signature = sign(&self.certificate_log, &signed);
        // SHA-256 with ECDSA.
        let signature = [&[4, 3], &with_length(&signature)[..]].concat();
        let timestamp = [&[0], &id(&self.certificate_log)[..], &time, &[0, 0], &signature].concat();
        tlv(0x04, &with_length(&with_length(&timestamp)))
    }

    /// The first entry of the log of signatures, which has two.
    fn entry(&self, body: &[u8], time: i64) -> Value {
        let (body64, log) = (base64(body), id(&self.log));
        let promise = format!(
            "{{\"body\":\"{body64}\",\"integratedTime\":{time},\"logID\":\"{}\",\"logIndex\":0}}",
            hex(log.clone())
        );
        let [entry, other] = [body, b"another entry"].map(|leaf| sha256(&[&[0], leaf].concat()));
        let tree = sha256(&[&[1], &entry[..], &other].concat());
        let state = format!("log.example\n2\n{}\n", base64(&tree));
        let signature = [&log[..4], &sign(&self.log, state.as_bytes())].concat();
        json!({
            "logIndex": "0",
            "logId": { "keyId": base64(&log) },
            "kindVersion": { "kind": "dsse", "version": "0.0.1" },
            "integratedTime": time.to_string(),
            "inclusionPromise": { "signedEntryTimestamp": base64(sign(&self.log, promise.as_bytes())) },
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": base64(&tree),
                "treeSize": "2",
                "hashes": [base64(&other)],
                "checkpoint": { "envelope": format!("{state}\n— log.example {}\n", base64(signature)) },
            },
            "canonicalizedBody": body64,
        })
    }
}

fn sign(key: &KeyPair, message: &[u8]) -> Vec<u8> {
    SigningKey::sign(key, message).expect("a signature")
}

/// The id of a log.
fn id(key: &KeyPair) -> Vec<u8> {
    sha256(&key.subject_public_key_info())
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

fn hex(bytes: Vec<u8>) -> String {
    bytes.into_iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes after their length in two bytes.
fn with_length(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).expect("a length").to_be_bytes(), bytes].concat()
}

/// A value in DER.
fn tlv(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = match u8::try_from(value.len()) {
        Ok(length @ 0..128) => vec![length],
        Ok(length) => vec![0x81, length],
        Err(_) => [&[0x82], &u16::try_from(value.len()).expect("a length").to_be_bytes()[..]].concat(),
    };
    [&[tag], &length[..], value].concat()
}

/// The part of a certificate in DER that its authority signs.
fn body_of(certificate: &[u8]) -> &[u8] {
    // The certificate and its body have two bytes for their lengths.
    let body = &certificate[4..];
    &body[..4 + usize::from(u16::from_be_bytes([body[2], body[3]]))]
}

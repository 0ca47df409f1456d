//! Client certificates: the names of callers.

use annex_auth::{AuthConfigError, Authenticator, CertificateSummary, MTLS_SCHEME};
use http::HeaderMap;
use rcgen::string::{BmpString, PrintableString, TeletexString};
use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SanType, date_time_ymd};

use crate::support::{HERE, authenticator, config, headers, is_invalid, jwt_config};

fn certificate(uris: &[&str], dns: &[&str], common_name: &str, last_year: i32) -> CertificateSummary {
    let mut params = CertificateParams::new(dns.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
    params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())));
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_after = date_time_ymd(last_year, 1, 1);
    let key = KeyPair::generate().unwrap();
    CertificateSummary::read(params.self_signed(&key).unwrap().der()).unwrap()
}

async fn name(field: &str, certificate: &CertificateSummary) -> Option<String> {
    let authenticator = authenticator(&format!("[client_certificate]\nprincipal = '{field}'"));
    let result = authenticator.authenticate(&HeaderMap::new(), HERE, Some(certificate)).await;
    assert!(result.is_ok() || is_invalid(&result), "{result:?}");
    result.ok().map(|principal| {
        assert_eq!(principal.scheme, MTLS_SCHEME);
        principal.id
    })
}

#[tokio::test]
async fn the_configured_field_of_a_certificate_names_the_caller() {
    let certificate = certificate(&["spiffe://example.org/ada"], &["Ada.example.org"], "Ada Lovelace", 3000);
    for (field, expected) in [
        ("san-uri", "mtls#spiffe://example.org/ada"),
        ("san-dns", "mtls#ada.example.org"),
        ("subject-cn", "mtls#Ada Lovelace"),
    ] {
        assert_eq!(name(field, &certificate).await.as_deref(), Some(expected));
    }
}

#[tokio::test]
async fn a_common_name_is_read_in_each_of_its_encodings() {
    for name_in_der in [
        DnValue::Utf8String("Ada".to_owned()),
        DnValue::PrintableString(PrintableString::try_from("Ada").unwrap()),
        DnValue::TeletexString(TeletexString::try_from("Ada").unwrap()),
        DnValue::BmpString(BmpString::try_from("Ada").unwrap()),
    ] {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name_in_der);
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateSummary::read(params.self_signed(&key).unwrap().der()).unwrap();
        assert_eq!(name("subject-cn", &certificate).await.as_deref(), Some("mtls#Ada"));
    }
}

#[tokio::test]
async fn a_certificate_without_one_clear_name_or_after_its_end_names_nobody() {
    let two = certificate(&["a:1", "a:2"], &["a.example", "b.example"], "two\nlines", 3000);
    let ended = certificate(&["a:1"], &["a.example"], "a", 2020);
    for field in ["san-uri", "san-dns", "subject-cn"] {
        assert_eq!(name(field, &two).await, None);
        assert_eq!(name(field, &ended).await, None);
    }
    assert_eq!(name("san-uri", &certificate(&[], &["a.example"], "a", 3000)).await, None);
    assert_eq!(name("san-dns", &certificate(&[], &["*.example"], "a", 3000)).await, None);
}

#[tokio::test]
async fn a_certificate_beside_another_credential_is_refused_and_ignored_where_certificates_name_nobody() {
    const KEY: &str = "key-of-the-certificates-test";
    let digest = ring::digest::digest(&ring::digest::SHA256, KEY.as_bytes());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let keys = format!("[[api_key]]\nprincipal = 'ci'\nkey_sha256 = '{digest}'\n");
    let certificate = certificate(&["a:1"], &[], "a", 3000);
    let headers = headers(&[("x-api-key", KEY)]);
    let both = authenticator(&format!("{keys}[client_certificate]\nprincipal = 'san-uri'"));
    assert!(is_invalid(&both.authenticate(&headers, HERE, Some(&certificate)).await));
    assert_eq!(both.authenticate(&headers, HERE, None).await.unwrap().id, "ci");
    let keys_alone = authenticator(&keys);
    assert_eq!(keys_alone.authenticate(&headers, HERE, Some(&certificate)).await.unwrap().id, "ci");
}

#[test]
fn no_issuer_has_the_name_that_begins_the_ids_of_certificates() {
    let tokens = jwt_config("").replace("https://issuer.example", "mtls");
    let both = format!("{tokens}\n[client_certificate]\nprincipal = 'san-uri'");
    let refused = Authenticator::new(&config(&both)).unwrap_err();
    assert!(matches!(refused, AuthConfigError::Jwt { field: "issuer", .. }), "{refused}");
    assert!(Authenticator::new(&config(&tokens)).is_ok());
}

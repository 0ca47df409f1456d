//! X.509 certificates (RFC 5280): the names and the dates of a certificate. TLS has verified it before.

use std::time::SystemTime;

use serde::Deserialize;
use x509_cert::Certificate;
use x509_cert::attr::AttributeValue;
use x509_cert::der::asn1::{BmpString, ObjectIdentifier, PrintableStringRef, TeletexStringRef};
use x509_cert::der::{Decode, Error, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::principal;

/// The name of the scheme for client certificates in the Agent Card.
pub const MTLS_SCHEME: &str = "mtls";

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The table `[auth.client_certificate]`: callers with a certificate that the listener's TLS has verified.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificateConfig {
    /// The field of the certificate that names the caller.
    pub principal: CertificateField,
}

/// A field of a certificate that can name a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateField {
    /// The URI in the subject's alternative names, such as `spiffe://example.org/billing`.
    SanUri,
    /// The DNS name in the subject's alternative names, in lower case.
    SanDns,
    /// The common name of the subject.
    SubjectCn,
}

/// The names and the dates of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSummary {
    uris: Vec<String>,
    dns_names: Vec<String>,
    common_names: Vec<String>,
    not_before: SystemTime,
    not_after: SystemTime,
}

/// The reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the certificate is damaged, or has a form that is not supported")]
pub struct CertificateError(#[source] Error);

impl CertificateSummary {
    /// Reads a certificate in DER. The signature is not verified.
    ///
    /// # Errors
    /// The bytes are no certificate.
    pub fn read(der: &[u8]) -> Result<Self, CertificateError> {
        let certificate = Certificate::from_der(der).map_err(CertificateError)?;
        let body = certificate.tbs_certificate;
        let names = body.get::<SubjectAltName>().map_err(CertificateError)?;
        let names = names.map(|(_, SubjectAltName(names))| names).unwrap_or_default();
        let (mut uris, mut dns_names) = (Vec::new(), Vec::new());
        for name in &names {
            match name {
                GeneralName::UniformResourceIdentifier(uri) => uris.push(uri.as_str().to_owned()),
                GeneralName::DnsName(name) => dns_names.push(name.as_str().to_ascii_lowercase()),
                _ => {}
            }
        }
        let mut common_names = Vec::new();
        let attributes = body.subject.0.iter().flat_map(|attributes| attributes.0.iter());
        for attribute in attributes.filter(|attribute| attribute.oid == COMMON_NAME) {
            common_names.push(text(&attribute.value).map_err(CertificateError)?);
        }
        let validity = body.validity;
        Ok(Self {
            uris,
            dns_names,
            common_names,
            not_before: validity.not_before.to_system_time(),
            not_after: validity.not_after.to_system_time(),
        })
    }

    /// The time at which the certificate becomes valid.
    #[must_use]
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// The time at which the certificate ends.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// True if the certificate is valid at this time.
    #[must_use]
    pub fn is_valid_at(&self, time: SystemTime) -> bool {
        self.not_before <= time && time <= self.not_after
    }

    /// The name in this field. `None` if the field is absent, has several values, or has a value that is no name. A DNS name
    /// with a wildcard stands for many hosts, so it is no name.
    #[must_use]
    pub fn name_in(&self, field: CertificateField) -> Option<&str> {
        let names = match field {
            CertificateField::SanUri => &self.uris,
            CertificateField::SanDns => &self.dns_names,
            CertificateField::SubjectCn => &self.common_names,
        };
        // With several values it would be open which one is the caller.
        let [name] = names.as_slice() else { return None };
        let is_wildcard = field == CertificateField::SanDns && name.contains('*');
        (principal::is_name(name) && !is_wildcard).then_some(name.as_str())
    }
}

/// The text of an attribute, in any of the encodings of a DirectoryString but UniversalString (RFC 5280, section 4.1.2.4).
fn text(value: &AttributeValue) -> Result<String, Error> {
    Ok(match value.tag() {
        Tag::BmpString => value.decode_as::<BmpString>()?.to_string(),
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'_>>()?.to_string(),
        Tag::TeletexString => value.decode_as::<TeletexStringRef<'_>>()?.to_string(),
        _ => value.decode_as::<String>()?,
    })
}

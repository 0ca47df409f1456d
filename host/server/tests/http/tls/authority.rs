//! Certificate authorities of the tests, and the certificates that they issue.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};

/// An authority, which clients and servers can trust.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate of the authority.
    pub(crate) pem: String,
}

/// A certificate and its key, both in PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for a server on this machine.
    pub(crate) fn server(&self) -> Identity {
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        self.issue(CertificateParams::new(names).expect("names"), ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a client with this URI.
    pub(crate) fn client(&self, uri: &str) -> Identity {
        self.issue(client_params(uri), ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A certificate for a client whose certificate ended years ago.
    pub(crate) fn expired_client(&self, uri: &str) -> Identity {
        let mut params = client_params(uri);
        params.not_after = date_time_ymd(2020, 1, 1);
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A certificate for a client that ends after this time.
    pub(crate) fn client_for(&self, uri: &str, life: Duration) -> Identity {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
        let mut params = client_params(uri);
        params.not_after = date_time_ymd(1970, 1, 1) + since_1970 + life;
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A certificate for a server that ended years ago.
    pub(crate) fn expired_server(&self) -> Identity {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
        params.not_after = date_time_ymd(2020, 1, 1);
        self.issue(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn issue(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Identity {
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}

fn client_params(uri: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("ASCII"))];
    params
}

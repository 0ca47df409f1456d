//! Checks of the certificates of listeners: their dates, and the names in `server.public_url`. The check of the config
//! finds files that cannot be used.

use std::path::Path;
use std::time::SystemTime;

use axum::http::Uri;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

use super::finding::Finding;
use crate::config::Config;
use crate::process::listeners_tls::tables;

/// The number of days before the end of a certificate from which on it is a warning.
const NEAR_END_DAYS: u64 = 30;
const DAY_SECONDS: u64 = 24 * 60 * 60;

pub(super) fn examine(config: &Config, folder: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (table, tls) in tables(config).into_iter().flatten() {
        let files = tls.files(folder);
        let Ok(loaded) = files.read().and_then(|bytes| bytes.load(&files)) else { continue };
        findings.push(dates(table, loaded.certificate.not_before(), loaded.certificate.not_after()));
        if table == "server.tls" {
            findings.extend(config.server.public_url.as_deref().and_then(|url| name(url, &loaded.leaf)));
        }
    }
    findings
}

fn dates(table: &str, not_before: SystemTime, not_after: SystemTime) -> Finding {
    let now = SystemTime::now();
    if now < not_before {
        let problem = "is not valid yet; check the clock of this machine, or take another certificate";
        return Finding::error("certificate", format!("{table}.certificate {problem}"));
    }
    match not_after.duration_since(now).map(|left| left.as_secs() / DAY_SECONDS) {
        Err(_) => Finding::error("certificate", format!("{table}.certificate has ended; renew it")),
        Ok(days) if days < NEAR_END_DAYS => {
            Finding::warning("certificate", format!("{table}.certificate ends in {days} days; renew it"))
        }
        Ok(days) => Finding::fine("certificate", format!("{table}.certificate ends in {days} days")),
    }
}

/// Compares the public URL with the names in the certificate. `None` if the certificate has the name.
fn name(url: &str, leaf: &CertificateDer<'_>) -> Option<Finding> {
    let parsed: Uri = url.parse().ok()?;
    if parsed.scheme_str() == Some("http") {
        let text = "server.public_url begins with http://, but the listener speaks HTTPS; write https://, unless a proxy \
                    in front of this server speaks HTTP";
        return Some(Finding::warning("certificate", text));
    }
    let host = parsed.host()?.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host).ok()?;
    let certificate = ParsedCertificate::try_from(leaf).ok()?;
    verify_server_name(&certificate, &name).err().map(|_| {
        let remedy = "clients that call the server under this name refuse it; take a certificate with this name";
        Finding::warning(
            "certificate",
            format!("server.tls.certificate has no name {host:?}, which server.public_url has: {remedy}"),
        )
    })
}

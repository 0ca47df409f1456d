//! TLS: a server with a certificate of its own, and the options by which commands reach it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;
use rcgen::{CertifiedKey, generate_simple_self_signed};

use crate::support::{ConfigFile, Run, Server, annex, run, specialist, template_agent};

#[test]
fn commands_trust_a_private_authority_and_show_a_certificate() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let paths = ["server.pem", "server.key"].map(|name| folder.path().join(name).display().to_string());
    let [certificate, key] = paths.each_ref().map(String::as_str);
    let names = ["127.0.0.1", "localhost"].map(str::to_owned);
    // The certificate is its own authority, and the client shows the certificate of the server.
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names)?;
    fs::write(certificate, cert.pem())?;
    fs::write(key, signing_key.serialize_pem())?;
    let tls = format!(
        "[server.tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {certificate:?}\n\
         [auth.client_certificate]\nprincipal = \"san-dns\"\n"
    );
    let config = format!("{}\n{tls}", template_agent("Be short.", ""));

    let server = Server::start(&config)?;
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let url = server.url.as_str();
    let trusting = ["card", url, "--ca-file", certificate];
    let card = run(trusting.into_iter().chain(["--client-cert", certificate, "--client-key", key, "--json"]))?;
    assert_eq!(card.code, Some(0), "{}", card.err);
    assert!(card.out.contains("mtlsSecurityScheme"), "{}", card.out);
    let card = run(trusting.into_iter().chain(["--client-cert", certificate, "--client-key", key]))?;
    assert!(card.out.contains("annex send takes it as --client-cert"), "{}", card.out);
    let sent =
        run(["send", url, "hello", "--ca-file", certificate, "--client-cert", certificate, "--client-key", key])?;
    assert_eq!(sent.code, Some(0), "{}", sent.err);

    let distrusted = run(["card", url])?;
    assert_eq!(distrusted.code, Some(4), "{}", distrusted.err);
    assert!(distrusted.err.contains("by --ca-file"), "{}", distrusted.err);
    let uncertified = run(trusting)?;
    assert_eq!(uncertified.code, Some(4), "{}", uncertified.err);
    assert!(uncertified.err.contains("with --client-cert and --client-key"), "{}", uncertified.err);
    let incomplete = run(trusting.into_iter().chain(["--client-cert", certificate]))?;
    assert!(incomplete.err.contains("--client-cert needs --client-key"), "{}", incomplete.err);
    let other = folder.path().join("other.key").display().to_string();
    let CertifiedKey { signing_key, .. } = generate_simple_self_signed(["localhost".to_owned()])?;
    fs::write(&other, signing_key.serialize_pem())?;
    let unpaired = run(trusting.into_iter().chain(["--client-cert", certificate, "--client-key", other.as_str()]))?;
    assert!(unpaired.err.contains("are not a certificate and its key in PEM"), "{}", unpaired.err);
    let wrong = run(["card", url, "--ca-file", key])?;
    assert!(wrong.err.contains("has no PEM block `CERTIFICATE`"), "{}", wrong.err);
    Ok(())
}

#[test]
fn a_machine_without_authorities_calls_plain_http_and_is_told_what_https_needs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let paths = ["server.pem", "server.key"].map(|name| folder.path().join(name).display().to_string());
    let [certificate, key] = paths.each_ref().map(String::as_str);
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    fs::write(certificate, cert.pem())?;
    fs::write(key, signing_key.serialize_pem())?;
    let on_a_bare_machine = |args: &[&str]| -> Result<Run> {
        let mut command = annex(args);
        let output = command.env("SSL_CERT_FILE", "/nonexistent").env("SSL_CERT_DIR", "/nonexistent").output()?;
        let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
        Ok(Run { code: output.status.code(), out, err })
    };

    let plain = Server::start(&template_agent("Be short.", ""))?;
    let card = on_a_bare_machine(&["card", &plain.url])?;
    assert_eq!(card.code, Some(0), "{}", card.err);
    let sent = on_a_bare_machine(&["send", &plain.url, "hello"])?;
    assert_eq!(sent.code, Some(0), "{}", sent.err);

    let tls = format!("[server.tls]\ncertificate = {certificate:?}\nkey = {key:?}\n");
    let server = Server::start(&format!("{}\n{tls}", template_agent("Be short.", "")))?;
    let refused = on_a_bare_machine(&["card", &server.url])?;
    assert_eq!(refused.code, Some(4), "{}", refused.err);
    let names_remedy =
        refused.err.contains("the Debian package ca-certificates") && refused.err.contains("SSL_CERT_FILE");
    assert!(names_remedy, "{}", refused.err);
    let trusting = on_a_bare_machine(&["card", &server.url, "--ca-file", certificate])?;
    assert_eq!(trusting.code, Some(0), "{}", trusting.err);
    Ok(())
}

#[test]
fn a_doctor_looks_at_the_certificate_of_a_listener() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let paths = ["server.pem", "server.key"].map(|name| folder.path().join(name).display().to_string());
    let [certificate, key] = paths.each_ref().map(String::as_str);
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()])?;
    fs::write(certificate, cert.pem())?;
    fs::write(key, signing_key.serialize_pem())?;
    fs::set_permissions(key, Permissions::from_mode(0o644))?;
    let public = "[server]\npublic_url = \"https://agent.example.com\"\n";
    let config = specialist().replacen("[server]\n", public, 1);
    let tls = format!("[server.tls]\ncertificate = {certificate:?}\nkey = {key:?}\n");
    let config = ConfigFile::new(&format!("{config}\n{tls}"))?;

    let examine = || run(["doctor".as_ref(), config.path.as_os_str()]);
    let seen = examine()?;
    assert!(seen.out.contains("server.tls.certificate ends in"), "{}{}", seen.out, seen.err);
    assert!(seen.out.contains("has no name \"agent.example.com\""), "{}{}", seen.out, seen.err);
    assert!(seen.out.contains(&format!("{key}: it is secret, and others can read it")), "{}{}", seen.out, seen.err);
    fs::write(key, "no key")?;
    let broken = examine()?;
    assert!(broken.out.contains("server.tls.key"), "{}{}", broken.out, broken.err);
    Ok(())
}

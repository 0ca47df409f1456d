//! `annex health`.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use rcgen::{CertifiedKey, generate_simple_self_signed};

use crate::check::run_on;
use crate::support::{ConfigFile, Run, Server, annex, free_address, run, specialist, template_agent};

/// Accepts one connection, reads the head of a request, and writes `answer`. Returns the first line of the request.
fn answer_once(listener: TcpListener, answer: &'static str) -> JoinHandle<Result<String>> {
    thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        let mut lines = BufReader::new(&stream).lines();
        let first = lines.next().context("no request")??;
        // Unread bytes at the end of a connection would reset it before the answer is read.
        for line in lines {
            if line?.is_empty() {
                break;
            }
        }
        (&stream).write_all(answer.as_bytes())?;
        Ok(first)
    })
}

/// Runs `annex health` with a config whose server gives this answer. Returns the outcome, and the first line of the
/// request.
fn health_of(answer: &'static str) -> Result<(Run, String)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    // All addresses, as in a container: the command asks on loopback.
    let listen = format!("0.0.0.0:{port}\"\nallow_anonymous = true #");
    let config = ConfigFile::new(&specialist().replace("127.0.0.1:0", &listen))?;
    let asked = answer_once(listener, answer);
    let seen = run_on("health", &config)?;
    // A command that has not asked must not keep the listener waiting.
    let _ = TcpStream::connect(("127.0.0.1", port));
    let first = asked.join().ok().context("the listener panicked")??;
    Ok((seen, first))
}

#[test]
fn a_server_that_takes_requests_is_healthy_by_url_and_by_config() -> Result<()> {
    let server = Server::start(&specialist())?;
    let seen = run(["health", &server.url])?;
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    assert!(seen.out.contains(&format!("{}/readyz answers 200", server.url)), "{}", seen.out);

    let (seen, asked) = health_of("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")?;
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    assert_eq!(asked, "GET /readyz HTTP/1.1");
    Ok(())
}

#[test]
fn any_other_answer_is_unhealthy_and_quoted_as_text() -> Result<()> {
    let starting =
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 20\r\n\r\n{\"phase\":\"starting\"}";
    let (seen, _) = health_of(starting)?;
    assert_eq!(seen.code, Some(1), "{}", seen.err);
    assert!(seen.err.contains("/readyz answers 503: {\"phase\":\"starting\"}"), "{}", seen.err);

    let elsewhere =
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\nconnection: close\r\ncontent-length: 5\r\n\r\n\x1b[31m";
    let (seen, _) = health_of(elsewhere)?;
    assert_eq!(seen.code, Some(1), "{}", seen.err);
    assert!(seen.err.contains("/readyz answers 302") && !seen.err.contains('\x1b'), "{}", seen.err);
    Ok(())
}

#[test]
fn a_server_that_is_not_there_or_a_config_without_a_port_is_unhealthy() -> Result<()> {
    let free = free_address()?;
    let url = format!("http://{free}");
    let seen = run(["health", &url])?;
    assert_eq!(seen.code, Some(1), "{}", seen.err);
    assert!(seen.err.contains("does not answer") && seen.err.contains("refused"), "{}", seen.err);

    let config = ConfigFile::new(&specialist())?;
    let seen = run_on("health", &config)?;
    assert_eq!(seen.code, Some(2), "{}", seen.err);
    assert!(seen.err.contains("has port 0"), "{}", seen.err);
    fs::write(&config.path, "[server")?;
    let seen = run_on("health", &config)?;
    assert_eq!(seen.code, Some(1), "{}", seen.err);
    assert!(seen.err.contains("annex.toml:1"), "{}", seen.err);
    Ok(())
}

#[test]
fn a_server_is_asked_without_the_proxy_and_the_authorities_of_the_machine() -> Result<()> {
    let server = Server::start(&specialist())?;
    let mut command = annex(["health", &server.url]);
    command.env("http_proxy", "http://127.0.0.1:1").env_remove("NO_PROXY");
    command.env("SSL_CERT_FILE", "/nonexistent").env("SSL_CERT_DIR", "/nonexistent");
    let output = command.output()?;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
fn a_server_with_tls_is_asked_over_https() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let paths = ["server.pem", "server.key"].map(|name| folder.path().join(name).display().to_string());
    let [certificate, key] = paths.each_ref().map(String::as_str);
    // The certificate has no name for the address that is asked.
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["agent.example.com".to_owned()])?;
    fs::write(certificate, cert.pem())?;
    fs::write(key, signing_key.serialize_pem())?;
    let tls = format!("[server.tls]\ncertificate = {certificate:?}\nkey = {key:?}\n");
    let with_tls = |more: &str| format!("{}\n{tls}{more}", template_agent("Be short.", ""));
    let asked_of = |server: &Server| -> Result<ConfigFile> {
        let address = server.url.trim_start_matches("https://");
        let text = fs::read_to_string(&server.config.path)?;
        ConfigFile::new(&text.replace("127.0.0.1:0", address))
    };

    let server = Server::start(&with_tls(""))?;
    let config = asked_of(&server)?;
    let seen = run_on("health", &config)?;
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    let path = config.path.display().to_string();
    let verified = run(["health", &path, "--ca-file", certificate])?;
    assert_eq!(verified.code, Some(1), "{}", verified.err);
    let distrusted = run(["health", &server.url])?;
    assert_eq!(distrusted.code, Some(1), "{}", distrusted.err);
    assert!(distrusted.err.contains("by --ca-file"), "{}", distrusted.err);

    let server = Server::start(&with_tls(&format!("client_ca = {certificate:?}\n")))?;
    let config = asked_of(&server)?;
    let uncertified = run_on("health", &config)?;
    assert_eq!(uncertified.code, Some(1), "{}", uncertified.err);
    assert!(uncertified.err.contains("with --client-cert and --client-key"), "{}", uncertified.err);
    let options = ["--client-cert", certificate, "--client-key", key].map(OsStr::new);
    let certified = run([OsStr::new("health"), config.path.as_os_str()].into_iter().chain(options))?;
    assert_eq!(certified.code, Some(0), "{}", certified.err);
    Ok(())
}

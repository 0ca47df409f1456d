//! The code that makes HTTP clients, and the requests of a client without authorities.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;

use super::{install_provider, refusal, refusing_builder};

/// Calls that make a client which fails on a machine without authorities.
const MAKERS: [&str; 4] =
    ["Client::builder()", "ClientBuilder::new()", "reqwest::Client::new()", "reqwest::Client::default()"];
/// The files that may make such a client: this module, and a check of a certificate against its key.
const MAKING: [&str; 2] = ["egress/src/http_client.rs", "cli/src/tls.rs"];

#[test]
fn only_egress_begins_http_clients() {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for folder in fs::read_dir(host).unwrap() {
        let folder = folder.unwrap().path();
        // These crates call servers that they started themselves.
        if ["bench", "test-support"].iter().all(|name| !folder.ends_with(name)) {
            add_files(&folder.join("src"), &mut files);
        }
    }
    assert!(files.len() > 300, "{} files", files.len());
    for path in files {
        let code: String = fs::read_to_string(&path).unwrap().split_whitespace().collect();
        let name = path.strip_prefix(host).unwrap();
        let may = MAKING.iter().any(|making| name == Path::new(making));
        let makes = MAKERS.iter().find(|makes| code.contains(**makes));
        assert!(may || makes.is_none(), "{} has {}", name.display(), makes.unwrap());
    }
}

fn add_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            add_files(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
}

#[tokio::test]
async fn a_client_without_authorities_calls_plain_http() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(&stream).lines();
        while !lines.next().unwrap().unwrap().is_empty() {}
        (&stream).write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").unwrap();
    });
    install_provider();
    let client = refusing_builder().no_proxy().build().unwrap();
    assert_eq!(client.get(url).send().await.unwrap().status(), 204);
    server.join().unwrap();
}

#[test]
fn the_refusal_of_https_names_the_package_and_the_variable() {
    let refusal = refusal().to_string();
    assert!(refusal.contains("the Debian package ca-certificates") && refusal.contains("SSL_CERT_FILE"), "{refusal}");
}

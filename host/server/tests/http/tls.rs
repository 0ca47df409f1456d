//! TLS: HTTP/1, HTTP/2 and gRPC on one listener, client certificates, changed files, and clients that misbehave.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::{TestConfig, TestServer, until};
use axum::http::Version;
use reqwest::ClientBuilder;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};

mod authority;

use authority::{Authority, Identity};

/// Far beyond the second that the servers here allow.
const TIMEOUT: Duration = Duration::from_secs(60);
const ADA: &str = "spiffe://example.org/ada";
const BOB: &str = "spiffe://example.org/bob";
const REQUIRED: &str =
    "[server.tls]\nclient_certificates = \"required\"\n[auth.client_certificate]\nprincipal = \"san-uri\"";
const TOKEN: &str = "token-of-the-tls-tests";

/// The files of a TLS table.
struct Files(TempDir);

impl Files {
    fn new(identity: &Identity) -> Self {
        let files = Self(tempfile::tempdir().expect("a folder"));
        files.write(identity);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, identity: &Identity) {
        fs::write(self.path("server.pem"), &identity.certificate).expect("a file");
        fs::write(self.path("server.key"), &identity.key).expect("a file");
    }

    /// A config with TLS in the table `table`.
    fn config(&self, table: &str) -> TestConfig {
        TestConfig::template("Say something.")
            .set(&format!("{table}.certificate"), self.path("server.pem"))
            .set(&format!("{table}.key"), self.path("server.key"))
    }

    /// A config of a server that wants certificates of `authority`.
    fn config_for_clients(&self, authority: &Authority, more: &str) -> TestConfig {
        fs::write(self.path("clients.pem"), &authority.pem).expect("a file");
        self.config("server.tls").set("server.tls.client_ca", self.path("clients.pem")).with(more)
    }
}

async fn start(config: &TestConfig) -> TestServer {
    config.start().await.expect("a server")
}

/// A client that trusts this authority alone.
fn trusting(authority: &Authority) -> ClientBuilder {
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificate = reqwest::Certificate::from_pem(authority.pem.as_bytes()).expect("a certificate");
    reqwest::Client::builder().tls_certs_only([certificate])
}

fn with_identity(authority: &Authority, identity: &Identity) -> reqwest::Client {
    let pem = format!("{}{}", identity.key, identity.certificate);
    let identity = reqwest::Identity::from_pem(pem.as_bytes()).expect("an identity");
    trusting(authority).identity(identity).build().expect("a client")
}

fn request(client: &reqwest::Client, server: &TestServer, body: String) -> reqwest::RequestBuilder {
    let request = client.post(format!("{}/a2a/jsonrpc", server.url())).header("a2a-version", "1.0");
    request.header("content-type", "application/json").body(body)
}

/// The status and the body of the answer to a message.
async fn say(client: &reqwest::Client, server: &TestServer) -> (u16, Value) {
    let reply = request(client, server, server.say("prompt").body()).send().await.expect("an answer");
    (reply.status().as_u16(), reply.json().await.expect("JSON"))
}

/// The answer to GetTask.
async fn get(client: &reqwest::Client, server: &TestServer, id: &Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": id}}).to_string();
    request(client, server, body).send().await.expect("an answer").json().await.expect("JSON")
}

async fn connect(server: &TestServer) -> TcpStream {
    TcpStream::connect(server.url().trim_start_matches("https://")).await.expect("a connection")
}

#[tokio::test]
async fn http_1_and_http_2_are_served_over_tls_by_alpn() {
    let authority = Authority::new("authority");
    let files = Files::new(&authority.server());
    let server = start(&files.config("server.tls")).await;
    assert!(server.url().starts_with("https://"));
    let versions = [
        (trusting(&authority), Version::HTTP_2),
        (trusting(&authority).http1_only(), Version::HTTP_11),
        (trusting(&authority).tls_version_max(reqwest::tls::Version::TLS_1_2), Version::HTTP_2),
    ];
    for (client, version) in versions {
        let client = client.build().expect("a client");
        let reply = request(&client, &server, server.say("prompt").body()).send().await.expect("an answer");
        assert_eq!(reply.version(), version);
        let body: Value = reply.json().await.expect("JSON");
        assert!(body["result"]["task"].is_object(), "{body}");
        let card = client.get(format!("{}/.well-known/agent-card.json", server.url())).send().await.expect("a card");
        let card: Value = card.json().await.expect("JSON");
        let url = card["supportedInterfaces"][0]["url"].as_str().expect("a URL").to_owned();
        assert!(url.starts_with("https://"), "{card}");
    }
}

#[tokio::test]
async fn grpc_is_served_over_tls() {
    let authority = Authority::new("authority");
    let files = Files::new(&authority.server());
    let server = start(&files.config("server.tls")).await;
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&authority.pem));
    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").tls_config(tls).expect("TLS");
    let mut client = A2aServiceClient::new(channel.connect().await.expect("a channel"));
    let mut get = tonic::Request::new(pb::GetTaskRequest { id: "nobody".to_owned(), ..Default::default() });
    get.metadata_mut().insert("a2a-version", "1.0".parse().expect("ASCII"));
    assert_eq!(client.get_task(get).await.expect_err("unknown").code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_authority_refuses_the_server() {
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    let files = Files::new(&authority.server());
    let server = start(&files.config("server.tls")).await;
    let stranger = trusting(&other).build().expect("a client");
    let refused = request(&stranger, &server, server.say("prompt").body()).send().await;
    assert!(refused.expect_err("refused").is_connect());
    assert_eq!(say(&trusting(&authority).build().expect("a client"), &server).await.0, 200);
}

#[tokio::test]
async fn a_client_certificate_names_the_owner_of_tasks() {
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    let files = Files::new(&authority.server());
    let server = start(&files.config_for_clients(&authority, REQUIRED)).await;
    let ada = with_identity(&authority, &authority.client(ADA));
    let bob = with_identity(&authority, &authority.client(BOB));
    let (status, sent) = say(&ada, &server).await;
    assert_eq!(status, 200, "{sent}");
    let id = &sent["result"]["task"]["id"];
    // Another certificate of the same caller.
    let again = with_identity(&authority, &authority.client(ADA));
    assert_eq!(get(&again, &server, id).await["result"]["id"], *id);
    assert_eq!(get(&bob, &server, id).await["error"]["code"], -32_001);

    let card = ada.get(format!("{}/.well-known/agent-card.json", server.url())).send().await.expect("a card");
    let card: Value = card.json().await.expect("JSON");
    assert!(card["securitySchemes"]["mtls"]["mtlsSecurityScheme"].is_object(), "{card}");

    let strangers = [
        trusting(&authority).build().expect("a client"),
        with_identity(&authority, &other.client(ADA)),
        with_identity(&authority, &authority.expired_client(ADA)),
        with_identity(&authority, &authority.server()),
    ];
    for stranger in strangers {
        let refused = request(&stranger, &server, server.say("prompt").body()).send().await;
        assert!(refused.is_err(), "{refused:?}");
    }
    // A certificate without the name proves an authority, but no caller.
    let nameless = with_identity(&authority, &authority.client(""));
    assert_eq!(say(&nameless, &server).await.0, 401);
}

#[tokio::test]
async fn a_connection_ends_with_the_certificate_of_its_client() {
    let authority = Authority::new("authority");
    let files = Files::new(&authority.server());
    // Certificates name no callers here, so authentication does not look at their dates.
    let required = "[server.tls]\nclient_certificates = \"required\"";
    let server = start(&files.config_for_clients(&authority, required)).await;
    let client = with_identity(&authority, &authority.client_for(ADA, Duration::from_secs(5)));
    assert_eq!(say(&client, &server).await.0, 200);
    // A new connection would resume the session of the first one.
    until("the client is shut out", async || {
        request(&client, &server, server.say("prompt").body()).send().await.is_err()
    })
    .await;
}

#[tokio::test]
async fn no_page_of_another_origin_changes_anything_with_the_certificate_of_a_browser() {
    let authority = Authority::new("authority");
    let files = Files::new(&authority.server());
    let server = start(&files.config_for_clients(&authority, REQUIRED)).await;
    let browser = with_identity(&authority, &authority.client(ADA));
    // A browser sends such a request, with the certificate, without asking the server first.
    let status = async |field: &'static str, value: &'static str| {
        let request = browser.post(format!("{}/a2a/rest/tasks/t:cancel?A2A-Version=1.0", server.url()));
        request.header(field, value).send().await.expect("an answer").status().as_u16()
    };
    assert_eq!(status("sec-fetch-site", "cross-site").await, 403);
    assert_eq!(status("origin", "https://evil.example").await, 403);
    assert_ne!(status("sec-fetch-site", "same-origin").await, 403);
}

#[tokio::test]
async fn an_optional_client_certificate_is_one_credential_among_others() {
    let authority = Authority::new("authority");
    let files = Files::new(&authority.server());
    let optional = REQUIRED.replace("required", "optional");
    let config = files.config_for_clients(&authority, &format!("{optional}\n{}", crate::auth::api_keys()));
    let server = start(&config).await;
    let status = async |client: &reqwest::Client, key: Option<&str>| {
        let request = request(client, &server, server.say("prompt").body());
        let request = match key {
            Some(key) => request.header("x-api-key", key),
            None => request,
        };
        request.send().await.expect("an answer").status().as_u16()
    };
    let plain = trusting(&authority).build().expect("a client");
    let certified = with_identity(&authority, &authority.client(ADA));
    assert_eq!((status(&plain, None).await, status(&plain, Some(crate::auth::ADA)).await), (401, 200));
    assert_eq!(status(&certified, None).await, 200);
    assert_eq!(status(&certified, Some(crate::auth::ADA)).await, 401, "it would be open who calls");
}

#[tokio::test]
async fn changed_files_serve_new_connections_and_broken_files_change_nothing() {
    let (before, after) = (Authority::new("before"), Authority::new("after"));
    let files = Files::new(&before.server());
    let more = format!(
        "[admin]\nmetrics_listen = \"127.0.0.1:0\"\n[[admin.token]]\nname = \"test\"\ntoken_sha256 = \"{}\"",
        "0".repeat(64)
    );
    let server = start(&files.config("server.tls").with(&more)).await;
    let numbers = async || {
        let page = server.client().get(format!("{}/metrics", server.metrics_url())).send().await.expect("a page");
        crate::prometheus::parse(&page.text().await.expect("a text"))
    };
    let reloads = async |outcome: &'static str| {
        numbers().await.value("annex_tls_reloads_total", &[("listener", "server"), ("outcome", outcome)])
    };
    let old = trusting(&before).build().expect("a client");
    assert_eq!(say(&old, &server).await.0, 200);
    files.write(&after.server());
    until("the changed files are in use", async || reloads("loaded").await > 0.0).await;
    // The old client keeps its connection, and could not open another one.
    assert_eq!(say(&old, &server).await.0, 200);
    let new = trusting(&after).build().expect("a client");
    assert_eq!(say(&new, &server).await.0, 200);
    let refused = request(&trusting(&before).build().expect("a client"), &server, server.say("prompt").body());
    assert!(refused.send().await.expect_err("another authority").is_connect());

    for (number, broken) in ["", &before.server().key, "-----BEGIN PRIVATE KEY-----"].into_iter().enumerate() {
        fs::write(files.path("server.key"), broken).expect("a file");
        until("the broken file is refused", async || reloads("refused").await > number as f64).await;
        assert_eq!(say(&trusting(&after).build().expect("a client"), &server).await.0, 200);
    }
    files.write(&after.expired_server());
    until("the expired certificate is refused", async || reloads("refused").await > 3.0).await;
    assert_eq!(say(&trusting(&after).build().expect("a client"), &server).await.0, 200);
    let ends = numbers().await.value("annex_tls_certificate_expires_seconds", &[("listener", "server")]);
    assert!(ends > 4_000_000_000.0, "{ends}");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_stops_the_start_and_is_named() {
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    let identity = authority.server();
    let cases = [
        ("server.pem", String::new(), "server.tls.certificate", "CERTIFICATE"),
        ("server.pem", other.server().certificate, "server.tls.key", "is not the key of the certificate"),
        ("server.key", String::new(), "server.tls.key", "without a passphrase"),
        ("clients.pem", identity.key.clone(), "server.tls.client_ca", "CERTIFICATE"),
    ];
    for (file, text, key, reason) in cases {
        let files = Files::new(&identity);
        let config = files.config_for_clients(&authority, REQUIRED);
        fs::write(files.path(file), text).expect("a file");
        let Err(error) = config.start().await else { unreachable!("{file} is broken") };
        let error = format!("{error:#}");
        assert!(error.contains(key) && error.contains(reason) && error.contains(file), "{error}");
    }
    let files = Files::new(&identity);
    let with_keys = files.config_for_clients(&authority, &format!("{REQUIRED}\n{}", crate::auth::api_keys()));
    let Err(error) = with_keys.start().await else { unreachable!("no caller could use an API key") };
    assert!(format!("{error:#}").contains("optional"), "{error:#}");
    let without_authorities = "[auth.client_certificate]\nprincipal = \"san-dns\"";
    let files = Files::new(&identity);
    let Err(error) = files.config("server.tls").with(without_authorities).start().await else {
        unreachable!("no client shows a certificate")
    };
    assert!(format!("{error:#}").contains("client_ca"), "{error:#}");
}

#[tokio::test]
async fn an_error_about_a_key_has_no_byte_of_it() {
    let identity = Authority::new("authority").server();
    let lines: Vec<&str> = identity.key.lines().collect();
    let [begin, body, rest @ ..] = lines.as_slice() else { unreachable!("a key has more lines") };
    // Editors and environment variables lose line breaks.
    let without_line_breaks = lines.join(" ");
    let without_first_line_break = format!("{begin}{body}\n{}\n", rest.join("\n"));
    let bytes = format!("{:?}", body.as_bytes().split_at(16).0);
    for broken in [without_line_breaks, without_first_line_break] {
        let files = Files::new(&identity);
        fs::write(files.path("server.key"), broken).expect("a file");
        let Err(error) = files.config("server.tls").start().await else { unreachable!("the key is broken") };
        for error in [format!("{error:#}"), format!("{error:?}")] {
            assert!(error.contains("server.key"), "{error}");
            assert!(!error.contains(body) && !error.contains(bytes.trim_matches(['[', ']'])), "{error}");
        }
    }
}

#[tokio::test]
async fn handshakes_that_do_not_end_are_hung_up_on() {
    let authority = Authority::new("authority");
    let files = Files::new(&authority.server());
    let server = start(&files.config("server.tls").set("server.head_seconds", 1)).await;
    // Nothing, the beginning of a record, and a record that is announced and does not come.
    let beginnings: [&[u8]; 4] =
        [b"", b"\x16", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03"];
    let stalled = (0..100).map(|number| {
        let beginning = beginnings[number % beginnings.len()];
        let server = &server;
        async move {
            let mut stream = connect(server).await;
            stream.write_all(beginning).await.expect("sent");
            let mut answer = Vec::new();
            // Bytes that the server has not read make the end a reset.
            let _ = timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.expect("the server hangs up");
        }
    });
    let client = trusting(&authority).build().expect("a client");
    let (_, (status, _)) = futures::future::join(futures::future::join_all(stalled), say(&client, &server)).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn plain_http_to_the_tls_port_is_told_to_use_https() {
    let authority = Authority::new("authority");
    let files = Files::new(&authority.server());
    let server = start(&files.config("server.tls")).await;
    let call = async |bytes: &[u8]| {
        let mut stream = connect(&server).await;
        stream.write_all(bytes).await.expect("sent");
        let mut answer = Vec::new();
        let _ = timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.expect("the server hangs up");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = call(b"POST /a2a/jsonrpc HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}").await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"), "{answer}");
    assert_eq!(call(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await, "");
    assert_eq!(call(b"\0\0\0\0").await, "");
}

#[tokio::test]
async fn the_admin_api_and_its_metrics_are_served_over_tls() {
    use sha2::{Digest, Sha256};
    let authority = Authority::new("authority");
    let files = Files::new(&authority.server());
    let digest: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
    let more = format!(
        "[admin]\nmetrics_listen = \"127.0.0.1:0\"\n[[admin.token]]\nname = \"test\"\ntoken_sha256 = \"{digest}\""
    );
    let server = start(&files.config("admin.tls").with(&more)).await;
    assert!(server.url().starts_with("http://"), "only the admin API has TLS");
    let client = trusting(&authority).build().expect("a client");
    let listed = client.get(format!("{}/v1/extensions", server.admin_url())).bearer_auth(TOKEN).send().await;
    assert_eq!(listed.expect("an answer").status().as_u16(), 200);
    let page = client.get(format!("{}/metrics", server.metrics_url())).send().await.expect("a page");
    let page = crate::prometheus::parse(&page.text().await.expect("a text"));
    assert!(page.has("annex_tls_certificate_expires_seconds", &[("listener", "admin")]));
}

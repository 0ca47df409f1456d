//! The hook `extended-card`: what readers of the extended card get of the entries of extensions, on each binding.

use annex_auth::{Jwks, signature};
use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_grpc::pb::v0_3 as older;
use annex_test_support::{TestConfig, TestServer};
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::auth::{ADA, BOB, api_keys};
use crate::installation::CARD;
use crate::output::STEERING;
use crate::reads;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../auth/tests/auth/fixtures");

/// The ways to read the extended card: the three bindings, and those of 0.3.
const WAYS: [&str; 6] = ["JSON-RPC", "HTTP+JSON", "gRPC", "0.3 JSON-RPC", "0.3 HTTP+JSON", "0.3 gRPC"];

/// An agent with an extended card and callers. A message `wait` takes long.
const RULES: &str = r#"
    [[agent.rule]]
    text = "wait"
    steps = [{ status = { state = "working" } }, { wait_ms = 60000 }]
    [[agent.rule]]
    steps = [{ status = { state = "completed" } }]
"#;

/// The extension whose hook executes `command`, with further keys of its table and further parameters.
fn showing(command: &str, more: &str, parameters: &str) -> String {
    let live = "live = { params = { n = 1 }, seconds = 0 }";
    reads::showing(&format!("entry = {command:?}\n{live}\n{parameters}"), more)
}

fn config(extensions: &str) -> TestConfig {
    let card = format!("{}\n[card.extended]\ndescription = \"All of it\"\n{extensions}", api_keys());
    TestConfig::script(RULES).set("server.a2a_0_3", true).with(&card)
}

fn signed(extensions: &str) -> TestConfig {
    config(extensions).with(&format!("[card.signing]\nkid = \"k1\"\nkey_file = \"{FIXTURES}/p256.pem\"\n"))
}

async fn start(config: &TestConfig) -> TestServer {
    config.start().await.expect("a server")
}

/// An extended card as a client gets it.
#[derive(Debug, PartialEq)]
struct Shown {
    /// The card as text. For gRPC the `Debug` form.
    text: String,
    /// The extensions in the header.
    active: Option<String>,
    /// `Cache-Control`, if there is one.
    caching: Option<String>,
}

impl Shown {
    /// The card, of an answer over HTTP+JSON.
    fn card(&self) -> Value {
        serde_json::from_str(&self.text).expect("JSON")
    }

    /// The entry of the extension, of an answer over HTTP+JSON.
    fn entry(&self, uri: &str) -> Value {
        let card = self.card();
        let entries = card["capabilities"]["extensions"].as_array().expect("entries");
        entries.iter().find(|entry| entry["uri"] == uri).expect("the entry").clone()
    }

    fn is_changed(&self) -> bool {
        self.text.contains("changed")
    }
}

/// Reads the extended card as the caller with the API key `key`.
async fn read(server: &TestServer, way: &str, key: &str, extensions: &str) -> Shown {
    let rpc = |method: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method});
        server.client().post(format!("{}/a2a/jsonrpc", server.url())).json(&body)
    };
    let request = match way {
        "gRPC" => return read_grpc(server, key, extensions).await,
        "0.3 gRPC" => return read_older_grpc(server, key, extensions).await,
        "JSON-RPC" => rpc("GetExtendedAgentCard"),
        "0.3 JSON-RPC" => rpc("agent/getAuthenticatedExtendedCard"),
        "HTTP+JSON" => server.client().get(format!("{}/a2a/rest/extendedAgentCard", server.url())),
        _ => server.client().get(format!("{}/a2a/rest/v1/card", server.url())),
    };
    let (version, header) =
        if way.starts_with("0.3") { ("0.3", "x-a2a-extensions") } else { ("1.0", "a2a-extensions") };
    let request = request.header("a2a-version", version).header(header, extensions).header("x-api-key", key);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status().as_u16(), 200, "{way}");
    let field = |name: &str| response.headers().get(name).map(|value| value.to_str().expect("ASCII").to_owned());
    let (active, caching, vary) = (field(header), field("cache-control"), field("vary"));
    if way.ends_with("HTTP+JSON") {
        assert!(vary.is_some_and(|vary| vary.contains("A2A-Extensions")), "{way}");
    }
    Shown { text: response.text().await.expect("text"), active, caching }
}

async fn read_grpc(server: &TestServer, key: &str, extensions: &str) -> Shown {
    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    let mut request = tonic::Request::new(pb::GetExtendedAgentCardRequest::default());
    for (name, value) in [("a2a-version", "1.0"), ("a2a-extensions", extensions), ("x-api-key", key)] {
        request.metadata_mut().insert(name, value.parse().expect("ASCII"));
    }
    let response = A2aServiceClient::new(channel).get_extended_agent_card(request).await.expect("a card");
    let active = response.metadata().get("a2a-extensions").map(|value| value.to_str().expect("ASCII").to_owned());
    Shown { text: format!("{:?}", response.into_inner()), active, caching: None }
}

async fn read_older_grpc(server: &TestServer, key: &str, extensions: &str) -> Shown {
    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    let mut request = tonic::Request::new(older::GetAgentCardRequest {});
    for (name, value) in [("x-a2a-extensions", extensions), ("x-api-key", key)] {
        request.metadata_mut().insert(name, value.parse().expect("ASCII"));
    }
    let mut client = older::a2a_service_client::A2aServiceClient::new(channel);
    let response = client.get_agent_card(request).await.expect("a card");
    let active = response.metadata().get("x-a2a-extensions").map(|value| value.to_str().expect("ASCII").to_owned());
    Shown { text: format!("{:?}", response.into_inner()), active, caching: None }
}

async fn rest(server: &TestServer, key: &str, extensions: &str) -> Shown {
    read(server, "HTTP+JSON", key, extensions).await
}

async fn public(server: &TestServer) -> Value {
    server.get(CARD).await.expect("a card").json().await.expect("JSON")
}

#[tokio::test]
async fn a_reader_gets_the_entry_that_an_active_extension_shows() {
    let server = start(&config(&showing("change", "", ""))).await;
    for way in WAYS {
        let shown = read(&server, way, ADA, STEERING).await;
        assert!(shown.is_changed() && shown.text.contains("All of it"), "{way}: {}", shown.text);
        assert_eq!(shown.active.as_deref(), Some(STEERING), "{way}");
        for other in ["", "urn:other"] {
            let other = read(&server, way, ADA, other).await;
            assert!(!other.is_changed() && other.text.contains("All of it"), "{way}: {}", other.text);
            assert_eq!(other.active, None, "{way}");
            if way.ends_with("HTTP+JSON") {
                assert_eq!(shown.caching.as_deref(), Some("private, no-store"), "{way}");
                assert_eq!(other.caching.as_deref(), Some("private, max-age=60"), "{way}");
            }
        }
    }
    let public = public(&server).await;
    assert_eq!(public["capabilities"]["extensions"][0]["params"], json!({"n": 1}), "{public}");
}

#[tokio::test]
async fn each_reader_gets_its_own_entry_under_a_signature_that_holds() {
    let server = start(&signed(&showing("caller", "", ""))).await;
    let keys = std::fs::read_to_string(format!("{FIXTURES}/p256.pub.pem")).expect("a fixture");
    let keys = Jwks::from_pem(&keys).expect("a key");
    for (key, principal, other) in [(ADA, "ada", "bob"), (BOB, "bob", "ada")] {
        let shown = rest(&server, key, STEERING).await;
        let params = shown.entry(STEERING)["params"].to_string();
        assert!(params.contains(principal) && !params.contains(other), "{params}");
        signature::verify(&shown.text, &keys).expect("the signature holds");
    }
    let unchanged = rest(&server, ADA, "").await;
    signature::verify(&unchanged.text, &keys).expect("the signature holds");
    // Each signing gives another signature, so this card was not signed again.
    assert_eq!(rest(&server, BOB, "").await, unchanged);
}

#[tokio::test]
async fn a_card_without_changes_is_not_signed_again() {
    for command in ["ok", "same"] {
        let server = start(&signed(&showing(command, "", ""))).await;
        let shown = rest(&server, ADA, STEERING).await;
        assert_eq!(shown.active.as_deref(), Some(STEERING), "{command}");
        assert_eq!(shown.text, rest(&server, ADA, "").await.text, "{command}");
    }
}

#[tokio::test]
async fn a_changed_description_keeps_what_the_operator_says_of_the_entry() {
    let server = start(&config(&showing("describe", "required = true\nactivate = \"always\"", ""))).await;
    let (shown, public) = (rest(&server, ADA, "").await.entry(STEERING), public(&server).await);
    let present = &public["capabilities"]["extensions"][0];
    let description = shown["description"].as_str().expect("a text");
    assert!(description.starts_with("For you alone."), "{description}");
    assert_eq!(description.replacen("For you alone.", "Steers turns on command.", 1), present["description"]);
    for member in ["uri", "required", "params"] {
        assert_eq!(shown[member], present[member], "{member}");
    }
}

#[tokio::test]
async fn a_fault_leaves_the_entry_as_it_is_and_never_the_card() {
    for (command, more) in [
        ("trap", "on_failure = \"reject\""),
        ("trap", "on_failure = \"skip\""),
        ("trap", "required = true"),
        ("loop", ""),
        ("memory-bomb", ""),
        ("error", ""),
        ("bad-json", ""),
        ("not-an-object", ""),
        ("deep-json 1000", ""),
        ("odd-json 0", ""),
        ("big-result 40000", ""),
        ("big-description 40000", ""),
    ] {
        let server = start(&config(&showing(command, more, ""))).await;
        let shown = rest(&server, ADA, STEERING).await;
        assert_eq!(shown, rest(&server, ADA, "").await, "{command}, {more}");
        assert_eq!(shown.active, None, "{command}, {more}");
    }
}

#[tokio::test]
async fn an_entry_that_cannot_be_signed_takes_no_other_with_it() {
    let extensions = format!(
        "{}{}",
        showing("big-number", "", "uri = \"urn:bad\"\nowns_keys = false"),
        showing("change", "", "uri = \"urn:good\"\nowns_keys = false")
    );
    let both = "urn:bad, urn:good";
    let server = start(&signed(&extensions)).await;
    let shown = rest(&server, ADA, both).await;
    assert_eq!(shown.active.as_deref(), Some("urn:good"));
    assert_eq!(shown.entry("urn:bad")["params"], json!({"n": 1}));
    assert_eq!(shown.entry("urn:good")["params"], json!({"shown": "changed"}));
    let keys = std::fs::read_to_string(format!("{FIXTURES}/p256.pub.pem")).expect("a fixture");
    signature::verify(&shown.text, &Jwks::from_pem(&keys).expect("a key")).expect("the signature holds");
    // Without a signature the number is no fault.
    let server = start(&config(&extensions)).await;
    let shown = rest(&server, ADA, both).await;
    assert!(shown.text.contains("9007199254740993"), "{}", shown.text);
    assert_eq!(shown.active.as_deref(), Some("urn:bad,urn:good"));
}

#[tokio::test]
async fn an_extension_that_is_always_active_shows_its_entry_to_the_callers_that_it_is_for() {
    let more = "activate = \"always\"\nallow = [\"principal:ada\"]";
    let server = start(&config(&showing("change", more, ""))).await;
    for (key, is_shown) in [(ADA, true), (BOB, false)] {
        for extensions in ["", STEERING] {
            let shown = rest(&server, key, extensions).await;
            assert_eq!((shown.is_changed(), shown.active.is_some()), (is_shown, is_shown), "{}", shown.text);
        }
    }
}

#[tokio::test]
async fn the_card_is_read_without_extensions_while_no_turn_can_begin() {
    let server = start(&config(&showing("change", "", "")).set("server.max_running_turns", 1)).await;
    assert!(rest(&server, ADA, STEERING).await.is_changed());
    let wait = server.say("wait").header("x-api-key", ADA).streaming();
    let mut running = wait.open().await.expect("a stream");
    for event in ["the task", "the state WORKING"] {
        running.next().await.expect("an event").expect(event);
    }
    let shown = rest(&server, BOB, STEERING).await;
    assert_eq!((shown.is_changed(), shown.active), (false, None));
}

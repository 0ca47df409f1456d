//! The Agent Card over HTTP.

use annex_test_support::STATE_INJECTION;
use serde_json::{Value, json};

use crate::auth::{ADA, api_keys};
use crate::installation::{Installation, on_card};
use crate::specialist;
use crate::{agent, state_injection};
use annex_auth::Jwks;
use annex_auth::signature;
use annex_protocol::AgentCard;

const CARD: &str = "/.well-known/agent-card.json";

#[tokio::test]
async fn the_card_declares_each_extension_with_its_schema() {
    let server = specialist("").await;
    let card: Value = server.get(CARD).await.expect("a card").json().await.expect("JSON");
    let extension = &card["capabilities"]["extensions"][0];
    assert_eq!(extension["uri"], STATE_INJECTION);
    assert_eq!(extension["required"], true);
    assert_eq!(extension["params"]["state_schema"]["properties"]["user_info"]["required"][2], "email");
    let interface = &card["supportedInterfaces"][0];
    assert_eq!(interface["url"], format!("{}/a2a/jsonrpc", server.url()));
    assert_eq!((&interface["protocolBinding"], &interface["protocolVersion"]), (&"JSONRPC".into(), &"1.0".into()));
}

/// The interfaces on a card: binding and address of each.
async fn interfaces(server: &annex_test_support::TestServer) -> Vec<(String, String)> {
    let card: Value = server.get(CARD).await.expect("a card").json().await.expect("JSON");
    let interfaces = card["supportedInterfaces"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    interfaces.iter().map(|one| (text(&one["protocolBinding"]), text(&one["url"]))).collect()
}

#[tokio::test]
async fn the_specialists_card_is_one_that_googles_adk_takes() {
    // ADK wants each address on a card to have a scheme, and the host and the port that the card came from.
    let server = specialist("").await;
    for (binding, url) in interfaces(&server).await {
        assert!(url.starts_with(&format!("{}/", server.url())), "{binding}: {url}");
    }
    let said = crate::three_ways::TestMessage { text: "hello", ..Default::default() };
    let heard = crate::three_ways::say(&server, crate::three_ways::Binding::Grpc, said).await;
    assert_eq!(heard.error().0, "EXTENSION_SUPPORT_REQUIRED", "gRPC is served nevertheless");
}

#[tokio::test]
async fn the_catalogues_card_names_grpc() {
    let catalogue = std::path::Path::new(crate::catalogue::FOLDER).join("annex.toml");
    let server = annex_test_support::TestServer::from_file(&catalogue, None).await.expect("the example starts");
    let address = server.url().trim_start_matches("http://").to_owned();
    assert!(interfaces(&server).await.contains(&("GRPC".to_owned(), address)));
}

#[tokio::test]
async fn a_client_that_has_the_card_is_told_so() {
    let server = specialist("").await;
    let first = server.get(CARD).await.expect("a card");
    let header = |name: &str| first.headers()[name].to_str().expect("text").to_owned();
    let etag = header("etag");
    let modified = header("last-modified");
    assert!(header("cache-control").contains("max-age="));
    assert!(modified.ends_with(" GMT"), "{modified}");
    let get = |name: &'static str, value: String| {
        server.client().get(format!("{}{CARD}", server.url())).header(name, value).send()
    };
    for (name, value, status) in [
        ("if-none-match", etag.clone(), 304),
        ("if-none-match", format!("\"other\", W/{etag}"), 304),
        ("if-none-match", "*".to_owned(), 304),
        ("if-none-match", "\"other\"".to_owned(), 200),
        ("if-modified-since", modified, 304),
    ] {
        let reply = get(name, value.clone()).await.expect("a reply");
        assert_eq!(reply.status().as_u16(), status, "{name}: {value}");
        assert_eq!(reply.headers()["etag"].to_str().ok(), Some(etag.as_str()));
    }
}

#[tokio::test]
async fn the_signature_covers_the_card_with_its_extensions() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../auth/tests/auth/fixtures");
    let signing = format!("[card.signing]\nkid = \"k1\"\nkey_file = \"{fixtures}/p256.pem\"");
    let server =
        agent("Say something.", &format!("{}\n{signing}", state_injection("session-state = { read = true }"))).await;
    let card = server.get("/.well-known/agent-card.json").await.expect("a card").text().await.expect("a body");
    let keys = std::fs::read_to_string(format!("{fixtures}/p256.pub.pem")).expect("a fixture");
    let keys = Jwks::from_pem(&keys).expect("a key");
    assert_eq!(signature::verify(&card, &keys).expect("it holds").kid, "k1");
    let tampered = card.replace("extensions/state_injection/v1", "extensions/state_injection/v2");
    assert_ne!(tampered, card);
    assert!(signature::verify(&tampered, &keys).is_err());
}

#[tokio::test]
async fn ways_to_a_token_are_on_the_signed_card_on_the_extended_one_and_on_that_of_0_3() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../auth/tests/auth/fixtures");
    let more = format!(
        "{}\n[auth.jwt]\nissuer = \"https://issuer.example\"\naudience = [\"annex\"]\n\
         jwks_url = \"https://issuer.example/keys\"\n[auth.declare]\n\
         openid_connect_url = \"https://issuer.example/openid\"\n[auth.declare.authorization_code]\n\
         authorization_url = \"https://issuer.example/authorize\"\ntoken_url = \"https://issuer.example/token\"\n\
         scopes = {{ ask = \"Ask the agent\" }}\n[card.extended]\ndescription = \"All of it\"\n\
         [card.signing]\nkid = \"k1\"\nkey_file = \"{fixtures}/p256.pem\"",
        api_keys()
    );
    let server = agent("Say something.", &more).await;
    let served = server.get(CARD).await.expect("a card").text().await.expect("a body");
    let keys = std::fs::read_to_string(format!("{fixtures}/p256.pub.pem")).expect("a fixture");
    let keys = Jwks::from_pem(&keys).expect("a key");
    assert_eq!(signature::verify(&served, &keys).expect("it holds").kid, "k1");
    let tampered = served.replace("issuer.example/token", "issuer.evil/token");
    assert!(tampered != served && signature::verify(&tampered, &keys).is_err(), "nobody puts another URL there");
    // The card as a client of 1.0 reads it.
    let public: AgentCard = serde_json::from_str(&served).expect("a card");
    let names: Vec<&str> = public.security_schemes.keys().map(String::as_str).collect();
    assert_eq!(names, ["apiKey", "jwt", "openIdConnect", "oauth2AuthorizationCode"]);

    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}});
    let url = format!("{}/a2a/jsonrpc", server.url());
    let request = server.client().post(url).header("A2A-Version", "1.0").header("x-api-key", ADA).json(&body);
    let extended: serde_json::Value = request.send().await.expect("an answer").json().await.expect("JSON");
    let flows = &extended["result"]["securitySchemes"]["oauth2AuthorizationCode"]["oauth2SecurityScheme"]["flows"];
    let flow = &flows["authorizationCode"];
    assert_eq!(
        (&flow["tokenUrl"], &flow["scopes"]["ask"]),
        (&json!("https://issuer.example/token"), &json!("Ask the agent"))
    );

    let older = server.get("/.well-known/agent.json").await.expect("a card");
    let older: serde_json::Value = older.json().await.expect("JSON");
    let schemes = &older["securitySchemes"];
    assert_eq!(
        (&schemes["openIdConnect"]["type"], &schemes["oauth2AuthorizationCode"]["type"]),
        (&json!("openIdConnect"), &json!("oauth2"))
    );
    assert_eq!(schemes["openIdConnect"]["openIdConnectUrl"], "https://issuer.example/openid");
    let flow = &schemes["oauth2AuthorizationCode"]["flows"]["authorizationCode"];
    assert_eq!(flow["authorizationUrl"], "https://issuer.example/authorize");
}

#[tokio::test]
async fn clients_that_post_to_a_slash_below_the_json_rpc_url_are_served() {
    let server = specialist("").await;
    let card: serde_json::Value =
        server.get("/.well-known/agent-card.json").await.expect("a card").json().await.unwrap();
    let url = format!("{}/", card["supportedInterfaces"][0]["url"].as_str().expect("a URL"));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "nobody"}});
    let answer = server.client().post(url).header("A2A-Version", "1.0").json(&body).send().await.expect("an answer");
    let answer: serde_json::Value = answer.json().await.expect("JSON");
    assert_eq!(answer["error"]["code"], -32_001);
}

#[tokio::test]
async fn a_signed_card_with_the_fields_of_0_3_verifies_as_it_is_and_without_them() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../auth/tests/auth/fixtures");
    let keys = std::fs::read_to_string(format!("{fixtures}/p256.pub.pem")).expect("a fixture");
    let keys = Jwks::from_pem(&keys).expect("a key");
    for (older, count) in [(true, 4), (false, 2)] {
        let signing =
            format!("[card.signing]\nkid = \"k1\"\nkey_file = \"{fixtures}/p256.pem\"\n[server]\na2a_0_3 = {older}");
        let server = agent("Say something.", &signing).await;
        let served = server.get(CARD).await.expect("a card").text().await.expect("a body");
        assert_eq!(served.contains("preferredTransport"), older);
        assert_eq!(signature::verify(&served, &keys).expect("it holds over all").kid, "k1");
        let known: AgentCard = serde_json::from_str(&served).expect("a card");
        assert_eq!(known.signatures.len(), count);
        let known = serde_json::to_string(&known).expect("JSON");
        assert!(!known.contains("preferredTransport"));
        assert_eq!(signature::verify(&known, &keys).expect("it holds over what is known").kid, "k1");
        let tampered = served.replace("Test agent", "Best agent");
        assert!(tampered != served && signature::verify(&tampered, &keys).is_err());
    }
}

#[tokio::test]
async fn the_card_names_the_bindings_that_the_config_names_and_all_are_served() {
    let config = include_str!("../../../../examples/specialist/annex.toml");
    let config = config.replacen("[\"JSONRPC\", \"HTTP+JSON\"]", "[\"HTTP+JSON\", \"JSONRPC\"]", 1);
    let server = annex_test_support::TestServer::start(&config).await.expect("it starts");
    let card: serde_json::Value = server.get(CARD).await.expect("a card").json().await.expect("JSON");
    let interfaces = card["supportedInterfaces"].as_array().expect("a list");
    let bindings: Vec<&str> = interfaces.iter().filter_map(|one| one["protocolBinding"].as_str()).collect();
    assert_eq!(bindings, ["HTTP+JSON", "JSONRPC", "HTTP+JSON", "JSONRPC"], "for 1.0, then for 0.3");
    let said = crate::three_ways::TestMessage { text: "hello", ..Default::default() };
    let heard = crate::three_ways::say(&server, crate::three_ways::Binding::Grpc, said).await;
    assert_eq!(heard.error().0, "EXTENSION_SUPPORT_REQUIRED", "gRPC is there");
    for wrong in ["[]", "[\"JSONRPC\", \"JSONRPC\"]", "[\"SOAP\"]"] {
        let config = config.replacen("[\"HTTP+JSON\", \"JSONRPC\"]", wrong, 1);
        let error = annex_test_support::TestServer::start(&config).await.err().expect("refused");
        assert!(format!("{error:#}").contains("bindings"), "{wrong}: {error:#}");
    }
}

/// Settings of the test extension under a URI of its own, with `bytes` of filler in its entry.
fn saying(uri: &str, bytes: usize) -> String {
    format!("[parameters]\nuri = \"{uri}\"\n[parameters.behaviour]\ndeclare = \"big-result {bytes}\"\n")
}

#[tokio::test]
async fn the_component_that_would_fill_the_card_is_left_out_and_the_others_stay() {
    let installation = Installation::new();
    let folder = installation.path("managed");
    std::fs::create_dir(&folder).expect("a folder");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../auth/tests/auth/fixtures/p256.pem");
    installation.config(&format!(
        "[runtime]\nwatch = false\nextensions_dir = \"managed\"\n[card.signing]\nkid = \"k1\"\n\
         key_file = {fixture:?}\n[card.extended]\ndescription = \"All of it\"\n{}",
        crate::auth::api_keys()
    ));
    let put = |name: &str, bytes: usize| {
        installation.component(&format!("managed/{name}.wasm"), "large");
        let settings = saying(&format!("https://annex.example/{name}"), bytes);
        std::fs::write(folder.join(format!("{name}.toml")), settings).expect("a file");
    };
    for number in 0..8 {
        put(&number.to_string(), 31_900);
    }
    let server = installation.serve().await;
    let expected: Vec<String> = (0..8).map(|number| format!("https://annex.example/{number}")).collect();
    assert_eq!(on_card(&server).await, expected);

    // One has no room beside them, one is too large by itself, one is small.
    put("8", 31_900);
    put("9", 1_048_000);
    put("a", 100);
    let mut reloaded = server.installer().reload().await.expect("a reload");
    reloaded.failed.sort();
    assert_eq!(
        reloaded.failed,
        ["8.wasm in runtime.extensions_dir", "9.wasm in runtime.extensions_dir"].map(str::to_owned)
    );
    let expected: Vec<String> = expected.into_iter().chain(["https://annex.example/a".to_owned()]).collect();
    assert_eq!(on_card(&server).await, expected);

    let public = server.get(CARD).await.expect("a card").text().await.expect("a body");
    let url = format!("{}/a2a/rest/extendedAgentCard", server.url());
    let extended = server.client().get(url).header("x-api-key", crate::auth::ADA).header("a2a-version", "1.0");
    let extended = extended.send().await.expect("a card").text().await.expect("a body");
    for card in [public, extended] {
        assert!(card.len() > 250_000 && card.len() <= 512 << 10, "{}", card.len());
        let card: AgentCard = serde_json::from_str(&card).expect("a card");
        assert_eq!(card.capabilities.extensions.len(), 9);
        assert!(!card.signatures.is_empty());
    }
}

#[tokio::test]
async fn an_agent_that_says_more_of_itself_than_clients_read_does_not_start() {
    let skill =
        format!("[[card.skill]]\nid = \"s\"\nname = \"s\"\ndescription = \"{}\"\ntags = []", "x".repeat(600_000));
    let installation = Installation::new();
    installation.config(&skill);
    let Err(error) = installation.try_serve().await else {
        panic!("the server started");
    };
    let text = format!("{error:#}");
    assert!(text.contains("at most 524288") && text.contains("the agent and its skills"), "{text}");
}

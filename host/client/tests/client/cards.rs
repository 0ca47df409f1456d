//! Cards are cached during their `max-age` and revalidated afterwards. A client with trusted keys accepts only cards
//! that one of these keys has signed.

use annex_auth::Jwks;
use annex_auth::signature::Signer;
use annex_client::{Client, ClientConfig, ClientError};
use annex_protocol::AgentCard;

use crate::support::{Foreign, card, chain, client, ok};

const KEY: &str = include_str!("../../../auth/tests/auth/fixtures/ed25519.pem");
const PUBLIC_KEY: &str = include_str!("../../../auth/tests/auth/fixtures/ed25519.pub.pem");
const NOT_MODIFIED: &str = "HTTP/1.1 304 Not Modified\r\nconnection: close\r\ncache-control: max-age=60\r\n\r\n";

async fn name(client: &Client, server: &Foreign) -> String {
    client.card(&server.url).await.expect("a card").card.name.clone()
}

#[tokio::test]
async fn a_card_is_not_asked_for_again_while_its_max_age_lasts() {
    let server = Foreign::start(&[&card("cache-control: public, max-age=60\r\n")]).await;
    let client = client(ClientConfig::default());
    for _ in 0..3 {
        assert_eq!(name(&client, &server).await, "Foreign");
    }
    assert_eq!(server.requests().len(), 1);
    assert!(server.requests()[0].contains("a2a-version: 1.0"));
}

#[tokio::test]
async fn an_old_card_is_confirmed_by_its_etag_and_holds_again() {
    let server = Foreign::start(&[&card("etag: \"v1\"\r\n"), NOT_MODIFIED]).await;
    let client = client(ClientConfig::default());
    for _ in 0..3 {
        assert_eq!(name(&client, &server).await, "Foreign");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(!requests[0].contains("if-none-match") && requests[1].contains("if-none-match: \"v1\""));
}

#[tokio::test]
async fn a_changed_card_replaces_the_one_that_was_kept() {
    let changed = card("etag: \"v2\"\r\n").replace("\"Foreign\"", "\"Changed\"");
    let server = Foreign::start(&[&card("etag: \"v1\"\r\n"), &changed, NOT_MODIFIED]).await;
    let client = client(ClientConfig::default());
    for expected in ["Foreign", "Changed", "Changed"] {
        assert_eq!(name(&client, &server).await, expected);
    }
    assert!(server.requests()[2].contains("if-none-match: \"v2\""));
}

#[tokio::test]
async fn what_must_not_be_kept_is_asked_for_without_an_etag() {
    let unkept = card("etag: \"v1\"\r\ncache-control: no-store\r\n");
    let server = Foreign::start(&[&unkept, &unkept]).await;
    let client = client(ClientConfig::default());
    for _ in 0..2 {
        name(&client, &server).await;
    }
    assert!(!server.requests()[1].contains("if-none-match"));
}

#[tokio::test]
async fn a_server_that_confirms_a_card_that_was_never_asked_for_has_none() {
    let server = Foreign::start(&[NOT_MODIFIED]).await;
    let error = client(ClientConfig::default()).card(&server.url).await.expect_err("no card");
    assert!(matches!(error, ClientError::NoCard { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_serve_the_agent_now_is_no_stranger() {
    let starting = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 9\r\n\r\nstarting\n";
    let server = Foreign::start(&[starting]).await;
    let error = client(ClientConfig::default()).card(&server.url).await.expect_err("no card");
    assert!(matches!(error, ClientError::NotServed { .. }), "{error}");
    let text = error.to_string();
    assert!(text.ends_with("answered 503 Service Unavailable: starting"), "{text}");
}

#[tokio::test]
async fn the_card_that_was_not_used_for_longest_goes_first() {
    let kept = card("cache-control: max-age=60\r\n");
    let first = Foreign::start(&[&kept, &kept]).await;
    let second = Foreign::start(&[&kept]).await;
    let client = client(ClientConfig { max_cards: std::num::NonZeroUsize::MIN, ..ClientConfig::default() });
    for server in [&first, &second, &first] {
        name(&client, server).await;
    }
    assert_eq!((first.requests().len(), second.requests().len()), (2, 1));
}

fn trusting() -> Client {
    let keys = Jwks::from_pem(PUBLIC_KEY).expect("a key");
    client(ClientConfig { trusted_keys: Some(keys), ..ClientConfig::default() })
}

fn signed(name: &str) -> String {
    let mut card = AgentCard { name: name.to_owned(), ..AgentCard::default() };
    card.signatures.push(Signer::from_pem(KEY, "k", None).expect("a signer").sign(&card).expect("a signature"));
    serde_json::to_string(&card).expect("JSON")
}

#[tokio::test]
async fn a_card_that_a_trusted_key_has_signed_says_which() {
    let server = Foreign::start(&[&ok("application/json", &signed("Signed"))]).await;
    let document = trusting().card(&server.url).await.expect("a card");
    assert_eq!(document.verified.as_ref().map(|verified| verified.kid.as_str()), Some("k"));
}

#[tokio::test]
async fn an_unsigned_or_forged_card_is_refused_and_not_kept() {
    let forged = signed("Signed").replace("Signed", "Forged");
    let server = Foreign::start(&[&card("cache-control: max-age=60\r\n"), &ok("application/json", &forged)]).await;
    let client = trusting();
    for expected in ["no signatures", "no signature is valid"] {
        let error = client.card(&server.url).await.expect_err("not to be trusted");
        assert!(
            matches!(error, ClientError::Untrusted { .. }) && chain(&error).contains(expected),
            "{}",
            chain(&error)
        );
    }
}

#[tokio::test]
async fn a_card_of_more_than_a_mebibyte_is_not_read_to_its_end() {
    let server = Foreign::start(&[&ok("application/json", &" ".repeat((1 << 20) + 1))]).await;
    let error = client(ClientConfig::default()).card(&server.url).await.expect_err("too large");
    assert!(matches!(error, ClientError::TooLarge { max_bytes: 1_048_576, .. }), "{error}");
}

#[tokio::test]
async fn optional_fields_of_a_card_that_cannot_be_read_are_left_out() {
    let odd = r#""x":"\ud800","provider":"me","iconUrl":7,"documentationUrl":null,"version":2,"skills":[null,{"id":"s","tags":null}],
        "signatures":{},"securityRequirements":[{"schemes":{"a":[]}},{"schemes":{"own":{}}}],
        "securitySchemes":{"old":{"type":"apiKey","in":"header","name":"x"},"none":null,"new":{"someScheme":{}},
            "own":{"mtlsSecurityScheme":{}},
            "flow":{"oauth2SecurityScheme":{"flows":{"someFlow":{}},"description":3}}},"capabilities":{"streaming":"yes","#;
    let odd = card("")
        .replace(r#""capabilities":{"streaming":true"#, &odd.replace('\n', "").replace(r#""yes","#, r#""yes""#));
    let server = Foreign::start(&[&odd]).await;
    let read = client(ClientConfig::default()).card(&server.url).await.expect("a card");
    let card = &read.card;
    assert_eq!((card.name.as_str(), card.supported_interfaces.len()), ("Foreign", 2));
    assert_eq!(card.security_schemes.keys().collect::<Vec<_>>(), ["own", "flow"]);
    assert_eq!((card.skills.len(), card.security_requirements.len()), (1, 1));
    assert!(card.provider.is_none() && card.capabilities.streaming.is_none() && card.version.is_empty());
}

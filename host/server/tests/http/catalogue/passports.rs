use std::fs;
use std::sync::Arc;

use annex_protocol::{AgentExtension, ExtensionUri, Json, JsonObject, Message, Secret};
use annex_runtime::{ClientCall, ClientCallRequest, Extension, Grants, Installation, Limits, Runtime, RuntimeConfig};
use annex_test_support::{Reply, TestServer};
use serde_json::{Value, json};

use crate::catalogue::{FOLDER, catalogue, declaration, refusal, send};

const URI: &str = "https://github.com/a2aproject/a2a-samples/tree/main/samples/python/extensions/secure-passport";
const CLIENT: &str = "a2a://orchestrator.example.com";
/// The signature over the client id and `{"loyalty_tier":"Gold"}` with the key of the example.
const SIGNATURE: &str = "7Krm6uVSCuPY47BkPgtwuuYygjRCiUrR-ZTHrMgb8Fc";

fn passport(state: &Value, signature: Option<&str>) -> Value {
    let mut passport = json!({"clientId": CLIENT, "state": state});
    if let Some(signature) = signature {
        passport["signature"] = signature.into();
    }
    passport
}

fn signed() -> Value {
    passport(&json!({"loyalty_tier": "Gold"}), Some(SIGNATURE))
}

async fn show(server: &TestServer, text: &str, passport: &Value) -> Reply {
    send(server, URI, json!([{"text": text}]), json!({URI: passport})).await
}

/// An agent that repeats the passport of its session.
async fn repeating(parameters: &str) -> TestServer {
    let extension = format!(
        r#"
        [[extension]]
        component = "secure-passport"
        [extension.grants]
        secrets = {{ KEY = {{ file = "{FOLDER}/orchestrator.key" }} }}
        [extension.parameters]
        supported_state_keys = ["loyalty_tier"]
        clients = [{{ client_id = "{CLIENT}", algorithm = "hmac-sha256", secret = "KEY" }}]
        {parameters}
        "#
    );
    crate::agent("{passport?}", &extension).await
}

/// The passport that the session has.
fn held(reply: &Reply) -> Value {
    serde_json::from_str(reply.answer()).unwrap_or_else(|_| panic!("no passport: {}", reply.text))
}

fn pointer(rest: &str) -> String {
    format!("/message/metadata/{}{rest}", URI.replace('/', "~1"))
}

#[tokio::test]
async fn the_agent_knows_the_client_from_its_passport_and_the_card_says_which_keys_it_understands() {
    let server = catalogue().await;
    assert_eq!(show(&server, "Who am I?", &signed()).await.answer(), format!("You come from {CLIENT}."));
    let params = declaration(&server, URI).await["params"].clone();
    assert_eq!(params, json!({"supportedStateKeys": ["loyalty_tier", "user_preferred_currency"]}));
}

#[tokio::test]
async fn a_signed_passport_is_verified_and_an_unsigned_one_is_not() {
    let server = repeating("").await;
    let verified = held(&show(&server, "prompt", &signed()).await);
    let expected = json!({"clientId": CLIENT, "verified": true, "state": {"loyalty_tier": "Gold"}});
    assert_eq!(verified, expected);
    let unsigned = passport(&json!({"loyalty_tier": "Gold", "shoe": 43}), None);
    let unsigned = held(&show(&server, "prompt", &unsigned).await);
    assert_eq!(unsigned["verified"], false);
    assert_eq!(unsigned["state"], json!({"loyalty_tier": "Gold"}));
}

#[tokio::test]
async fn a_forged_signature_is_refused_and_leaves_nothing_behind() {
    let server = repeating("").await;
    let forged = passport(&json!({"loyalty_tier": "Platinum"}), Some(SIGNATURE));
    let reply = show(&server, "prompt", &forged).await;
    assert_eq!((reply.code(), reply.violations()), (-32_602, vec![pointer("/signature")]), "{}", reply.text);
}

#[tokio::test]
async fn no_client_injects_a_passport_as_state() {
    let server = catalogue().await;
    let state = r#"{"passport":{"clientId":"a2a://liar.example.com","verified":true,"state":{}}}"#;
    let reply = server.say("Who am I?").state(state).send().await.expect("a reply");
    assert_eq!(reply.code(), -32_602, "{}", reply.text);
}

#[tokio::test]
async fn a_malformed_passport_is_ignored_or_refused_as_the_operator_says() {
    let malformed = json!({"clientId": CLIENT, "state": {}, "admin": true});
    let lenient = repeating("").await;
    let reply = show(&lenient, "prompt", &malformed).await;
    assert_eq!((reply.code(), reply.answer()), (0, ""), "{}", reply.text);
    let strict = repeating("on_malformed = \"reject\"\non_unsupported_key = \"reject\"").await;
    assert_eq!(show(&strict, "prompt", &malformed).await.violations(), [pointer("/admin")]);
    let unsupported = passport(&json!({"shoe": 43}), None);
    assert_eq!(show(&strict, "prompt", &unsupported).await.violations(), [pointer("/state/shoe")]);
}

#[tokio::test]
async fn where_a_signature_is_required_nothing_else_will_do() {
    let server = repeating("require_signature = true").await;
    assert_eq!(held(&show(&server, "prompt", &signed()).await)["verified"], true);
    let unsigned = show(&server, "prompt", &passport(&json!({}), None)).await;
    assert_eq!(unsigned.violations(), [pointer("/signature")]);
    let mut stranger = signed();
    stranger["clientId"] = "a2a://stranger.example.com".into();
    assert_eq!(show(&server, "prompt", &stranger).await.violations(), [pointer("/signature")]);
}

#[tokio::test]
async fn a_key_that_is_missing_keeps_the_server_from_starting_and_is_named() {
    let parameters = "supported_state_keys = [\"a\"]\nclients = [{ client_id = \"c\", algorithm = \"hmac-sha256\", secret = \"KEY\" }]";
    let error = refusal(&format!("component = \"secure-passport\"\n[extension.parameters]\n{parameters}")).await;
    assert!(error.contains("no secret \"KEY\""), "{error}");
}

/// The component as a client loads it, which signs with the key of the example.
async fn signing() -> Arc<Extension> {
    let parameters =
        format!(r#"{{"sign_as": {{"client_id": "{CLIENT}", "algorithm": "hmac-sha256", "secret": "KEY"}}}}"#);
    let key = Secret::new("a-demonstration-is-no-secret");
    let installation = Installation {
        grants: Grants { secrets: [("KEY".to_owned(), key)].into(), ..Grants::default() },
        parameters: JsonObject::parse(&parameters).expect("an object"),
        ..Installation::with_limits(Limits::standard())
    };
    let runtime = Runtime::new(&RuntimeConfig { instances: 1, ..RuntimeConfig::default() }).expect("a runtime");
    let component = fs::read(annex_components::SECURE_PASSPORT).expect("a component");
    Arc::new(runtime.load(component, installation).await.expect("it loads"))
}

#[tokio::test]
async fn the_agent_verifies_what_the_other_half_of_the_component_signs() {
    let declaration = AgentExtension { uri: ExtensionUri::from(URI), ..AgentExtension::default() };
    let input = Json::parse(r#"{"state": {"loyalty_tier": "Gold"}}"#.to_owned()).expect("JSON");
    let message = Message::user_text("prompt");
    let call = ClientCallRequest {
        operation: "SendMessage",
        agent: "http://a.example/card.json",
        declaration: Some(&declaration),
        input: Some(&input),
        message: Some(&message),
    };
    let (_, addition) = ClientCall::start(&signing().await, &call).await.expect("an addition");
    let passport = addition.message.get(URI).expect("a passport").to::<Value>().expect("JSON");
    assert_eq!(passport, signed());
    let server = repeating("require_signature = true").await;
    assert_eq!(held(&show(&server, "prompt", &passport).await)["verified"], true);
}

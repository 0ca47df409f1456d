use annex_test_support::{Reply, TestConfig, TestServer, mandates};
use serde_json::{Value, json};

use crate::catalogue::{catalogue, declaration, send};

const URI: &str = "https://github.com/google-agentic-commerce/ap2/tree/v0.1";
const URI_0_2: &str = "https://github.com/google-agentic-commerce/ap2/v1";
const CART: &str = "ap2.mandates.CartMandate";
const PAYMENT: &str = "ap2.mandates.PaymentMandate";
const CHECKOUT_0_2: &str = "ap2.mandates.CheckoutMandateSdJwt";
const PAYMENT_0_2: &str = "ap2.mandates.PaymentMandateSdJwt";

async fn pay(server: &TestServer, mandates: &Value) -> Reply {
    send(server, URI, json!([{"text": "Pay, please"}, {"data": mandates}]), json!({})).await
}

/// The places at which a message with these mandates is refused.
async fn refused(server: &TestServer, mandates: &Value) -> Vec<String> {
    let reply = pay(server, mandates).await;
    assert_eq!(reply.code(), -32_602, "{}", reply.text);
    reply.violations()
}

fn place(mandate: &str, rest: &str) -> String {
    format!("/message/parts/1/data/{mandate}{rest}")
}

/// The token with another letter in the middle of its signature.
fn forged(token: &Value) -> Value {
    let token = token.as_str().expect("a token");
    let (before, signature) = token.rsplit_once('.').expect("a signature");
    let (start, end) = signature.split_at(40);
    let letter = if end.starts_with('A') { "B" } else { "A" };
    format!("{before}.{start}{letter}{}", end.get(1..).unwrap_or_default()).into()
}

#[tokio::test]
async fn the_card_says_which_role_the_agent_has_in_a_payment() {
    let server = catalogue().await;
    assert_eq!(declaration(&server, URI).await["params"], json!({"roles": ["payment-processor"]}));
}

#[tokio::test]
async fn a_signed_payment_of_a_signed_cart_is_taken_once() {
    let server = catalogue().await;
    let mandates = mandates::signed("order-1");
    let taken = pay(&server, &mandates).await;
    assert_eq!(taken.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", taken.text);
    assert_eq!(taken.extensions.as_deref(), Some(URI));
    let mut again = refused(&server, &mandates).await;
    again.sort();
    let expected =
        [place(CART, "/merchant_authorization"), place(PAYMENT, "/payment_mandate_contents/payment_mandate_id")];
    assert_eq!(again, expected);
}

#[tokio::test]
async fn a_forged_signature_is_refused_and_uses_nothing_up() {
    let server = catalogue().await;
    let mandates = mandates::signed("order-2");
    for (mandate, signature) in [(CART, "merchant_authorization"), (PAYMENT, "user_authorization")] {
        let mut wrong = mandates.clone();
        wrong[mandate][signature] = forged(&mandates[mandate][signature]);
        let found = refused(&server, &wrong).await;
        assert!(found.contains(&place(mandate, &format!("/{signature}"))), "{found:?}");
    }
    let taken = pay(&server, &mandates).await;
    assert_eq!(taken.code(), 0, "{}", taken.text);
}

#[tokio::test]
async fn a_payment_of_another_amount_than_the_carts_is_refused() {
    let server = catalogue().await;
    let mut mandates = mandates::signed("order-3");
    mandates[PAYMENT]["payment_mandate_contents"]["payment_details_total"]["amount"]["value"] = json!(1);
    let found = refused(&server, &mandates).await;
    let amount = "/payment_mandate_contents/payment_details_total/amount/value";
    assert_eq!(found, [place(PAYMENT, amount), place(PAYMENT, "/user_authorization")]);
}

#[tokio::test]
async fn a_mandate_that_breaks_its_schema_or_names_a_member_twice_is_refused() {
    let server = catalogue().await;
    let mut mandates = mandates::signed("order-4");
    mandates[CART]["contents"]["payment_request"]["details"]["total"]["amount"]["value"] = json!("120");
    let amount = "/contents/payment_request/details/total/amount/value";
    let found = refused(&server, &mandates).await;
    assert!(found.contains(&place(CART, amount)), "{found:?}");
    let twice = r#"{"ap2.mandates.IntentMandate":{"natural_language_description":"x","intent_expiry":"2999-01-01T00:00:00Z","intent_expiry":"1999-01-01T00:00:00Z"}}"#;
    let message = format!(r#"{{"message":{{"messageId":"m-4","role":"ROLE_USER","parts":[{{"data":{twice}}}]}}}}"#);
    let reply = server.call("SendMessage", message).extensions(URI).send().await.expect("a reply");
    assert_eq!(reply.code(), -32_602, "{}", reply.text);
}

#[tokio::test]
async fn a_message_with_thousands_of_mandates_is_refused_and_no_failure_of_the_extension() {
    let server = catalogue().await;
    let many: Value = (0..8_000).map(|number| (format!("ap2.mandates.M{number}"), json!(0))).collect();
    for _ in 0..6 {
        assert_eq!(refused(&server, &many).await.len(), 64);
    }
    assert_eq!(pay(&server, &mandates::signed("order-5")).await.code(), 0);
}

/// A server with both versions of the extension. The keys are those of `examples/catalogue`.
async fn shop() -> TestServer {
    let version = |version: &str| {
        let keys = r#"[{ kty = "EC", crv = "P-256", x = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", y = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0" }]"#;
        format!(
            r#"
            [[extension]]
            component = "ap2"
            [extension.grants]
            clock = true
            keyvalue = {{}}
            [extension.parameters]
            version = "{version}"
            roles = ["merchant", "payment-processor"]
            audience = ["https://processor.example.com"]
            [[extension.parameters.merchants]]
            iss = "https://shop.example.com"
            name = "Shop"
            keys = {keys}
            [[extension.parameters.issuers]]
            iss = "https://wallet.example.com"
            keys = {keys}
            "#
        )
    };
    let config = TestConfig::template("You answer briefly.").with(&version("0.1")).with(&version("0.2"));
    config.start().await.expect("a server")
}

async fn pay_by_0_2(server: &TestServer, mandates: &Value) -> Reply {
    send(server, URI_0_2, json!([{"text": "Pay, please"}, {"data": mandates}]), json!({})).await
}

#[tokio::test]
async fn an_agent_with_both_versions_takes_the_mandates_of_each_once() {
    let server = shop().await;
    let mandates = mandates::signed_v0_2("order-6");
    let mut wrong = mandates.clone();
    wrong[CHECKOUT_0_2] = forged(&mandates[CHECKOUT_0_2]);
    let reply = pay_by_0_2(&server, &wrong).await;
    let places = reply.violations();
    assert!(places.contains(&place(CHECKOUT_0_2, "")), "{}", reply.text);
    assert!(reply.text.contains("invalid_credential: "), "{}", reply.text);

    let taken = pay_by_0_2(&server, &mandates).await;
    assert_eq!(taken.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", taken.text);
    assert_eq!(taken.extensions.as_deref(), Some(URI_0_2));
    let again = pay_by_0_2(&server, &mandates).await;
    assert_eq!(again.violations(), [place(CHECKOUT_0_2, ""), place(PAYMENT_0_2, "")], "{}", again.text);

    let first = pay(&server, &mandates::signed("order-6")).await;
    assert_eq!(first.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", first.text);
    assert_eq!(pay_by_0_2(&server, &mandates::signed("order-7")).await.code(), -32_602);
}

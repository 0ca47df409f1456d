use annex_test_support::{Reply, TestServer, until};
use serde_json::{Value, json};

use crate::catalogue::{FOLDER, call, catalogue, declaration, send};

const URI: &str = "https://github.com/a2aproject/a2a-samples/tree/main/extensions/agp";
const KEY: &str = "github.com/a2aproject/a2a-samples/tree/main/extensions/agp/routes";
const BILLING: &str = "billing:invoice:generate";
const TOKEN: &str = "a-demonstration-of-announcing";

fn intent(capability: &str, constraints: &Value) -> Value {
    json!({"target_capability": capability, "payload": {"amount": 99.99}, "policy_constraints": constraints})
}

fn announcement(path: &str, cost: f64, policy: &Value) -> Value {
    json!({"capability": BILLING, "version": "1.5", "cost": cost, "policy": policy, "path": path, "token": TOKEN})
}

async fn announce(server: &TestServer, announcement: &Value) -> Reply {
    call(server, URI, "agp/announce", announcement).await
}

/// An agent that takes announcements with the token of the example, each for a second.
async fn guarded() -> TestServer {
    let extension = format!(
        r#"
        [[extension]]
        component = "agent-gateway-protocol"
        [extension.grants]
        clock = true
        keyvalue = {{}}
        secrets = {{ TOKEN = {{ file = "{FOLDER}/announce.key" }} }}
        [extension.parameters]
        announcements = true
        announce_secret = "TOKEN"
        ttl_seconds = 1
        "#
    );
    crate::agent("", &extension).await
}

#[tokio::test]
async fn an_intent_goes_to_the_cheapest_route_that_meets_its_constraints() {
    let server = catalogue().await;
    assert_eq!(declaration(&server, URI).await["params"]["agent_role"], "gateway");
    let announced = announce(&server, &announcement("Squad_Cheap/gateway", 0.05, &json!({"requires_pii": true}))).await;
    assert!(announced.body["result"]["expires"].is_string(), "{}", announced.text);
    announce(&server, &announcement("Squad_Dear/gateway", 7.0, &json!({"requires_pii": true}))).await;
    let route = call(&server, URI, "agp/route", &intent(BILLING, &json!({"requires_pii": true}))).await;
    assert_eq!(route.body["result"]["path"], "Squad_Cheap/gateway", "{}", route.text);
    let secure = call(&server, URI, "agp/route", &intent(BILLING, &json!({"security_level": 4}))).await;
    assert_eq!(secure.body["result"]["path"], "Squad_Finance/gateway", "{}", secure.text);
}

#[tokio::test]
async fn the_answer_to_a_message_with_an_intent_names_its_route() {
    let server = catalogue().await;
    let reply = send(&server, URI, json!([{"text": "hi"}, {"data": intent(BILLING, &json!({}))}]), json!({})).await;
    let route = &reply.task()["artifacts"][0]["metadata"][KEY]["routes"][0];
    assert_eq!((&route["path"], &route["cost"]), (&json!("Squad_Finance/gateway"), &json!(0.1)), "{}", reply.text);
    let plain = send(&server, URI, json!([{"text": "hi"}]), json!({})).await;
    assert!(plain.code() == 0 && !plain.text.contains("routes"), "{}", plain.text);
}

#[tokio::test]
async fn what_cannot_be_routed_is_refused_with_the_errors_of_agp() {
    let server = catalogue().await;
    let unknown = send(&server, URI, json!([{"data": intent("baking", &json!({}))}]), json!({})).await;
    assert_eq!(unknown.code(), -32_200, "{}", unknown.text);
    let constraints = json!({"requires_pii": false});
    let refused = send(&server, URI, json!([{"data": intent(BILLING, &constraints)}]), json!({})).await;
    assert_eq!(refused.code(), -32_201, "{}", refused.text);
    assert_eq!(call(&server, URI, "agp/route", &intent(BILLING, &constraints)).await.code(), -32_201);
    let broken = send(&server, URI, json!([{"data": {"target_capability": BILLING}}]), json!({})).await;
    assert_eq!((broken.code(), broken.violations()), (-32_602, vec!["/message/parts/0/data".to_owned()]));
}

#[tokio::test]
async fn only_who_has_the_token_announces_and_an_old_announcement_makes_the_table_stale() {
    let server = guarded().await;
    let mut announcement = announcement("Squad/a", 1.0, &json!({}));
    announcement["token"] = json!("a guess");
    let refused = announce(&server, &announcement).await;
    assert_eq!((refused.code(), refused.violations()), (-32_602, vec!["/token".to_owned()]), "{}", refused.text);
    announcement["token"] = json!(TOKEN);
    assert_eq!(announce(&server, &announcement).await.code(), 0);
    let route = async || call(&server, URI, "agp/route", &intent(BILLING, &json!({}))).await.code();
    // In real time, which is what the component measures.
    until("the table is stale", async || route().await != 0).await;
    assert_eq!(route().await, -32_202);
}

#[tokio::test]
async fn an_announcement_is_small_enough_that_all_may_read_it() {
    let server = catalogue().await;
    let policy = |members: u32| (0..members).map(|number| (format!("p{number}"), json!(number))).collect::<Value>();
    let taken = announce(&server, &announcement("Squad/a", 1.0, &policy(32))).await;
    assert_eq!(taken.code(), 0, "{}", taken.text);
    for (policy, pointer) in [
        (policy(33), "/policy"),
        (json!({"regions": ["eu"]}), "/policy/regions"),
        (json!({"region": "eu ".repeat(1_000)}), ""),
    ] {
        let refused = announce(&server, &announcement("Squad/b", 1.0, &policy)).await;
        assert_eq!((refused.code(), refused.violations()), (-32_602, vec![pointer.to_owned()]), "{}", refused.text);
    }
}

/// The most that announcements can cost a message: eight intents, each with as many routes of the largest size as there
/// can be.
#[tokio::test]
async fn a_message_is_routed_however_much_was_announced() {
    let server = catalogue().await;
    for number in 0..100 {
        let policy = (0..31).map(|member| (format!("{member:02}{}", "k".repeat(40)), json!(member))).collect::<Value>();
        let announced = announce(&server, &announcement(&format!("Squad/{number}"), 1.0, &policy)).await;
        assert_eq!(announced.code(), 0, "{}", announced.text);
    }
    let parts = vec![json!({"data": intent(BILLING, &json!({}))}); 8];
    let reply = send(&server, URI, json!(parts), json!({})).await;
    let routes = &reply.task()["artifacts"][0]["metadata"][KEY]["routes"];
    assert_eq!(routes.as_array().map(Vec::len), Some(8), "{}", reply.text);
}

#[tokio::test]
async fn parameters_that_do_not_fit_are_refused_by_pointer_and_the_methods_need_their_extension() {
    let server = catalogue().await;
    let reply =
        call(&server, URI, "agp/announce", &json!({"capability": "a b", "version": "1", "policy": {}, "path": "p"}))
            .await;
    assert_eq!((reply.code(), reply.violations()), (-32_602, vec!["/capability".to_owned()]), "{}", reply.text);
    let inactive = server.call("agp/route", intent(BILLING, &json!({})).to_string()).send().await.expect("a reply");
    assert_eq!(inactive.code(), -32_008, "{}", inactive.text);
}

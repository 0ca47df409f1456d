//! Payments by x402, with a facilitator on loopback. The agent counts its turns, so an unpaid turn is seen.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use annex_agent::AgentExecutor;
use annex_test_support::{Reply, TestConfig, TestServer};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::catalogue::{catalogue, declaration};
use crate::durable::{Counting, counting, id_of, state};

const URI: &str = "https://github.com/google-agentic-commerce/a2a-x402/blob/main/spec/v0.2";
const STATUS: &str = "x402.payment.status";
const REQUIRED: &str = "x402.payment.required";
const PAYLOAD: &str = "x402.payment.payload";
const RECEIPTS: &str = "x402.payment.receipts";
const ERROR: &str = "x402.payment.error";

const FROM: &str = "0x857b06519E91e3A54538791bDbb0E22373e36b66";
const PAY_TO: &str = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C";

/// The answer of a facilitator to a question at `/verify` or `/settle`. `None` if it never answers.
type Told = fn(&'static str) -> Option<Response>;

struct Facilitator {
    port: u16,
    /// The questions: the endpoint, and the body.
    asked: Arc<Mutex<Vec<(&'static str, Value)>>>,
}

impl Facilitator {
    fn endpoints(&self) -> Vec<&'static str> {
        self.asked.lock().expect("no panic").iter().map(|(endpoint, _)| *endpoint).collect()
    }
}

async fn facilitator(told: Told) -> Facilitator {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let mut router = Router::new();
    for endpoint in ["/verify", "/settle"] {
        let seen = Arc::clone(&asked);
        let answer = move |Json(body): Json<Value>| {
            seen.lock().expect("no panic").push((endpoint, body));
            async move {
                match told(endpoint) {
                    Some(response) => response,
                    None => std::future::pending().await,
                }
            }
        };
        router = router.route(endpoint, post(answer));
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move { axum::serve(listener, router).await });
    Facilitator { port, asked }
}

/// A facilitator that accepts and settles each payment.
fn honest(endpoint: &'static str) -> Option<Response> {
    Some(match endpoint {
        "/verify" => Json(json!({"isValid": true, "payer": FROM})).into_response(),
        _ => settled(&json!({})),
    })
}

/// The answer to a settlement, with other members.
fn settled(more: &Value) -> Response {
    let mut answer = json!({"success": true, "transaction": "0xabc123", "network": "base", "payer": FROM});
    let members = more.as_object().cloned().unwrap_or_default();
    answer.as_object_mut().expect("an object").extend(members);
    Json(answer).into_response()
}

/// The config of a server whose extension asks the facilitator at `port`.
fn config(port: u16, timeout_ms: u32, parameters: &str) -> TestConfig {
    TestConfig::without_agent().set("server.drain_seconds", 0).with(&format!(
        r#"
        [[extension]]
        component = "x402"
        required = true
        [extension.limits]
        wall_ms = 60000
        turn_wall_ms = 120000
        [extension.grants]
        clock = true
        keyvalue = {{}}
        rewrite-answer = true
        rewrite-message = true
        task-metadata = true
        [extension.grants.http]
        allow = [{{ methods = ["POST"], scheme = "http", host = "127.0.0.1", port = {port} }}]
        allow_private = ["127.0.0.1"]
        timeout_ms = {timeout_ms}
        max_response_bytes = 4096
        [extension.parameters]
        facilitator = "http://127.0.0.1:{port}"
        {parameters}
        [[extension.parameters.accepts]]
        network = "base"
        asset = "0x833589fCD6eDb6E08f4c7C32D4f71b54bda02913"
        pay_to = "{PAY_TO}"
        amount = "10000"
        extra = {{ name = "USD Coin", version = "2" }}
        "#
    ))
}

async fn start(config: &TestConfig) -> (TestServer, Arc<Counting>) {
    let agent = counting();
    let server = config.start_with(Arc::clone(&agent) as Arc<dyn AgentExecutor>).await.expect("a server");
    (server, agent)
}

fn turns(agent: &Counting) -> usize {
    agent.turns.load(Ordering::SeqCst)
}

/// A `PaymentPayload` with a nonce of its own.
fn payment() -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
    let nonce = format!("0x{0}{0}", uuid::Uuid::new_v4().simple());
    json!({
        "x402Version": 1,
        "scheme": "exact",
        "network": "base",
        "payload": {
            "signature": format!("0x{}", "ab".repeat(65)),
            "authorization": {
                "from": FROM, "to": PAY_TO, "value": "10000", "nonce": nonce,
                "validAfter": (now - 600).to_string(), "validBefore": (now + 300).to_string(),
            },
        },
    })
}

/// The id of a task that waits for its payment.
async fn waiting(server: &TestServer, text: &str) -> String {
    let reply = server.say(text).extensions(URI).send().await.expect("a reply");
    assert_eq!(state(reply.task()), "TASK_STATE_INPUT_REQUIRED", "{}", reply.text);
    assert_eq!(metadata(&reply)[STATUS], "payment-required", "{}", reply.text);
    assert_eq!(metadata(&reply)[REQUIRED]["accepts"][0]["maxAmountRequired"], "10000", "{}", reply.text);
    id_of(&reply)
}

async fn pay(server: &TestServer, task: &str, payment: &Value) -> Reply {
    let request = server.say("Here is the payment.").field("taskId", task).extensions(URI);
    let request = request.metadata(STATUS, r#""payment-submitted""#).metadata(PAYLOAD, &payment.to_string());
    request.send().await.expect("a reply")
}

/// The metadata of the status message.
fn metadata(reply: &Reply) -> &Value {
    &reply.task()["status"]["message"]["metadata"]
}

/// The error code of a failed payment, after which the task waits for another one.
fn failed(reply: &Reply) -> &str {
    assert_eq!(state(reply.task()), "TASK_STATE_INPUT_REQUIRED", "{}", reply.text);
    assert_eq!(metadata(reply)[STATUS], "payment-failed", "{}", reply.text);
    assert_eq!(metadata(reply)[REQUIRED]["x402Version"], 1, "{}", reply.text);
    metadata(reply)[ERROR].as_str().unwrap_or_default()
}

#[tokio::test]
async fn the_card_declares_payments_by_x402() {
    let server = catalogue().await;
    assert_eq!(declaration(&server, URI).await["description"], "Lets tasks wait for a payment by x402.");
}

#[tokio::test]
async fn a_task_runs_once_it_is_paid_and_has_its_receipt() {
    let facilitator = facilitator(honest).await;
    let (server, agent) = start(&config(facilitator.port, 10_000, "")).await;
    let unaware = server.say("hello").send().await.expect("a reply");
    assert_eq!(unaware.code(), -32_008, "{}", unaware.text);
    let task = waiting(&server, "hello").await;
    assert_eq!((turns(&agent), facilitator.endpoints().len()), (0, 0));

    let paid = pay(&server, &task, &payment()).await;
    assert_eq!(state(paid.task()), "TASK_STATE_COMPLETED", "{}", paid.text);
    assert_eq!(paid.task()["artifacts"][0]["parts"][0]["text"], "turn 1");
    assert_eq!(facilitator.endpoints(), ["/verify", "/settle"]);
    let receipts = json!([{"success": true, "transaction": "0xabc123", "network": "base", "payer": FROM}]);
    let read = server.call("GetTask", json!({"id": task}).to_string()).send().await.expect("a task");
    let read = &read.body["result"];
    for has_receipt in
        [metadata(&paid), &paid.task()["metadata"], &read["status"]["message"]["metadata"], &read["metadata"]]
    {
        assert_eq!(
            (&has_receipt[STATUS], &has_receipt[RECEIPTS]),
            (&json!("payment-completed"), &receipts),
            "{}",
            paid.text
        );
    }
}

#[tokio::test]
async fn the_agent_gets_the_unpaid_request_and_later_turns_of_the_task_are_paid() {
    let facilitator = facilitator(honest).await;
    let (server, agent) = start(&config(facilitator.port, 10_000, "")).await;
    // The agent asks for input if it reads this text, which is not in the message with the payment.
    let task = waiting(&server, "ask").await;
    let asked = pay(&server, &task, &payment()).await;
    assert_eq!(state(asked.task()), "TASK_STATE_INPUT_REQUIRED", "{}", asked.text);
    assert_eq!((turns(&agent), &asked.task()["metadata"][STATUS]), (1, &json!("payment-completed")), "{}", asked.text);
    let more = server.say("hello").field("taskId", &task).extensions(URI).send().await.expect("a reply");
    assert_eq!(state(more.task()), "TASK_STATE_COMPLETED", "{}", more.text);
    assert_eq!(metadata(&more)[RECEIPTS].as_array().map(Vec::len), Some(1), "{}", more.text);
    assert_eq!(facilitator.endpoints(), ["/verify", "/settle"], "one payment");
}

#[tokio::test]
async fn a_payment_that_is_submitted_for_two_tasks_at_once_starts_one() {
    let facilitator = facilitator(honest).await;
    let (server, agent) = start(&config(facilitator.port, 10_000, "")).await;
    let (one, other) = (waiting(&server, "hello").await, waiting(&server, "hello").await);
    let payment = payment();
    let (one, other) = tokio::join!(pay(&server, &one, &payment), pay(&server, &other, &payment));
    let (done, refused): (Vec<Reply>, Vec<Reply>) =
        [one, other].into_iter().partition(|reply| state(reply.task()) == "TASK_STATE_COMPLETED");
    assert_eq!((done.len(), turns(&agent)), (1, 1));
    assert_eq!(refused.first().map(failed), Some("DUPLICATE_NONCE"));
    assert_eq!(facilitator.endpoints().iter().filter(|endpoint| **endpoint == "/settle").count(), 1);
}

#[tokio::test]
async fn of_two_payments_for_one_task_at_once_one_is_settled() {
    let facilitator = facilitator(honest).await;
    let (server, agent) = start(&config(facilitator.port, 10_000, "")).await;
    let task = waiting(&server, "hello").await;
    let (first, second) = (payment(), payment());
    let (one, other) = tokio::join!(pay(&server, &task, &first), pay(&server, &task, &second));
    let refused = [one, other].iter().filter(|reply| reply.code() != 0).count();
    assert_eq!((refused, turns(&agent)), (1, 1));
    assert_eq!(facilitator.endpoints(), ["/verify", "/settle"]);
}

#[tokio::test]
async fn a_payment_is_not_taken_again_after_a_restart() {
    let facilitator = facilitator(honest).await;
    let folder = tempfile::tempdir().expect("a folder");
    let data = |name: &str| -> String { format!("[{name}]\ndata_dir = {:?}\n", folder.path().join(name)) };
    let config = config(facilitator.port, 10_000, "").with(&format!("{}{}", data("tasks"), data("keyvalue")));
    let payment = payment();
    let (mut first, agent) = start(&config).await;
    let task = waiting(&first, "hello").await;
    let waits = waiting(&first, "hello").await;
    assert_eq!(state(pay(&first, &task, &payment).await.task()), "TASK_STATE_COMPLETED");
    assert_eq!(turns(&agent), 1);
    first.begin_shutdown();
    first.ended().await.expect("a clean end");
    let (second, agent) = start(&config).await;
    assert_eq!(failed(&pay(&second, &waits, &payment).await), "DUPLICATE_NONCE");
    assert_eq!(turns(&agent), 0);
    assert_eq!(state(pay(&second, &waits, &self::payment()).await.task()), "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_payment_that_differs_from_the_offer_is_refused_without_the_facilitator() {
    let facilitator = facilitator(honest).await;
    let (server, agent) = start(&config(facilitator.port, 10_000, "")).await;
    let changed = |pointer: &str, value: &str| {
        let mut payment = payment();
        *payment.pointer_mut(pointer).expect("a member") = value.into();
        payment
    };
    for (payment, code) in [
        (changed("/payload/authorization/value", "1"), "INVALID_AMOUNT"),
        (changed("/payload/authorization/to", FROM), "INVALID_PAYMENT"),
        (changed("/payload/authorization/validBefore", "1000"), "EXPIRED_PAYMENT"),
        (changed("/network", "base-sepolia"), "NETWORK_MISMATCH"),
    ] {
        let task = waiting(&server, "hello").await;
        assert_eq!(failed(&pay(&server, &task, &payment).await), code);
    }
    let task = waiting(&server, "hello").await;
    let unreadable = pay(&server, &task, &changed("/payload/authorization/nonce", "0x1")).await;
    assert_eq!(unreadable.code(), -32_602, "{}", unreadable.text);
    let place = "/message/metadata/x402.payment.payload/payload/authorization/nonce";
    assert_eq!(unreadable.violations(), [place], "{}", unreadable.text);
    let mut both = payment();
    both["payload"]["transaction"] = "AAEC".into();
    let both = pay(&server, &task, &both).await;
    let place = "/message/metadata/x402.payment.payload/payload/transaction";
    assert_eq!(both.violations(), [place], "{}", both.text);
    assert_eq!((turns(&agent), facilitator.endpoints().len()), (0, 0));
}

#[tokio::test]
async fn a_facilitator_that_fails_to_verify_starts_no_agent_and_uses_nothing_up() {
    let cases: [(Told, u32, &str); 6] = [
        (|_| Some((StatusCode::FOUND, [("location", "http://127.0.0.1:9/")]).into_response()), 10_000, "redirects"),
        (|_| Some(StatusCode::INTERNAL_SERVER_ERROR.into_response()), 10_000, "with the status 500"),
        (|_| Some("x".repeat(1 << 20).into_response()), 10_000, "larger than the grant"),
        (|_| Some("{\"isValid\":1}".into_response()), 10_000, "cannot be read"),
        (|_| Some(Json(json!({"isValid": true, "payer": PAY_TO})).into_response()), 10_000, "another payer"),
        (|_| None, 200, "does not answer in time"),
    ];
    for (told, timeout_ms, reason) in cases {
        let facilitator = facilitator(told).await;
        let (server, agent) = start(&config(facilitator.port, timeout_ms, "")).await;
        let task = waiting(&server, "hello").await;
        let payment = payment();
        for _ in 0..2 {
            // The same payment again: it was not used up.
            let reply = pay(&server, &task, &payment).await;
            assert_eq!(failed(&reply), "FACILITATOR_FAILED", "{reason}");
            assert!(reply.text.contains(reason), "{reason}: {}", reply.text);
        }
        assert_eq!((turns(&agent), facilitator.endpoints()), (0, vec!["/verify", "/verify"]), "{reason}");
    }
}

#[tokio::test]
async fn a_settlement_with_an_unknown_outcome_starts_no_agent_and_asks_for_no_second_payment() {
    let cases: [(Told, u32, &str); 4] = [
        (
            |at| if at == "/verify" { honest(at) } else { Some(settled(&json!({"network": "ethereum"}))) },
            10_000,
            "another network",
        ),
        (
            |at| if at == "/verify" { honest(at) } else { Some(settled(&json!({"amount": "1"}))) },
            10_000,
            "another amount",
        ),
        (
            |at| if at == "/verify" { honest(at) } else { Some(settled(&json!({"transaction": ""}))) },
            10_000,
            "no transaction",
        ),
        (|at| if at == "/verify" { honest(at) } else { None }, 3_000, "does not answer in time"),
    ];
    for (told, timeout_ms, reason) in cases {
        let facilitator = facilitator(told).await;
        let (server, agent) = start(&config(facilitator.port, timeout_ms, "")).await;
        let task = waiting(&server, "hello").await;
        let reply = pay(&server, &task, &payment()).await;
        assert_eq!(state(reply.task()), "TASK_STATE_REJECTED", "{reason}: {}", reply.text);
        assert!(reply.text.contains("unknown outcome") && reply.text.contains(reason), "{reason}: {}", reply.text);
        assert_eq!(metadata(&reply)[STATUS], "payment-failed", "{}", reply.text);
        assert_eq!(metadata(&reply)[ERROR], "SETTLEMENT_FAILED", "{}", reply.text);
        assert_eq!(metadata(&reply)[REQUIRED], Value::Null, "{}", reply.text);
        assert_eq!(turns(&agent), 0, "{reason}");
    }
}

#[tokio::test]
async fn nothing_of_the_answer_goes_out_if_its_later_settlement_fails() {
    let refuses: Told = |at| {
        let refusal = json!({"success": false, "errorReason": "insufficient_funds", "network": "base"});
        if at == "/verify" { honest(at) } else { Some(Json(refusal).into_response()) }
    };
    for (told, ends, status) in [
        (refuses, "TASK_STATE_FAILED", "payment-failed"),
        (honest as Told, "TASK_STATE_COMPLETED", "payment-completed"),
    ] {
        let facilitator = facilitator(told).await;
        let (server, agent) = start(&config(facilitator.port, 10_000, "settle = \"after\"")).await;
        let task = waiting(&server, "hello").await;
        let reply = pay(&server, &task, &payment()).await;
        assert_eq!((turns(&agent), state(reply.task())), (1, ends), "{}", reply.text);
        assert_eq!(metadata(&reply)[STATUS], status, "{}", reply.text);
        assert_eq!(reply.task()["artifacts"][0]["parts"][0]["text"] == "turn 1", ends == "TASK_STATE_COMPLETED");
        assert!(ends == "TASK_STATE_COMPLETED" || !reply.text.contains("turn 1"), "{}", reply.text);
        assert_eq!(facilitator.endpoints(), ["/verify", "/settle"]);
    }
}

#[tokio::test]
async fn an_agent_that_runs_before_the_settlement_needs_a_payment_that_lasts() {
    let facilitator = facilitator(honest).await;
    let (server, agent) = start(&config(facilitator.port, 10_000, "settle = \"after\"\nmin_valid_seconds = 590")).await;
    let task = waiting(&server, "hello").await;
    assert_eq!(failed(&pay(&server, &task, &payment()).await), "EXPIRED_PAYMENT");
    assert_eq!((turns(&agent), facilitator.endpoints().len()), (0, 0));
}

#[tokio::test]
async fn a_client_that_rejects_the_payment_ends_the_task() {
    let facilitator = facilitator(honest).await;
    let (server, agent) = start(&config(facilitator.port, 10_000, "")).await;
    let task = waiting(&server, "hello").await;
    let request = server.say("No.").field("taskId", &task).extensions(URI).metadata(STATUS, r#""payment-rejected""#);
    let reply = request.send().await.expect("a reply");
    assert_eq!(state(reply.task()), "TASK_STATE_REJECTED", "{}", reply.text);
    assert_eq!((metadata(&reply)[STATUS].as_str(), turns(&agent)), (Some("payment-rejected"), 0), "{}", reply.text);
}

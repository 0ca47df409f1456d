//! Recordings of turns, and shadows of installed versions.

use annex_test_support::{COMMAND_KEY, TEST_EXTENSION, TestServer, until};
use serde_json::{Value, json};

use crate::installation::{
    ADMIN, Installation, RESPONSE_KEY, TOKEN, addition, admin, extension, marked, say, segment, written,
};

const RECORDING: &str = "[runtime]\nwatch = false\n[admin]\ntoken_file = \"token\"\nallow_recording = true\n";

async fn serve(config: &str) -> (Installation, TestServer) {
    let installation = Installation::new();
    installation.component("test.wasm", "first");
    installation.config(&format!("{config}{}", extension("test.wasm", "", "ok")));
    let server = installation.serve().await;
    (installation, server)
}

fn path(more: &str) -> String {
    format!("extensions/{}{more}", segment(TEST_EXTENSION))
}

/// A running recording. Lines arrive while it runs.
struct Lines {
    response: reqwest::Response,
    rest: Vec<u8>,
}

impl Lines {
    async fn begin(server: &TestServer, body: Value) -> Self {
        let url = format!("{}/v1/{}", server.admin_url(), path("/record"));
        let request = server.client().post(url).bearer_auth(TOKEN).body(body.to_string());
        let response = request.send().await.expect("a reply");
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "application/jsonl");
        Self { response, rest: Vec::new() }
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("a line of JSON"));
            }
            self.rest.extend(self.response.chunk().await.expect("no error")?);
        }
    }
}

#[tokio::test]
async fn nothing_is_recorded_unless_the_operator_allows_it() {
    let (_files, server) = serve(ADMIN).await;
    let (status, refusal) = admin(&server, "POST", &path("/record"), json!({})).await;
    assert_eq!((status, &refusal["error"]["code"]), (403, &json!("recording_not_allowed")));
    assert!(refusal["error"]["message"].as_str().expect("a text").contains("admin.allow_recording"), "{refusal}");
}

#[tokio::test]
async fn a_recording_has_a_head_the_turns_and_its_end() {
    let (_files, server) = serve(RECORDING).await;
    let mut lines = Lines::begin(&server, json!({"turns": 2})).await;
    let head = lines.next().await.expect("a head");
    assert_eq!((&head["recording"]["version"], &head["recording"]["uri"]), (&json!(1), &json!(TEST_EXTENSION)));
    assert_eq!(head["recording"]["settings"]["parameters"]["behaviour"]["respond"], "ok", "{head}");
    for _ in 0..3 {
        let state = r#"{"validate": "delta"}"#;
        let sent = server.say("hi").extensions(TEST_EXTENSION).metadata(COMMAND_KEY, state);
        assert_eq!(sent.send().await.expect("a reply").status, 200);
    }
    for _ in 0..2 {
        let turn = lines.next().await.expect("a turn");
        let request = &turn["turn"]["steps"][0];
        assert_eq!(request["input"]["request"]["message"]["parts"][0]["text"], "hi", "{turn}");
        assert!(request["result"]["active"]["delta"].is_object(), "{turn}");
    }
    let end = lines.next().await.expect("an end");
    assert_eq!((&end["end"]["turns"], &end["end"]["reason"]), (&json!(2), &json!("turns")), "{end}");
    assert!(lines.next().await.is_none());
    // It is over, so the next may begin.
    Lines::begin(&server, json!({"seconds": 1})).await;
}

#[tokio::test]
async fn what_operators_must_not_see_is_hidden_in_a_recording() {
    let (_files, server) = serve(RECORDING).await;
    let mut lines = Lines::begin(&server, json!({"turns": 1})).await;
    let command = r#"{"validate": "ok", "api_token": "t-0p-s3cret"}"#;
    let text = r#"{"Set-Cookie": "c-00k1e", "inner": "{\"privateKey\": \"k-3y\"}"}"#;
    server.say(text).extensions(TEST_EXTENSION).metadata(COMMAND_KEY, command).send().await.expect("a reply");
    lines.next().await.expect("a head");
    let turn = lines.next().await.expect("a turn").to_string();
    assert!(turn.contains("[hidden]"), "{turn}");
    for secret in ["t-0p-s3cret", "c-00k1e", "k-3y"] {
        assert!(!turn.contains(secret), "{secret}: {turn}");
    }
}

#[tokio::test]
async fn a_turn_with_metadata_that_is_forgotten_is_not_recorded() {
    let installation = Installation::new();
    installation.component("test.wasm", "first");
    let grants = "[extension.grants]\nforget-metadata = true";
    installation.config(&format!("{RECORDING}{}", extension("test.wasm", grants, "ok")));
    let server = installation.serve().await;
    let mut lines = Lines::begin(&server, json!({"turns": 1})).await;
    let forgotten = server.say("first").extensions(TEST_EXTENSION).metadata(COMMAND_KEY, "\"delta plum-4711\"");
    assert_eq!(forgotten.send().await.expect("a reply").status, 200);
    assert_eq!(say(&server, "second").await.status, 200);
    lines.next().await.expect("a head");
    let turn = lines.next().await.expect("a turn").to_string();
    assert!(turn.contains("second") && !turn.contains("plum-4711"), "{turn}");
    let end = lines.next().await.expect("an end");
    assert_eq!((&end["end"]["turns"], &end["end"]["left_out"]), (&json!(1), &json!(1)), "{end}");
}

#[tokio::test]
async fn a_recording_ends_with_its_time_with_its_client_and_with_the_version() {
    let (_files, server) = serve(RECORDING).await;
    let mut lines = Lines::begin(&server, json!({"seconds": 1})).await;
    lines.next().await.expect("a head");
    assert_eq!(lines.next().await.expect("an end")["end"]["reason"], "time");
    let lines = Lines::begin(&server, json!({})).await;
    let (status, refusal) = admin(&server, "POST", &path("/record"), json!({})).await;
    assert_eq!((status, &refusal["error"]["code"]), (409, &json!("observed")));
    drop(lines);
    let mut again = None;
    until("the recording to end with its client", async || {
        let url = format!("{}/v1/{}", server.admin_url(), path("/record"));
        let response = server.client().post(url).bearer_auth(TOKEN).send().await.expect("a reply");
        let began = response.status().as_u16() == 200;
        again = began.then_some(Lines { response, rest: Vec::new() });
        began
    })
    .await;
    let mut lines = again.expect("a recording");
    lines.next().await.expect("a head");
    let (status, _) = admin(&server, "DELETE", &path(""), Value::Null).await;
    assert_eq!(status, 200);
    assert_eq!(lines.next().await.expect("an end")["end"]["reason"], "replaced");
}

#[tokio::test]
async fn bounds_that_make_no_sense_are_refused_by_name() {
    let (_files, server) = serve(RECORDING).await;
    for (body, expected) in [
        (json!({"turns": 0}), "`turns` is 0"),
        (json!({"seconds": 1_000_000}), "`seconds` is 1000000"),
        (json!({"turn": 1}), "turn"),
    ] {
        let (status, refusal) = admin(&server, "POST", &path("/record"), body).await;
        let message = refusal["error"]["message"].as_str().expect("a text");
        assert!(status == 400 && message.contains(expected), "{refusal}");
    }
}

#[tokio::test]
async fn a_stranger_to_the_token_records_nothing() {
    let (_files, server) = serve(RECORDING).await;
    let url = format!("{}/v1/{}", server.admin_url(), path("/record"));
    assert_eq!(server.client().post(url).send().await.expect("a reply").status().as_u16(), 401);
}

/// The body that begins a shadow whose `respond` does as told.
fn candidate(mark: &str, respond: &str, share: Option<u8>) -> Value {
    let mut body = addition("x", &marked(mark), Some(&format!("[parameters.behaviour]\nrespond = {respond:?}")));
    let body = body.as_object_mut().expect("an object");
    body.remove("name");
    body.insert("share".to_owned(), json!(share));
    Value::Object(body.clone())
}

async fn shadow(server: &TestServer) -> Value {
    let (_, details) = admin(server, "GET", &path(""), Value::Null).await;
    details["shadow"].clone()
}

async fn compared(server: &TestServer, turns: u64) -> Value {
    until("the turns to be compared", async || shadow(server).await["turns"].as_u64() >= Some(turns)).await;
    shadow(server).await
}

#[tokio::test]
async fn a_shadow_that_does_the_same_agrees_and_leaves_no_trace() {
    let (_files, server) = serve(ADMIN).await;
    let (status, began) = admin(&server, "POST", &path("/shadow"), candidate("second", "ok", None)).await;
    assert_eq!((status, &began["share"]), (201, &json!(100)), "{began}");
    for _ in 0..3 {
        assert_eq!(written(&say(&server, "hi").await), json!("artifact"));
    }
    let shadow = compared(&server, 3).await;
    assert_eq!(
        (&shadow["agreed"], &shadow["failed"], &shadow["differ"]),
        (&json!(3), &json!(0), &json!([])),
        "{shadow}"
    );
    let respond = shadow["costs"].as_array().expect("costs").iter().find(|cost| cost["hook"] == "response");
    let respond = respond.expect("response has a cost");
    assert_eq!(respond["calls"], respond["calls_in_force"], "{shadow}");
    let (_, details) = admin(&server, "GET", &path(""), Value::Null).await;
    let calls = details["timings"].as_array().expect("timings").iter().find(|timing| timing["hook"] == "activation");
    assert_eq!(calls.expect("a hook")["calls"], 3, "the shadow's calls are its own");
}

#[tokio::test]
async fn a_shadow_that_differs_is_shown_and_clients_see_none_of_it() {
    let (_files, server) = serve(ADMIN).await;
    admin(&server, "POST", &path("/shadow"), candidate("second", "none", None)).await;
    assert_eq!(written(&say(&server, "hi").await), json!("artifact"));
    let shadow = compared(&server, 1).await;
    assert_eq!(shadow["differ"], json!([{"what": "metadata", "turns": 1}]), "{shadow}");
    let difference = &shadow["examples"][0]["differences"][0];
    assert_eq!((&difference["what"], &difference["is"]), (&json!("metadata"), &json!("{}")), "{shadow}");
    assert!(difference["was"].as_str().expect("a text").contains(RESPONSE_KEY), "{shadow}");
}

#[tokio::test]
async fn a_shadow_that_fails_is_quarantined_alone() {
    let (_files, server) = serve(ADMIN).await;
    admin(&server, "POST", &path("/shadow"), candidate("second", "panic", None)).await;
    for turn in 1..=6 {
        assert_eq!(written(&say(&server, "hi").await), json!("artifact"), "turn {turn}");
        until("the turn to be played", async || {
            let shadow = shadow(&server).await;
            shadow["turns"].as_u64().zip(shadow["not_run"].as_u64()).map(|(ran, not)| ran + not) == Some(turn)
        })
        .await;
    }
    let (_, details) = admin(&server, "GET", &path(""), Value::Null).await;
    let shadow = &details["shadow"];
    assert!(shadow["quarantine"]["next_trial_ms"].is_u64() && shadow["not_run"] == 1, "{shadow}");
    assert!(shadow["last_failure"]["reason"].as_str().expect("a reason").contains("trap"), "{shadow}");
    assert_eq!((&details["failures"], &details["quarantine"]["failures_in_a_row"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn a_shadow_follows_its_share_of_the_turns() {
    let (_files, server) = serve(ADMIN).await;
    admin(&server, "POST", &path("/shadow"), candidate("second", "ok", Some(25))).await;
    for _ in 0..8 {
        say(&server, "hi").await;
    }
    let shadow = compared(&server, 2).await;
    assert_eq!((&shadow["turns"], &shadow["share"]), (&json!(2), &json!(25)), "{shadow}");
}

#[tokio::test]
async fn a_promoted_shadow_is_in_force_and_can_be_rolled_back() {
    let (_files, server) = serve(ADMIN).await;
    admin(&server, "POST", &path("/shadow"), candidate("second", "none", None)).await;
    let (status, promoted) = admin(&server, "POST", &path("/shadow/promote"), Value::Null).await;
    assert_eq!((status, &promoted["shadow"], &promoted["source"]["until"]), (200, &Value::Null, &json!("restart")));
    assert_eq!(
        promoted["changes"].as_array().and_then(|changes| changes.last()).expect("a change")["change"],
        "promoted"
    );
    assert_eq!(written(&say(&server, "hi").await), Value::Null);
    let (status, _) = admin(&server, "POST", &path("/rollback"), Value::Null).await;
    assert_eq!((status, written(&say(&server, "hi").await)), (200, json!("artifact")));
}

#[tokio::test]
async fn a_promoted_shadow_lies_in_the_managed_folder() {
    let installation = Installation::new();
    installation.config("[runtime]\nwatch = false\nextensions_dir = \"extensions\"\n[admin]\ntoken_file = \"token\"\n");
    let server = installation.serve().await;
    let settings = "[parameters.behaviour]\nrespond = \"ok\"";
    let (status, _) = admin(&server, "POST", "extensions", addition("test", &marked("first"), Some(settings))).await;
    assert_eq!(status, 201);
    admin(&server, "POST", &path("/shadow"), candidate("second", "none", None)).await;
    let (status, promoted) = admin(&server, "POST", &path("/shadow/promote"), Value::Null).await;
    assert_eq!((status, &promoted["source"]["until"]), (200, &Value::Null), "{promoted}");
    let kept = std::fs::read(installation.path("extensions/test.wasm")).expect("the component");
    assert!(kept == marked("second"), "the folder has the promoted component");
}

#[tokio::test]
async fn a_shadow_ends_when_it_is_dropped_and_with_the_version_that_it_follows() {
    let (_files, server) = serve(ADMIN).await;
    admin(&server, "POST", &path("/shadow"), candidate("second", "ok", None)).await;
    let (status, refusal) = admin(&server, "POST", &path("/shadow"), candidate("third", "ok", None)).await;
    assert_eq!((status, &refusal["error"]["code"]), (409, &json!("observed")));
    let (status, dropped) = admin(&server, "DELETE", &path("/shadow"), Value::Null).await;
    assert_eq!((status, &dropped["turns"]), (200, &json!(0)));
    for (method, more) in [("DELETE", "/shadow"), ("POST", "/shadow/promote")] {
        let (status, refusal) = admin(&server, method, &path(more), Value::Null).await;
        assert_eq!((status, &refusal["error"]["code"]), (409, &json!("no_shadow")), "{method} {more}");
    }
    admin(&server, "POST", &path("/shadow"), candidate("third", "ok", None)).await;
    admin(&server, "DELETE", &path(""), Value::Null).await;
    let (status, _) = admin(&server, "GET", &path(""), Value::Null).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_shadow_is_the_same_extension_and_asks_for_no_more() {
    let (_files, server) = serve(ADMIN).await;
    let with = |component: &[u8], settings: Option<&str>| {
        let mut body = addition("x", component, settings);
        body.as_object_mut().expect("an object").remove("name");
        body
    };
    let timestamp = std::fs::read(annex_components::TIMESTAMP).expect("a component");
    let cases = [
        (with(&timestamp, None), 422, "asks_for_more", "clock"),
        (with(&marked("x"), Some("[grants]\nclock = true")), 422, "asks_for_more", "other grants"),
        (
            with(&marked("x"), Some("[parameters]\nuri = \"https://annex.example/other/v1\"")),
            422,
            "other_extension",
            "other/v1",
        ),
        (
            with(&marked("x"), Some("[parameters]\ndepends_on = [\"https://annex.example/absent/v1\"]")),
            409,
            "does_not_fit",
            "absent/v1",
        ),
        (with(b"no component", None), 422, "refused", ""),
        (with(&marked("x"), Some("component = \"y\"")), 422, "invalid_settings", "leave it out"),
    ];
    for (body, expected, code, text) in cases {
        let (status, refusal) = admin(&server, "POST", &path("/shadow"), body).await;
        let found = refusal["error"]["code"].as_str().unwrap_or_default();
        assert_eq!((status, found.contains(code)), (expected, true), "{refusal}");
        assert!(refusal["error"]["message"].as_str().unwrap_or_default().contains(text), "{refusal}");
        assert_eq!(shadow(&server).await, Value::Null, "nothing stays behind");
    }
    let (status, _) = admin(&server, "POST", &path("/shadow"), candidate("x", "ok", Some(0))).await;
    assert_eq!(status, 400);
}

//! Extensions that are for some callers.

use std::fs;

use annex_test_support::{Reply, TEST_EXTENSION, TIMESTAMP, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{OBJECTS, TestRequest, WAYS, chain, say, script};
use crate::auth::{ADA, BOB, api_keys};
use crate::catalogue::approval;
use crate::catalogue::permits::{URI as PERMITS, state_of};
use crate::installation::written;
use crate::test_extension;

/// The public half of the key that the tokens below are signed with.
const JWKS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","alg":"EdDSA","use":"sig","x":"AqTbpYUsquZL1V1rt3k4Q_iuliwXj03QBSnRJkZ6PzA"}]}"#;
/// A token of eve, whose claim `org` is `acme`.
pub(super) const EVE: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjoiYW5uZXgiLCJleHAiOjk5OTk5OTk5OTk5LCJzdWIiOiJldmUiLCJvcmciOiJhY21lIn0.AjjPXENatXRwo_BW-QoE2AXPyrtJXMGeNe2M8b4k_s24x9sxK0OfJVtqU3-skp7G22sBGh2ZBoH0pxVrnnLwAA";
/// A token of sam, whose claim `org` is `globex`.
pub(super) const SAM: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjoiYW5uZXgiLCJleHAiOjk5OTk5OTk5OTk5LCJzdWIiOiJzYW0iLCJvcmciOiJnbG9iZXgifQ.-rKnAuDJPMKdrQXGqeMwWI3Qfb-2-PXBiIRgYpratZItF3lnZPgLRRogvS2T7BKm1t0DRgGy2lAtduWnX47pBA";

/// A server that lets in the callers with the two API keys and the two tokens, and the folder of its config.
pub(super) async fn server(extensions: &str) -> (TestServer, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder, extensions);
    let server = TestServer::from_file(&folder.path().join("annex.toml"), None).await;
    (server.expect("the server starts"), folder)
}

/// Writes the config that has these extensions.
fn write(folder: &TempDir, extensions: &str) {
    let jwks = folder.path().join("jwks.json");
    fs::write(&jwks, JWKS).expect("a file");
    let jwt =
        format!("[auth.jwt]\nissuer = \"https://issuer.example\"\naudience = [\"annex\"]\njwks_file = {jwks:?}\n");
    // Only the test changes what is installed.
    let config = script().with("[runtime]\nwatch = false").with(&api_keys()).with(&jwt).with(extensions);
    fs::write(folder.path().join("annex.toml"), config.toml()).expect("a config");
}

/// Has the server go on with these extensions.
async fn change(server: &TestServer, folder: &TempDir, extensions: &str) {
    write(folder, extensions);
    assert!(server.installer().reload().await.expect("a reload").changed);
}

pub(super) fn by(key: &str) -> TestRequest<'_> {
    TestRequest { key, ..TestRequest::default() }
}

pub(super) fn with(token: &str) -> TestRequest<'_> {
    TestRequest { token, ..TestRequest::default() }
}

#[tokio::test]
async fn an_extension_that_is_always_active_for_some_callers_checks_theirs_and_nobody_elses() {
    let allow = r#"allow = ["principal:ada", "claim:org=acme"]"#;
    let (server, _folder) = server(&test_extension(&format!("activate = \"always\"\n{allow}\n{OBJECTS}"))).await;
    for way in WAYS {
        for said in [by(ADA), with(EVE)] {
            let error = say(&server, way, said).await.error.expect("an error");
            assert!(error.contains("was told to object"), "{way:?}: {error}");
        }
        for said in [by(BOB), with(SAM)] {
            let heard = say(&server, way, said).await;
            assert_eq!((heard.active, heard.error), (None, None), "{way:?}");
        }
    }
}

#[tokio::test]
async fn for_a_caller_that_it_is_not_for_an_extension_is_as_if_it_was_not_installed() {
    let keys = "required = true\nallow = [\"claim:org=acme\"]\nparameters = { methods = [\"test/echo\"] }";
    let (server, _folder) = server(&test_extension(keys)).await;
    for way in WAYS {
        let error = say(&server, way, with(EVE)).await.error.expect("it is missing");
        assert!(error.contains(TEST_EXTENSION), "{way:?}: {error}");
        let asking = say(&server, way, TestRequest { asks_for: TEST_EXTENSION, ..with(EVE) }).await;
        assert_eq!((asking.active.as_deref(), asking.error), (Some(TEST_EXTENSION), None), "{way:?}");
        // It is neither required of the other one nor to be had.
        for asks_for in ["", TEST_EXTENSION] {
            let other = say(&server, way, TestRequest { asks_for, ..with(SAM) }).await;
            assert_eq!((other.active, other.error), (None, None), "{way:?}");
        }
    }
    let method = async |token: &str| {
        let request = server.call("test/echo", "{}").extensions(TEST_EXTENSION);
        request.header("authorization", &format!("Bearer {token}")).send().await.expect("a reply").code()
    };
    assert_eq!((method(EVE).await, method(SAM).await), (0, -32_601));
}

#[tokio::test]
async fn metadata_activates_an_extension_only_for_the_callers_that_it_is_for() {
    let keys = "activate = \"metadata\"\nallow = [\"principal:https://issuer.example#eve\"]";
    let (server, _folder) = server(&test_extension(keys)).await;
    for way in WAYS {
        let eve = say(&server, way, TestRequest { command: "ok", ..with(EVE) }).await;
        assert_eq!((eve.active.as_deref(), eve.error), (Some(TEST_EXTENSION), None), "{way:?}");
        // Nobody reads the command, which would refuse the message.
        let sam = say(&server, way, TestRequest { command: "violation", ..with(SAM) }).await;
        assert_eq!((sam.active, sam.error), (None, None), "{way:?}");
    }
}

#[tokio::test]
async fn the_card_names_no_caller() {
    let (server, _folder) = server(&test_extension("allow = [\"principal:ada\"]")).await;
    let card = server.get("/.well-known/agent-card.json").await.expect("a card");
    let card: Value = card.json().await.expect("JSON");
    assert_eq!(card["capabilities"]["extensions"][0]["description"], "Misbehaves on command. For some callers only.");
}

#[tokio::test]
async fn callers_that_cannot_be_told_apart_and_lists_that_do_not_fit_keep_the_server_from_starting() {
    let refused = async |more: &str, extensions: &str| {
        let started = script().with(more).with(extensions).start().await;
        format!("{:#}", started.err().expect("a refusal"))
    };
    let keys = api_keys();
    let keys = keys.as_str();
    let crowd = format!("allow = {:?}", vec!["principal:ada"; 101]);
    let cases = [
        ("", "allow = [\"principal:ada\"]", "[auth]"),
        (keys, "allow = [\"claim:org=acme\"]", "[auth.jwt]"),
        (keys, "allow = [\"ada\"]", "principal:ID"),
        (keys, "allow = [\"claim:org\"]", "claim:NAME=VALUE"),
        (keys, "allow = []", "no caller may use the extension"),
        (keys, &crowd, "has 101 entries, and at most 100 are taken"),
    ];
    for (more, allow, expected) in cases {
        let error = refused(more, &test_extension(allow)).await;
        assert!(error.contains("allow") && error.contains(expected), "{allow}: {error}");
    }
    // The rule would be off for the callers that what it depends on is not for.
    let narrow = chain(&[
        ("urn:a", "allow = [\"principal:ada\"]", &[]),
        ("urn:b", "activate = \"always\"\nallow = [\"principal:ada\", \"principal:bob\"]", &["urn:a"]),
    ]);
    let error = refused(keys, &narrow).await;
    assert!(error.contains("urn:b") && error.contains("urn:a") && error.contains("the same `allow`"), "{error}");
}

#[tokio::test]
async fn a_list_with_many_values_of_one_claim_is_for_the_callers_with_one_of_them() {
    let others = (0..98).map(|number| format!("\"claim:org=org-{number}\", ")).collect::<String>();
    let keys = format!("activate = \"always\"\nallow = [{others}\"principal:bob\", \"claim:org=acme\"]");
    let (server, _folder) = server(&test_extension(&keys)).await;
    for way in WAYS {
        for (said, active) in [(with(EVE), true), (by(BOB), true), (with(SAM), false), (by(ADA), false)] {
            let heard = say(&server, way, said).await;
            assert_eq!((heard.active.is_some(), heard.error), (active, None), "{way:?}");
        }
    }
}

/// A waiting task keeps the version that worked on it. The current config decides about its callers and its activation.
#[tokio::test]
async fn a_task_that_waits_has_its_extension_for_whom_and_when_the_config_says_now() {
    let extension = |keys: &str, respond: &str| {
        let behaviour = format!("begin = \"first\"\nrespond = {respond:?}");
        test_extension(&format!("{keys}\n[extension.parameters.behaviour]\n{behaviour}"))
    };
    let always = |callers: &str| format!("activate = \"always\"\nallow = [{callers}]");
    let (ada, bob) = (always("\"principal:ada\""), always("\"principal:bob\""));
    let both = always("\"principal:ada\", \"principal:bob\"");
    for (before, now, active) in [
        (ada.as_str(), both.as_str(), true),
        (ada.as_str(), bob.as_str(), false),
        ("allow = [\"principal:ada\"]", "activate = \"always\"", true),
        (ada.as_str(), "activate = \"requested\"", false),
    ] {
        let (server, folder) = server(&extension(before, "ok")).await;
        let waits = server.say("hi").extensions(TEST_EXTENSION).header("x-api-key", ADA).send().await.expect("a reply");
        assert_eq!(waits.task()["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{}", waits.text);
        let id = waits.task()["id"].as_str().expect("an id");
        change(&server, &folder, &extension(now, "none")).await;

        let last = server.say("go on").field("taskId", id).header("x-api-key", ADA).send().await.expect("a reply");
        assert_eq!(last.task()["status"]["state"], "TASK_STATE_COMPLETED", "{now}: {}", last.text);
        assert_eq!(last.extensions.is_some(), active, "{before} to {now}: {}", last.text);
        // The version that is installed now writes nothing.
        let by_the_older_one = if active { json!("artifact") } else { Value::Null };
        assert_eq!(written(&last), by_the_older_one, "{before} to {now}: {}", last.text);
    }
}

/// The first lets each task wait for an approval. Both have these keys in their `[[extension]]`.
fn approval_and_timestamp(keys: &str) -> String {
    let timestamp = format!("[[extension]]\ncomponent = \"timestamp\"\n{keys}\n[extension.grants]\nclock = true\n");
    approval(keys) + &timestamp
}

/// The task of eve that waits, once it was approved and has ended.
pub(super) async fn approved(server: &TestServer, waits: &Reply) -> Value {
    let bearer = format!("Bearer {EVE}");
    let state = state_of(waits);
    let id = json!({"id": waits.task()["id"]}).to_string();
    let events =
        server.call("SubscribeToTask", id.clone()).header("authorization", &bearer).open().await.expect("events");

    let approval = json!({"state": state, "token": "another-demonstration-secret"}).to_string();
    let approve = server.call("in-task-authorization/approve", approval).extensions(PERMITS);
    let approved = approve.header("authorization", &bearer).send().await.expect("a reply");
    assert_eq!((approved.code(), approved.extensions.as_deref()), (0, Some(PERMITS)), "{}", approved.text);

    events.rest().await.expect("the end of the task");
    let task = server.call("GetTask", id).header("authorization", &bearer).send().await.expect("a task");
    let task = &task.body["result"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    task.clone()
}

/// A turn that goes on out of band has no request, and so no header and no claims.
#[tokio::test]
async fn a_task_that_is_taken_up_again_has_the_extensions_that_came_unasked() {
    let acme = "activate = \"always\"\nallow = [\"claim:org=acme\"]";
    let (server, _folder) = server(&approval_and_timestamp(acme)).await;
    let said = server.say("hi").header("authorization", &format!("Bearer {EVE}"));
    let waits = said.send().await.expect("a reply");
    assert_eq!(waits.extensions.as_deref(), Some(format!("{PERMITS},{TIMESTAMP}").as_str()), "{}", waits.text);
    let task = approved(&server, &waits).await;
    assert_eq!(task["artifacts"][0]["extensions"], json!([TIMESTAMP]), "{task}");
}

/// A client may request an extension before it is installed. The request must not count once the extension is installed
/// for some callers only.
#[tokio::test]
async fn a_task_that_is_taken_up_again_has_no_extension_that_was_unknown_when_it_began() {
    let both = approval_and_timestamp("");
    let late = test_extension("allow = [\"principal:ada\"]\nparameters = { uri = \"urn:late\" }");
    let (server, folder) = server(&both).await;
    let said = server.say("hi").extensions(&format!("{PERMITS},{TIMESTAMP},urn:late"));
    let waits = said.header("authorization", &format!("Bearer {EVE}")).send().await.expect("a reply");
    assert_eq!(waits.extensions.as_deref(), Some(format!("{PERMITS},{TIMESTAMP}").as_str()), "{}", waits.text);
    change(&server, &folder, &format!("{both}{late}")).await;
    let task = approved(&server, &waits).await;
    assert_eq!(task["artifacts"][0]["extensions"], json!([TIMESTAMP]), "{task}");
    assert_eq!(task["artifacts"][0]["metadata"]["test/response"], Value::Null, "{task}");
}

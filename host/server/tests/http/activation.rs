//! Activation, required extensions, the echo.

use annex_test_support::{STATE_INJECTION, STATE_KEY, TIMESTAMP};
use serde_json::Value;

use crate::{ADA, QUESTION, agent, specialist};

#[tokio::test]
async fn a_missing_required_extension_is_refused_and_named() {
    let server = specialist("").await;
    let reply = server.say(QUESTION).context("c").metadata(STATE_KEY, ADA).send().await.expect("a reply");
    assert_eq!((reply.status, reply.code()), (200, -32_008), "{}", reply.text);
    let info = &reply.body["error"]["data"][0];
    assert_eq!(info["reason"], "EXTENSION_SUPPORT_REQUIRED");
    assert_eq!(info["metadata"]["extensions"], STATE_INJECTION);
    let tasks = server.call("ListTasks", r#"{"contextId":"c"}"#).send().await.expect("a list");
    assert_eq!(tasks.body["result"]["totalSize"], 0);
}

#[tokio::test]
async fn a_context_that_has_state_does_not_excuse_a_missing_activation() {
    let server = specialist("").await;
    let first = server.say(QUESTION).state(ADA).send().await.expect("a reply");
    let naive = server.say(QUESTION).context(first.context()).send().await.expect("a reply");
    assert_eq!(naive.code(), -32_008);
}

#[tokio::test]
async fn a_refused_stream_is_plain_json_before_any_event() {
    let server = specialist("").await;
    let reply = server.say(QUESTION).streaming().send().await.expect("a reply");
    assert_eq!((reply.status, reply.code()), (200, -32_008));
    assert_eq!(reply.content_type, "application/json");
}

#[tokio::test]
async fn the_answer_acknowledges_in_header_and_artifact_what_ran() {
    let server = specialist("").await;
    let reply = server.say(QUESTION).state(ADA).send().await.expect("a reply");
    assert_eq!(reply.extensions.as_deref(), Some(STATE_INJECTION));
    assert_eq!(reply.task()["artifacts"][0]["extensions"], Value::from(vec![STATE_INJECTION]));
    let both = server.say(QUESTION).state(ADA).extensions(TIMESTAMP).send().await.expect("a reply");
    assert_eq!(both.extensions, Some(format!("{STATE_INJECTION},{TIMESTAMP}")));
    let listed = both.task()["artifacts"][0]["extensions"].as_array().map(Vec::len);
    assert_eq!(listed, Some(2));
}

#[tokio::test]
async fn header_lines_are_a_union_and_spaces_do_not_count() {
    let server = specialist("").await;
    let lines = [format!("https://example.com/x ,  {STATE_INJECTION} "), format!("{TIMESTAMP},")];
    let request = server.say(QUESTION).metadata(STATE_KEY, ADA).extensions(&lines[0]).extensions(&lines[1]);
    let reply = request.send().await.expect("a reply");
    assert_eq!(reply.extensions, Some(format!("{STATE_INJECTION},{TIMESTAMP}")));
}

#[tokio::test]
async fn another_spelling_of_the_uri_is_another_extension() {
    let server = specialist("").await;
    let spellings = [
        format!("{STATE_INJECTION}/"),
        STATE_INJECTION.to_uppercase(),
        STATE_INJECTION.replace("/v1", "/v2"),
        STATE_INJECTION.replace("https://", ""),
    ];
    for spelling in spellings {
        let reply = server.say(QUESTION).metadata(STATE_KEY, ADA).extensions(&spelling).send().await.expect("a reply");
        assert_eq!(reply.code(), -32_008, "{spelling}");
    }
}

#[tokio::test]
async fn unknown_and_inactive_extensions_are_neither_run_nor_echoed() {
    let server = agent("Say something.", &crate::state_injection("session-state = { read = true }")).await;
    let unknown = server.say("hi").extensions("https://example.com/unknown").send().await.expect("a reply");
    assert_eq!((unknown.code(), unknown.extensions.as_deref()), (0, None));
    // State beside a message whose extension is not active is ignored.
    let ignored = server.say("hi").metadata(STATE_KEY, "17").send().await.expect("a reply");
    assert_eq!(ignored.code(), 0);
    assert!(ignored.task()["artifacts"][0].get("extensions").is_none());
    // `message.extensions` alone activates nothing.
    let body = format!(
        r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"hi"}}],"extensions":["{STATE_INJECTION}"]}}}}"#
    );
    let reply = server.call("SendMessage", body).send().await.expect("a reply");
    assert_eq!((reply.code(), reply.extensions.as_deref()), (0, None));
}

#[tokio::test]
async fn a_dependent_extension_needs_what_it_depends_on() {
    let dependent = |required: &str| {
        let parameters = format!("{required}\n[extension.parameters]\ndepends_on = [{TIMESTAMP:?}]");
        format!(
            "[[extension]]\ncomponent = \"timestamp\"\n[extension.grants]\nclock = true\n{}",
            crate::test_extension(&parameters)
        )
    };
    let server = agent("Say something.", &dependent("")).await;
    let test = annex_test_support::TEST_EXTENSION;
    let alone = server.say("hi").extensions(test).send().await.expect("a reply");
    assert_eq!(alone.extensions, None, "it stays inactive without what it depends on");
    let together = server.say("hi").extensions(&format!("{test},{TIMESTAMP}")).send().await.expect("a reply");
    assert_eq!(together.extensions, Some(format!("{TIMESTAMP},{test}")));

    let server = agent("Say something.", &dependent("required = true")).await;
    let alone = server.say("hi").extensions(test).send().await.expect("a reply");
    assert_eq!(alone.code(), -32_008);
    assert_eq!(alone.body["error"]["data"][0]["metadata"]["extensions"], TIMESTAMP);
}

#[tokio::test]
async fn the_extension_that_the_client_still_has_to_ask_for_is_named() {
    let component = annex_test_support::component("test-extension");
    let extension = |uri: &str, more: &str, needs: &str| {
        format!(
            "[[extension]]\ncomponent = {component:?}\n{more}\n[extension.parameters]\nuri = {uri:?}\ndepends_on = [{needs}]\n"
        )
    };
    let extensions = [
        extension("urn:c", "", ""),
        extension("urn:b", "", "\"urn:c\""),
        extension("urn:a", "required = true", "\"urn:b\""),
    ];
    let server = agent("prompt", &extensions.concat()).await;
    let asked = [("", "urn:a"), ("urn:a", "urn:b"), ("urn:a,urn:b", "urn:c"), ("urn:c,urn:b", "urn:a")];
    for (extensions, missing) in asked {
        let reply = server.say("hi").extensions(extensions).send().await.expect("a reply");
        assert_eq!(reply.body["error"]["data"][0]["metadata"]["extensions"], missing, "{extensions}: {}", reply.text);
    }
    let reply = server.say("hi").extensions("urn:a,urn:b,urn:c").send().await.expect("a reply");
    assert_eq!(reply.code(), 0, "{}", reply.text);
}

/// Each depends on all before it: the ways from the last one to the first double with each.
#[tokio::test]
async fn dependencies_that_many_share_are_looked_at_once() {
    let component = annex_test_support::component("test-extension");
    let uris: Vec<String> = (0..30).map(|number| format!("urn:{number}")).collect();
    let extensions = uris.iter().enumerate().map(|(index, uri)| {
        let needs = &uris[..index];
        format!("[[extension]]\ncomponent = {component:?}\nrequired = true\n[extension.parameters]\nuri = {uri:?}\ndepends_on = {needs:?}\n")
    });
    let server = agent("prompt", &extensions.collect::<String>()).await;
    let all_but_the_first = server.say("hi").extensions(&uris[1..].join(","));
    let reply = all_but_the_first.send().await.expect("a reply");
    assert_eq!(reply.body["error"]["data"][0]["metadata"]["extensions"], "urn:0", "{}", reply.text);
    let reply = server.say("hi").extensions(&uris.join(",")).send().await.expect("a reply");
    assert_eq!(reply.code(), 0, "{}", reply.text);
}

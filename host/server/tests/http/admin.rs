//! The admin API: its access rules, its answers and its changes.

use std::fs;

use annex_test_support::TEST_EXTENSION;
use serde_json::{Value, json};

use crate::installation::{
    ADMIN, Installation, TOKEN, addition, admin, etag, extension, marked, on_card, ready, say, segment, serve, written,
};

const WITH_FOLDER: &str =
    "[runtime]\nwatch = false\nextensions_dir = \"extensions\"\n[admin]\ntoken_file = \"token\"\n";

#[tokio::test]
async fn nobody_gets_in_without_the_token() {
    let (_files, server) = serve(ADMIN).await;
    let url = format!("{}/v1/extensions", server.admin_url());
    for path in [url.as_str(), &format!("{}/metrics", server.admin_url()), &format!("{}/nowhere", server.admin_url())] {
        let wrong = [None, Some("Bearer "), Some("Bearer wrong-token-of-the-tests"), Some(TOKEN), Some("Basic x")];
        for header in wrong {
            let request = server.client().get(path);
            let request = match header {
                Some(value) => request.header("authorization", value),
                None => request,
            };
            let response = request.send().await.expect("a reply");
            assert_eq!(
                (response.status().as_u16(), &response.headers()["www-authenticate"]),
                (401, &"Bearer".parse().expect("a value"))
            );
            let body: Value = response.json().await.expect("JSON");
            assert_eq!(body["error"]["code"], "unauthenticated", "{header:?}");
        }
    }
    let twice = server.client().get(&url).bearer_auth("another-wrong-token").bearer_auth(TOKEN);
    assert_eq!(twice.send().await.expect("a reply").status().as_u16(), 401);
    assert_eq!(server.client().get(&url).bearer_auth(TOKEN).send().await.expect("a reply").status().as_u16(), 200);
    let public = server.get("/v1/extensions").await.expect("a reply");
    assert_eq!(public.status().as_u16(), 404, "the public listener has no admin API");
}

#[tokio::test]
async fn a_foreign_host_name_is_refused_even_with_the_token() {
    let (_files, server) = serve(ADMIN).await;
    for (host, expected) in [("evil.example", 403), ("evil.example:9998", 403), ("localhost:1", 200), ("[::1]", 200)] {
        let request = server.client().get(format!("{}/v1/extensions", server.admin_url())).bearer_auth(TOKEN);
        let response = request.header("host", host).send().await.expect("a reply");
        assert_eq!(response.status().as_u16(), expected, "{host}");
    }
}

#[tokio::test]
async fn what_is_installed_is_listed_and_shown_by_uri_and_by_digest() {
    let config =
        format!("{ADMIN}{}", extension("test.wasm", "required = true\n[extension.grants]\nclock = true", "ok"));
    let (_files, server) = serve(&config).await;
    let (status, list) = admin(&server, "GET", "extensions", Value::Null).await;
    let listed = &list["extensions"][0];
    assert_eq!((status, &list["edition"], &listed["uri"]), (200, &json!(1), &json!(TEST_EXTENSION)));
    assert_eq!((&listed["required"], &listed["source"]["kind"]), (&json!(true), &json!("config")), "{list}");
    let digest = listed["digest"].as_str().expect("a digest").to_owned();

    let hex = digest.replace("sha256:", "");
    for id in [segment(TEST_EXTENSION), digest.clone(), hex] {
        let (status, details) = admin(&server, "GET", &format!("extensions/{id}"), Value::Null).await;
        assert_eq!(
            (status, &details["digest"], &details["grants"]["clock"]),
            (200, &json!(digest), &json!(true)),
            "{id}"
        );
        let hooks =
            ["descriptor", "card", "activation", "message", "state", "transition", "response", "method", "client"];
        assert_eq!(details["hooks"], json!(hooks));
        assert_eq!(details["limits"]["memory_mib"], 16);
    }
    let (status, missing) = admin(&server, "GET", "extensions/urn%3Anone", Value::Null).await;
    assert_eq!((status, &missing["error"]["code"]), (404, &json!("not_installed")));
}

#[tokio::test]
async fn an_added_component_lasts_until_the_restart_where_there_is_no_folder() {
    let (_files, server) = serve(ADMIN).await;
    let (status, added) = admin(&server, "POST", "extensions", addition("test", &marked("1"), None)).await;
    assert_eq!((status, &added["source"]["until"]), (201, &json!("restart")), "{added}");
    assert_eq!(written(&say(&server, "hi").await), "artifact");

    let settings = "[parameters.behaviour]\nrespond = \"none\"";
    let (_, other) = admin(&server, "POST", "extensions", addition("test", &marked("2"), Some(settings))).await;
    assert_eq!(written(&say(&server, "hi").await), Value::Null);
    assert_eq!(other["kept_versions"][0]["version"], added["version"]);
    admin(&server, "POST", "extensions", addition("test", &marked("3"), None)).await;
    assert_eq!(written(&say(&server, "hi").await), Value::Null, "the settings stay with the name");
    server.installer().reload().await.expect("a reload");
    assert_eq!(on_card(&server).await, [TEST_EXTENSION], "a reload leaves it alone");

    let (status, removed) =
        admin(&server, "DELETE", &format!("extensions/{}", segment(TEST_EXTENSION)), Value::Null).await;
    assert_eq!((status, &removed["removed"], &removed["until"]), (200, &json!(TEST_EXTENSION), &Value::Null));
    assert_eq!(on_card(&server).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_is_added_after_a_rollback_stays() {
    let (files, server) = serve(WITH_FOLDER).await;
    for mark in ["1", "2"] {
        admin(&server, "POST", "extensions", addition("test", &marked(mark), None)).await;
    }
    let path = format!("extensions/{}/rollback", segment(TEST_EXTENSION));
    let (status, back) = admin(&server, "POST", &path, json!({})).await;
    assert_eq!((status, &back["version"]), (200, &json!(1)), "{back}");
    let (_, again) = admin(&server, "POST", "extensions", addition("test", &marked("2"), None)).await;
    assert!(!server.installer().reload().await.expect("a reload").changed, "the folder has what is in force");
    let (_, details) = admin(&server, "GET", &format!("extensions/{}", segment(TEST_EXTENSION)), Value::Null).await;
    assert_eq!(details["version"], again["version"]);
    assert_eq!(fs::read(files.path("extensions/test.wasm")).expect("a component"), marked("2"));
}

#[tokio::test]
async fn an_added_component_is_kept_in_the_folder_and_removed_from_it() {
    let (files, server) = serve(WITH_FOLDER).await;
    let settings = "# why it is here\nrequired = true\n";
    let (status, added) = admin(&server, "POST", "extensions", addition("test", &marked("1"), Some(settings))).await;
    assert_eq!((status, &added["source"]), (201, &json!({"kind": "folder", "name": "test"})), "{added}");
    assert_eq!(fs::read_to_string(files.path("extensions/test.toml")).expect("settings"), settings);
    admin(&server, "POST", "extensions", addition("test", &marked("2"), None)).await;
    assert_eq!(fs::read(files.path("extensions/test.wasm")).expect("a component"), marked("2"));
    assert!(!server.installer().reload().await.expect("a reload").changed, "the folder has what is in force");
    assert_eq!(server.say("hi").send().await.expect("a reply").code(), -32_008, "the settings stay beside it");

    let (_, same) = admin(&server, "POST", "extensions", addition("test", &marked("2"), None)).await;
    assert_eq!((&same["version"], &same["edition"]), (&json!(2), &json!(3)), "nothing is new: {same}");

    admin(&server, "DELETE", &format!("extensions/{}", segment(TEST_EXTENSION)), Value::Null).await;
    assert_eq!(fs::read_dir(files.path("extensions")).expect("a folder").count(), 0);
    assert_eq!(server.say("hi").send().await.expect("a reply").code(), 0);
}

#[tokio::test]
async fn what_cannot_be_installed_is_refused_with_the_reason_and_leaves_nothing() {
    let (files, server) = serve(&format!("{WITH_FOLDER}{}", extension("test.wasm", "", "ok"))).await;
    let before = etag(&server).await;
    let good = marked("good");
    let cases = [
        (addition("x", b"garbage", None), 422, "refused", "not a WebAssembly component"),
        (addition("x", &good, None), 409, "does_not_fit", "two installed extensions have the URI"),
        (addition("x", &good, Some("[parameters.behaviour]\ndescribe = \"loop\"")), 422, "refused", "CPU time limit"),
        (addition("x", &good, Some("clok = \"s3cret\"")), 422, "invalid_settings", "clok"),
        (addition("x", &good, Some("a = = s3cret")), 422, "invalid_settings", "settings"),
        (addition("../x", &good, None), 400, "invalid_name", "no name for an extension"),
        (json!({"name": "x", "component": "%"}), 400, "invalid_request", "base64"),
        (json!({"name": "x"}), 400, "invalid_request", "component"),
    ];
    for (body, status, code, reason) in cases {
        let (answered, error) = admin(&server, "POST", "extensions", body).await;
        let message = error["error"]["message"].as_str().unwrap_or_default();
        assert_eq!((answered, &error["error"]["code"]), (status, &json!(code)), "{error}");
        assert!(message.contains(reason) && !message.contains("s3cret"), "{message}");
    }
    assert_eq!((fs::read_dir(files.path("extensions")).expect("a folder").count(), etag(&server).await), (0, before));
    assert_eq!(ready(&server).await["edition"], 1);
    let large = server.client().post(format!("{}/v1/extensions", server.admin_url())).bearer_auth(TOKEN);
    let large = large.body(vec![b'x'; 46 << 20]).send().await;
    // The server may hang up before all of it is sent.
    assert!(large.is_err() || large.is_ok_and(|response| response.status().as_u16() == 413));
}

#[tokio::test]
async fn an_extension_that_others_need_is_not_removed() {
    let dependent =
        "[[extension]]\ncomponent = \"./test.wasm\"\n[extension.parameters]\nuri = \"urn:b\"\ndepends_on = ";
    let config = format!("{ADMIN}{}\n{dependent}[{TEST_EXTENSION:?}]", extension("test.wasm", "", "ok"));
    let (_files, server) = serve(&config).await;
    let path = format!("extensions/{}", segment(TEST_EXTENSION));
    let (status, error) = admin(&server, "DELETE", &path, Value::Null).await;
    assert_eq!((status, &error["error"]["code"]), (409, &json!("does_not_fit")), "{error}");
    assert!(error["error"]["message"].as_str().is_some_and(|message| message.contains("urn:b")), "{error}");
    let (status, _) = admin(&server, "DELETE", "extensions/urn%3Ab", Value::Null).await;
    assert_eq!((status, on_card(&server).await), (200, vec![TEST_EXTENSION.to_owned()]));
    let (_, reloaded) = admin(&server, "POST", "reload", Value::Null).await;
    assert_eq!(reloaded["changed"], true, "the config names it still: {reloaded}");
    assert_eq!(on_card(&server).await, [TEST_EXTENSION, "urn:b"]);
}

#[tokio::test]
async fn a_config_that_cannot_be_read_again_is_named_without_its_lines() {
    let (files, server) = serve(ADMIN).await;
    files.config("[server]\nlisten = \"s3cret\"");
    let (status, error) = admin(&server, "POST", "reload", Value::Null).await;
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert_eq!((status, &error["error"]["code"]), (422, &json!("invalid_config")), "{error}");
    assert!(
        message.contains("server.listen: is no address")
            && message.contains("annex.toml:")
            && !message.contains("s3cret"),
        "{message}"
    );
    let (_, list) = admin(&server, "GET", "extensions", Value::Null).await;
    assert_eq!(list["failures"][0]["source"], "config", "{list}");
}

#[tokio::test]
async fn the_last_log_lines_of_an_extension_can_be_read() {
    let (_files, server) = serve(&format!("{ADMIN}{}", extension("test.wasm", "", "ok"))).await;
    let told = server.say("hi").extensions(TEST_EXTENSION).metadata("test/command", "\"log-flood 2\"");
    told.send().await.expect("a reply");
    let (status, log) =
        admin(&server, "GET", &format!("extensions/{}/log", segment(TEST_EXTENSION)), Value::Null).await;
    assert_eq!(
        (status, &log["lines"][0]["message"], &log["lines"][1]["message"]),
        (200, &json!("line 0"), &json!("line 1"))
    );
    assert_eq!(log["lines"][0]["level"], "info");
}

#[tokio::test]
async fn the_lines_that_explain_a_failure_have_the_error_id_that_the_client_was_told() {
    let (_files, server) = serve(&format!("{ADMIN}{}", extension("test.wasm", "", "ok"))).await;
    let told = server.say("hi").extensions(TEST_EXTENSION).metadata("test/command", "\"panic\"").context("c-1");
    let reply = told.send().await.expect("a reply");
    let (_, log) = admin(&server, "GET", &format!("extensions/{}/log", segment(TEST_EXTENSION)), Value::Null).await;
    let line = &log["lines"][0];
    assert!(line["message"].as_str().is_some_and(|text| text.contains("was told to panic")), "{log}");
    let error_id = line["error_id"].as_str().unwrap_or_default();
    assert!(!error_id.is_empty() && reply.text.contains(error_id), "{log}\n{}", reply.text);
    assert_eq!((&line["hook"], &line["context_id"]), (&json!("state"), &json!("c-1")), "{log}");
    assert!(line["task_id"].is_string(), "{log}");
}

#[tokio::test]
async fn metrics_name_each_version_in_force() {
    let (_files, server) = serve(&format!("{ADMIN}{}", extension("test.wasm", "", "ok"))).await;
    let response = server.client().get(format!("{}/metrics", server.admin_url())).bearer_auth(TOKEN).send().await;
    let text = response.expect("a reply").text().await.expect("a body");
    for line in
        ["annex_edition 1", "annex_extensions_installed 1", "annex_extension_failures 0", "annex_pinned_tasks 0"]
    {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(text.contains(&format!("annex_extension_info{{extension=\"{TEST_EXTENSION}\",digest=\"sha256:")), "{text}");
}

#[tokio::test]
async fn an_unsafe_admin_section_is_refused_at_the_start() {
    let installation = Installation::new();
    let cases = [
        ("[admin]", "exactly one of token_file and token_env"),
        ("[admin]\ntoken_file = \"a\"\ntoken_env = \"b\"", "exactly one of token_file and token_env"),
        ("[admin]\ntoken_file = \"token\"\nlisten = \"0.0.0.0:0\"", "allow_remote"),
        ("[admin]\ntoken_file = \"nothing\"", "nothing"),
        ("[admin]\ntoken_env = \"ANNEX_NO_SUCH_VARIABLE\"", "ANNEX_NO_SUCH_VARIABLE"),
        ("[admin]\ntoken_file = \"short\"", "16 to 1024 bytes"),
        ("[[admin.token]]\nname = \"a b\"\ntoken_env = \"X\"", "admin.token.name"),
        ("[[admin.token]]\nname = \"bot\"", "exactly one of token_file, token_env and token_sha256"),
        (
            "[[admin.token]]\nname = \"bot\"\ntoken_env = \"X\"\ntoken_file = \"token\"",
            "exactly one of token_file, token_env",
        ),
        ("[admin]\ntoken_file = \"token\"\n[[admin.token]]\nname = \"admin\"\ntoken_env = \"X\"", "stands there twice"),
        ("[[admin.token]]\nname = \"bot\"\ntoken_sha256 = \"00\"", "64 hexadecimal digits"),
        (
            "[[admin.token]]\nname = \"bot\"\ntoken_file = \"short\"",
            "admin.token.token_file: the token must have 16 to 1024 bytes",
        ),
    ];
    fs::write(installation.path("short"), "15-bytes-are-no\n").expect("a file");
    for (config, expected) in cases {
        installation.config(config);
        let error = installation.try_serve().await.err().expect("a refusal");
        assert!(format!("{error:#}").contains(expected), "{config}: {error:#}");
    }
}

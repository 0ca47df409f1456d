//! The audit file of the admin API, and the roles of admin tokens.

use std::fs;
use std::time::Duration;

use annex_runtime::Digest;
use annex_server::verify_audit;
use annex_test_support::{TEST_EXTENSION, TestConfig, TestServer, until};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::auth::api_keys;
use crate::console_pages::Browser;
use crate::installation::{Installation, TOKEN, addition, admin, extension, marked, on_card, say, segment, serve};
use crate::tenants::agent;

const AUDITED: &str =
    "[runtime]\nwatch = false\n[admin]\ntoken_file = \"token\"\naudit_file = \"audit.jsonl\"\nallow_recording = true\n";

fn lines(files: &Installation) -> Vec<Value> {
    let text = fs::read_to_string(files.path("audit.jsonl")).expect("an audit file");
    verify_audit(text.as_bytes()).expect("a chain");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The action and the outcome of each line.
fn outcomes(lines: &[Value]) -> Vec<(&str, &str)> {
    assert!(lines.iter().all(|line| line["time"].is_string()), "{lines:?}");
    lines.iter().filter_map(|line| Some((line["action"].as_str()?, line["outcome"].as_str()?))).collect()
}

#[tokio::test]
async fn each_change_is_a_line_before_it_takes_effect_and_a_line_with_its_outcome() {
    let (files, server) = serve(AUDITED).await;
    let component = marked("1");
    let settings = "[grants]\nclock = true";
    let (status, added) = admin(&server, "POST", "extensions", addition("test", &component, Some(settings))).await;
    assert_eq!(status, 201, "{added}");
    let lines = lines(&files);
    let [start, begun, done] = &*lines else { panic!("{lines:?}") };
    assert_eq!(
        outcomes(&lines),
        [("start", "done"), ("install_extension", "begun"), ("install_extension", "done")],
        "{start}"
    );
    let digest = Digest::of(&component).to_string();
    for line in [begun, done] {
        assert_eq!((&line["by"], &line["from"]), (&json!("admin"), &json!("127.0.0.1")), "{line}");
        assert_eq!((&line["request"], &line["component"]), (&json!("POST /v1/extensions"), &json!(digest)), "{line}");
        assert_eq!(line["text"], json!(Digest::of(settings.as_bytes()).to_string()), "{line}");
    }
    assert_eq!((&done["begun"], &done["digest"]), (&begun["number"], &json!(digest)), "{done}");
    assert_eq!((&done["grants"]["clock"], &done["version"]), (&json!(true), &added["version"]), "{done}");
    assert!(done["effect"].as_str().is_some_and(|effect| effect.contains(TEST_EXTENSION)), "{done}");
}

#[tokio::test]
async fn each_kind_of_change_and_each_refused_one_is_in_the_audit_file() {
    let (files, server) = serve(&format!("{AUDITED}{}", extension("test.wasm", "", "ok"))).await;
    let reply = say(&server, "hi").await;
    let context = reply.task()["contextId"].as_str().expect("a context").to_owned();
    let path = format!("extensions/{}", segment(TEST_EXTENSION));
    let shadow = addition("unused", &marked("2"), None)["component"].clone();
    let calls = [
        ("POST", format!("{path}/shadow"), json!({"component": shadow}), "begin_shadow", true),
        ("DELETE", format!("{path}/shadow"), Value::Null, "end_shadow", true),
        ("POST", format!("{path}/shadow/promote"), Value::Null, "promote_shadow", false),
        ("POST", format!("{path}/rollback"), json!({}), "roll_back_extension", false),
        ("POST", "reload".to_owned(), Value::Null, "reload", true),
        ("DELETE", format!("sessions/{context}"), Value::Null, "delete_session", true),
        ("POST", "state/delete".to_owned(), json!({"keys": ["app:none"]}), "delete_state", false),
        ("DELETE", path.clone(), Value::Null, "remove_extension", true),
    ];
    for (method, path, body, action, is_made) in calls {
        let before = lines(&files).len();
        let (status, answer) = admin(&server, method, &path, body).await;
        assert_eq!((200..300).contains(&status), is_made, "{method} {path}: {answer}");
        let lines = lines(&files);
        let expected = [(action, "begun"), (action, if is_made { "done" } else { "refused" })];
        assert_eq!(outcomes(&lines[before..]), expected, "{method} {path}");
        if !is_made {
            let line = &lines[before + 1];
            assert_eq!((&line["status"], &line["reason"]), (&json!(status), &answer["error"]["message"]), "{line}");
        }
    }
    let (status, _) = admin(&server, "DELETE", "extensions/urn%3Anone", Value::Null).await;
    let all = lines(&files);
    let last = all.last().expect("a line");
    assert_eq!((status, &last["outcome"], &last["status"]), (404, &json!("refused"), &json!(404)), "{last}");
    let text = fs::read_to_string(files.path("audit.jsonl")).expect("a file");
    assert!(!text.contains(TOKEN), "{text}");
}

#[tokio::test]
async fn a_change_in_the_console_is_recorded_with_the_name_of_its_token() {
    let (files, server) = serve(&format!("{AUDITED}{}", extension("test.wasm", "", "ok"))).await;
    let browser = Browser::log_in(&server).await;
    let before = lines(&files).len();
    let answer = browser.submit("/extension/change", &[("uri", TEST_EXTENSION), ("action", "remove")]).await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let lines = lines(&files);
    let expected = [("remove_extension", "begun"), ("remove_extension", "done")];
    assert_eq!(outcomes(&lines[before..]), expected, "{lines:?}");
    for line in &lines[before..] {
        assert_eq!((&line["by"], &line["from"]), (&json!("admin"), &json!("127.0.0.1")), "{line}");
        assert_eq!(line["request"], "POST /extension/change", "{line}");
    }
}

#[tokio::test]
async fn the_grants_in_the_text_of_a_tenant_are_in_the_audit_file() {
    let files = Installation::new();
    let admin = "[admin]\ntoken_file = \"token\"\naudit_file = \"audit.jsonl\"\n";
    let config = format!("{}{}\n[tenants]\n{admin}", agent("main", ""), api_keys());
    fs::write(files.path("annex.toml"), config).expect("a config");
    fs::write(files.path("token"), TOKEN).expect("a token");
    let server = TestServer::from_file(&files.path("annex.toml"), None).await.expect("a server");
    let text = agent("hooli", "[[extension]]\ncomponent = \"timestamp\"\n[extension.grants]\nclock = true\n");
    let put = server.client().put(format!("{}/v1/tenants/hooli", server.admin_url())).bearer_auth(TOKEN);
    let answer = put.header("if-none-match", "*").json(&json!({"config": text})).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 201);
    let lines = lines(&files);
    let done = lines.last().expect("a line");
    assert_eq!(done["grants"], json!([{"component": "timestamp", "grants": {"clock": true}}]), "{done}");
    assert_eq!((&done["tenant"], &done["action"]), (&json!("hooli"), &json!("put_tenant")), "{done}");
    assert_eq!(done["text"], json!(Digest::of(text.as_bytes()).to_string()), "{done}");
}

#[tokio::test]
async fn a_change_that_cannot_be_recorded_is_refused_and_reads_go_on() {
    let (files, server) = serve(&format!("{AUDITED}{}", extension("test.wasm", "", "ok"))).await;
    let file = files.path("audit.jsonl");
    fs::rename(&file, files.path("aside")).expect("a move");
    fs::create_dir(&file).expect("a folder in its place");
    let path = format!("extensions/{}", segment(TEST_EXTENSION));
    let (status, error) = admin(&server, "DELETE", &path, Value::Null).await;
    assert_eq!((status, &error["error"]["code"]), (503, &json!("audit_unavailable")), "{error}");
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("nothing was changed") && message.contains("audit.jsonl"), "{message}");
    let (status, error) = admin(&server, "POST", &format!("{path}/record"), json!({})).await;
    assert_eq!((status, &error["error"]["code"]), (503, &json!("audit_unavailable")), "{error}");
    assert_eq!(on_card(&server).await, [TEST_EXTENSION]);
    assert_eq!(admin(&server, "GET", "extensions", Value::Null).await.0, 200);
    fs::remove_dir(&file).expect("no folder");
    assert_eq!(admin(&server, "DELETE", &path, Value::Null).await.0, 200);
    let continued = verify_audit(fs::read(&file).expect("a file").as_slice()).expect("a chain");
    let before = verify_audit(fs::read(files.path("aside")).expect("a file").as_slice()).expect("a chain");
    assert_eq!(continued.continues, Some(before.last_digest));
}

#[tokio::test]
async fn refusals_of_strangers_share_one_line_of_the_audit_file_in_ten_seconds() {
    let (files, server) = serve(AUDITED).await;
    let url = format!("{}/v1/reload", server.admin_url());
    for token in ["a-token-of-nobody", "another-of-nobody"] {
        let reply = server.client().post(&url).bearer_auth(token).send().await.expect("a reply");
        assert_eq!(reply.status().as_u16(), 401);
    }
    until("the line of the strangers", async || lines(&files).len() == 2).await;
    let lines = lines(&files);
    let last = &lines[1];
    assert_eq!(
        (&last["outcome"], &last["status"], &last["times"]),
        (&json!("refused"), &json!(401), &json!(1)),
        "{last}"
    );
    assert!(last.get("by").is_none() && last["from"] == "127.0.0.1", "{last}");
}

#[tokio::test]
async fn an_audit_file_that_cannot_be_opened_is_an_error_at_the_start() {
    let installation = Installation::new();
    installation.config(&AUDITED.replace("audit.jsonl", "none/audit.jsonl"));
    let error = installation.try_serve().await.err().expect("a refusal");
    let text = format!("{error:#}");
    assert!(text.contains("admin.audit_file: cannot open") && text.contains("none/audit.jsonl"), "{text}");
}

/// The config of a token `name` with these roles. The token is the name and `-0123456789abcdef`.
fn token(name: &str, roles: &str) -> String {
    let digest = Digest::of(format!("{name}-0123456789abcdef").as_bytes()).hex();
    format!("[[admin.token]]\nname = {name:?}\ntoken_sha256 = \"{digest}\"\nroles = {roles}\n")
}

/// Calls the admin API with the token of [`token`].
async fn by(server: &TestServer, name: &str, method: &str, path: &str) -> (u16, Value) {
    let url = format!("{}/{path}", server.admin_url());
    let request = server.client().request(method.parse().expect("a method"), url);
    let response = request.bearer_auth(format!("{name}-0123456789abcdef")).send().await.expect("a reply");
    let status = response.status().as_u16();
    let text = response.text().await.expect("a body");
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// The routes, and which of five tokens open them: reader, operator, installer, acme, acme-reader.
const ROUTES: [(&str, &str, [bool; 5]); 36] = [
    ("GET", "v1/extensions", [true, false, false, false, false]),
    ("GET", "metrics", [true, false, false, false, false]),
    ("GET", "v1/tenants", [true, false, false, false, false]),
    ("GET", "v1/sessions", [true, false, false, false, false]),
    ("GET", "v1/state?user=u", [true, false, false, false, false]),
    ("GET", "v1/replicas", [true, false, false, false, false]),
    ("GET", "v1/usage", [true, false, false, false, false]),
    ("GET", "v1/components", [true, false, false, false, false]),
    ("GET", "v1/requests", [true, false, false, false, false]),
    ("GET", "metrics?tenant=acme", [true, false, false, false, false]),
    ("GET", "v1/components?tenant=acme", [true, false, false, false, false]),
    ("GET", "v1/requests?tenant=acme", [true, false, false, true, true]),
    ("GET", "v1/extensions?tenant=acme", [true, false, false, true, true]),
    ("GET", "v1/sessions?tenant=acme", [true, false, false, true, true]),
    ("GET", "v1/tenants/acme", [true, false, false, true, true]),
    ("GET", "v1/tenants/acme/usage", [true, false, false, true, true]),
    ("GET", "v1/extensions?tenant=other", [true, false, false, false, false]),
    ("GET", "v1/tenants/other?tenant=acme", [true, false, false, false, false]),
    ("GET", "v1/extensions?tenant=acme&tenant=other", [true, false, false, false, false]),
    ("POST", "v1/reload", [false, true, false, false, false]),
    ("POST", "v1/reload?tenant=acme", [false, true, false, true, false]),
    ("DELETE", "v1/sessions/c", [false, true, false, false, false]),
    ("DELETE", "v1/state?user=u", [false, true, false, false, false]),
    ("POST", "v1/state/delete", [false, true, false, false, false]),
    ("POST", "v1/extensions/urn%3Aa/record?tenant=acme", [false, true, false, true, false]),
    ("POST", "v1/extensions/urn%3Aa/rollback", [false, true, false, false, false]),
    ("DELETE", "v1/extensions/urn%3Aa/shadow", [false, true, false, false, false]),
    ("POST", "v1/extensions", [false, false, true, false, false]),
    ("POST", "v1/extensions?tenant=acme", [false, false, true, true, false]),
    ("DELETE", "v1/extensions/urn%3Aa", [false, false, true, false, false]),
    ("POST", "v1/extensions/urn%3Aa/shadow", [false, false, true, false, false]),
    ("POST", "v1/extensions/urn%3Aa/shadow/promote", [false, false, true, false, false]),
    ("POST", "v1/components", [false, false, true, false, false]),
    ("DELETE", "v1/components/sha256%3A00", [false, false, true, false, false]),
    ("PUT", "v1/tenants/acme", [false, false, true, false, false]),
    ("DELETE", "v1/tenants/acme", [false, false, true, false, false]),
];

#[tokio::test]
async fn a_token_reaches_only_the_routes_of_its_roles() {
    let tokens = [
        token("reader", "[\"read\"]"),
        token("operator", "[\"operate\"]"),
        token("installer", "[\"install\"]"),
        token("acme", "[\"tenant:acme\"]"),
        token("acme-reader", "[\"read\", \"tenant:acme\"]"),
    ];
    let more =
        "[[tenant]]\nname = \"acme\"\nconfig = \"acme.toml\"\n[[tenant]]\nname = \"other\"\nconfig = \"acme.toml\"\n";
    let installation = Installation::new();
    let text = TestConfig::template("hi").toml();
    fs::write(installation.path("acme.toml"), text).expect("a config");
    installation.config(&format!("{AUDITED}{}{more}", tokens.concat()));
    let server = installation.serve().await;
    let of = ["reader", "operator", "installer", "acme", "acme-reader"];
    for (method, path, expected) in ROUTES {
        for (name, opens) in of.into_iter().zip(expected) {
            let (status, error) = by(&server, name, method, path).await;
            let is_refused = error["error"]["code"] == "missing_role";
            assert_eq!((is_refused, status == 403), (!opens, !opens), "{name} {method} {path}: {status} {error}");
        }
    }
    let (_, error) = by(&server, "reader", "POST", "v1/reload").await;
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("`operate`") && message.contains("\"reader\" are read"), "{message}");
    let refused =
        lines(&installation).into_iter().filter(|line| line["by"] == "reader" && line["status"] == 403).count();
    assert_eq!(refused, ROUTES.iter().filter(|(method, ..)| *method != "GET").count() + 1);
}

#[tokio::test]
async fn unknown_roles_are_refused_at_the_start() {
    let installation = Installation::new();
    for roles in ["[]", "[\"write\"]", "[\"tenant:\"]", "[\"tenant:A B\"]", "[\"Read\"]"] {
        installation.config(&format!("{AUDITED}{}", token("bot", roles)));
        let error = installation.try_serve().await.err().expect("a refusal");
        let text = format!("{error:#}");
        assert!(text.contains("admin.token.roles") && text.contains("\"tenant:NAME\""), "{roles}: {text}");
    }
}

#[tokio::test]
async fn the_console_checks_the_roles_of_the_token_that_logged_in() {
    let tokens = [token("reader", "[\"read\"]"), token("acme", "[\"tenant:acme\"]")].concat();
    let (files, server) = serve(&format!("{AUDITED}{tokens}[tenants]\n")).await;
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let url = server.admin_url();
    let form = "application/x-www-form-urlencoded";
    let mut page = String::new();
    let mut cookie = String::new();
    for (name, status) in [("acme", 403), ("reader", 200)] {
        let login = client.post(format!("{url}/login")).header("origin", url).header("content-type", form);
        let answer = login.body(format!("token={name}-0123456789abcdef")).send().await.expect("an answer");
        let set = answer.headers()["set-cookie"].to_str().expect("text");
        cookie = set.split(';').next().expect("a cookie").to_owned();
        let answer = client.get(format!("{url}/")).header("cookie", &cookie).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), status, "{name}");
        page = answer.text().await.expect("a page");
    }
    let (_, csrf) = page.split_once("name=\"csrf\" value=\"").expect("a form");
    let csrf = csrf.split('"').next().expect("a value");
    let submit = async |path: &str, fields: &str| {
        let change = client.post(format!("{url}{path}")).header("origin", url).header("cookie", &cookie);
        let sent = change.header("content-type", form).body(format!("csrf={csrf}&{fields}")).send().await;
        let answer = sent.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a page"))
    };
    let (status, page) = submit("/try", "").await;
    assert!(status == 403 && page.contains("operate"), "{page}");
    assert_eq!(outcomes(&lines(&files)).len(), 1, "nothing was changed");
    // Each of these would load or pull a component before it is refused for another reason.
    let changes = [
        ("/extensions/upload", "name=x&component=eA"),
        ("/extensions/reference", "reference=oci%3A%2F%2Flocalhost%2Fx%3A1"),
        ("/extensions/install", "digest=x&name=x&settings=&share=1&action=preview"),
        ("/tenants", "name=x&config=x"),
        ("/tenant/change", "name=x&rev=1&action=remove"),
    ];
    for (number, (path, fields)) in changes.into_iter().enumerate() {
        let (status, page) = submit(path, fields).await;
        assert!(status == 403 && page.contains("`install`"), "{path}: {status} {page}");
        let lines = lines(&files);
        let last = lines.last().expect("a line");
        assert_eq!((lines.len(), &last["outcome"], &last["by"]), (number + 2, &json!("refused"), &json!("reader")));
    }
    // A large form is refused before it is read.
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.expect("a connection");
    let head = format!(
        "POST /extensions/upload HTTP/1.1\r\nhost: localhost\r\ncookie: {cookie}\r\ncontent-length: 1000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("a request");
    let mut status = [0; 12];
    let answer = timeout(Duration::from_secs(30), stream.read_exact(&mut status)).await;
    answer.expect("an answer before the body").expect("a status");
    assert_eq!(&status, b"HTTP/1.1 403");
}

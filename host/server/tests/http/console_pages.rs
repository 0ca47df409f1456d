//! The console's pages for extensions, sessions, tenants and messages.

use std::fs;

use annex_test_support::{STATE_INJECTION, TEST_EXTENSION, TestServer};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use url::form_urlencoded::Serializer;

use crate::auth::api_keys;
use crate::installation::{self, Installation, TOKEN, admin, extension, marked, on_card, say, written};
use crate::tenants::agent;

const CONFIG: &str = "[runtime]\nwatch = false\nextensions_dir = \"extensions\"\n[admin]\ntoken_file = \"token\"\n";
/// Texts that must never be markup, steer the text around them, or fill a page.
const SCRIPT: &str = "<script>alert(1)</script>\u{202e}\u{1b}[31m";

/// An operator who is logged in.
pub(crate) struct Browser {
    pub(crate) client: Client,
    pub(crate) url: String,
    cookie: String,
    csrf: String,
}

/// An answer of the console, as a browser reads it.
pub(crate) struct Answer {
    pub(crate) status: u16,
    location: String,
    pub(crate) text: String,
}

impl Browser {
    pub(crate) async fn log_in(server: &TestServer) -> Self {
        let client = Client::builder().redirect(Policy::none()).build().expect("a client");
        let url = server.admin_url().to_owned();
        let mut browser = Self { client, url, cookie: String::new(), csrf: String::new() };
        let form = form(&[("token", TOKEN)]);
        let answer = browser.send(browser.client.post(format!("{}/login", browser.url)).body(form)).await;
        let cookie = answer.headers()["set-cookie"].to_str().expect("text").to_owned();
        browser.cookie = cookie.split(';').next().expect("a cookie").to_owned();
        browser.csrf = hidden(&browser.open("/extensions/upload").await.text, "csrf");
        browser
    }

    async fn send(&self, request: RequestBuilder) -> Response {
        let request = request.header("cookie", &self.cookie).header("origin", &self.url);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.send().await.expect("an answer")
    }

    pub(crate) async fn open(&self, path: &str) -> Answer {
        Answer::read(self.get(path).await).await
    }

    /// The text of a page.
    pub(crate) async fn page(&self, path: &str) -> String {
        let answer = self.open(path).await;
        assert_eq!(answer.status, 200, "{path}");
        answer.text
    }

    /// Like [`open`](Self::open), for an answer that is read in pieces.
    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send(self.client.get(format!("{}{path}", self.url))).await
    }

    /// Sends a form with the token against foreign forms.
    pub(crate) async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let fields = [fields, &[("csrf", self.csrf.as_str())]].concat();
        Answer::read(self.send(self.client.post(format!("{}{path}", self.url)).body(form(&fields))).await).await
    }

    /// Uploads a component, and returns the page with the approval.
    async fn upload(&self, name: &str, component: &[u8]) -> Answer {
        let component = URL_SAFE_NO_PAD.encode(component);
        let sent = self.submit("/extensions/upload", &[("name", name), ("component", &component)]).await;
        assert_eq!(sent.status, 303, "{}", sent.text);
        self.open(&sent.location).await
    }

    /// Uploads a component and does `action` with the settings.
    async fn install(&self, name: &str, component: &[u8], settings: &str, action: &str) -> Answer {
        let page = self.upload(name, component).await;
        let digest = hidden(&page.text, "digest");
        let fields =
            [("digest", digest.as_str()), ("name", name), ("settings", settings), ("share", "100"), ("action", action)];
        self.submit("/extensions/install", &fields).await
    }
}

impl Answer {
    async fn read(response: Response) -> Self {
        let location = response.headers().get("location").map(|value| value.to_str().expect("text").to_owned());
        let status = response.status().as_u16();
        Self { status, location: location.unwrap_or_default(), text: response.text().await.expect("a page") }
    }

    /// Checks that a stranger's text on the page is text, and that the page is short.
    fn is_harmless(&self) {
        assert_eq!(self.status, 200, "{}", self.text);
        for harmful in ["<script>alert", "\u{202e}", "\u{1b}"] {
            assert!(!self.text.contains(harmful), "{harmful:?}: {}", self.text);
        }
        assert!(self.text.len() < 300_000, "{} bytes", self.text.len());
    }
}

fn form(fields: &[(&str, &str)]) -> String {
    Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// The value of a hidden field.
fn hidden(page: &str, name: &str) -> String {
    let before = format!("name=\"{name}\" value=\"");
    let (_, after) = page.split_once(&before).unwrap_or_else(|| panic!("no field {name}: {page}"));
    after.split('"').next().unwrap_or_default().to_owned()
}

fn of_extension(path: &str, more: &[(&str, &str)]) -> String {
    format!("{path}?{}", form(&[more, &[("uri", TEST_EXTENSION)]].concat()))
}

async fn serve(more: &str) -> (Installation, TestServer, Browser) {
    let (files, server) = installation::serve(&format!("{CONFIG}{more}")).await;
    let browser = Browser::log_in(&server).await;
    (files, server, browser)
}

#[tokio::test]
async fn a_component_is_uploaded_looked_at_approved_and_listed() {
    let (files, server, browser) = serve("").await;
    let page = browser.upload("test", &marked("1")).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.contains("What it wants") && on_card(&server).await.is_empty(), "{}", page.text);
    let digest = hidden(&page.text, "digest");
    let common = [("digest", digest.as_str()), ("name", "test"), ("share", "100")];

    let preview = [&common[..], &[("settings", ""), ("action", "preview")]].concat();
    let preview = browser.submit("/extensions/install", &preview).await;
    assert!(preview.text.contains(TEST_EXTENSION) && preview.text.contains("is new on the card"), "{}", preview.text);
    assert!(on_card(&server).await.is_empty(), "a preview installs nothing");

    let wrong = [&common[..], &[("settings", "[grants]\nclok = true"), ("action", "install")]].concat();
    let wrong = browser.submit("/extensions/install", &wrong).await;
    assert!(wrong.status == 422 && wrong.text.contains("clok"), "{}", wrong.text);

    let settings = "[grants]\nclock = true\n";
    let right = [&common[..], &[("settings", settings), ("action", "install")]].concat();
    let right = browser.submit("/extensions/install", &right).await;
    assert_eq!(right.status, 303, "{}", right.text);
    assert_eq!(fs::read_to_string(files.path("extensions/test.toml")).expect("settings"), settings);
    assert_eq!(on_card(&server).await, [TEST_EXTENSION]);
    assert!(browser.open("/extensions").await.text.contains(TEST_EXTENSION));
    let shown = browser.open(&right.location).await;
    assert!(shown.text.contains("clock = true") && !shown.text.contains("random"), "{}", shown.text);
    let again = [&common[..], &[("settings", ""), ("action", "install")]].concat();
    assert_eq!(browser.submit("/extensions/install", &again).await.status, 404, "the upload is used up");
    let garbage = browser.submit("/extensions/upload", &[("name", "x"), ("component", "Z2FyYmFnZQ")]).await;
    assert_eq!(garbage.status, 422, "{}", garbage.text);
}

#[tokio::test]
async fn a_shadow_is_started_compared_and_promoted() {
    let (_files, server, browser) = serve("").await;
    browser.install("test", &marked("1"), "", "install").await;
    let shadowed = browser.install("test", &marked("2"), "", "shadow").await;
    assert_eq!(shadowed.status, 303, "{}", shadowed.text);
    assert_eq!(written(&say(&server, "hi").await), "artifact");
    let shown = browser.open(&shadowed.location).await;
    assert!(shown.text.contains("Shadow") && shown.text.contains("same results"), "{}", shown.text);

    let confirm = browser.open(&of_extension("/extension/confirm", &[("action", "promote")])).await;
    assert!(confirm.text.contains("in place of version 1"), "{}", confirm.text);
    let fields = [("uri", TEST_EXTENSION), ("action", "promote")];
    assert_eq!(browser.submit("/extension/change", &fields).await.status, 303);
    let (_, list) = admin(&server, "GET", "extensions", Value::Null).await;
    assert_ne!(list["extensions"][0]["version"], 1, "{list}");
    let twice = browser.submit("/extension/change", &fields).await;
    assert!(twice.status == 409 && twice.text.contains("no shadow"), "{}", twice.text);
}

#[tokio::test]
async fn an_extension_is_rolled_back_and_removed_after_a_confirmation() {
    let (files, server, browser) = serve("").await;
    for mark in ["1", "2"] {
        browser.install("test", &marked(mark), "", "install").await;
    }
    let shown = browser.open(&of_extension("/extension", &[])).await;
    assert!(shown.text.contains("Roll back to version 1"), "{}", shown.text);
    let back = [("uri", TEST_EXTENSION), ("action", "rollback"), ("to", "1")];
    assert_eq!(browser.submit("/extension/change", &back).await.status, 303);
    let (_, list) = admin(&server, "GET", "extensions", Value::Null).await;
    assert_eq!(list["extensions"][0]["version"], 1, "{list}");

    let confirm = browser.open(&of_extension("/extension/confirm", &[("action", "remove")])).await;
    assert!(confirm.text.contains("Its files in the managed folder are deleted."), "{}", confirm.text);
    assert_eq!(on_card(&server).await, [TEST_EXTENSION], "a confirmation changes nothing");
    let removed = browser.submit("/extension/change", &[("uri", TEST_EXTENSION), ("action", "remove")]).await;
    assert_eq!((removed.status, removed.location.as_str()), (303, "/extensions"));
    assert!(on_card(&server).await.is_empty());
    assert_eq!(fs::read_dir(files.path("extensions")).expect("a folder").count(), 0);
    assert_eq!(browser.submit("/extensions/reload", &[]).await.status, 303);
}

#[tokio::test]
async fn a_session_is_shown_by_scope_with_hidden_values_hidden_and_deleted() {
    let config = include_str!("../../../../examples/specialist/annex.toml");
    let folder = tempfile::tempdir().expect("a folder");
    let server = with_token(&folder, &format!("{config}\n[sessions]\nhide = [\"email\"]\n")).await;
    let browser = Browser::log_in(&server).await;
    let state = r#"{"user_info":{"name":"<script>alert(1)","role":"Engineer","email":"ada@example.com"}}"#;
    server.say("hello there").state(state).context("c-1").send().await.expect("a reply");

    let list = browser.open("/sessions").await;
    list.is_harmless();
    assert!(list.text.contains("c-1") && list.text.contains("user_info"), "{}", list.text);
    let (_, listed) = admin(&server, "GET", "sessions", Value::Null).await;
    let user = listed["sessions"][0]["user"].as_str().expect("a user");
    let names = [("user", user), ("context", "c-1")];
    let shown = browser.open(&format!("/session?{}", form(&names))).await;
    shown.is_harmless();
    for part in ["Scope session", "hello there", "&#60;script&#62;alert(1)", "[hidden]", "TASK_STATE_COMPLETED"] {
        assert!(shown.text.contains(part), "{part}: {}", shown.text);
    }
    assert!(!shown.text.contains("ada@example.com"), "{}", shown.text);

    let confirm = browser.open(&format!("/session/delete?{}", form(&names))).await;
    assert!(confirm.text.contains("are lost"), "{}", confirm.text);
    assert_eq!(browser.submit("/session/delete", &names).await.status, 303);
    let (_, listed) = admin(&server, "GET", "sessions", Value::Null).await;
    assert_eq!(listed["sessions"], Value::Array(Vec::new()), "{listed}");
    assert_eq!(browser.open(&format!("/session?{}", form(&names))).await.status, 404);
}

#[tokio::test]
async fn a_task_that_waits_is_cancelled_after_a_confirmation() {
    let (_files, server, browser) = serve("").await;
    let asked = server.say("ask").context("c-1").send().await.expect("a reply");
    let task = asked.task()["id"].as_str().expect("an id").to_owned();
    let (_, listed) = admin(&server, "GET", "sessions", Value::Null).await;
    let user = listed["sessions"][0]["user"].as_str().expect("a user");
    let names = [("user", user), ("context", "c-1"), ("task", task.as_str())];
    let session = format!("/session?{}", form(&names[..2]));
    let shown = browser.open(&session).await;
    assert!(
        shown.text.contains("TASK_STATE_INPUT_REQUIRED") && shown.text.contains("Cancel the task"),
        "{}",
        shown.text
    );
    let confirm = browser.open(&format!("/session/cancel?{}", form(&names))).await;
    assert!(confirm.text.contains("is cancelled, as by its client"), "{}", confirm.text);
    assert_eq!(browser.submit("/session/cancel", &names).await.status, 303);
    let shown = browser.open(&session).await;
    assert!(shown.text.contains("TASK_STATE_CANCELED") && !shown.text.contains("Cancel the task"), "{}", shown.text);
    assert_eq!(browser.submit("/session/cancel", &names).await.status, 409, "a finished task is not cancelled");
}

/// A server with this config and the admin token of the tests.
async fn with_token(folder: &TempDir, config: &str) -> TestServer {
    fs::write(folder.path().join("token"), TOKEN).expect("a token");
    let file = folder.path().join("annex.toml");
    fs::write(&file, format!("{config}\n[admin]\ntoken_file = \"token\"\n")).expect("a config");
    TestServer::from_file(&file, None).await.expect("a server")
}

#[tokio::test]
async fn tenants_are_added_suspended_and_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = with_token(&folder, &format!("{}{}\n[tenants]\n", agent("main", ""), api_keys())).await;
    let browser = Browser::log_in(&server).await;
    let card = async || server.get("/hooli/.well-known/agent-card.json").await.expect("a reply").status().as_u16();
    let wrong = browser.submit("/tenants", &[("name", "hooli"), ("config", "kalers = 1")]).await;
    assert!(wrong.status == 422 && wrong.text.contains("kalers = 1"), "{} {}", wrong.status, wrong.text);

    let added = browser.submit("/tenants", &[("name", "hooli"), ("config", &agent("hooli", ""))]).await;
    assert_eq!((added.status, added.location.as_str()), (303, "/tenant?name=hooli"), "{}", added.text);
    assert_eq!(card().await, 200);
    assert!(browser.open("/tenants").await.text.contains("hooli"));
    let old = browser.open("/tenant?name=hooli").await;
    let old_rev = hidden(&old.text, "rev");
    let change = async |rev: &str, action: &str| {
        let fields = [("name", "hooli"), ("rev", rev), ("action", action)];
        browser.submit("/tenant/change", &fields).await.status
    };
    let confirm = browser.open(&format!("/tenant/confirm?name=hooli&rev={old_rev}&action=suspend")).await;
    assert!(confirm.text.contains("are refused with 503") && card().await == 200, "{}", confirm.text);
    assert_eq!((change(&old_rev, "suspend").await, card().await), (303, 503));
    assert_eq!(change(&old_rev, "activate").await, 412, "another change came first");
    let rev = hidden(&browser.open("/tenant?name=hooli").await.text, "rev");
    assert_eq!((change(&rev, "activate").await, card().await), (303, 200));
    let rev = hidden(&browser.open("/tenant?name=hooli").await.text, "rev");
    assert_eq!((change(&rev, "remove").await, card().await), (303, 404));
    assert_eq!(browser.open("/tenant?name=hooli").await.status, 404);
}

#[tokio::test]
async fn a_message_is_sent_as_a_client_sends_it_and_shown_as_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = with_token(&folder, include_str!("../../../../examples/specialist/annex.toml")).await;
    let browser = Browser::log_in(&server).await;
    let page = browser.open("/try").await;
    for part in [STATE_INJECTION, "user_info / name", "user_info / email"] {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
    let state =
        [("x0", STATE_INJECTION), ("s0.0.0", "<script>Ada"), ("s0.0.1", "Engineer"), ("s0.0.2", "ada@example.com")];
    for (binding, path) in [("jsonrpc", "POST /a2a/jsonrpc"), ("rest", "POST /a2a/rest/message:send")] {
        let fields = [&state[..], &[("text", "Who am I and what is my email?"), ("binding", binding)]].concat();
        let shown = browser.submit("/try", &fields).await;
        assert!(!shown.text.contains("<script>Ada"), "{}", shown.text);
        for part in [path, "a2a-extensions", "HTTP/1.1 200 OK", "and your email is ada@example.com"] {
            assert!(shown.text.contains(part), "{binding} {part}: {}", shown.text);
        }
    }
    let streamed = [&state[..], &[("text", "Who am I?"), ("stream", "1"), ("credential", "Bearer s3cret")]].concat();
    let streamed = browser.submit("/try", &streamed).await;
    assert!(streamed.text.contains("text/event-stream") && streamed.text.contains("[hidden]"), "{}", streamed.text);
    assert!(!streamed.text.contains("s3cret"), "{}", streamed.text);
    let refused = browser.submit("/try", &[("text", "hi"), ("x9", "y")]).await;
    assert!(refused.text.contains("HTTP/1.1"), "the client's error is shown: {}", refused.text);
}

/// The test extension with a manifest. The manifest is a custom section.
fn with_manifest(manifest: &Value) -> Vec<u8> {
    let (mut component, name, content) = (marked("m"), b"annex:manifest", manifest.to_string());
    let size = 1 + name.len() + content.len();
    assert!((128..16_384).contains(&size), "the size takes two bytes");
    let low = u8::try_from(size % 128).expect("seven bits");
    let high = u8::try_from(size / 128).expect("seven bits");
    component.extend([0, 128 + low, high, u8::try_from(name.len()).expect("a short name")]);
    component.extend(name);
    component.extend(content.as_bytes());
    component
}

#[tokio::test]
async fn hostile_texts_are_text_on_each_page() {
    let (_files, server, browser) = serve(&extension("test.wasm", "", "ok")).await;
    let text = format!("{SCRIPT}{}", "x".repeat(200_000));
    let hostile = server.say(&text).extensions(TEST_EXTENSION).context("c-<script>alert(1)");
    hostile.send().await.expect("a reply");
    let (_, listed) = admin(&server, "GET", "sessions", Value::Null).await;
    let user = listed["sessions"][0]["user"].as_str().expect("a user").to_owned();
    let names = form(&[("user", user.as_str()), ("context", "c-<script>alert(1)")]);
    let of_extension = of_extension("/extension", &[]);
    let session = format!("/session?{names}");
    for path in ["/extensions", "/sessions", "/tenants", "/try", &of_extension, &session] {
        browser.open(path).await.is_harmless();
    }
    let shown = browser.open(&session).await;
    assert!(shown.text.contains("bytes)"), "a long text is cut with its length: {}", shown.text.len());

    let manifest =
        json!({"name": SCRIPT, "version": SCRIPT, "uri": SCRIPT, "licence": SCRIPT, "grants": {"clock": SCRIPT}});
    let approval = browser.upload("hostile", &with_manifest(&manifest)).await;
    approval.is_harmless();
    assert!(approval.text.contains("alert(1)"), "the manifest is shown: {}", approval.text);

    let fields = [("uri", SCRIPT), ("action", "remove"), ("user", SCRIPT), ("context", SCRIPT)];
    for path in ["/session/delete", "/extension/confirm"] {
        let refused = browser.open(&format!("{path}?{}", form(&fields))).await;
        assert_eq!(refused.status, 404, "{path}: {}", refused.text);
        assert!(!refused.text.contains("<script>alert") && !refused.text.contains('\u{202e}'), "{}", refused.text);
    }
    let long = "x".repeat(100_000);
    let long_name = browser.submit("/extensions/upload", &[("name", &long), ("component", "x")]).await;
    assert!(long_name.status == 400 && long_name.text.len() < 50_000, "{}", long_name.text.len());
}

#[tokio::test]
async fn a_change_without_the_token_against_foreign_forms_is_refused() {
    let (_files, server, browser) = serve(&extension("test.wasm", "", "ok")).await;
    let forms = [
        ("/extensions/upload", "name=x&component=eA"),
        ("/extensions/install", "digest=x&name=x&settings=&share=1&action=install"),
        ("/extensions/reload", ""),
        ("/extension/change", "uri=https%3A%2F%2Fannex.example%2Ftest%2Fv1&action=remove"),
        ("/session/delete", "user=x&context=x"),
        ("/session/cancel", "user=x&context=x&task=x"),
        ("/tenants", "name=x&config="),
        ("/tenant", "name=x&rev=1&config="),
        ("/tenant/change", "name=x&rev=1&action=remove"),
        ("/try", "text=hi"),
    ];
    for (path, fields) in forms {
        for csrf in ["", "csrf=", "csrf=wrong"] {
            let body = format!("{csrf}&{fields}");
            let sent = browser.send(browser.client.post(format!("{}{path}", browser.url)).body(body)).await;
            assert_eq!(sent.status().as_u16(), 403, "{path} {csrf}");
        }
    }
    assert_eq!(on_card(&server).await, [TEST_EXTENSION], "nothing has changed");
}

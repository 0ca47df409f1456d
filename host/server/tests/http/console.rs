//! The console: logins, and what web pages, strangers and hostile texts cannot do.

use std::fs;

use annex_test_support::{TestConfig, TestServer};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;
use url::form_urlencoded::Serializer;

use crate::installation::{ADMIN, Installation, TOKEN, admin, serve};

const PAGES: [&str; 9] = [
    "/",
    "/overview/now",
    "/extensions",
    "/extensions/upload",
    "/extensions/reload",
    "/requests",
    "/sessions",
    "/tenants",
    "/try",
];
/// The paths that take forms after the login.
const FORMS: [&str; 11] = [
    "/logout",
    "/extensions/upload",
    "/extensions/install",
    "/extensions/reload",
    "/extension/change",
    "/session/delete",
    "/session/cancel",
    "/tenants",
    "/tenant",
    "/tenant/change",
    "/try",
];
const FORM: &str = "application/x-www-form-urlencoded";
/// A text that must be neither markup nor steer the text around it.
const HOSTILE: &str = "<script>alert(1)</script>\u{202e}\u{1b}[31m";

/// A browser that follows no redirect, before its login.
struct Visitor {
    client: Client,
    url: String,
}

impl Visitor {
    fn of(server: &TestServer) -> Self {
        let client = Client::builder().redirect(Policy::none()).build().expect("a client");
        Self { client, url: server.admin_url().to_owned() }
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.url))
    }

    fn post(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        let body = Serializer::new(String::new()).extend_pairs(fields).finish();
        self.client.post(format!("{}{path}", self.url)).header("content-type", FORM).body(body)
    }

    async fn log_in(&self) -> Login {
        let answer = sent(self.post("/login", &[("token", TOKEN)])).await;
        assert_eq!((answer.status().as_u16(), field(&answer, "location")), (303, "/"));
        let cookie = field(&answer, "set-cookie").to_owned();
        for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains("Secure"), "a server on loopback without TLS: {cookie}");
        let cookie = cookie.split(';').next().expect("a cookie").to_owned();
        let page = sent(self.get("/").header("cookie", &cookie)).await.text().await.expect("a page");
        let (_, csrf) = page.split_once("name=\"csrf\" value=\"").expect("a form");
        let csrf = csrf.split('"').next().expect("a value").to_owned();
        Login { cookie, csrf }
    }
}

/// The cookie of a login, and the token of its forms.
struct Login {
    cookie: String,
    csrf: String,
}

async fn sent(request: RequestBuilder) -> Response {
    request.send().await.expect("an answer")
}

fn field<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).map(|value| value.to_str().expect("text")).unwrap_or_default()
}

async fn status(request: RequestBuilder) -> u16 {
    sent(request).await.status().as_u16()
}

#[tokio::test]
async fn without_a_login_every_page_leads_to_the_login_and_every_form_is_refused() {
    let (_files, server) = serve(ADMIN).await;
    let visitor = Visitor::of(&server);
    for cookie in ["", "annex-console=", "annex-console=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        for path in PAGES {
            let answer = sent(visitor.get(path).header("cookie", cookie)).await;
            assert_eq!((answer.status().as_u16(), field(&answer, "location")), (303, "/login"), "{path} {cookie}");
        }
        for path in FORMS {
            assert_eq!(status(visitor.post(path, &[]).header("cookie", cookie)).await, 401, "{path} {cookie}");
        }
        let refresh = sent(visitor.get("/overview/now").header("cookie", cookie).header("hx-request", "true")).await;
        assert_eq!((refresh.status().as_u16(), field(&refresh, "hx-redirect")), (401, "/login"));
    }
    assert_eq!(status(visitor.get("/").bearer_auth(TOKEN)).await, 303, "a page takes no token");
    let login = visitor.log_in().await;
    for path in PAGES {
        assert_eq!(status(visitor.get(path).header("cookie", &login.cookie)).await, 200, "{path}");
    }
    let api = visitor.get("/v1/extensions").header("cookie", &login.cookie);
    assert_eq!(status(api).await, 401, "the API takes no cookie");
    let public = server.get("/login").await.expect("a reply");
    assert_eq!(public.status().as_u16(), 404, "the public listener has no console");
}

#[tokio::test]
async fn a_wrong_token_and_a_token_in_a_url_do_not_log_in() {
    let (_files, server) = serve(ADMIN).await;
    let visitor = Visitor::of(&server);
    let long = "x".repeat(2_000);
    for token in ["", "wrong-token-of-the-tests", long.as_str()] {
        let answer = sent(visitor.post("/login", &[("token", token)])).await;
        assert_eq!((answer.status().as_u16(), field(&answer, "set-cookie")), (401, ""), "{token}");
        assert!(answer.text().await.expect("a page").contains("not an admin token"), "{token}");
    }
    let large = "x".repeat(5 << 10);
    assert_eq!(status(visitor.post("/login", &[("token", large.as_str())])).await, 413);
    for path in [format!("/?token={TOKEN}"), format!("/overview/now?token={TOKEN}")] {
        let answer = sent(visitor.get(&path)).await;
        assert_eq!((answer.status().as_u16(), field(&answer, "location")), (303, "/login"), "{path}");
    }
    let url = format!("/login?token={TOKEN}");
    assert_eq!(field(&sent(visitor.get(&url)).await, "set-cookie"), "");
    assert_eq!(status(visitor.post(&url, &[])).await, 401);
}

#[tokio::test]
async fn a_login_ends_at_the_logout() {
    let (_files, server) = serve(ADMIN).await;
    let visitor = Visitor::of(&server);
    let (login, other) = (visitor.log_in().await, visitor.log_in().await);
    let logout = visitor.post("/logout", &[("csrf", login.csrf.as_str())]).header("cookie", &login.cookie);
    let answer = sent(logout).await;
    assert_eq!((answer.status().as_u16(), field(&answer, "location")), (303, "/login"));
    assert!(field(&answer, "set-cookie").contains("Max-Age=0"));
    assert_eq!(status(visitor.get("/").header("cookie", &login.cookie)).await, 303);
    assert_eq!(status(visitor.get("/").header("cookie", &other.cookie)).await, 200, "another browser stays");
}

#[tokio::test]
async fn a_login_ends_with_its_token() {
    let (files, server) = serve(ADMIN).await;
    let visitor = Visitor::of(&server);
    let login = visitor.log_in().await;
    fs::write(files.path("other"), "another-token-of-the-tests").expect("a file");
    files.config(&ADMIN.replace("\"token\"", "\"other\""));
    let (reloaded, answer) = admin(&server, "POST", "reload", Value::Null).await;
    assert_eq!(reloaded, 200, "{answer}");
    assert_eq!(status(visitor.get("/").header("cookie", &login.cookie)).await, 303);
}

#[tokio::test]
async fn no_page_of_another_origin_sends_a_form() {
    let (_files, server) = serve(ADMIN).await;
    let visitor = Visitor::of(&server);
    let login = visitor.log_in().await;
    let foreign = [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ];
    for (name, value) in foreign {
        let enter = visitor.post("/login", &[("token", TOKEN)]).header(name, value);
        assert_eq!(status(enter).await, 403, "{name}: {value}");
        let logout = visitor.post("/logout", &[("csrf", login.csrf.as_str())]).header("cookie", &login.cookie);
        assert_eq!(status(logout.header(name, value)).await, 403, "{name}: {value}");
    }
    let own = visitor.post("/logout", &[("csrf", login.csrf.as_str())]).header("cookie", &login.cookie);
    assert_eq!(status(own.header("origin", &visitor.url).header("sec-fetch-site", "same-origin")).await, 303);
}

#[tokio::test]
async fn a_form_needs_the_csrf_token_of_its_own_login() {
    let (_files, server) = serve(ADMIN).await;
    let visitor = Visitor::of(&server);
    let (login, other) = (visitor.log_in().await, visitor.log_in().await);
    let wrong: [&[(&str, &str)]; 4] = [&[], &[("csrf", "")], &[("csrf", "wrong")], &[("csrf", other.csrf.as_str())]];
    for fields in wrong {
        let logout = visitor.post("/logout", fields).header("cookie", &login.cookie);
        assert_eq!(status(logout).await, 403, "{fields:?}");
    }
    let large = "x".repeat((1 << 20) + 1);
    let logout = visitor.post("/logout", &[("csrf", login.csrf.as_str()), ("more", large.as_str())]);
    assert_eq!(status(logout.header("cookie", &login.cookie)).await, 413);
    assert_eq!(status(visitor.get("/").header("cookie", &login.cookie)).await, 200, "the login has not ended");
}

#[tokio::test]
async fn a_foreign_host_name_does_not_reach_the_console() {
    let (_files, server) = serve(ADMIN).await;
    let visitor = Visitor::of(&server);
    let login = visitor.log_in().await;
    for host in ["evil.example", "localhost.evil.example:9998"] {
        for path in ["/", "/login"] {
            let request = visitor.get(path).header("cookie", &login.cookie).header("host", host);
            assert_eq!(status(request).await, 403, "{host} {path}");
        }
        let enter = visitor.post("/login", &[("token", TOKEN)]).header("host", host);
        assert_eq!(status(enter).await, 403, "{host}");
    }
}

#[tokio::test]
async fn no_page_shows_the_console_in_a_frame() {
    let (_files, server) = serve(ADMIN).await;
    let visitor = Visitor::of(&server);
    let login = visitor.log_in().await;
    for kind in ["iframe", "frame", "embed", "object"] {
        let framed = visitor.get("/").header("cookie", &login.cookie).header("sec-fetch-dest", kind);
        assert_eq!(status(framed).await, 403, "{kind}");
    }
    for path in ["/", "/login"] {
        let page = sent(visitor.get(path).header("sec-fetch-dest", "document")).await;
        assert_eq!(field(&page, "x-frame-options"), "DENY", "{path}");
        assert!(field(&page, "content-security-policy").contains("frame-ancestors 'none'"), "{path}");
    }
}

#[tokio::test]
async fn every_page_has_a_strict_policy_and_no_inline_script_or_style() {
    let (_files, server) = serve(ADMIN).await;
    let visitor = Visitor::of(&server);
    let login = visitor.log_in().await;
    for path in PAGES.into_iter().chain(["/login", "/assets/none/none"]) {
        let page = sent(visitor.get(path).header("cookie", &login.cookie)).await;
        let policy = field(&page, "content-security-policy").to_owned();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        let (kind, referrer) = (field(&page, "x-content-type-options"), field(&page, "referrer-policy"));
        assert_eq!((kind, referrer, field(&page, "cache-control")), ("nosniff", "same-origin", "no-store"), "{path}");
        let text = page.text().await.expect("a page");
        for inline in ["<style", " style=", "<script>", " onclick=", " onload=", "javascript:"] {
            assert!(!text.contains(inline), "{path}: {inline}");
        }
    }
}

#[tokio::test]
async fn scripts_and_styles_are_kept_by_browsers_under_the_hash_of_their_content() {
    let (_files, server) = serve(ADMIN).await;
    let visitor = Visitor::of(&server);
    let page = sent(visitor.get("/login")).await.text().await.expect("a page");
    let paths: Vec<&str> = page.split('"').filter(|text| text.starts_with("/assets/")).collect();
    assert!(paths.iter().any(|path| path.ends_with("/console.css")), "{page}");
    assert!(paths.iter().any(|path| path.ends_with("/htmx.min.js")), "{page}");
    for path in paths {
        let asset = sent(visitor.get(path)).await;
        assert_eq!(asset.status().as_u16(), 200, "{path}");
        assert_eq!(field(&asset, "cache-control"), "public, max-age=31536000, immutable", "{path}");
        assert!(field(&asset, "content-type").starts_with("text/"), "{path}");
    }
    assert_eq!(status(visitor.get("/assets/0000000000000000/console.css")).await, 404);
}

#[tokio::test]
async fn what_others_wrote_is_text_on_the_overview() {
    let installation = Installation::new();
    let config = TestConfig::without_agent().set("card.name", HOSTILE).set("card.description", HOSTILE).with(ADMIN);
    fs::write(installation.path("annex.toml"), config.toml()).expect("a config");
    let server = installation.serve().await;
    let visitor = Visitor::of(&server);
    let login = visitor.log_in().await;
    let page = sent(visitor.get("/").header("cookie", &login.cookie)).await.text().await.expect("a page");
    assert!(page.contains("alert(1)") && page.contains("\\u{202e}\\u{1b}[31m"), "{page}");
    assert!(!page.contains("<script>") && !page.contains(['\u{202e}', '\u{1b}']), "{page}");
}

#[tokio::test]
async fn the_overview_lists_what_is_wrong() {
    let installation = Installation::new();
    fs::write(installation.path("broken.wasm"), b"no component").expect("a file");
    fs::create_dir(installation.path("extensions")).expect("a folder");
    installation.config(&ADMIN.replace("watch = false\n", "watch = false\nextensions_dir = \"extensions\"\n"));
    let server = installation.serve().await;
    let visitor = Visitor::of(&server);
    let login = visitor.log_in().await;
    let now = async || {
        let page = sent(visitor.get("/overview/now").header("cookie", &login.cookie)).await;
        page.text().await.expect("a part of a page")
    };
    let page = now().await;
    assert!(page.contains("Nothing.") && page.contains("ready"), "{page}");
    assert!(!page.contains("<html"), "only the part that refreshes itself: {page}");
    fs::copy(installation.path("broken.wasm"), installation.path("extensions").join("broken.wasm")).expect("a file");
    admin(&server, "POST", "reload", Value::Null).await;
    let page = now().await;
    assert!(page.contains("broken.wasm") && page.contains("is not installed"), "{page}");
}

#[tokio::test]
async fn a_console_that_is_switched_off_has_no_pages() {
    let (files, server) = serve(&format!("{ADMIN}console = false\n")).await;
    let visitor = Visitor::of(&server);
    for path in ["/", "/login", "/overview/now", "/assets/none/none"] {
        assert_eq!(status(visitor.get(path)).await, 401, "{path}");
        assert_eq!(status(visitor.get(path).bearer_auth(TOKEN)).await, 404, "{path}");
    }
    assert_eq!(status(visitor.post("/login", &[("token", TOKEN)])).await, 401);
    files.config(ADMIN);
    let (reloaded, answer) = admin(&server, "POST", "reload", Value::Null).await;
    assert_eq!(reloaded, 200, "{answer}");
    assert_eq!(status(visitor.get("/login")).await, 200, "a reload switches it on");
}

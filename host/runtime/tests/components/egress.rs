//! HTTP requests of an extension: allowed requests, allowed addresses, and limits.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use annex_runtime::{Extension, Fault, HttpGrant, LimitReached, Limits, Runtime, RuntimeConfig};
use annex_telemetry::traces::{RequestTrace, Tracer, TracerConfig};
use annex_telemetry::{Request, of_request};

use crate::capabilities::{capable, fault, http, load, results, rule};
use crate::peer::{Names, Peer, Victim};
use crate::support::config;

/// An extension with this grant and these names.
async fn extension(grant: HttpGrant, names: Arc<Names>) -> Arc<Extension> {
    let runtime = Runtime::new(&RuntimeConfig { instances: 4, resolver: names, ..config() }).expect("a runtime");
    let mut installation = capable();
    installation.grants.http = Some(grant);
    load(&runtime, installation).await
}

/// An extension that may send requests to `api.example`, which resolves to `peer`.
async fn extension_of(peer: &Peer) -> Arc<Extension> {
    extension(to_loopback(vec![rule("api.example", peer.port, "/v1")]), Names::always(&["127.0.0.1"])).await
}

fn to_loopback(allow: Vec<annex_runtime::HttpRule>) -> HttpGrant {
    HttpGrant { allow_private: vec!["127.0.0.1".parse().expect("an address")], ..http(allow) }
}

async fn get(extension: &Arc<Extension>, url: &str) -> String {
    results(extension, &format!(r#"{{"http": {{"method": "GET", "url": "{url}"}}}}"#)).await.remove(0)
}

fn failed(code: &str) -> String {
    format!("error: the request failed: ErrorCode::{code}")
}

#[tokio::test]
async fn a_request_that_is_covered_is_sent_as_the_guest_wrote_it_and_with_nothing_of_the_hosts() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
    let url = format!("http://api.example:{}/v1/users?q=1", peer.port);
    let command = format!(
        r#"{{"http": {{"method": "POST", "url": "{url}", "body": "sent",
            "fields": [["Authorization", "Bearer own"], ["x-own", "1"]]}}}}"#
    );
    assert_eq!(results(&extension_of(&peer).await, &command).await, ["200 hello"]);
    let request = peer.request(0);
    assert!(request.starts_with("POST /v1/users?q=1 HTTP/1.1\r\n") && request.ends_with("\r\n\r\nsent"), "{request}");
    let mut names: Vec<&str> = request.lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0)).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "authorization", "content-length", "host", "x-own"]);
    assert!(request.contains(&format!("host: api.example:{}\r\n", peer.port)), "{request}");
    assert!(request.contains("authorization: Bearer own\r\n"), "{request}");
}

#[tokio::test]
async fn a_request_belongs_to_the_trace_of_its_turn_and_to_no_trace_that_the_guest_names() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
    let forged = "00-11111111111111111111111111111111-2222222222222222-01";
    let command = format!(
        r#"{{"http": {{"method": "GET", "url": "http://api.example:{}/v1/",
            "fields": [["traceparent", "{forged}"], ["tracestate", "forged=1"]]}}}}"#,
        peer.port
    );
    let extension = extension_of(&peer).await;
    let (tracer, mut queue) = Tracer::new(&TracerConfig { sample: 1.0, follow_parent: true, max_queued: 64 });
    let request = Request::begin_traced(false, Some(RequestTrace::served(tracer)));
    assert_eq!(of_request(request, results(&extension, &command)).await, ["200 hello"]);
    let mut spans = Vec::new();
    while let Ok(span) = queue.try_recv() {
        spans.push(span);
    }
    let span = spans.iter().find(|span| span.name == "wasi:http GET").expect("a span of the request");
    let context = &span.span_context;
    let sent = peer.request(0);
    let expected = format!("traceparent: 00-{}-{}-01\r\n", context.trace_id(), context.span_id());
    assert!(sent.contains(&expected) && !sent.contains("forged") && !sent.contains(forged), "{sent}");
    let hook = spans.iter().find(|other| other.span_context.span_id() == span.parent_span_id);
    assert!(hook.is_some_and(|hook| hook.name.starts_with("hook ")), "{spans:?}");
    assert_eq!(results(&extension, &command).await, ["200 hello"]);
    let untraced = peer.request(1);
    assert!(untraced.contains(forged) && untraced.contains("tracestate: forged=1"), "{untraced}");
}

#[tokio::test]
async fn a_request_that_no_rule_covers_is_not_sent() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let extension = extension_of(&peer).await;
    let port = peer.port;
    for url in [
        format!("http://other.example:{port}/v1/"),
        format!("http://api.example:{port}/"),
        format!("http://api.example:{port}/v10"),
        format!("http://api.example:{port}/v1/../admin"),
        format!("http://api.example:{port}/v1/%2e%2e/admin"),
        format!("http://api.example:{port}/v1/..%2Fadmin"),
        format!("http://api.example:{port}/v1/..;/admin"),
        format!("http://api.example:{port}/v1/%252e%252e/admin"),
        format!("https://api.example:{port}/v1/"),
        "http://api.example/v1/".to_owned(),
        format!("http://api.example.:{}/v1/", if port == 65535 { 1 } else { port + 1 }),
    ] {
        let result = get(&extension, &url).await;
        assert_eq!(result, failed("HttpRequestDenied"), "{url}");
    }
    let other = format!(r#"{{"http": {{"method": "DELETE", "url": "http://api.example:{port}/v1/"}}}}"#);
    assert_eq!(results(&extension, &other).await, [failed("HttpRequestDenied")]);
    assert_eq!(peer.count(), 0);
    assert_eq!(get(&extension, &format!("http://api.example:{port}/v1/")).await, "200 ");
    let told: Vec<String> = extension.log().into_iter().map(|line| line.message).collect();
    assert_eq!(told.len(), 12, "{told:?}");
    let expected = format!("GET http://api.example:{port}/v10 was not sent: no rule of its grant allows it");
    assert!(told.contains(&expected), "{told:?}");
}

#[tokio::test]
async fn authorities_that_hide_another_host_are_refused() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let extension = extension_of(&peer).await;
    for authority in ["api.example@127.0.0.1", "user:word@api.example", "127.0.0.1#api.example", "api.example\\\\@x"] {
        let result = get(&extension, &format!("http://{authority}:{}/v1/", peer.port)).await;
        assert!(result.starts_with("error: "), "{authority}: {result}");
    }
    assert_eq!(peer.count(), 0);
}

#[tokio::test]
async fn names_of_addresses_that_are_not_public_are_not_connected_to() {
    let victim = Victim::at("127.0.0.1");
    for address in [
        "127.0.0.1",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.1.1",
        "169.254.169.254",
        "100.100.100.200",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ] {
        let grant = http(vec![rule("*.example", victim.port(), "/")]);
        let extension = extension(grant, Names::always(&[address])).await;
        let result = get(&extension, &format!("http://a.example:{}/", victim.port())).await;
        assert_eq!(result, failed("DestinationIpProhibited"), "{address}");
    }
    assert!(!victim.was_called());
}

#[tokio::test]
async fn addresses_that_are_written_out_are_screened_too() {
    let victim = Victim::at("127.0.0.1");
    for host in ["127.0.0.1", "0x7f.1", "2130706433", "localhost", "[::1]", "[::ffff:127.0.0.1]"] {
        let extension = extension(http(vec![rule(host, victim.port(), "/")]), Names::always(&[])).await;
        let result = get(&extension, &format!("http://{host}:{}/", victim.port())).await;
        assert_eq!(result, failed("DestinationIpProhibited"), "{host}");
    }
    assert!(!victim.was_called());
}

/// The name resolves to an allowed address first, and to a forbidden one later.
#[tokio::test]
async fn a_name_that_moves_is_screened_at_each_connection() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let victim = Victim::at_port("127.0.0.2", peer.port);
    let names = Names::one_after_the_other(&["127.0.0.1", "127.0.0.2"]);
    let extension = extension(to_loopback(vec![rule("api.example", peer.port, "/")]), names).await;
    let url = format!("http://api.example:{}/", peer.port);
    assert_eq!(get(&extension, &url).await, "200 ok");
    assert_eq!(get(&extension, &url).await, failed("DestinationIpProhibited"));
    assert!(!victim.was_called());
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_following_it_is_checked_like_any_request() {
    let victim = Victim::at("127.0.0.2");
    let elsewhere = format!("http://127.0.0.2:{}/", victim.port());
    let answer = format!("HTTP/1.1 302 Found\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n");
    let peer = Peer::answering(&answer).await;
    let mut allow = vec![rule("api.example", peer.port, "/")];
    allow.push(rule("127.0.0.2", victim.port(), "/"));
    let extension = extension(to_loopback(allow), Names::always(&["127.0.0.1"])).await;
    assert_eq!(get(&extension, &format!("http://api.example:{}/", peer.port)).await, "302 ");
    assert_eq!(get(&extension, &elsewhere).await, failed("DestinationIpProhibited"));
    assert!(!victim.was_called());
}

#[tokio::test]
async fn fields_of_the_connection_and_of_proxies_are_refused() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let extension = extension_of(&peer).await;
    for name in [
        "Host",
        "Connection",
        "Keep-Alive",
        "Transfer-Encoding",
        "TE",
        "Trailer",
        "Upgrade",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Proxy-Anything",
        "HTTP2-Settings",
    ] {
        let url = format!("http://api.example:{}/v1/", peer.port);
        let command = format!(r#"{{"http": {{"method": "GET", "url": "{url}", "fields": [["{name}", "x"]]}}}}"#);
        let result = results(&extension, &command).await.remove(0);
        assert!(result.starts_with("error: the header fields are refused"), "{name}: {result}");
    }
    assert_eq!(peer.count(), 0);
}

#[tokio::test]
async fn a_forged_length_and_a_field_with_a_line_break_are_refused() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let extension = extension_of(&peer).await;
    for field in [r#"["content-length", "5"]"#, r#"["content-length", "+4"]"#, r#"["x", "a\r\nhost: b"]"#] {
        let url = format!("http://api.example:{}/v1/", peer.port);
        let command =
            format!(r#"{{"http": {{"method": "POST", "url": "{url}", "body": "four", "fields": [{field}]}}}}"#);
        let result = results(&extension, &command).await.remove(0);
        assert!(result.starts_with("error: "), "{field}: {result}");
    }
    assert_eq!(peer.count(), 0);
}

#[tokio::test]
async fn a_response_beyond_the_cap_is_an_error_however_it_comes() {
    let long = "x".repeat(1_001);
    for answer in [
        format!("HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n{long}"),
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{long}"),
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n{long}\r\n0\r\n\r\n"),
    ] {
        let peer = Peer::answering(&answer).await;
        let extension = extension_of(&peer).await;
        let result = get(&extension, &format!("http://api.example:{}/v1/", peer.port)).await;
        // wasmtime passes the error of a broken stream on as text.
        let is_told = result.contains("HttpResponseBodySize(Some(1000))") || result.contains("body size exceeds limit");
        assert!(result.starts_with("error: ") && is_told, "{result}");
        assert_eq!(result.lines().count(), 1, "it has nothing of the host's stack: {result}");
    }
    let peer = Peer::answering(&format!("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{}", &long[1..])).await;
    let result = get(&extension_of(&peer).await, &format!("http://api.example:{}/v1/", peer.port)).await;
    assert_eq!(result.len(), "200 ".len() + 1_000);
}

#[test]
fn errors_that_guests_read_have_no_stack_of_the_host_where_the_environment_asks_for_one() {
    let mut again = Command::new(std::env::current_exe().expect("the test binary"));
    again
        .args(["egress::a_response_beyond_the_cap_is_an_error_however_it_comes", "--exact"])
        .env("RUST_BACKTRACE", "1");
    let ended = again.output().expect("the test binary runs");
    let told = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && told.contains("1 passed"), "{told}");
}

#[tokio::test]
async fn a_response_with_too_large_a_head_is_an_error() {
    let fields: String = (0..90).map(|number| format!("x-{number}: {}\r\n", "y".repeat(500))).collect();
    let peer = Peer::answering(&format!("HTTP/1.1 200 OK\r\n{fields}content-length: 0\r\n\r\n")).await;
    let result = get(&extension_of(&peer).await, &format!("http://api.example:{}/v1/", peer.port)).await;
    assert!(result.contains("HttpResponseHeaderSectionSize"), "{result}");
}

#[tokio::test]
async fn a_request_beyond_the_output_limit_is_not_sent() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let names = Names::always(&["127.0.0.1"]);
    let runtime = Runtime::new(&RuntimeConfig { instances: 4, resolver: names, ..config() }).expect("a runtime");
    let mut installation = capable();
    installation.grants.http = Some(to_loopback(vec![rule("api.example", peer.port, "/")]));
    installation.limits.output = 64 << 10;
    let extension = load(&runtime, installation).await;
    let url = format!("http://api.example:{}/", peer.port);
    let command = format!(r#"{{"http": {{"method": "POST", "url": "{url}", "body_bytes": 70000}}}}"#);
    let result = results(&extension, &command).await.remove(0);
    assert!(result.starts_with("error: the request failed: ErrorCode::HttpRequestBodySize"), "{result}");
    assert_eq!(peer.count(), 0);
}

#[tokio::test]
async fn a_peer_that_does_not_answer_ends_with_the_timeout_or_the_outer_limit() {
    let victim = Victim::at("127.0.0.1");
    let command = format!(r#"{{"http": {{"method": "GET", "url": "http://127.0.0.1:{}/"}}}}"#, victim.port());
    let grant = to_loopback(vec![rule("127.0.0.1", victim.port(), "/")]);
    let soon = HttpGrant { timeout: Duration::from_millis(50), ..grant.clone() };
    let patient = extension(soon, Names::always(&[])).await;
    assert_eq!(results(&patient, &command).await, [failed("HttpResponseTimeout")]);

    let mut installation = capable();
    installation.grants.http = Some(grant);
    installation.limits.wall = Duration::from_millis(50);
    let extension = load(&Runtime::new(&config()).expect("a runtime"), installation).await;
    let fault = fault(&extension, &command).await;
    assert!(matches!(fault, Fault::LimitReached { limit: LimitReached::Wall, .. }), "{fault:?}");
}

/// GHSA-243v-98vx-264h: a request with more header fields than a header map can hold crashed the process.
#[tokio::test]
async fn more_fields_than_a_request_may_have_fail_and_harm_nobody_else() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let extension = extension_of(&peer).await;
    let fields = async |count| fault(&extension, &format!(r#"{{"fields": {count}}}"#)).await;
    let many = fields(2_000).await;
    let too_many = fields(40_000).await;
    assert!(matches!(many, Fault::Trapped { .. }), "{many:?}");
    assert!(matches!(too_many, Fault::LimitReached { limit: LimitReached::Output, .. }), "{too_many:?}");
    assert_eq!(get(&extension, &format!("http://api.example:{}/v1/", peer.port)).await, "200 ok");
}

#[tokio::test]
async fn requests_count_as_host_calls() {
    let victim = Victim::at("127.0.0.1");
    let mut installation = capable();
    installation.grants.http = Some(http(vec![rule("127.0.0.1", victim.port(), "/")]));
    installation.limits.host_calls = 200;
    let extension = load(&Runtime::new(&config()).expect("a runtime"), installation).await;
    let command = format!(r#"{{"http": {{"method": "GET", "url": "http://127.0.0.1:{}/"}}}}"#, victim.port());
    let fault = fault(&extension, &vec![command; 100].join(", ")).await;
    assert!(matches!(fault, Fault::LimitReached { limit: LimitReached::HostCalls, .. }), "{fault:?}");
}

/// With the standard limits on host calls and CPU time: 50 ms per call, one second per turn. The guest waits for
/// longer than both.
#[tokio::test]
async fn waiting_for_the_pieces_of_a_body_takes_no_cpu_time() {
    let pieces = 1_000;
    let peer = Peer::trickling(pieces).await;
    let runtime = Runtime::new(&RuntimeConfig { instances: 4, resolver: Names::always(&[]), ..config() });
    let mut installation = capable();
    installation.grants.http = Some(to_loopback(vec![rule("127.0.0.1", peer.port, "/")]));
    (installation.limits.cpu, installation.limits.turn_cpu) = (Limits::standard().cpu, Limits::standard().turn_cpu);
    let extension = load(&runtime.expect("a runtime"), installation).await;
    let result = get(&extension, &format!("http://127.0.0.1:{}/", peer.port)).await;
    assert_eq!(result, format!("200 {}", "x".repeat(pieces)));
}

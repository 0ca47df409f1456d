//! The incidents of other hosts of plug-ins, tried in a real server. `host/docs/incidents.md` has the list of all.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use annex_test_support::{COMMAND_KEY, TEST_EXTENSION, TestServer};
use axum::http::Request;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::agent;
use crate::connections::http2;
use crate::installation::{Installation, extension, on_card, replace, say};

const CAPABLE: &str = "https://annex.example/incidents/capable/v1";

/// Everything that the component imports, and requests to one port of this machine.
fn capable(port: u16) -> String {
    let component = annex_test_support::component("test-capabilities");
    format!(
        r#"
        [[extension]]
        component = {component:?}
        [extension.parameters]
        uri = {CAPABLE:?}
        [extension.limits]
        cpu_ms = 5000
        wall_ms = 30000
        [extension.grants]
        clock = true
        random = true
        keyvalue = {{}}
        session-state = {{ read = true }}
        task = true
        tasks = true
        task-resumption = true
        agent-steps = true
        http = {{ allow = [{{ scheme = "http", host = "127.0.0.1", port = {port} }}], allow_private = ["127.0.0.1"] }}
        "#
    )
}

/// Answers one request, and gives its head.
async fn head_of_one(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut head).await.expect("bytes"), 0, "it was hung up");
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await.expect("written");
    String::from_utf8(head).expect("text")
}

/// CVE-2024-32980 of Spin: the authority of an outgoing request came from a header field of the incoming one.
#[tokio::test]
async fn what_a_client_says_of_hosts_is_in_no_request_that_an_extension_sends() {
    let peer = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let victim = std_listener();
    let port = peer.local_addr().expect("an address").port();
    let forged = format!("127.0.0.1:{}", victim.local_addr().expect("an address").port());
    let server = agent("{results?}", &capable(port)).await;
    let command = |url: &str| format!(r#"[{{"http": {{"method": "GET", "url": "{url}"}}}}]"#);
    let url = format!("http://127.0.0.1:{port}/ok");
    let said = |url: &str| server.say("prompt").extensions(CAPABLE).metadata("test/capability", &command(url));
    let fields = [
        ("x-forwarded-host", forged.clone()),
        ("x-forwarded-proto", "https".to_owned()),
        ("x-original-host", forged.clone()),
        ("x-host", forged.clone()),
        ("forwarded", format!("host={forged};proto=https")),
        ("spin-full-url", format!("http://{forged}/")),
        ("authorization", "Bearer of-the-client".to_owned()),
        ("cookie", "of=the-client".to_owned()),
    ];

    let request =
        fields.iter().fold(said(&url).header("host", &forged), |request, (name, value)| request.header(name, value));
    let (head, reply) = tokio::join!(head_of_one(&peer), request.send());
    let reply = reply.expect("a reply");
    assert!(reply.text.contains("200 hello"), "{}", reply.text);
    check_own(&head, port, &forged);

    // The same over HTTP/2, where the authority is a pseudo field.
    let (client, _connection) = http2(&server, h2::client::Builder::new()).await;
    let mut request = Request::post(format!("http://{forged}/a2a/jsonrpc"))
        .header("content-type", "application/json")
        .header("a2a-version", "1.0")
        .header("a2a-extensions", CAPABLE);
    for (name, value) in &fields {
        request = request.header(*name, value);
    }
    let mut client = client.ready().await.expect("ready");
    let (answer, mut body) = client.send_request(request.body(()).expect("a request"), false).expect("sent");
    body.send_data(Bytes::from(said(&url).body()), true).expect("sent");
    let (head, answer) = tokio::join!(head_of_one(&peer), answer);
    assert_eq!(answer.expect("an answer").status().as_u16(), 200);
    check_own(&head, port, &forged);

    for relative in ["/ok", "//", "http:///ok", ""] {
        let reply = said(relative).header("host", &forged).send().await.expect("a reply");
        assert!(!reply.text.contains("200 "), "{relative}: {}", reply.text);
    }
    victim.set_nonblocking(true).expect("a socket");
    assert!(victim.accept().is_err(), "nobody was to be called there");
}

fn std_listener() -> std::net::TcpListener {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port")
}

fn check_own(head: &str, port: u16, forged: &str) {
    assert!(head.starts_with("GET /ok HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nhost: 127.0.0.1:{port}\r\n")), "{head}");
    for foreign in [forged, "forwarded", "of-the-client", "of=the-client", "x-"] {
        assert!(!head.contains(foreign), "{foreign}: {head}");
    }
}

/// The kinds of extensions that the folder may have.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Good,
    /// No component at all, or half of one.
    Random,
    CutOff,
    /// Fails when it is loaded.
    TrapsAtLoad,
    LoopsAtLoad,
    /// Fails in each turn, and may be skipped.
    TrapsInTurns,
    LoopsInTurns,
    /// The extension depends on one that is not installed.
    NeedsAnother,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Good,
        Self::Random,
        Self::CutOff,
        Self::TrapsAtLoad,
        Self::LoopsAtLoad,
        Self::TrapsInTurns,
        Self::LoopsInTurns,
        Self::NeedsAnother,
    ];

    fn is_installed(self) -> bool {
        matches!(self, Self::Good | Self::TrapsInTurns | Self::LoopsInTurns)
    }

    fn component(self, whole: &[u8]) -> Vec<u8> {
        match self {
            Self::Random => b"\0asm not a component".to_vec(),
            Self::CutOff => whole[..whole.len() / 2].to_vec(),
            _ => whole.to_vec(),
        }
    }

    fn settings(self, uri: &str) -> String {
        let parameters = match self {
            Self::TrapsAtLoad => r#"behaviour = { describe = "trap" }"#,
            Self::LoopsAtLoad => r#"behaviour = { describe = "loop" }"#,
            Self::TrapsInTurns => r#"behaviour = { validate = "trap" }"#,
            Self::LoopsInTurns => r#"behaviour = { validate = "loop" }"#,
            Self::NeedsAnother => r#"depends_on = ["https://annex.example/nowhere/v1"]"#,
            Self::Good | Self::Random | Self::CutOff => "",
        };
        format!("on_failure = \"skip\"\n[parameters]\nuri = {uri:?}\n{parameters}\n")
    }
}

/// envoy gateway#7886: one broken optional plug-in made other plug-ins fail. The sets of extensions are random.
#[tokio::test]
async fn in_any_set_of_good_and_broken_extensions_the_good_ones_serve() {
    let seed = env::var("ANNEX_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7_886);
    let mut random = fastrand::Rng::with_seed(seed);
    let whole = fs::read(annex_test_support::component("test-extension")).expect("a component");
    for round in 0..8 {
        let kinds: Vec<Kind> = (0..random.usize(2..=6)).map(|_| Kind::ALL[random.usize(..Kind::ALL.len())]).collect();
        let installation = Installation::new();
        installation.config("[runtime]\nextensions_dir = \"extensions\"\nwatch = false");
        fs::create_dir(installation.path("extensions")).expect("a folder");
        let uri = |place: usize| format!("https://annex.example/set/{place}/v1");
        for (place, kind) in kinds.iter().enumerate() {
            let file = |ending: &str| installation.path(&format!("extensions/{place}.{ending}"));
            fs::write(file("toml"), kind.settings(&uri(place))).expect("settings");
            replace(&file("wasm"), &kind.component(&whole));
        }
        let server = installation.serve().await;
        let of = |fits: fn(Kind) -> bool| {
            kinds.iter().enumerate().filter(|(_, kind)| fits(**kind)).map(|(place, _)| uri(place)).collect::<Vec<_>>()
        };
        assert_eq!(on_card(&server).await, of(Kind::is_installed), "seed {seed}, round {round}: {kinds:?}");
        let everybody: Vec<String> = (0..kinds.len()).map(uri).collect();
        for _ in 0..2 {
            let asked = server.say("hi").extensions(&everybody.join(","));
            let reply = asked.send().await.expect("a reply");
            let mut echoed: Vec<&str> =
                reply.extensions.as_deref().unwrap_or_default().split(',').map(str::trim).collect();
            echoed.retain(|uri| !uri.is_empty());
            echoed.sort_unstable();
            assert_eq!(reply.code(), 0, "seed {seed}, round {round}: {kinds:?}: {}", reply.text);
            assert_eq!(echoed, of(|kind| kind == Kind::Good), "seed {seed}, round {round}: {kinds:?}");
        }
    }
}

/// The environment variable of the process that runs only this test.
const ALONE: &str = "ANNEX_TEST_ALONE";
const SOAK: &str = "incidents::many_swaps_and_parallel_calls_leave_memory_flat";
/// Kibibytes of growth that are taken for noise of the allocator.
const TOLERANCE: usize = 24 << 10;

/// traefik#11119, #13235, wasmtime#10239: plug-ins that were replaced, or called in parallel, left memory behind. Other
/// tests of the same process need memory too, so this one starts itself again, alone. `ANNEX_SOAK_SWAPS` makes it longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_swaps_and_parallel_calls_leave_memory_flat() {
    if env::var_os(ALONE).is_some() {
        return soak().await;
    }
    let mut alone = Command::new(env::current_exe().expect("this test"));
    alone.args([SOAK, "--exact", "--nocapture"]).env(ALONE, "yes");
    let output = tokio::task::spawn_blocking(move || alone.output()).await.expect("no panic").expect("a process");
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{}", told.lines().filter(|line| line.contains("KiB")).collect::<Vec<_>>().join("\n"));
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("1 passed"), "{told}");
}

async fn soak() {
    let swaps: usize = env::var("ANNEX_SOAK_SWAPS").ok().and_then(|swaps| swaps.parse().ok()).unwrap_or(400);
    let installation = Installation::new();
    installation.component("test.wasm", "first");
    configure(&installation, 0);
    let server = Arc::new(installation.serve().await);
    let stop = CancellationToken::new();
    let clients: Vec<_> = (0..2).map(|_| tokio::spawn(client(Arc::clone(&server), stop.clone()))).collect();
    let mut resident = Vec::new();
    for quarter in 0..4 {
        for swap in 0..swaps.div_ceil(4) {
            configure(&installation, quarter * swaps.div_ceil(4) + swap + 1);
            assert!(server.installer().reload().await.expect("a reload").changed);
        }
        resident.push(resident_kib());
        println!("{} swaps: {} KiB", (quarter + 1) * swaps.div_ceil(4), resident[quarter]);
    }
    stop.cancel();
    for client in clients {
        assert!(client.await.expect("no request failed") > 0);
    }
    assert!(resident[3] < resident[1] + TOLERANCE, "memory is not flat: {resident:?} KiB");
}

/// Other settings each time, so that each is another version. What requests leave is bounded.
fn configure(installation: &Installation, number: usize) {
    let respond = if number.is_multiple_of(2) { "none" } else { "ok" };
    let few = "[runtime]\nwatch = false\n[sessions]\nmax_sessions = 50\n[tasks]\nmax_tasks = 50\n";
    installation.config(&format!("{few}{}", extension("test.wasm", "", respond)));
}

/// Sends messages, a fault among them now and then, and counts them.
async fn client(server: Arc<TestServer>, stop: CancellationToken) -> usize {
    let mut requests: usize = 0;
    while !stop.is_cancelled() {
        let reply = say(&server, "hi").await;
        assert_eq!((reply.code(), reply.extensions.as_deref()), (0, Some(TEST_EXTENSION)), "{}", reply.text);
        if requests.is_multiple_of(10) {
            let trapping = server.say("hi").extensions(TEST_EXTENSION).metadata(COMMAND_KEY, "\"trap\"");
            assert_ne!(trapping.send().await.expect("a reply").code(), 0);
        }
        requests += 1;
    }
    requests
}

fn resident_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the resident size");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

/// Every test that the list of incidents names exists.
#[test]
fn every_test_that_the_list_of_incidents_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = fs::read_to_string(root.join("host/docs/incidents.md")).expect("the list");
    let mut sources = String::new();
    for folder in ["host", "guest"] {
        collect(&root.join(folder), &mut sources);
    }
    let rows: Vec<&str> =
        list.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| incident")).collect();
    assert_eq!(rows.len(), 30, "one row for each incident");
    for row in rows {
        let tests = row.split('|').nth(3).unwrap_or_default();
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty() || tests.contains("comes with registries"), "{row}");
        for test in named {
            let name = test.rsplit("::").next().unwrap_or_default();
            assert!(sources.contains(&format!("fn {name}(")), "there is no test {test}: {row}");
        }
    }
}

/// Every promise of SECURITY.md names its tests, and each of these tests exists.
#[test]
fn every_test_that_the_page_on_security_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("SECURITY.md")).expect("the page");
    let mut sources = String::new();
    for folder in ["host", "guest"] {
        collect(&root.join(folder), &mut sources);
    }
    let promises = page.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.split('|').nth(2));
    let names = promises.flat_map(|tests| tests.split('`').skip(1).step_by(2)).map(|test| test.rsplit("::").next());
    // Whole modules are named by one word.
    let tests: Vec<&str> = names.flatten().filter(|name| name.matches('_').count() > 2).collect();
    assert!(tests.len() > 100, "{} tests are named", tests.len());
    for test in tests.into_iter().filter(|test| !test.ends_with('…')) {
        assert!(sources.contains(&format!("fn {test}(")), "there is no test {test}");
    }
}

/// Each reader of the page on peers has a test that holds its bounds, or has neither.
#[test]
fn every_test_that_the_page_on_peers_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("host/docs/peers.md")).expect("the page");
    let mut sources = String::new();
    collect(&root.join("host"), &mut sources);
    let rows = page.lines().skip_while(|line| !line.starts_with("| who is read")).skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with("| ")).collect();
    assert!(rows.len() > 15, "{} readers", rows.len());
    for row in rows {
        let tests = row.split('|').nth(7).unwrap_or_default();
        for test in tests.split('`').skip(1).step_by(2) {
            assert!(sources.contains(&format!("fn {test}(")), "there is no test {test}: {row}");
        }
    }
}

/// All Rust code below a folder.
pub(crate) fn collect(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, sources);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            sources.push_str(&fs::read_to_string(&path).expect("a file"));
        }
    }
}

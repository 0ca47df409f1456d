//! Wake-ups over a real NATS server.

#![cfg(test)]

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use annex_leases::wake::{Hint, Hints, Notice, SharedWake, Wake, WakeError};
use tempfile::TempDir;
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Far less than the second after which a process looks by itself, and enough for a machine that is busy.
const SOON: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);

/// A NATS server on a port of its own, which may be stopped and started again.
struct Server {
    port: u16,
    process: Child,
    folder: TempDir,
}

impl Server {
    /// `None`, after saying so, where there is no such program.
    fn start(config: &str) -> Option<Self> {
        if Command::new("nats-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            // Not `eprintln!`: the test harness keeps that of a test that passes to itself.
            let _ = writeln!(std::io::stderr(), "SKIPPED a test of NATS: there is no nats-server");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("nats.conf"), config).unwrap();
        let process = serve(port, &folder);
        Some(Self { port, process, folder })
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    fn stop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.process = serve(self.port, &self.folder);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(port: u16, folder: &TempDir) -> Child {
    let mut command = Command::new("nats-server");
    command.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--config"]).arg(folder.path().join("nats.conf"));
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begin.elapsed() < LONG, "it does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    process
}

/// The hints that are heard next.
async fn heard(hints: &mut Hints) -> Vec<Hint> {
    loop {
        if let Notice::Hints(heard) = timeout(LONG, hints.next()).await.unwrap() {
            return heard.to_vec();
        }
    }
}

fn hint(id: &str, seq: u64) -> Hint {
    Hint { id: id.to_owned(), seq }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_hears_what_others_tell_and_not_itself() {
    let Some(server) = Server::start("") else { return };
    let [one, other] =
        [SharedWake::over_nats(&server.url()).await.unwrap(), SharedWake::over_nats(&server.url()).await.unwrap()];
    let (mut of_one, mut of_other) = (one.hints(), other.hints());
    let begin = Instant::now();
    one.tell("task", 7);
    assert_eq!(heard(&mut of_other).await, [hint("task", 7)]);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    other.tell("task", 8);
    assert_eq!(heard(&mut of_one).await, [hint("task", 8)], "the first is not what it told itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_away_is_followed_by_a_look_at_everything() {
    let Some(mut server) = Server::start("") else { return };
    let [one, other] =
        [SharedWake::over_nats(&server.url()).await.unwrap(), SharedWake::over_nats(&server.url()).await.unwrap()];
    let mut hints = other.hints();
    one.tell("task", 1);
    assert_eq!(heard(&mut hints).await, [hint("task", 1)]);
    server.stop();
    server.start_again();
    let lost = async { while !matches!(hints.next().await, Notice::Lost) {} };
    timeout(LONG, lost).await.unwrap();
    // The one that tells may be connected later than the one that hears.
    let begin = Instant::now();
    for seq in 2.. {
        one.tell("task", seq);
        if timeout(SOON, hints.of("task")).await.is_ok() {
            break;
        }
        assert!(begin.elapsed() < LONG, "nothing is heard any more");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_or_forbids_the_subject_is_told_of_at_the_start() {
    let forbids =
        r#"authorization { users = [{ user = "a", password = "b", permissions = { subscribe = "other" } }] }"#;
    let Some(mut server) = Server::start(forbids) else { return };
    let url = server.url().replace("://", "://a:b@");
    assert!(matches!(SharedWake::over_nats(&url).await, Err(WakeError::Forbidden { .. })));
    assert!(matches!(SharedWake::over_nats(&server.url()).await, Err(WakeError::Nats(_))), "without a password");
    server.stop();
    assert!(matches!(SharedWake::over_nats(&url).await, Err(WakeError::Nats(_))));
}

/// All that is logged, on each level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.push_str(&format!("{field}={value:?}\n"));
    }
}

impl Subscriber for Log {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_with_any_characters_is_used_and_is_in_no_log() {
    let password = r#"p@ss/w:rd %+é"#;
    let encoded = "p%40ss%2Fw%3Ard%20%25%2B%C3%A9";
    let Some(server) = Server::start(&format!("authorization {{ user: \"a b\", password: \"{password}\" }}")) else {
        return;
    };
    let log = Log::default();
    // The connection is driven by other threads than that of the test.
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let url = server.url().replace("://", &format!("://a%20b:{encoded}@"));
    let [one, other] =
        [SharedWake::over_nats(&url).await.unwrap(), SharedWake::over_nats(&format!("{url},{url}")).await.unwrap()];
    let mut hints = other.hints();
    one.tell("task", 1);
    assert_eq!(heard(&mut hints).await, [hint("task", 1)]);
    let wrong = server.url().replace("://", "://a%20b:wr%40ng@");
    let refused = SharedWake::over_nats(&wrong).await.err().unwrap();
    let said = format!("{refused} {refused:?}");
    let logged = log.text();
    assert!(!logged.is_empty(), "nothing is logged");
    for secret in [password, encoded, "wr%40ng", "wr@ng"] {
        assert!(!logged.contains(secret) && !said.contains(secret), "{secret} is in {logged}{said}");
    }
}

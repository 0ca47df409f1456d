//! `annex record`, against a real server and against a scripted admin API.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use annex_components::STATE_INJECTION;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Run, STATE, STATE_URI, Server, annex, run, specialist};

const TOKEN: &str = "a-token-of-the-tests";
const HEAD: &str = r#"{"recording":{"version":1,"uri":"https://a.example/v1","name":"a","component_version":"1","digest":"sha256:0","at":"2026-01-01T00:00:00Z","settings":{}}}"#;
const TURN: &str = r#"{"turn":{"at":"2026-01-01T00:00:00Z","operation":"SendMessage","requested":[],"steps":[]}}"#;
const END: &str = r#"{"end":{"turns":2,"left_out":1,"reason":"turns"}}"#;

/// An admin API that answers one request. It sends the pieces that the test passes, then ends the connection.
struct MadeUp {
    url: String,
    pieces: Sender<String>,
    request: JoinHandle<Result<String>>,
}

impl MadeUp {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let (pieces, told) = mpsc::channel();
        Ok(Self { url, pieces, request: thread::spawn(move || answer(&listener, &told)) })
    }

    fn says(&self, text: &str) -> Result<()> {
        Ok(self.pieces.send(text.to_owned())?)
    }

    /// Closes the connection and returns the request.
    fn ends(self) -> Result<String> {
        drop(self.pieces);
        self.request.join().ok().context("the server panicked")?
    }
}

/// Answers the first request and returns the request.
fn answer(listener: &TcpListener, told: &Receiver<String>) -> Result<String> {
    let (mut stream, _) = listener.accept()?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head)?;
    }
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")?;
    while let Ok(text) = told.recv() {
        // Whoever has stopped reads no more.
        if stream.write_all(text.as_bytes()).is_err() {
            break;
        }
    }
    Ok(format!("{head}{}", String::from_utf8(body)?))
}

fn record(admin: &str, arguments: &[&str]) -> Command {
    let mut command = annex(["record", "--admin", admin].iter().chain(arguments));
    command.env("ANNEX_ADMIN_TOKEN", TOKEN).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ended(child: Child) -> Result<Run> {
    let output = child.wait_with_output()?;
    let out = String::from_utf8(output.stdout)?;
    let err = String::from_utf8(output.stderr)?;
    Ok(Run { code: output.status.code(), out, err })
}

/// Reads standard error up to a line that contains `expected`.
fn wait_for(child: &mut Child, expected: &str) -> Result<()> {
    let mut err = BufReader::new(child.stderr.as_mut().context("no standard error")?);
    let mut line = String::new();
    while !line.contains(expected) {
        line.clear();
        anyhow::ensure!(err.read_line(&mut line)? > 0, "it ended without {expected:?}");
    }
    Ok(())
}

#[test]
fn turns_are_written_as_they_come_into_a_file_of_ones_own() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("turns.jsonl");
    let shown = file.to_str().context("a path")?;
    let server = MadeUp::start()?;
    let arguments = ["https://a.example/v1", "--turns", "2", "--time", "5m", "--bytes", "1MiB", "-o", shown];
    let mut child = record(&server.url, &arguments).spawn()?;
    let (half, rest) = TURN.split_at(30);
    server.says(&format!("{HEAD}\n{TURN}\n{half}"))?;
    wait_for(&mut child, "turn 1: SendMessage")?;
    assert_eq!(fs::read_to_string(&file)?, format!("{HEAD}\n{TURN}\n"), "whole lines only");
    server.says(&format!("{rest}\n{END}\n"))?;
    let run = ended(child)?;
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert_eq!(run.out, format!("2 turns in {shown}, 1 left out; ended by: turns\n"));
    assert_eq!(fs::read_to_string(&file)?, format!("{HEAD}\n{TURN}\n{TURN}\n{END}\n"));
    assert_eq!(fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
    let request = server.ends()?;
    assert!(request.starts_with("POST /v1/extensions/https:%2F%2Fa.example%2Fv1/record HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with(r#"{"turns":2,"bytes":1048576,"seconds":300}"#), "{request}");
    Ok(())
}

#[test]
fn without_a_file_the_lines_are_on_standard_output() -> Result<()> {
    for arguments in [&["https://a.example/v1"][..], &["https://a.example/v1", "-o", "-"]] {
        let server = MadeUp::start()?;
        server.says(&format!("{HEAD}\n{TURN}\n{TURN}\n{END}\n"))?;
        let run = ended(record(&server.url, arguments).spawn()?)?;
        assert_eq!((run.code, run.out), (Some(0), format!("{HEAD}\n{TURN}\n{TURN}\n{END}\n")));
        assert!(run.err.ends_with("2 turns, 1 left out; ended by: turns\n"), "{}", run.err);
    }
    Ok(())
}

#[test]
fn ctrl_c_ends_a_recording_and_keeps_what_is_there() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("turns.jsonl");
    let server = MadeUp::start()?;
    let mut child = record(&server.url, &["https://a.example/v1", "-o", file.to_str().context("a path")?]).spawn()?;
    server.says(&format!("{HEAD}\n{TURN}\n{{\"turn\""))?;
    wait_for(&mut child, "turn 1: ")?;
    kill_process(Pid::from_child(&child), Signal::INT)?;
    let run = ended(child)?;
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.out.starts_with("1 turn in ") && run.out.ends_with(", stopped\n"), "{}", run.out);
    assert_eq!(fs::read_to_string(&file)?, format!("{HEAD}\n{TURN}\n"));
    Ok(())
}

#[test]
fn a_connection_that_breaks_is_an_error_and_the_file_stays() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("turns.jsonl");
    let server = MadeUp::start()?;
    let child = record(&server.url, &["https://a.example/v1", "-o", file.to_str().context("a path")?]).spawn()?;
    server.says(&format!("{HEAD}\n{TURN}\n"))?;
    server.ends()?;
    let run = ended(child)?;
    assert_eq!((run.code, run.out.as_str()), (Some(1), ""));
    assert!(run.err.contains("error: 1 turn in ") && run.err.contains("and then the connection broke"), "{}", run.err);
    assert_eq!(fs::read_to_string(&file)?, format!("{HEAD}\n{TURN}\n"));
    Ok(())
}

#[test]
fn a_file_is_written_over_only_on_demand() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("turns.jsonl");
    let shown = file.to_str().context("a path")?;
    fs::write(&file, "mine")?;
    let refused = ended(record("http://127.0.0.1:1", &["https://a.example/v1", "-o", shown]).spawn()?)?;
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("is there already; --force writes in its place"), "{}", refused.err);
    let unreachable = ended(record("http://127.0.0.1:1", &["https://a.example/v1", "-o", shown, "--force"]).spawn()?)?;
    for expected in ["cannot reach the admin API", "--admin or ANNEX_ADMIN_URL"] {
        assert!(unreachable.err.contains(expected), "{expected}: {}", unreachable.err);
    }
    assert_eq!(fs::read_to_string(&file)?, "mine");

    let server = MadeUp::start()?;
    server.says(&format!("{HEAD}\n{END}\n"))?;
    let forced = ended(record(&server.url, &["https://a.example/v1", "-o", shown, "--force"]).spawn()?)?;
    assert_eq!(forced.code, Some(0), "{}", forced.err);
    assert_eq!(fs::read_to_string(&file)?, format!("{HEAD}\n{END}\n"));
    assert_eq!(fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
    Ok(())
}

#[test]
fn an_answer_that_is_no_recording_is_an_error() -> Result<()> {
    let server = MadeUp::start()?;
    server.says("<html>\n")?;
    let run = ended(record(&server.url, &["https://a.example/v1"]).spawn()?)?;
    assert_eq!((run.code, run.out.as_str()), (Some(1), ""));
    assert!(run.err.contains("the answer is no recording"), "{}", run.err);
    Ok(())
}

/// Starts a server with an admin API. `key` is the text of a key in `[admin]`. Returns the URL of that API too.
fn served(key: &str) -> Result<(Server, String)> {
    let admin = format!("[admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"TEST_ADMIN_TOKEN\"\n{key}\n");
    let mut server = Server::start_with(&format!("{admin}{}", specialist()), &[("TEST_ADMIN_TOKEN", TOKEN)])?;
    let mut line = String::new();
    server.stdout.read_line(&mut line)?;
    let url = line.strip_prefix("Admin API   ").context("no admin API")?.trim().to_owned();
    Ok((server, url))
}

#[test]
fn what_a_server_records_is_replayed_to_the_same_component() -> Result<()> {
    let (server, admin) = served("allow_recording = true")?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("turns.jsonl");
    let shown = file.to_str().context("a path")?;
    let mut child = record(&admin, &[STATE_URI, "--turns", "2", "-o", shown]).spawn()?;
    wait_for(&mut child, "recording state-injection ")?;
    for _ in 0..2 {
        let sent = run(["send", &server.url, "hi", "--state", STATE])?;
        assert_eq!(sent.code, Some(0), "{}", sent.err);
    }
    let recorded = ended(child)?;
    assert_eq!(recorded.code, Some(0), "{}", recorded.err);
    assert!(recorded.out.starts_with(&format!("2 turns in {shown}")), "{}", recorded.out);

    let cases = folder.path().join("cases");
    let replayed = run([Path::new("replay"), &file, Path::new(STATE_INJECTION), Path::new("--to-cases"), &cases])?;
    assert_eq!(replayed.code, Some(0), "{}{}", replayed.out, replayed.err);
    assert!(replayed.out.contains("turns 2, agreed 2, failed 0"), "{}", replayed.out);
    assert!(fs::read_to_string(cases.join("turn-002.toml"))?.contains("Ada"));
    Ok(())
}

#[test]
fn a_server_records_only_where_its_config_allows_it() -> Result<()> {
    let (_server, admin) = served("")?;
    let run = ended(record(&admin, &[STATE_URI]).spawn()?)?;
    assert_eq!((run.code, run.out.as_str()), (Some(3), ""));
    assert!(run.err.contains("allow_recording"), "{}", run.err);
    Ok(())
}

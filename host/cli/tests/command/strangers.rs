//! Untrusted names and texts in everything that the command prints.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;
use std::thread;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::foreign::{JSON, answer};
use crate::support::{Run, annex, run};

/// A text with control sequences for terminals, line ends of all kinds, bidirectional controls and invisible
/// characters.
const WORDS: &str =
    "w\x1b[2J\x07\u{9b}31m\u{85}\rx\u{2028}y\u{2029}z\u{202e}\u{2066}\u{feff}\u{200b}\u{61c}\u{ad}\x7f\nerror: forged";
/// The beginning of [`WORDS`], as the command must print it.
const SHOWN: &str = "w\\u{1b}[2J\\u{7}\\u{9b}31m\\u{85}\\rx\\u{2028}y\\u{2029}z\\u{202e}\\u{2066}\\u{feff}\\u{200b}\\u{61c}\\u{ad}\\u{7f}";

/// Starts a server that answers one connection with each body. `bodies` makes the bodies from the server's URL.
fn serve(bodies: impl FnOnce(&str) -> Vec<Value>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let bodies = bodies(&url);
    thread::spawn(move || -> Result<()> {
        for body in bodies {
            answer(listener.accept()?.0, JSON, &body.to_string())?;
        }
        Ok(())
    });
    Ok(url)
}

/// An Agent Card with [`WORDS`] in every field that the command prints.
fn card(url: &str) -> Value {
    json!({
        "name": WORDS, "description": WORDS, "version": WORDS,
        "provider": {"organization": WORDS, "url": WORDS},
        "supportedInterfaces": [
            {"url": format!("{url}/a2a"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": WORDS, "protocolBinding": WORDS, "protocolVersion": WORDS},
        ],
        "capabilities": {"extensions": [{"uri": WORDS, "description": WORDS, "params": {WORDS: WORDS}}]},
        "securitySchemes": {WORDS: {"apiKeySecurityScheme": {"location": "header", "name": WORDS, "description": WORDS}}},
        "securityRequirements": [{"schemes": {WORDS: {"list": [WORDS]}}}],
        "skills": [{"id": WORDS, "name": WORDS, "description": WORDS, "tags": [WORDS], "examples": [WORDS]}],
    })
}

fn answered(result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": result})
}

fn message() -> Value {
    let parts = json!([{"text": WORDS}, {"data": {WORDS: WORDS}}, {"url": WORDS, "filename": WORDS}]);
    json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": parts}})
}

/// Asserts that the text has no control characters except line breaks and tabs.
fn check_harmless(command: &str, text: &str) {
    let steering = text.chars().find(|&character| annex_text::steers(character) && !"\n\t".contains(character));
    assert_eq!(steering, None, "{command}: {text:?}");
}

/// Asserts that the output is harmless and contains [`SHOWN`]. No forged line may begin in the column where the
/// command's own lines begin.
fn check(command: &str, run: &Run) {
    for text in [&run.out, &run.err] {
        check_harmless(command, text);
    }
    let all = format!("{}{}", run.out, run.err);
    assert!(all.contains(SHOWN), "{command}: {all:?}");
    assert!(!all.lines().any(|line| line.starts_with("error: forged")), "{command}: {all}");
}

/// Like [`check`]. Also asserts that each untrusted field is printed on one line.
fn check_lines(command: &str, run: &Run) {
    check(command, run);
    assert!(!run.out.lines().any(|line| line.trim_start().starts_with("error: forged")), "{command}: {}", run.out);
}

#[test]
fn text_from_elsewhere_cannot_steer_the_terminal() -> Result<()> {
    let shown = run(["card", &serve(|url| vec![card(url)])?])?;
    check_lines("card", &shown);
    assert_eq!(shown.out.matches("error: forged").count(), 21, "{}", shown.out);

    let url = serve(|url| vec![card(url), answered(&message())])?;
    let sent = run(["send", &url, "hello"])?;
    check_harmless("send", &sent.out);
    check_harmless("send", &sent.err);
    assert!(sent.out.starts_with(SHOWN), "{}", sent.out);
    assert!(sent.out.contains("\nerror: forged\n"), "an answer has the lines that it has: {}", sent.out);

    let status = json!({"state": "TASK_STATE_FAILED", "message": {"messageId": "m", "role": "ROLE_AGENT",
                        "parts": [{"text": WORDS}]}});
    let task = json!({"task": {"id": WORDS, "contextId": WORDS, "status": status}});
    let url = serve(|url| vec![card(url), answered(&task)])?;
    check("send, failed", &run(["send", &url, "hello"])?);

    let url = serve(|url| vec![card(url), json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": WORDS}})])?;
    check("send, refused", &run(["send", &url, "hello"])?);
    Ok(())
}

#[test]
fn a_chat_shows_strangers_words_harmlessly_too() -> Result<()> {
    let url = serve(|url| vec![card(url), answered(&message())])?;
    let mut command = annex(["chat", &url]);
    let mut chat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    chat.stdin.take().context("no standard input")?.write_all(b"hello\n/history\n/state\n")?;
    let output = chat.wait_with_output()?;
    let out = String::from_utf8(output.stdout)?;
    check_harmless("chat", &out);
    let (_, history) = out.split_once("> hello\n").context("no history")?;
    assert!(history.contains("\n  error: forged"), "{history}");
    Ok(())
}

#[test]
fn json_of_strangers_says_what_they_said_and_steers_nothing() -> Result<()> {
    let url = serve(|url| vec![card(url)])?;
    let shown = run(["card", &url, "--json"])?;
    assert_eq!(serde_json::from_str::<Value>(&shown.out)?, card(&url));
    check_harmless("card --json", &shown.out);
    assert_eq!(shown.out.lines().count(), 1);

    let url = serve(|url| vec![card(url), answered(&message())])?;
    let sent = run(["send", &url, "hello", "--json"])?;
    let event: Value = serde_json::from_str(&sent.out)?;
    assert_eq!(event["message"]["parts"][0]["text"], WORDS);
    assert_eq!(event["message"]["parts"][1]["data"][WORDS], WORDS);
    check_harmless("send --json", &sent.out);
    Ok(())
}

fn extensions() -> Value {
    let last_failure = json!({"at": WORDS, "hook": WORDS, "outcome": WORDS, "reason": WORDS});
    let extension = json!({
        "uri": WORDS, "name": WORDS, "component_version": WORDS, "version": 1, "digest": WORDS, "size": 1,
        "required": true, "activate": WORDS, "allow": [WORDS], "reads": WORDS, "hooks": [WORDS], "methods": [WORDS], "on_failure": WORDS,
        "source": {"kind": WORDS, "name": "n", "until": WORDS}, "loaded_at": WORDS, "kept": 0, "pinned_tasks": 0,
        "calls": 0, "refused": 0, "failures": 0, "last_failure": last_failure, "timings": [],
        "quarantine": {"next_trial_ms": null, "failures_in_a_row": 0},
    });
    let failures = json!([{"source": WORDS, "reason": WORDS, "at": WORDS}]);
    json!({"edition": 1, "extensions": [extension], "failures": failures, "tenants": [WORDS]})
}

#[test]
fn listings_of_strangers_words_have_one_line_for_each() -> Result<()> {
    let log = json!({"lines": [{"at": WORDS, "level": WORDS, "context": WORDS, "message": WORDS, "hook": WORDS,
                                "task_id": WORDS, "context_id": "c", "error_id": WORDS}]});
    let session = json!({"context": WORDS, "user": WORDS, "revision": 1, "last_update": WORDS, "keys": [WORDS]});
    let sessions = json!({"sessions": [session], "next": WORDS});
    let shown = json!({"context": WORDS, "user": WORDS, "agent": WORDS, "revision": 1, "last_update": WORDS,
                       "state": {WORDS: WORDS}});
    let event = json!({"author": WORDS, "task": WORDS, "timestamp": WORDS, "parts": [{"text": WORDS}],
                       "state_delta": {WORDS: WORDS}, "error": {"code": WORDS, "message": WORDS}});
    let cases: [(&[&str], Value, usize); 9] = [
        (&["extension", "list"], extensions(), 12),
        (&["extension", "log", "uri:x"], log, 7),
        (&["session", "list"], sessions, 5),
        (&["session", "show", "c"], shown, 4),
        (&["session", "events", "c"], json!({"events": [event]}), 5),
        (&["session", "delete", "c"], json!({"deleted": WORDS, "user": WORDS}), 2),
        (&["session", "state"], json!({"agent": WORDS, "user": WORDS, "state": {WORDS: WORDS}}), 3),
        (&["session", "delete-keys", "k"], json!({"deleted": [WORDS], "missing": [WORDS]}), 2),
        (&["session", "delete-user", "u"], json!({"user": WORDS, "keys": 1}), 1),
    ];
    for (command, body, fields) in cases {
        for options in [&[][..], &["--json"]] {
            let url = serve(|_| vec![body.clone()])?;
            let arguments = [command, &["--admin", &url], options].concat();
            let output = annex(&arguments).env("ANNEX_ADMIN_TOKEN", "token").output()?;
            let out = String::from_utf8(output.stdout)?;
            let err = String::from_utf8(output.stderr)?;
            let run = Run { code: output.status.code(), out, err };
            assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.err);
            if options.is_empty() {
                check_lines(&command.join(" "), &run);
                assert!(run.out.matches("error: forged").count() >= fields, "{arguments:?}: {}", run.out);
            } else {
                check_harmless(&command.join(" "), &run.out);
                assert_eq!(serde_json::from_str::<Value>(&run.out)?, body);
            }
        }
    }
    Ok(())
}

#[test]
fn a_file_with_a_strangers_name_is_inspected_in_one_line() -> Result<()> {
    let folder = tempfile::tempdir()?;
    // One with line breaks in its name has them in the table for a config.
    let name = WORDS.replace('\n', " ");
    let file = folder.path().join(format!("{name}.wasm"));
    fs::copy(annex_components::HELLO_EXTENSION, &file)?;
    let inspected = run(["inspect".as_ref(), file.as_os_str()])?;
    assert_eq!(inspected.code, Some(0), "{}", inspected.err);
    check_lines("inspect", &inspected);
    let missing = folder.path().join(format!("{WORDS}.missing"));
    check("inspect, missing", &run(["inspect".as_ref(), missing.as_os_str()])?);
    Ok(())
}

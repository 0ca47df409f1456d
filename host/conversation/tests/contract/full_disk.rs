//! A SQLite file that cannot be written for a while: events are refused with the reason, and nothing is lost.

use std::error::Error;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use annex_conversation::{AppendError, Arrival, Event};
use annex_protocol::{Part, TaskState};
use tempfile::TempDir;

use crate::backend::Backend;
use crate::program::{Program, answer};
use crate::support::{Says, arrive, event, events, find, ids, open, submission};

const FILE: &str = "ANNEX_CONVERSATION_DISK_FILE";

/// The process that cannot write: one turn, which says something when it is told to. Otherwise this test does nothing.
#[tokio::test]
async fn writer() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let store = Backend::Sqlite(file.into()).store().await;
    let turn = open(&store, "s").await;
    let mut number = 0;
    for line in std::io::stdin().lines().map(Result::unwrap) {
        match line.as_str() {
            "say" => {
                let change = format!(r#"{{"n":{number}}}"#);
                let parts = vec![Part::text("x".repeat(50_000))].into();
                let large = Event { parts, ..event(&number.to_string(), &change) };
                match turn.say(large).await {
                    Ok(_) => number += 1,
                    Err(refused) => {
                        answer(reason(&refused));
                        continue;
                    }
                }
                answer("stored");
            }
            "read" => {
                let found = find(&store, "s").await.unwrap();
                let state = found.state.merged().to_json_string();
                answer(format!("{} {} {state}", found.number, events(&store, "s").await.len()));
            }
            _ => break,
        }
    }
    turn.close().await;
}

/// An error with its causes.
fn reason(error: &AppendError) -> String {
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        reason = format!("{reason}: {error}");
        cause = error.source();
    }
    reason
}

fn start(folder: &TempDir, script: &str) -> Program {
    let file = folder.path().join("conversations.db");
    // A write beyond the limit is an error and no signal.
    let script = format!("trap '' XFSZ; {script}");
    Program::start("full_disk::writer", &script, &[(FILE, file.as_os_str())])
}

/// Says something until it is refused. Returns the number of stored events, and the reason.
fn fill(writer: &mut Program) -> (u64, String) {
    for stored in 0.. {
        let said = writer.ask("say");
        if said != "stored" {
            return (stored, said);
        }
    }
    unreachable!("the disk has no end")
}

/// Ends the turn, and checks the file that the process has left behind.
async fn check_whole(mut writer: Program, folder: &TempDir, stored: u64) {
    assert_eq!(writer.ask("read"), format!(r#"{stored} {stored} {{"n":{}}}"#, stored - 1));
    writer.end();
    let store = Backend::Sqlite(folder.path().join("conversations.db")).store().await;
    let said = events(&store, "s").await;
    assert_eq!(ids(&said), (0..stored).map(|number| number.to_string()).collect::<Vec<_>>());
    let task = store.task(&"task-0".into()).await.unwrap().unwrap();
    assert_eq!((task.decode().unwrap().state(), task.number), (TaskState::Completed, stored + 1));
    let next = arrive(&store, "s", submission("one", "next")).await.unwrap();
    assert!(matches!(next, Arrival::Runs(_)), "the turn has left the queue");
}

fn limit(writer: &Program, bytes: &str) {
    // The soft limit alone, which can be raised again.
    let limit = format!("--fsize={bytes}:");
    assert!(Command::new("prlimit").args(["--pid", &writer.id(), &limit]).status().unwrap().success());
}

#[tokio::test]
async fn a_full_disk_refuses_events_and_the_turn_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    // No file may grow beyond 2 MiB.
    let mut writer = start(&folder, "ulimit -S -f 4096");
    let (stored, refused) = fill(&mut writer);
    assert!(stored > 5 && refused.starts_with("the database failed: "), "{stored} {refused}");
    assert!(refused.contains("disk"), "{refused}");
    for _ in 0..3 {
        assert_eq!(writer.ask("say"), refused);
        assert_eq!(
            writer.ask("read"),
            format!(r#"{stored} {stored} {{"n":{}}}"#, stored - 1),
            "something is half-written"
        );
    }
    limit(&writer, "unlimited");
    assert_eq!(writer.ask("say"), "stored");
    check_whole(writer, &folder, stored + 1).await;
}

/// Allows or forbids the process to write. Files that are open take no more bytes, and none is opened for writing.
fn set_writable(writer: &Program, folder: &Path, is_writable: bool) {
    let (bytes, folders, files) = if is_writable { ("unlimited", 0o700, 0o600) } else { ("0", 0o500, 0o400) };
    fs::set_permissions(folder, Permissions::from_mode(folders)).unwrap();
    for file in fs::read_dir(folder).unwrap() {
        fs::set_permissions(file.unwrap().path(), Permissions::from_mode(files)).unwrap();
    }
    limit(writer, bytes);
}

#[tokio::test]
async fn a_file_that_becomes_read_only_is_read_and_written_again_when_it_is_writable() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = start(&folder, ":");
    for _ in 0..2 {
        assert_eq!(writer.ask("say"), "stored");
    }
    set_writable(&writer, folder.path(), false);
    for _ in 0..3 {
        let refused = writer.ask("say");
        assert!(refused.starts_with("the database failed: "), "{refused}");
        assert_eq!(writer.ask("read"), r#"2 2 {"n":1}"#);
    }
    set_writable(&writer, folder.path(), true);
    assert_eq!(writer.ask("say"), "stored");
    check_whole(writer, &folder, 3).await;
}

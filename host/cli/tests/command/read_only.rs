//! `annex serve` without permission to write, either from the start or from some moment on.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use annex_conversation::{ConversationKey, ConversationStore, Limits, SqliteStore, Window};
use anyhow::{Context, Result, ensure};
use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::durable::{call, config, list, message};
use crate::support::Server;

const WHAT_TO_DO: &str = "it and its folder must be writable for the user who runs the server";

/// A config that keeps conversations and tasks in `folder`.
fn kept_in(folder: &Path) -> String {
    config(&format!("data_dir = {folder:?}"))
}

/// Starts a server that must obey file modes: as root, the process first drops the capabilities that bypass modes.
/// Writing beyond the limit on file sizes is an error, not a signal.
fn start(config: &str) -> Result<Server> {
    let script = match geteuid().is_root() {
        true => "trap '' XFSZ; exec setpriv --bounding-set=-all --inh-caps=-all -- \"$@\"",
        false => "trap '' XFSZ; exec \"$@\"",
    };
    Server::start_in(script, config)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode)).with_context(|| path.display().to_string())
}

/// Sets the mode of the folder's files.
fn set_modes(folder: &Path, mode: u32) -> Result<()> {
    fs::read_dir(folder)?.try_for_each(|file| set_mode(&file?.path(), mode))
}

fn check_refused(config: &str, reasons: &[&str]) -> Result<()> {
    let refusal = start(config).err().context("the server started")?.to_string();
    for reason in reasons {
        ensure!(refusal.contains(reason), "{reason}: {refusal}");
    }
    Ok(())
}

#[test]
fn a_folder_that_cannot_be_written_ends_the_start_with_what_to_do() -> Result<()> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    let folder = data.display().to_string();
    let file = data.join("conversations.sqlite");
    let config = kept_in(&data);
    let name = file.display().to_string();

    set_mode(home.path(), 0o500)?;
    check_refused(&config, &[&format!("tasks.data_dir: cannot create {folder}"), "Permission denied"])?;
    set_mode(home.path(), 0o700)?;
    fs::create_dir(&data)?;
    set_mode(&data, 0o500)?;
    check_refused(&config, &[&name, WHAT_TO_DO, "Permission denied"])?;
    set_mode(&data, 0o700)?;
    drop(start(&config)?);
    set_mode(&file, 0o400)?;
    check_refused(&config, &[&name, WHAT_TO_DO, "Permission denied"])?;
    // Only the files that SQLite keeps beside it.
    set_modes(&data, 0o400)?;
    set_mode(&file, 0o600)?;
    set_mode(&data, 0o500)?;
    check_refused(&config, &[&name, WHAT_TO_DO, "readonly database"])?;

    set_mode(&data, 0o700)?;
    set_modes(&data, 0o600)?;
    drop(start(&config)?);
    Ok(())
}

/// Allows or forbids the server to write. If forbidden, open files accept no more bytes, and no file can be opened for
/// writing.
fn set_writable(server: &Server, data: &Path, writable: bool) -> Result<()> {
    let (size, folder, file) = if writable { ("unlimited", 0o700, 0o600) } else { ("0", 0o500, 0o400) };
    set_mode(data, folder)?;
    set_modes(data, file)?;
    let pid = server.process.id().to_string();
    let limited = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={size}:")]).status()?;
    ensure!(limited.success(), "prlimit: {limited}");
    Ok(())
}

/// The error id in an answer that reports an internal error.
fn error_id(answer: &Value) -> String {
    let error = &answer["error"];
    assert_eq!(error["code"], -32603, "{answer}");
    let id = error["data"][0]["metadata"]["errorId"].as_str().expect("an error id").to_owned();
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("the log has the details") && message.contains(&id), "{message}");
    id
}

async fn events(file: &Path) -> Result<usize> {
    let key = ConversationKey::new("", "test_agent", "A2A_USER_c", "c");
    let store = SqliteStore::open(file, None, Limits::default()).await?;
    Ok(store.conversation(&key, Window::ALL).await?.history.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_becomes_read_only_fails_messages_until_it_is_writable_again() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::new();
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let mut server = start(&kept_in(&data))?;
    let send = async |id| call(&client, &server.url, "SendMessage", message("c", id)).await;
    let first = send("m-1").await?["result"]["task"].clone();
    assert_eq!(first["status"]["state"], "TASK_STATE_COMPLETED", "{first}");

    set_writable(&server, &data, false)?;
    let mut failed = Vec::new();
    for _ in 0..3 {
        failed.push(error_id(&send("m-2").await?));
    }
    assert_eq!(call(&client, &server.url, "GetTask", json!({"id": first["id"]})).await?["result"], first);
    assert_eq!(list(&client, &server.url, "c").await?.len(), 1, "something is half-written");

    set_writable(&server, &data, true)?;
    let answer = send("m-2").await?;
    let second = answer["result"]["task"].clone();
    assert_eq!(second["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
    assert_eq!(list(&client, &server.url, "c").await?.len(), 2);

    let log = server.kill_for_log()?;
    for id in failed {
        let line = log.lines().find(|line| line.contains(&id)).with_context(|| format!("{id} is not in: {log}"))?;
        assert!(line.contains("the database failed"), "{line}");
    }
    assert_eq!(events(&data.join("conversations.sqlite")).await?, 4);
    Ok(())
}

#[tokio::test]
async fn a_log_that_cannot_be_written_costs_its_lines_and_no_answer() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Server::start_in("export ANNEX_LOG=debug; exec \"$@\" 2>/dev/full", &config(""))?;
    let answer = call(&reqwest::Client::new(), &server.url, "SendMessage", message("c", "m")).await?;
    assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
    Ok(())
}

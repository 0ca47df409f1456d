//! `annex serve`: faults that stop the server at once, and the drain at a signal.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{ConfigFile, STATE, Server, annex, specialist};

fn check_refused(config: &str, expected: &[&str]) -> Result<()> {
    let refusal = Server::start(config).err().context("the server started")?.to_string();
    assert!(refusal.starts_with("exit code Some(1): error: "), "{refusal}");
    for expected in expected {
        assert!(refusal.contains(expected), "{expected}: {refusal}");
    }
    Ok(())
}

#[test]
fn an_unknown_key_is_refused_with_file_line_and_the_accepted_keys() -> Result<()> {
    let config = specialist().replace("[server]\n", "[server]\nlisten_on = 1\n");
    check_refused(
        &config,
        &["annex.toml:6:1: server.listen_on: unknown key", "did you mean `listen`?", "`drain_seconds`"],
    )
}

#[test]
fn a_wrong_value_is_refused_with_its_line() -> Result<()> {
    check_refused(
        &specialist().replace("127.0.0.1:0", "somewhere"),
        &["annex.toml:6:10: server.listen: is no address"],
    )?;
    check_refused(
        &specialist().replace("[agent]", "[tasks]\nmax_tasks = 0\n\n[agent]"),
        &["tasks.max_tasks", "at least 1"],
    )
}

#[test]
fn a_missing_component_is_refused_with_its_path() -> Result<()> {
    let config = specialist().replace("\"timestamp\"", "\"./missing.wasm\"");
    check_refused(&config, &["./missing.wasm", "No such file"])
}

#[test]
fn a_missing_grant_is_refused_with_the_line_to_add() -> Result<()> {
    check_refused(&specialist().replace("clock = true", ""), &["timestamp", "`clock = true`", "[extension.grants]"])?;
    let config = specialist().replace("session-state = { read = true }", "");
    check_refused(&config, &["state-injection", "`session-state = { read = true }`"])
}

#[test]
fn a_missing_config_is_refused_by_name() -> Result<()> {
    let output = annex(["serve", "/nowhere/annex.toml"]).output()?;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr)?.contains("/nowhere/annex.toml"));
    Ok(())
}

#[test]
fn an_address_that_is_taken_is_refused_with_its_key() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let taken = listener.local_addr()?;
    let config = ConfigFile::new(&specialist().replace("127.0.0.1:0", &taken.to_string()))?;
    let output = annex(["serve".as_ref(), config.path.as_os_str()]).output()?;
    let error = String::from_utf8(output.stderr)?;
    let (what, remedy) = error.trim_end().rsplit_once('\n').context("two lines")?;
    assert!(what.contains(&format!("error: cannot listen on {taken} (server.listen): ")), "{error}");
    assert!(remedy.trim_start().starts_with("set server.listen in /"), "{error}");
    assert_eq!(output.status.code(), Some(1));
    Ok(())
}

#[test]
fn an_invalid_log_filter_is_refused() -> Result<()> {
    let config = ConfigFile::new(&specialist())?;
    let output = annex(["serve".as_ref(), config.path.as_os_str()]).env("ANNEX_LOG", "annex=loud").output()?;
    let error = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("ANNEX_LOG=annex=loud"), "{error}");
    Ok(())
}

#[test]
fn sigterm_lets_a_stream_reach_its_end() -> Result<()> {
    let mut server = Server::start(&specialist())?;
    let mut sending = annex(["send", &server.url, "tell me a story", "--stream", "--json", "--state", STATE]);
    let mut sending = sending.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(sending.stdout.take().context("no standard output")?).lines();
    let first_piece = lines.by_ref().find(|line| line.as_ref().is_ok_and(|line| line.contains("artifactUpdate")));
    ensure!(first_piece.is_some(), "the stream has no artifact");

    server.signal(Signal::TERM)?;

    let last = lines.last().context("nothing came after the signal")??;
    let event: Value = serde_json::from_str(&last)?;
    assert_eq!(event["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(sending.wait()?.code(), Some(0));
    assert_eq!(server.process.wait()?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn sigterm_ends_a_server_that_is_still_loading() -> Result<()> {
    // A database that takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let database = format!("postgres://annex@{}/annex", silent.local_addr()?);
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let config = specialist().replace("127.0.0.1:0", &address.to_string());
    let config = ConfigFile::new(&format!("{config}\n[tasks]\npostgres_env = \"ANNEX_TEST_TASKS\"\n"))?;
    let mut command = annex([OsStr::new("serve"), config.path.as_os_str()]);
    let mut process = command.env("ANNEX_TEST_TASKS", database).stderr(Stdio::piped()).spawn()?;
    let begin = Instant::now();
    while reqwest::get(format!("http://{address}/livez")).await.is_err() {
        ensure!(begin.elapsed() < Duration::from_secs(30), "it does not listen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    kill_process(Pid::from_child(&process), Signal::TERM)?;
    assert_eq!(process.wait()?.code(), Some(0));
    ensure!(begin.elapsed() < Duration::from_secs(20), "it has waited for the database");
    Ok(())
}

/// A child process of `process`, if there is one.
fn child_of(process: u32) -> Result<Option<Pid>> {
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may have ended meanwhile.
        let children = std::fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        if let Some(child) = children.split_whitespace().next() {
            return Ok(Pid::from_raw(child.parse()?));
        }
    }
    Ok(None)
}

#[tokio::test]
async fn readyz_names_what_is_compiled_while_a_server_starts() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let config = ConfigFile::new(&specialist().replace("127.0.0.1:0", &address.to_string()))?;
    let mut command = annex([OsStr::new("serve"), config.path.as_os_str()]);
    let command = command.env("XDG_CACHE_HOME", cache.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = command.spawn()?;
    let begin = Instant::now();
    // A process that compiles is stopped, so that it goes on for as long as the test looks.
    let compiler = loop {
        if let Some(child) = child_of(process.id())? {
            break child;
        }
        ensure!(begin.elapsed() < Duration::from_secs(30), "nothing is compiled");
    };
    kill_process(compiler, Signal::STOP)?;
    let answer = reqwest::get(format!("http://{address}/readyz")).await?;
    assert_eq!(answer.status().as_u16(), 503);
    let readiness: Value = answer.json().await?;
    kill_process(compiler, Signal::CONT)?;
    process.kill()?;
    process.wait()?;
    assert_eq!(readiness["phase"], "starting");
    let component = readiness["compiling"][0]["component"].as_str().unwrap_or_default();
    assert!(["state-injection", "timestamp"].contains(&component), "{readiness}");
    assert!(readiness["compiling"][0]["seconds"].is_u64(), "{readiness}");
    Ok(())
}

/// Starts a server after the shell command `ulimit`. Returns the log of its start, and its soft limit on open files.
fn limited(ulimit: &str) -> Result<(String, String)> {
    let config = specialist().replace("[server]\n", "[server]\nmax_connections = 800\n");
    let mut server = Server::start_in(&format!("{ulimit} && exec \"$@\""), &config)?;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.process.id()))?;
    let files = limits.lines().find(|line| line.starts_with("Max open files")).context("no limit")?;
    let soft = files.split_whitespace().nth(3).context("no number")?.to_owned();
    Ok((server.kill_for_log()?, soft))
}

#[test]
fn a_limit_on_open_files_is_raised_to_what_the_config_promises_or_told() -> Result<()> {
    let (said, soft) = limited("ulimit -n 700")?;
    for part in ["may open 700 files", "wants 1312", "ulimit -n"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(soft, "700");
    let (said, soft) = limited("ulimit -Sn 700")?;
    assert!(!said.contains("may open"), "{said}");
    assert_eq!(soft, "1312");
    Ok(())
}

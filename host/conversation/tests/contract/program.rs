//! This test program as a process of its own, which a test can kill or keep from writing.

use std::error::Error;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use annex_conversation::{AppendError, Event};
use annex_protocol::Part;

use crate::backend::Backend;
use crate::support::{Says, event, events, find, open};

/// A process that runs one test of this program, answers lines with lines, and ends with this value.
pub(crate) struct Program {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// What each answer begins with. The name of the test may stand before it on its line.
const ANSWER: &str = "answer: ";

/// Drops the capabilities with which root writes to files of any mode.
const LIKE_A_USER: &str = "[ $(id -u) != 0 ] || set -- setpriv --bounding-set=-all --inh-caps=-all -- \"$@\"";

impl Program {
    /// Starts the test `name` behind a shell script, for example one that sets limits.
    pub(crate) fn start(name: &str, script: &str, variables: &[(&str, &OsStr)]) -> Self {
        let mut process = Command::new("sh")
            .args(["-c", &format!("{LIKE_A_USER}; {script}; exec \"$@\"")])
            .arg("sh")
            .arg(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, input, output }
    }

    /// Starts a process with one turn, which obeys `say`, `read` and `end`.
    pub(crate) fn with_turn(file: &Path, script: &str) -> Self {
        Self::start("program::writer", script, &[(FILE, file.as_os_str())])
    }

    pub(crate) fn id(&self) -> String {
        self.process.id().to_string()
    }

    pub(crate) fn ask(&mut self, question: &str) -> String {
        writeln!(self.input, "{question}").unwrap();
        self.answers().next().expect("an answer")
    }

    /// The answers from now on, until the process ends.
    pub(crate) fn answers(&mut self) -> impl Iterator<Item = String> {
        let lines = self.output.by_ref().map(Result::unwrap);
        lines.filter_map(|line| line.split_once(ANSWER).map(|(_, answer)| answer.to_owned()))
    }

    /// Ends the process by a signal that it cannot catch.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
    }

    /// Tells the process to end, which it does without a failure.
    pub(crate) fn end(mut self) {
        writeln!(self.input, "end").unwrap();
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Answers, in the process.
pub(crate) fn answer(answer: impl std::fmt::Display) {
    println!("{ANSWER}{answer}");
}

const FILE: &str = "ANNEX_CONVERSATION_FILE";

/// A process with one turn in `s`, which says something when it is told to. Otherwise this test does nothing.
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

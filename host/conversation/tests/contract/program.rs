//! This test program as a process of its own, which a test can kill or keep from writing.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

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

//! `annex chat` with lines from a pipe.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Run, STATE, STATE_URI, Server, annex, specialist};

const SCRIPT: &str = r#"
    [server]
    listen = "127.0.0.1:0"
    [card]
    name = "Script"
    description = "Plays"
    [agent]
    kind = "script"
    name = "mock"
    [[agent.rule]]
    text = "book"
    steps = [{ status = { state = "input-required", text = "Which day?" } }]
    [[agent.rule]]
    text = "Monday"
    steps = [{ artifact = { id = "a", parts = [{ text = "Booked." }] } }, { status = { state = "completed" } }]
    [[agent.rule]]
    text = "fail"
    steps = [{ status = { state = "failed", text = "out of luck" } }]
    [[agent.rule]]
    text = "wait"
    steps = [{ artifact = { id = "a", parts = [{ text = "Hm.\n" }] } }, { wait_ms = 3_600_000 }]
"#;

/// A running chat. The test writes its input and reads its output.
struct Chat {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Chat {
    fn start(server: &Server, options: &[&str]) -> Result<Self> {
        let mut command = annex([&["chat", server.url.as_str()], options].concat());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let input = process.stdin.take().context("an input")?;
        let output = BufReader::new(process.stdout.take().context("an output")?);
        Ok(Self { process, input, output })
    }

    fn say(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.input, "{line}")?)
    }

    fn next_line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// Closes the input, waits for the end of the chat, and returns the output that was not read yet.
    fn end(self) -> Result<Run> {
        let Self { mut process, input, output } = self;
        drop(input);
        let out = output.lines().map(|line| Ok(format!("{}\n", line?))).collect::<Result<String>>()?;
        process.stdout = None;
        let ended = process.wait_with_output()?;
        Ok(Run { code: ended.status.code(), out, err: String::from_utf8(ended.stderr)? })
    }
}

/// Runs a chat with these input lines to its end.
fn chat(server: &Server, options: &[&str], lines: &[&str]) -> Result<Run> {
    let mut chat = Chat::start(server, options)?;
    for line in lines {
        // A chat that has failed reads no more.
        if chat.say(line).is_err() {
            break;
        }
    }
    chat.end()
}

#[test]
fn each_line_is_a_turn_of_one_conversation_and_the_state_is_sent_once() -> Result<()> {
    let server = Server::start(&specialist())?;
    let run = chat(&server, &["--state", STATE], &["Who am I?", "", "And who am I now?", "/state", "/history"])?;
    assert_eq!(run.code, Some(0), "{}", run.err);
    let answer = "You are Ada and your email is ada@example.com.\n";
    let (answers, rest) = run.out.split_at(2 * answer.len());
    assert_eq!(answers, answer.repeat(2));
    assert!(rest.contains("\"last_answer\"") && rest.contains(&format!("> Who am I?\n{answer}> And who")), "{rest}");
    assert!(!run.err.contains("not reported active"), "{}", run.err);
    Ok(())
}

#[test]
fn a_new_conversation_gets_the_state_again_and_has_no_history() -> Result<()> {
    let server = Server::start(&specialist())?;
    let run = chat(&server, &["--state", STATE], &["Who am I?", "/new", "/state", "Who am I?", "/history"])?;
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.out.contains("No state has come back yet."), "{}", run.out);
    assert_eq!(run.out.matches("> Who am I?").count(), 1, "{}", run.out);
    Ok(())
}

#[test]
fn an_answer_continues_the_task_that_asked_for_it_also_in_another_chat() -> Result<()> {
    let server = Server::start(SCRIPT)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("session.json").display().to_string();
    let asked = chat(&server, &["--session", &file], &["book"])?;
    assert_eq!((asked.code, asked.out.as_str()), (Some(0), "Which day?\n"), "{}", asked.err);
    assert!(asked.err.contains("The task waits for an answer"), "{}", asked.err);
    let kept: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    assert_eq!(kept["taskState"], "TASK_STATE_INPUT_REQUIRED");

    let booked = chat(&server, &["--session", &file, "--binding", "grpc"], &["Monday"])?;
    assert_eq!((booked.code, booked.out.as_str()), (Some(0), "Booked.\n"), "{}", booked.err);
    let done: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    assert_eq!((&done["taskId"], &done["contextId"]), (&kept["taskId"], &kept["contextId"]));
    assert_eq!(done["taskState"], "TASK_STATE_COMPLETED");
    Ok(())
}

#[test]
fn ctrl_c_cancels_the_task_and_the_chat_goes_on() -> Result<()> {
    let server = Server::start(SCRIPT)?;
    for binding in ["jsonrpc", "http+json", "grpc"] {
        let mut chat = Chat::start(&server, &["--binding", binding])?;
        chat.say("wait")?;
        assert_eq!(chat.next_line()?, "Hm.\n");
        kill_process(Pid::from_child(&chat.process), Signal::INT)?;
        chat.say("book")?;
        assert_eq!(chat.next_line()?, "Which day?\n");
        let run = chat.end()?;
        assert_eq!(run.code, Some(0), "{}", run.err);
        assert!(run.err.contains("TASK_STATE_CANCELED"), "{binding}: {}", run.err);
    }
    Ok(())
}

#[test]
fn a_failed_turn_ends_a_chat_that_comes_through_a_pipe() -> Result<()> {
    let server = Server::start(SCRIPT)?;
    let run = chat(&server, &[], &["fail", "book"])?;
    assert_eq!((run.code, run.out.as_str()), (Some(1), ""));
    assert!(run.err.contains("TASK_STATE_FAILED: out of luck"), "{}", run.err);
    let refused = chat(&Server::start(&specialist())?, &[], &["Who am I?"])?;
    assert!(refused.code == Some(3) && refused.err.contains(&format!("--extension {STATE_URI}")), "{}", refused.err);
    Ok(())
}

#[test]
fn commands_are_not_sent_and_quit_leaves_the_rest_unread() -> Result<()> {
    let server = Server::start(SCRIPT)?;
    let run = chat(&server, &[], &["/help", "/nonsense", "/history", "/quit", "fail"])?;
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.out.contains("/history  the conversation") && run.out.contains("Nothing was said yet."), "{}", run.out);
    assert!(run.err.contains("/nonsense is no command"), "{}", run.err);
    Ok(())
}

#[test]
fn a_task_that_the_agent_does_not_know_is_asked_for_once() -> Result<()> {
    let server = Server::start(SCRIPT)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("session.json");
    let path = file.display().to_string();
    fs::write(&file, r#"{"contextId":"c","taskId":"gone","taskState":"TASK_STATE_INPUT_REQUIRED"}"#)?;
    let refused = chat(&server, &["--session", &path], &["Monday"])?;
    assert!(refused.code == Some(3) && refused.err.contains("task gone was not found"), "{}", refused.err);
    assert!(refused.err.contains("--task gone` answers the one that waited"), "{}", refused.err);
    assert_eq!(fs::read_to_string(&file)?, "{\"contextId\":\"c\",\"taskId\":\"gone\"}\n");
    let booked = chat(&server, &["--session", &path], &["Monday"])?;
    assert_eq!((booked.code, booked.out.as_str()), (Some(0), "Booked.\n"), "{}", booked.err);
    Ok(())
}

#[test]
fn a_file_that_holds_no_conversation_is_not_overwritten() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("session.json");
    fs::write(&file, r#"{"contextId":" "}"#)?;
    let server = Server::start(SCRIPT)?;
    let run = chat(&server, &["--session", &file.display().to_string()], &["book"])?;
    assert!(run.code == Some(1) && run.err.contains("contextId is blank"), "{}", run.err);
    assert_eq!(fs::read_to_string(&file)?, r#"{"contextId":" "}"#);
    Ok(())
}

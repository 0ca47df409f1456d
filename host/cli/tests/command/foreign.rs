//! `annex send` against agents that answer otherwise than Annex does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::Result;

use crate::support::{Run, run};

pub(crate) const JSON: &str = "200 OK\r\ncontent-type: application/json";
const EVENT_STREAM: &str = "200 OK\r\ncontent-type: text/event-stream";

/// Sends a message to an agent that returns the same answer to every request.
fn send(head: &'static str, body: &'static str, options: &[&str]) -> Result<Run> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let interface = format!(r#"{{"url":"{url}/a2a","protocolBinding":"JSONRPC"}}"#);
    let card =
        format!(r#"{{"name":"Foreign","supportedInterfaces":[{interface}],"capabilities":{{"streaming":true}}}}"#);
    thread::spawn(move || {
        answer(listener.accept()?.0, JSON, &card)?;
        answer(listener.accept()?.0, head, body)
    });
    run(["send", &url, "hello"].iter().chain(options))
}

/// Reads one request in full and closes the connection after the answer.
pub(crate) fn answer(mut connection: TcpStream, head: &str, body: &str) -> Result<()> {
    let mut reader = BufReader::new(&mut connection);
    let mut line = String::new();
    let mut length = 0;
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length])?;
    write!(connection, "HTTP/1.1 {head}\r\nconnection: close\r\n\r\n{body}")?;
    Ok(())
}

#[test]
fn a_direct_message_is_the_answer_with_all_of_its_parts() -> Result<()> {
    let body = r#"{"jsonrpc":"2.0","id":1,"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[
        {"text":"Here:"},{"data":{"n":1.0}},{"url":"https://a.example/f","filename":"f.txt"},{"raw":"AAAA"}]}}}"#;
    let run = send(JSON, body, &[])?;
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert_eq!(run.out, "Here:\n{\n  \"n\": 1.0\n}\n[f.txt: https://a.example/f]\n[file: 4 characters of base64]\n");
    Ok(())
}

#[test]
fn a_task_that_waits_says_how_to_continue_it() -> Result<()> {
    let body = r#"{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t-1","contextId":"c-1","status":{
        "state":"TASK_STATE_INPUT_REQUIRED","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"Which one?"}]}}}}}"#;
    let run = send(JSON, body, &[])?;
    assert_eq!((run.code, run.out.as_str()), (Some(0), "Which one?\n"));
    assert!(run.err.contains("--task t-1"), "{}", run.err);
    Ok(())
}

/// A message of the agent as JSON.
const WORDS: &str = r#"{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"It is 5."}]}"#;
const ASKED: &str = r#"{"messageId":"u","role":"ROLE_USER","parts":[{"text":"hello"}]}"#;

#[test]
fn an_answer_that_is_only_in_a_status_or_in_the_history_is_printed() -> Result<()> {
    let completed = format!(r#"{{"state":"TASK_STATE_COMPLETED","message":{WORDS}}}"#);
    let working = format!(r#"{{"state":"TASK_STATE_WORKING","message":{WORDS}}}"#);
    let bare = r#"{"state":"TASK_STATE_COMPLETED"}"#;
    let task = |status: &str, history: &str| {
        format!(r#"{{"task":{{"id":"t","contextId":"c","status":{status},"history":[{history}]}}}}"#)
    };
    let update = |status: &str| format!(r#"{{"statusUpdate":{{"taskId":"t","contextId":"c","status":{status}}}}}"#);
    let said = format!("{ASKED},{WORDS}");
    let earlier = format!("{WORDS},{ASKED}");
    let begun = task(r#"{"state":"TASK_STATE_SUBMITTED"}"#, ASKED);
    let cases = [
        (vec![task(&completed, ASKED)], "It is 5.\n"),
        (vec![task(bare, &said)], "It is 5.\n"),
        (vec![begun.clone(), update(&completed)], "It is 5.\n"),
        (vec![begun.clone(), update(&working), update(bare)], "It is 5.\n"),
        (vec![begun.clone(), update(&working), task(bare, &said)], "It is 5.\n"),
        // What the agent said to an earlier message is no answer to this one.
        (vec![task(bare, &earlier)], ""),
    ];
    for (events, expected) in cases {
        let envelope = |event: &String| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{event}}}"#);
        let streamed: String = events.iter().map(|event| format!("data: {}\n\n", envelope(event))).collect();
        let run = send(EVENT_STREAM, streamed.leak(), &["--stream"])?;
        assert_eq!((run.code, run.out.as_str()), (Some(0), expected), "{events:?} {}", run.err);
        if let [whole] = events.as_slice() {
            let run = send(JSON, envelope(whole).leak(), &[])?;
            assert_eq!((run.code, run.out.as_str()), (Some(0), expected), "{events:?} {}", run.err);
        }
    }
    Ok(())
}

#[test]
fn a_task_that_fails_ends_the_command_with_the_words_of_the_agent() -> Result<()> {
    let body = r#"{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t-1","contextId":"c-1","status":{
        "state":"TASK_STATE_FAILED","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"out of luck"}]}}}}}"#;
    for options in [&[][..], &["--json"]] {
        let run = send(JSON, body, options)?;
        assert_eq!(run.code, Some(1));
        assert!(run.err.contains("TASK_STATE_FAILED: out of luck"), "{}", run.err);
        assert_eq!(run.out.is_empty(), options.is_empty(), "{}", run.out);
    }
    Ok(())
}

#[test]
fn a_stream_that_stops_before_the_task_does_is_an_error() -> Result<()> {
    let body = "data: {\"result\":{\"statusUpdate\":{\"taskId\":\"t\",\"contextId\":\"c\",\r\ndata: \"status\":\
                {\"state\":\"TASK_STATE_WORKING\"}}}}\r\n\r\n";
    let run = send(EVENT_STREAM, body, &["--stream"])?;
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("ended too early") && run.err.contains("TASK_STATE_WORKING"), "{}", run.err);
    Ok(())
}

#[test]
fn an_error_in_the_middle_of_a_stream_is_the_error_of_the_agent() -> Result<()> {
    let body = ": hello\n\ndata: {\"error\":{\"code\":-32603,\"message\":\"broken\"}}\n\n";
    let run = send(EVENT_STREAM, body, &["--stream"])?;
    assert_eq!(run.code, Some(3));
    assert!(run.err.contains("error -32603: broken"), "{}", run.err);
    Ok(())
}

#[test]
fn an_answer_that_is_not_a2a_is_quoted() -> Result<()> {
    let cases = [
        ("502 Bad Gateway", 3, "<h1>no upstream</h1>", "502 Bad Gateway: <h1>no upstream</h1>"),
        ("503 Service Unavailable", 3, r#"{"error":{"code":-32000,"message":"starting"}}"#, "error -32000: starting"),
        (JSON, 1, "hello", "something else than A2A: hello"),
        (JSON, 1, r#"{"jsonrpc":"2.0","id":1}"#, "neither `result` nor `error`"),
        (JSON, 1, r#"{"jsonrpc":"2.0","id":1,"result":{"id":"t-1"}}"#, "one of `task`, `message`"),
    ];
    for (head, code, body, expected) in cases {
        let run = send(head, body, &[])?;
        assert_eq!((run.code, run.out.as_str()), (Some(code), ""), "{expected}");
        assert!(run.err.contains(expected), "{expected}: {}", run.err);
    }
    Ok(())
}

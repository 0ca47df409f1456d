//! The log of requests and hooks, which needs a filter in `ANNEX_LOG`.

use anyhow::Result;
use serde_json::Value;

use crate::support::{STATE, STATE_URI, Server, run, specialist};

/// The log of a server that received two messages, up to the line about the second one.
fn log(filter: &str) -> Result<Vec<Value>> {
    let mut server = Server::start_with(&specialist(), &[("ANNEX_LOG", filter)])?;
    run(["send", &server.url, "hi", "--state", STATE])?;
    // In a conversation the command leaves it to the agent to check the state.
    run(["send", &server.url, "hi", "--context", "c", "--state", r#"{"user_info":1}"#])?;
    server.kill_for_log()?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The span with this name among the spans around a log line. `None` if there is no such span.
fn span<'a>(line: &'a Value, name: &str) -> Option<&'a Value> {
    line["spans"].as_array().into_iter().flatten().find(|span| span["name"] == name)
}

#[test]
fn each_hook_is_traced_in_its_request_with_uri_digest_and_verdict() -> Result<()> {
    let log = log("warn,annex_runtime=debug,annex_server=debug")?;
    let traced: Vec<(&Value, &Value)> =
        log.iter().filter_map(|line| Some((span(line, "request")?, span(line, "hook")?))).collect();
    let verdicts = |hook: &str| -> Vec<&str> {
        let of_hook = traced.iter().filter(|(_, span)| span["hook"] == hook && span["extension"] == STATE_URI);
        of_hook.filter_map(|(_, span)| span["verdict"].as_str()).collect()
    };
    assert_eq!(verdicts("state"), ["ok", "refused"], "{traced:#?}");
    assert_eq!(verdicts("response").first(), Some(&"ok"), "the turn goes on in its request's span: {traced:#?}");
    for (request, hook) in &traced {
        assert!(hook["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{hook}");
        assert!(hook["micros"].is_u64(), "{hook}");
        assert_eq!(request["operation"], "SendMessage");
        assert!(request["context"].is_string() && request["task"].is_string(), "{request}");
    }
    let requests: Vec<&str> = log
        .iter()
        .filter(|line| line["message"] == "the message has been taken or refused")
        .filter_map(|line| span(line, "request")?["verdict"].as_str())
        .collect();
    assert_eq!(requests, ["started", "refused"]);
    Ok(())
}

#[test]
fn nothing_is_traced_unless_asked_for() -> Result<()> {
    let log = log("info")?;
    assert!(!log.is_empty() && log.iter().all(|line| span(line, "request").is_none()), "{log:#?}");
    Ok(())
}

//! `annex send` and `annex card` against a server.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::support::{STATE, STATE_URI, Server, annex, run, specialist};

const QUESTION: &str = "Who am I and what is my email?";
const ANSWER: &str = "You are Ada and your email is ada@example.com.\n";

#[test]
fn a_naive_call_fails_and_names_the_missing_extension_as_an_option() -> Result<()> {
    let server = Server::start(&specialist())?;
    let run = run(["send", &server.url, QUESTION])?;
    assert_eq!((run.code, run.out.as_str()), (Some(3), ""));
    assert!(run.err.contains("-32008"), "{}", run.err);
    assert!(run.err.contains(&format!("--extension {STATE_URI}")), "{}", run.err);
    Ok(())
}

#[test]
fn state_activates_the_extension_and_the_answer_is_all_of_standard_output() -> Result<()> {
    let server = Server::start(&specialist())?;
    let run = run(["send", &server.url, QUESTION, "--state", STATE])?;
    assert_eq!((run.code, run.out.as_str()), (Some(0), ANSWER), "{}", run.err);
    assert!(run.err.contains(&format!("active   {STATE_URI}")), "{}", run.err);
    assert!(run.err.contains("\"last_answer\""), "the returned state is shown: {}", run.err);
    Ok(())
}

#[test]
fn a_conversation_continues_in_its_context_without_sending_the_state_again() -> Result<()> {
    let server = Server::start(&specialist())?;
    let first = run(["send", &server.url, QUESTION, "--state", STATE])?;
    let line = first.err.lines().find(|line| line.starts_with("context")).context("no context line")?;
    let context = line.split_whitespace().nth(1).context("no context id")?;
    let second = run(["send", &server.url, QUESTION, "--extension", STATE_URI, "--context", context])?;
    assert_eq!((second.code, second.out.as_str()), (Some(0), ANSWER), "{}", second.err);
    assert!(second.err.contains(context), "{}", second.err);
    Ok(())
}

#[test]
fn a_streamed_answer_reads_like_a_whole_one() -> Result<()> {
    let server = Server::start(&specialist())?;
    let run = run(["send", &server.url, "tell me a story", "--stream", "--state", STATE])?;
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert_eq!(run.out, "Once upon a time an agent met Ada, listened, remembered every word, and answered well.\n");
    assert!(run.err.contains("TASK_STATE_WORKING"), "{}", run.err);
    Ok(())
}

#[test]
fn credentials_are_sent_as_header_fields() -> Result<()> {
    let auth = "[[auth.api_key]]\nprincipal = \"ada\"\nkey_env = \"TEST_API_KEY\"\n";
    let server =
        Server::start_with(&format!("{}\n{auth}", specialist()), &[("TEST_API_KEY", "a-key-of-ada-0123456789")])?;
    let send = |fields: &[&str]| run([&["send", server.url.as_str(), QUESTION, "--state", STATE], fields].concat());
    let refused = send(&[])?;
    assert!(refused.code == Some(3) && refused.err.contains("credentials"), "{}", refused.err);
    for binding in ["jsonrpc", "http+json", "grpc"] {
        let refused = send(&["--binding", binding])?;
        let how = "send the credentials with this option:\n    --header 'x-api-key: KEY'\n";
        assert!(refused.code == Some(3) && refused.err.contains(how), "{binding}: {}", refused.err);
    }
    let answered = send(&["--header", "X-API-Key: a-key-of-ada-0123456789"])?;
    assert_eq!((answered.code, answered.out.as_str()), (Some(0), ANSWER), "{}", answered.err);
    let malformed = send(&["--header", "X-API-Key a-key-of-ada"])?;
    assert!(malformed.err.contains("NAME: VALUE"), "{}", malformed.err);
    Ok(())
}

#[test]
fn json_output_is_the_result_and_nothing_else() -> Result<()> {
    let server = Server::start(&specialist())?;
    let whole = run(["send", &server.url, QUESTION, "--json", "--state", STATE])?;
    let result: Value = serde_json::from_str(&whole.out)?;
    assert_eq!(result["task"]["status"]["state"], "TASK_STATE_COMPLETED");

    let streamed = run(["send", &server.url, QUESTION, "--json", "--stream", "--state", STATE])?;
    let events = streamed.out.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    assert!(events.len() > 2, "{}", streamed.out);
    assert_eq!(events[events.len() - 1]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!((whole.err, streamed.err), (String::new(), String::new()));
    Ok(())
}

#[test]
fn a_violation_of_the_state_schema_is_named_with_its_place_before_anything_is_sent() -> Result<()> {
    let server = Server::start(&specialist())?;
    let state = r#"{"user_info":{"name":"Ada","email":7}}"#;
    let run = run(["send", &server.url, QUESTION, "--state", state])?;
    assert_eq!((run.code, run.out.as_str()), (Some(1), ""));
    let command = format!("annex send {} --template prints what it takes", server.url);
    for expected in
        ["nothing was sent", "/user_info/email: 7 is not of type", "/user_info: \"role\" is a required", &command]
    {
        assert!(run.err.contains(expected), "{expected}: {}", run.err);
    }
    Ok(())
}

#[test]
fn in_a_conversation_the_agent_is_asked_whether_the_state_will_do() -> Result<()> {
    let server = Server::start(&specialist())?;
    let state = r#"{"user_info":{"name":"Ada","role":"Engineer","email":7}}"#;
    for mode in ["--json", "--stream"] {
        let run = run(["send", &server.url, QUESTION, mode, "--context", "c", "--state", state])?;
        assert_eq!((run.code, run.out.as_str()), (Some(3), ""));
        assert!(run.err.contains("-32602") && run.err.contains("user_info/email"), "{}", run.err);
    }
    Ok(())
}

#[test]
fn a_template_shows_the_state_that_the_agent_takes_and_is_refused_until_it_is_filled_in() -> Result<()> {
    let server = Server::start(&specialist())?;
    let template = run(["send", &server.url, "--template"])?;
    assert_eq!(template.code, Some(0), "{}", template.err);
    let state: Value = serde_json::from_str(&template.out)?;
    assert_eq!(state, serde_json::json!({"user_info": {"name": "<string>", "role": "<string>", "email": "<email>"}}));
    let unedited = run(["send", &server.url, QUESTION, "--state", &template.out])?;
    assert!(unedited.code == Some(1) && unedited.err.contains("/user_info/email"), "{}", unedited.err);
    let filled = template.out.replace("<email>", "ada@example.com").replacen("<string>", "Ada", 1);
    let answered = run(["send", &server.url, QUESTION, "--state", &filled])?;
    assert_eq!((answered.code, answered.out.as_str()), (Some(0), ANSWER), "{}", answered.err);
    Ok(())
}

#[test]
fn the_binding_can_be_chosen() -> Result<()> {
    let server = Server::start(&specialist())?;
    for binding in ["jsonrpc", "http+json", "grpc"] {
        for mode in [&[][..], &["--stream"]] {
            let send = ["send", &server.url, QUESTION, "--state", STATE, "--binding", binding];
            let run = run([&send, mode].concat())?;
            assert_eq!((run.code, run.out.as_str()), (Some(0), ANSWER), "{binding}: {}", run.err);
        }
    }
    let unknown = run(["send", &server.url, QUESTION, "--binding", "soap"])?;
    assert!(unknown.code == Some(2) && unknown.err.contains("http+json"), "{}", unknown.err);
    Ok(())
}

#[test]
fn a_card_without_a_trusted_signature_is_not_sent_anything() -> Result<()> {
    let server = Server::start(&specialist())?;
    let folder = tempfile::tempdir()?;
    let keys = folder.path().join("keys.json");
    fs::write(&keys, r#"{"keys":[]}"#)?;
    let keys = keys.display().to_string();
    for command in
        [vec!["send", &server.url, QUESTION, "--verify", &keys], vec!["card", &server.url, "--verify", &keys]]
    {
        let run = run(command)?;
        assert!(run.code == Some(1) && run.err.contains("no signatures"), "{}", run.err);
    }
    Ok(())
}

#[test]
fn state_is_read_from_a_file() -> Result<()> {
    let server = Server::start(&specialist())?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("state.json");
    fs::write(&file, STATE)?;
    let run = run(["send", &server.url, QUESTION, "--state", &format!("@{}", file.display())])?;
    assert_eq!((run.code, run.out.as_str()), (Some(0), ANSWER), "{}", run.err);
    Ok(())
}

#[test]
fn unusable_state_is_refused_before_anything_is_sent() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let missing = format!("@{}/missing.json", folder.path().display());
    let cases = [(missing.as_str(), "missing.json"), ("[1]", "must be a JSON object"), ("{", "must be a JSON object")];
    for (state, expected) in cases {
        // Nothing listens there, so a request would fail with another error.
        let run = run(["send", "http://127.0.0.1:1", QUESTION, "--state", state])?;
        assert_eq!(run.code, Some(2));
        assert!(run.err.contains(expected) && !run.err.contains("connect"), "{state}: {}", run.err);
    }
    Ok(())
}

#[test]
fn what_is_no_agent_is_said_with_address_and_status() -> Result<()> {
    let server = Server::start(&specialist())?;
    let elsewhere = format!("{}/elsewhere", server.url);
    let live = format!("{}/livez?.json", server.url);
    let cases = [
        ("http://127.0.0.1:1", 4, "cannot connect to http://127.0.0.1:1/.well-known/agent-card.json"),
        (elsewhere.as_str(), 1, "/elsewhere/.well-known/agent-card.json answered 404"),
        (live.as_str(), 1, "answered 404"),
        ("localhost:9999", 2, "http://127.0.0.1:9999"),
    ];
    for (url, code, expected) in cases {
        for command in [vec!["card", url], vec!["send", url, QUESTION]] {
            let run = run(command)?;
            assert_eq!((run.code, run.out.as_str()), (Some(code), ""), "{url}: {}", run.err);
            assert!(run.err.contains(expected), "{url}: {}", run.err);
        }
    }
    Ok(())
}

#[test]
fn a_card_is_shown_for_people_and_as_it_was_sent() -> Result<()> {
    let server = Server::start(&specialist())?;
    let readable = run(["card", &server.url])?;
    for expected in ["Specialist Agent 1.0.0", "JSONRPC 1.0", STATE_URI, "(required)", "state_schema = {", "streaming"]
    {
        assert!(readable.out.contains(expected), "{expected}: {}", readable.out);
    }
    let raw = run(["card", &format!("{}/.well-known/agent-card.json", server.url), "--json"])?;
    let card: Value = serde_json::from_str(&raw.out)?;
    assert_eq!(card["capabilities"]["extensions"][0]["uri"], STATE_URI);
    Ok(())
}

#[test]
fn a_card_shows_what_a_client_has_to_send_to_be_known() -> Result<()> {
    let open = Server::start(&specialist())?;
    assert!(run(["card", &open.url])?.out.contains("\nAuthentication\n  none\n"));
    let key = format!("[[auth.api_key]]\nprincipal = \"ada\"\nkey_sha256 = \"{}\"\n\n[agent]", "0".repeat(64));
    let server = Server::start(&specialist().replacen("[agent]", &key, 1))?;
    let shown = run(["card", &server.url])?.out;
    let (_, section) = shown.split_once("\nAuthentication\n").context("a section")?;
    let lines: Vec<&str> = section.lines().take_while(|line| !line.is_empty()).collect();
    let [scheme, option] = lines.as_slice() else { bail!("{shown}") };
    assert!(scheme.ends_with(": an API key in the header field x-api-key"), "{shown}");
    assert_eq!(*option, "    annex send takes it as --header 'x-api-key: KEY'", "{shown}");
    Ok(())
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() -> Result<()> {
    let server = Server::start(&specialist())?;
    let mut sending = annex(["send", &server.url, "tell me a story", "--stream", "--json", "--state", STATE]);
    let mut sending = sending.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(sending.stdout.take().context("no standard output")?).read_line(&mut line)?;
    let output = sending.wait_with_output()?;
    assert_eq!((output.status.code(), String::from_utf8(output.stderr)?), (Some(0), String::new()));
    Ok(())
}

#[test]
fn a_component_takes_the_clients_side_and_says_what_it_made_of_the_answer() -> Result<()> {
    let server = Server::start(&specialist())?;
    for binding in ["jsonrpc", "grpc"] {
        let send = ["send", &server.url, QUESTION, "--with", "state-injection", "--state", STATE, "--binding", binding];
        let run = run(send)?;
        assert_eq!((run.code, run.out.as_str()), (Some(0), ANSWER), "{binding}: {}", run.err);
        assert!(
            run.err.contains(&format!("from     {STATE_URI}")) && run.err.contains("\"last_answer\""),
            "{}",
            run.err
        );
        assert!(run.err.contains(&format!("active   {STATE_URI}")), "{}", run.err);
    }
    let input = format!("state-injection={STATE}");
    let run = run(["send", &server.url, QUESTION, "--with", &input, "--stream"])?;
    assert_eq!((run.code, run.out.as_str()), (Some(0), ANSWER), "{}", run.err);
    Ok(())
}

#[test]
fn an_extension_is_named_by_its_uri() -> Result<()> {
    let run = run(["send", "http://127.0.0.1:1", QUESTION, "--extension", "timestamp"])?;
    assert_eq!(run.code, Some(2));
    let expected = "\"timestamp\" is not an absolute URI without spaces and commas; `annex card URL` shows the URIs";
    assert!(!run.err.contains("ExtensionUri") && run.err.contains(expected), "{}", run.err);
    Ok(())
}

#[test]
fn a_component_that_cannot_take_part_is_named_with_the_reason() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let settings = folder.path().join("settings.toml");
    fs::write(&settings, "[grants]\nclocks = true\n")?;
    let settings = settings.display().to_string();
    let cases: [(&[&str], &str); 6] = [
        (&["--with", "timestmp"], "no component `timestmp` ships with Annex; did you mean `timestamp`?"),
        (&["--with", "./nowhere.wasm"], "cannot read the component ./nowhere.wasm"),
        (&["--with", "state-injection=[1]"], "must be a JSON object"),
        (&["--with", "timestamp"], "clock"),
        (&["--with", "timestamp", "--with-settings", &settings], "clocks"),
        (&["--with", "timestamp", "--with-settings", "a", "--with-settings", "b"], "2 --with-settings for 1 --with"),
    ];
    for (options, expected) in cases {
        // Nothing listens there, so a request would fail with another error.
        let run = run([&["send", "http://127.0.0.1:1", QUESTION], options].concat())?;
        assert!(run.code == Some(1) && run.err.contains(expected), "{options:?}: {}", run.err);
    }
    Ok(())
}

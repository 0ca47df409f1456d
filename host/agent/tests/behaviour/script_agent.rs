//! Turns of the script agent, and scripts that are refused.

use std::sync::Arc;

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventScript, EventSender, ScriptAgent, Steps, TurnContext};
use annex_conversation::{ConversationKey, MemoryBounds, MemoryStore, Store};
use annex_protocol::{ContextId, Message, MessageId, Metadata, TaskId};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::support::open;

#[derive(Deserialize)]
struct Table {
    rule: EventScript,
}

fn agent(rules: &str) -> ScriptAgent {
    ScriptAgent { name: "mock".to_owned(), script: toml::from_str::<Table>(rules).unwrap().rule }
}

/// Checks that an agent with these rules cannot be created, and that the error contains each of `expected`.
fn check_refused(rules: &str, expected: &[&str]) {
    let error = toml::from_str::<Table>(rules).err().map(|error| error.to_string()).unwrap_or_default();
    for part in expected {
        assert!(error.contains(part), "{rules}\n{error}\nlacks {part}");
    }
}

/// An event in short, its contents as JSON.
fn short(event: &AgentEvent) -> String {
    match event {
        AgentEvent::Status { state, message: None } => format!("{state:?}"),
        AgentEvent::Status { state, message: Some(message) } => format!("{state:?} {}", message.text()),
        AgentEvent::Relayed(_) | AgentEvent::Begun | AgentEvent::Question(_) | AgentEvent::Waits { .. } => {
            panic!("nothing is relayed here: {event:?}")
        }
        AgentEvent::Message(message) => format!("message {}", message.text()),
        AgentEvent::Artifact { artifact, append, last_chunk } => {
            let parts = serde_json::to_string(&artifact.parts).unwrap();
            format!("{} {parts} ({append}, {last_chunk})", artifact.artifact_id)
        }
    }
}

/// Runs one turn. Returns the events in short form and the result.
async fn turn(
    agent: &ScriptAgent,
    id: &str,
    text: &str,
    cancel: CancellationToken,
) -> (Vec<String>, Result<(), AgentError>) {
    let key = ConversationKey::new("t", "mock", "u", "c");
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(MemoryBounds::default()));
    let conversation = open(&store, key, &TaskId::new("task")).await;
    let message = Message { message_id: MessageId::new(id), ..Message::user_text(text) };
    let context = TurnContext {
        task_id: TaskId::new("task"),
        context_id: ContextId::new("c"),
        message: Arc::new(message),
        metadata: Arc::new(Metadata::new()),
        conversation,
        steps: Steps::default(),
        cancel,
        remote: None,
        is_revised: false,
        is_steered: false,
    };
    let (sender, mut receiver) = EventSender::bounded(16);
    let result = agent.execute(context, sender).await;
    let mut events = Vec::new();
    while let Ok(event) = receiver.try_recv() {
        events.push(short(&event));
    }
    (events, result)
}

async fn events(agent: &ScriptAgent, id: &str, text: &str) -> Vec<String> {
    let (events, result) = turn(agent, id, text, CancellationToken::new()).await;
    result.unwrap();
    events
}

#[tokio::test]
async fn the_steps_of_a_rule_become_events_in_their_order() {
    let agent = agent(
        r#"
        [[rule]]
        message_id = "all"
        steps = [
          { status = { state = "working", text = "On it." } },
          { artifact = { id = "a", parts = [{ text = "one " }] } },
          { artifact = { id = "a", parts = [{ text = "two" }], append = true, last_chunk = true } },
          { artifact = { id = "b", parts = [
            { raw = "aGk=", filename = "hi.txt", media_type = "text/plain" },
            { url = "https://example.com/x" },
            { data = '{"count":42.0}' },
          ] } },
          { status = { state = "input-required" } },
        ]
        [[rule]]
        message_id = "answer"
        steps = [{ message = { parts = [{ text = "Directly." }] } }]
        [[rule]]
        message_id = "nothing"
        steps = []
        "#,
    );
    let expected = [
        "Working On it.",
        r#"a [{"text":"one "}] (false, false)"#,
        r#"a [{"text":"two"}] (true, true)"#,
        r#"b [{"raw":"aGk=","filename":"hi.txt","mediaType":"text/plain"},{"url":"https://example.com/x"},{"data":{"count":42.0}}] (false, false)"#,
        "InputRequired",
    ];
    assert_eq!(events(&agent, "all", "").await, expected);
    assert_eq!(events(&agent, "answer", "").await, ["message Directly."]);
    assert!(events(&agent, "nothing", "").await.is_empty());
}

const PREFIXES: &str = r#"
    [[rule]]
    message_id = "file"
    steps = [{ status = { state = "completed", text = "file" } }]
    [[rule]]
    message_id = "file-url"
    steps = [{ status = { state = "failed", text = "file-url" } }]
    [[rule]]
    message_id = "file"
    text = "please"
    steps = [{ status = { state = "rejected", text = "file, politely" } }]
    [[rule]]
    text = "pay"
    steps = [{ status = { state = "auth-required", text = "pay" } }]
"#;

#[tokio::test]
async fn the_rule_with_the_longest_match_applies_and_one_without_a_match_is_the_fallback() {
    let agent = agent(&format!("{PREFIXES}[[rule]]\nsteps = [{{ status = {{ state = \"canceled\" }} }}]"));
    let cases = [
        ("file-1", "please", "Rejected file, politely"),
        ("file-1", "now", "Completed file"),
        ("file-url-1", "please", "Failed file-url"),
        ("1", "pay 5", "AuthRequired pay"),
        ("a-file", "repay", "Canceled"),
    ];
    for (id, text, expected) in cases {
        assert_eq!(events(&agent, id, text).await, [expected], "{id} {text}");
    }
}

#[tokio::test]
async fn a_message_without_a_rule_fails_its_task_and_says_so() {
    let (events, result) = turn(&agent(PREFIXES), "x-1", "hi", CancellationToken::new()).await;
    assert!(events.is_empty());
    assert_eq!(
        result.unwrap_err().to_string(),
        "The agent's script has no rule for message \"x-1\" and none for any message."
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_holds_what_follows_and_cancelling_ends_it() {
    let agent = agent(
        r#"
        [[rule]]
        steps = [{ status = { state = "working" } }, { wait_ms = 60_000 }, { status = { state = "completed" } }]
        "#,
    );
    let start = tokio::time::Instant::now();
    assert_eq!(events(&agent, "x", "").await, ["Working", "Completed"]);
    assert_eq!(start.elapsed().as_secs(), 60);
    let cancel = CancellationToken::new();
    let (turn, ()) = tokio::join!(turn(&agent, "x", "", cancel.clone()), async {
        // The clock is paused, so this takes no time.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        cancel.cancel();
    });
    assert_eq!(turn.0, ["Working", "Canceled"]);
    assert_eq!(start.elapsed().as_secs(), 61);
}

#[test]
fn a_script_that_cannot_be_played_is_refused_with_line_and_reason() {
    let rule = |steps: &str| format!("[[rule]]\nsteps = [\n{steps}\n]");
    let completed = "{ status = { state = \"completed\" } }";
    let cases = [
        (rule("{ status = { state = \"done\" } }"), "line 3", "unknown variant `done`, expected one of `working`"),
        (rule("{ stats = { state = \"working\" } }"), "line 3", "expected one of `status`, `artifact`, `message`"),
        (rule("{ status = { state = \"working\", txt = \"\" } }"), "line 3", "unknown field `txt`"),
        (rule(&format!("{completed},\n{completed}")), "line 1", "step 2 can never happen"),
        (
            rule(
                "{ artifact = { id = \"a\", parts = [{ text = \"\" }] } },\n{ message = { parts = [{ text = \"\" }] } }",
            ),
            "line 1",
            "step 2: a message can only be sent before",
        ),
        (rule("{ message = { parts = [] } }"), "line 1", "step 1: at least one part"),
        (rule("{ message = { parts = [{ filename = \"x\" }] } }"), "line 3", "exactly one of `text`, `raw`"),
        (rule("{ message = { parts = [{ text = \"\", url = \"\" }] } }"), "line 3", "exactly one of `text`, `raw`"),
        (rule("{ message = { parts = [{ raw = \"a\" }] } }"), "line 3", "`raw` is not base64"),
        (rule("{ message = { parts = [{ data = \"{\" }] } }"), "line 3", "`data` is not the text of a JSON value: EOF"),
        ("[[rule]]\nmessage_ids = \"a\"\nsteps = []".to_owned(), "line 2", "unknown field `message_ids`"),
        (
            "[[rule]]\ntext = \"a\"\nsteps = []\n[[rule]]\ntext = \"a\"\nsteps = []".to_owned(),
            "line 1",
            "two rules have the same message_id \"\" and text \"a\"",
        ),
    ];
    for (rules, line, reason) in cases {
        check_refused(&rules, &[line, reason]);
    }
}

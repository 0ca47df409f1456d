//! Attacks by the hooks that decide about turns and readers: `output`, `reply`, `steering`, `reads` and `live-card`. Each
//! attack is made by an extension that requests must not skip, and by one that they may skip. The commands are those of
//! `guest/test-steering`.

use annex_components::STEERING_GRANTS;
use annex_test_support::{Reply, Request, TestConfig, TestServer, component};
use serde_json::{Value, json};

use super::attack::greet;
use super::{LIMITS, log, neighbour};
use crate::tools;

/// The URIs of the attacker. No other test uses them, so their log lines can be distinguished.
const REJECTING: &str = "https://annex.example/hostile/decisions/v1";
const SKIPPED: &str = "https://annex.example/hostile/decisions/v2";
/// The metadata key of the commands.
const COMMAND_KEY: &str = "steering/command";

/// The grants that the attacker needs.
pub(super) fn grants() -> String {
    format!("[extension.grants]\ncaller = {{ principal = true }}\nlive-card = {{}}\n{STEERING_GRANTS}\n")
}

/// The hooks that get commands in a request, each with its functions.
const FUNCTIONS: [(&str, &[&str]); 4] = [
    ("output", &["revise"]),
    ("reply", &["before-agent"]),
    ("steering", &["before-model", "before-tool", "after-tool"]),
    ("reads", &["show"]),
];

/// Commands of all functions. The log has the second text with the name of the hook. `costly-schema` reaches the limit of CPU
/// time or of host calls, so its text ends before the name.
const EVERYWHERE: [(&str, &str); 6] = [
    ("loop", "reached its CPU time limit in "),
    ("trap", "trapped in "),
    ("memory-bomb", "reached its memory limit in "),
    ("costly-schema", "reached its "),
    ("log-flood 10000000", "reached its limit of host calls in "),
    ("error", "was told to fail"),
];

/// Commands of one function each, with the text in the log.
const OUTPUT: [(&str, &str); 15] = [
    ("no-part", "of content that has"),
    ("twice", "it replaces the part 0 twice"),
    ("no-content", "the replacement of part 0 is not a Part"),
    ("bad-json", "the replacement of part 0 is not a Part"),
    ("deep-json 10000", "the replacement of part 0 is not a Part"),
    ("odd-json 0", "half of a surrogate pair"),
    ("odd-json 1", "the replacement of part 0 is not a Part"),
    ("odd-json 3", "the replacement of part 0 is not a Part"),
    ("big-result 1100000", "reached its limit of output bytes in output"),
    ("foreign-metadata", r#"it writes metadata["someone/else"] of a part, which it does not own"#),
    ("hold", "would hold back too much"),
    ("hold-last", "it holds back the last chunk of an artifact"),
    ("hold-for-ever", "it holds back the last chunk of an artifact"),
    ("hold-message", "it holds back content that is no chunk of an artifact"),
    ("refuse-final", "it refuses the content of the change to TASK_STATE_FAILED, which is final"),
];
const REPLY: [(&str, &str); 12] = [
    ("no-parts", "it answers without a part"),
    ("no-content", "part 0 of its answer is not a Part"),
    ("bad-json", "part 0 of its answer is not a Part"),
    ("deep-json 10000", "part 0 of its answer is not a Part"),
    ("odd-json 0", "half of a surrogate pair"),
    ("odd-json 1", "part 0 of its answer is not a Part"),
    ("big-result 1100000", "reached its limit of output bytes in reply"),
    ("foreign-key", r#"it writes artifact.metadata["someone/else"], which it does not own"#),
    ("foreign-metadata", r#"it writes metadata["someone/else"] of a part, which it does not own"#),
    ("wait-with-artifact", "with an artifact although the task waits"),
    ("long-name", "the name of its artifact has 257 bytes"),
    ("odd-name", "the name of its artifact has a control character"),
];
const BEFORE_MODEL: [(&str, &str); 17] = [
    ("unlent-model", "which is not lent"),
    ("bad-parameters", "its parameters for the model are invalid"),
    ("bad-range", "temperature must be from 0 to 2"),
    ("unknown-parameter", "topK"),
    ("not-an-object", "they are not a JSON object"),
    ("deep-json 10000", "its parameters for the model are invalid"),
    ("odd-json 0", "its parameters for the model are invalid"),
    ("big-result 1100000", "reached its limit of output bytes in steering"),
    ("huge-instruction 100000", "it adds 100000 bytes to the instruction"),
    ("many-instructions", "parts; at most 16 are allowed"),
    ("foreign-key", r#"it writes remark.metadata["someone/else"], which it does not own"#),
    ("remark-bad-value", "is not JSON"),
    ("remark-foreign-metadata", r#"it writes metadata["someone/else"] of a part, which it does not own"#),
    ("remark-without-parts", "its remark has no part"),
    ("remark-bad-json", "its remark is invalid"),
    ("remark-big 20000", "bytes; at most 16384 are allowed"),
    ("remark-flood", "its remark has 120000 bytes"),
];
const BEFORE_TOOL: [(&str, &str); 7] = [
    ("not-an-object", "its arguments for the tool are not a JSON object"),
    ("bad-json", "its arguments for the tool are not JSON"),
    ("deep-json 10000", "its arguments for the tool are not JSON"),
    ("odd-json 0", "half of a surrogate pair"),
    ("big-result 1100000", "reached its limit of output bytes in steering"),
    ("wait-with-foreign-key", r#"it writes status.message.metadata["someone/else"], which it does not own"#),
    ("wait-with-big-text 1100000", "reached its limit of output bytes in steering"),
];
const AFTER_TOOL: [(&str, &str); 4] = [
    ("bad-json", "its result of the tool is not JSON"),
    ("deep-json 10000", "its result of the tool is not JSON"),
    ("odd-json 3", "the key stands twice in its object"),
    ("big-result 1100000", "reached its limit of output bytes in steering"),
];
const SHOW: [(&str, &str); 7] = [
    ("too-few", "the number of its views is 0, and that of the tasks is 1"),
    ("too-many", "the number of its views is 2, and that of the tasks is 1"),
    ("foreign-key", r#"it writes tasks[0].metadata["someone/else"], which it does not own"#),
    ("bad-json", r#"tasks[0].metadata["steering/result"] is not JSON"#),
    ("deep-json 1000", r#"tasks[0].metadata["steering/result"] is not JSON"#),
    ("odd-json 0", "half of a surrogate pair"),
    ("big-result 5000", "bytes to tasks[0].metadata; at most 4096 are allowed"),
];

/// Calls of the import `task-metadata` that the host refuses. The extension logs the error, and the request succeeds.
const TASK_METADATA: [(&str, &str); 5] = [
    ("set-foreign", "error: the descriptor does not own the key"),
    ("set-bad-json", "error: the value is not JSON"),
    ("set-deep-json 1000", "error: the value is not JSON"),
    ("set-odd-json 0", "half of a surrogate pair"),
    ("set-big 20000", "at most 16384 can be set in a turn"),
];

/// A server with a scripted agent, one with an agent that has tools, and the attacker in both.
struct Field {
    uri: &'static str,
    may_be_skipped: bool,
    scripted: TestServer,
    with_tools: TestServer,
}

impl Field {
    async fn open(uri: &'static str, keys: &str) -> Self {
        let attacker = format!(
            "[[extension]]\ncomponent = {:?}\n{keys}\n{LIMITS}\n{}\n[extension.parameters]\nuri = {uri:?}\n",
            component("test-steering"),
            grants()
        );
        let extensions = format!("{attacker}{}", neighbour());
        Self {
            uri,
            may_be_skipped: keys.contains("skip"),
            scripted: TestConfig::script(&script()).with(&extensions).start().await.expect("a server"),
            with_tools: tools::config("", &extensions).start().await.expect("a server"),
        }
    }

    /// A message with commands by function.
    fn say(&self, server: &TestServer, text: &str, commands: &Value) -> Request {
        server.say(text).extensions(self.uri).metadata(COMMAND_KEY, &commands.to_string())
    }

    /// Has the extension execute a command. Returns the server and its reply.
    async fn attack(&self, function: &str, command: &str) -> (&TestServer, Reply) {
        if function == "show" {
            let commands = json!({"begin": format!("set-command {command}")});
            let sent = self.say(&self.scripted, "prompt", &commands).send().await.expect("a reply");
            let params = json!({"id": sent.task()["id"]}).to_string();
            let read = self.scripted.call("GetTask", params).extensions(self.uri).send().await;
            return (&self.scripted, read.expect("a reply"));
        }
        let has_tools = matches!(function, "before-model" | "before-tool" | "after-tool");
        let server = if has_tools { &self.with_tools } else { &self.scripted };
        let text = match command {
            "hold" => "flood",
            "refuse-final" => "fail",
            _ if has_tools => "sum 1 2",
            _ => "prompt",
        };
        let sent = self.say(server, text, &json!({function: command})).send().await;
        (server, sent.expect("a reply"))
    }

    /// Checks what the client gets of an attack. The client never reads the reason.
    fn check(&self, function: &str, command: &str, reply: &Reply) {
        let case = format!("{function}, {command}, {}: {}", self.uri, reply.text);
        let state = state(reply.task());
        match function {
            // A fault never fails a read.
            "show" => {
                assert_eq!((reply.code(), reply.extensions.as_deref()), (0, None), "{case}");
                assert_eq!(reply.body["result"]["artifacts"][0]["parts"][0]["text"], "answer", "{case}");
            }
            _ if self.may_be_skipped => {
                let expected = match command {
                    "refuse-final" => "TASK_STATE_FAILED",
                    // The call waits. Only the metadata of the question is left out.
                    "wait-with-foreign-key" => "TASK_STATE_INPUT_REQUIRED",
                    _ => "TASK_STATE_COMPLETED",
                };
                assert_eq!(state, expected, "{case}");
                // All that was held back goes out.
                let artifacts = reply.task()["artifacts"].as_array().map(Vec::len);
                assert!(command != "hold" || artifacts == Some(CHUNKS), "{case}");
                assert!(!reply.text.contains("error id"), "{case}");
            }
            "before-agent" => {
                assert_eq!((reply.status, reply.code()), (200, -32_603), "{case}");
                assert!(reply.text.contains("error id"), "{case}");
            }
            _ => {
                assert_eq!(state, "TASK_STATE_FAILED", "{case}");
                assert!(reply.text.contains("error id"), "{case}");
            }
        }
    }

    /// Makes an attack. Checks that the log has the reason, and that this extension and others are served afterwards.
    async fn survives(&self, function: &str, command: &str, expected: &str) {
        let before = log::count(&[self.uri, expected]);
        let (server, reply) = self.attack(function, command).await;
        self.check(function, command, &reply);
        let case = format!("{function}, {command}, {}", self.uri);
        assert!(!reply.text.contains(expected), "{case}: {}", reply.text);
        assert!(log::count(&[self.uri, expected]) > before, "{case}: the log has no \"{expected}\"");
        self.is_well(server, &case).await;
    }

    /// The extension is served again, and not quarantined for failing again and again. So are clients that do not use it.
    async fn is_well(&self, server: &TestServer, case: &str) {
        let good = self.say(server, "prompt", &json!({})).send().await.expect("a reply");
        assert_eq!(state(good.task()), "TASK_STATE_COMPLETED", "after {case}: {}", good.text);
        greet(server, case).await;
    }

    async fn survives_all(&self) {
        for (hook, functions) in FUNCTIONS {
            for (function, (command, reason)) in
                functions.iter().flat_map(|function| EVERYWHERE.map(|row| (function, row)))
            {
                let place = if matches!(command, "error" | "costly-schema") { "" } else { hook };
                self.survives(function, command, &format!("{reason}{place}")).await;
            }
        }
        let own: [(&str, &[(&str, &str)]); 6] = [
            ("revise", &OUTPUT),
            ("before-agent", &REPLY),
            ("before-model", &BEFORE_MODEL),
            ("before-tool", &BEFORE_TOOL),
            ("after-tool", &AFTER_TOOL),
            ("show", &SHOW),
        ];
        for (function, rows) in own {
            for (command, expected) in rows {
                self.survives(function, command, expected).await;
            }
        }
    }

    /// Calls an import in a way that the host refuses. The request succeeds.
    async fn is_told(&self, command: &str, expected: &str) {
        let before = log::count(&[self.uri, expected]);
        let sent = self.say(&self.scripted, "prompt", &json!({"respond": command})).send().await.expect("a reply");
        assert_eq!(state(sent.task()), "TASK_STATE_COMPLETED", "{command}: {}", sent.text);
        assert!(sent.task()["metadata"].is_null() && !sent.text.contains("someone/else"), "{command}: {}", sent.text);
        assert!(log::count(&[self.uri, expected]) > before, "{command}: the log has no \"{expected}\"");
    }
}

/// Artifacts that are not complete: one more than an extension can hold back.
const CHUNKS: usize = 17;

/// An agent that answers with an artifact, with many of them, or with a failure.
fn script() -> String {
    let chunk = |number| format!("{{ artifact = {{ id = \"a-{number}\", parts = [{{ text = \"chunk\" }}] }} }}, ");
    let chunks: String = (0..CHUNKS).map(chunk).collect();
    format!(
        r#"
        [[agent.rule]]
        text = "flood"
        steps = [{chunks}{{ status = {{ state = "completed" }} }}]
        [[agent.rule]]
        text = "fail"
        steps = [{{ status = {{ state = "failed", text = "It failed." }} }}]
        [[agent.rule]]
        steps = [
          {{ artifact = {{ id = "a", parts = [{{ text = "answer" }}], last_chunk = true }} }},
          {{ status = {{ state = "completed", text = "Done." }} }},
        ]
        "#
    )
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_way_of_a_new_hook_to_be_wrong_is_its_own_requests_clear_error() {
    log::listen();
    let rejecting = async {
        let field = Field::open(REJECTING, "on_failure = \"reject\"").await;
        field.survives_all().await;
        for (command, expected) in TASK_METADATA {
            field.is_told(command, expected).await;
        }
    };
    let skipped = async { Field::open(SKIPPED, "on_failure = \"skip\"").await.survives_all().await };
    tokio::join!(rejecting, skipped);
}

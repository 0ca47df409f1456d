//! A single attack, and the requests of other extensions during the attack.

use std::cell::Cell;
use std::time::{Duration, Instant};

use annex_test_support::{Reply, TestServer};

use super::{CAPABLE, NEIGHBOUR, TEST, log};

/// The commands to a hostile extension in one request.
pub(super) struct Attack {
    /// For people.
    pub(super) case: String,
    uri: &'static str,
    /// Metadata of the message: a key and JSON.
    told: Option<(&'static str, String)>,
    text: &'static str,
}

/// The outcome of an attack.
pub(super) struct Outcome {
    pub(super) reply: Reply,
    /// The text that the client may read: an error's message, a failed task's, or the answer.
    pub(super) seen: String,
    /// The log line of the fault. Empty without a fault.
    pub(super) logged: String,
    /// From the request to its answer.
    pub(super) took: Duration,
    /// Rounds of neighbours that were served in the meantime.
    pub(super) neighbours: usize,
}

impl Attack {
    /// An attack by the state hook, with the command `command`.
    pub(super) fn by_state(command: &str) -> Self {
        let told = Some(("test/command", format!("\"{command}\"")));
        Self { case: command.to_owned(), uri: TEST, told, text: "prompt" }
    }

    /// By the response hook, in an answer of several pieces.
    pub(super) fn by_response(command: &str) -> Self {
        let told = Some(("test/command", format!(r#"{{"respond":"{command}"}}"#)));
        Self { case: format!("{command}, on the way out"), uri: TEST, told, text: "slow" }
    }

    /// An attack by the extension with grants, with a command in JSON.
    pub(super) fn with_grants(command: &str) -> Self {
        let told = Some(("test/capability", format!("[{command}]")));
        Self { case: command.to_owned(), uri: CAPABLE, told, text: "prompt" }
    }

    /// By a component that is made by hand.
    pub(super) fn by_hand(case: &str, uri: &'static str) -> Self {
        Self { case: case.to_owned(), uri, told: None, text: "prompt" }
    }

    async fn send(&self, server: &TestServer) -> Reply {
        let request = server.say(self.text).extensions(self.uri);
        let request = match &self.told {
            Some((key, value)) => request.metadata(key, value),
            None => request,
        };
        request.send().await.expect("a reply")
    }

    /// Runs the attack. Meanwhile neighbours send requests one after another, and the server must answer each of them.
    pub(super) async fn run(&self, server: &TestServer) -> Outcome {
        let over = Cell::new(false);
        let attacking = async {
            let started = Instant::now();
            let reply = self.send(server).await;
            over.set(true);
            (reply, started.elapsed())
        };
        let neighbours = async {
            let mut served = 0;
            loop {
                greet(server, &self.case).await;
                served += 1;
                if over.get() {
                    break served;
                }
            }
        };
        let ((reply, took), neighbours) = tokio::join!(attacking, neighbours);
        greet(server, &self.case).await;
        let seen = seen(&reply);
        let logged = error_id(&seen).map(log::of_fault).unwrap_or_default();
        Outcome { reply, seen, logged, took, neighbours }
    }
}

/// A request to the neighbour, and a request without extensions.
pub(super) async fn greet(server: &TestServer, case: &str) {
    let greeted = server.say("prompt").extensions(NEIGHBOUR).send().await.expect("a reply");
    assert_eq!(greeted.extensions.as_deref(), Some(NEIGHBOUR), "during {case}: {}", greeted.text);
    assert_eq!(greeted.task()["artifacts"][0]["metadata"]["hello"], "Hello, world!", "during {case}");
    assert_eq!(server.say("prompt").send().await.expect("a reply").code(), 0, "during {case}");
}

fn seen(reply: &Reply) -> String {
    let failed = &reply.task()["status"]["message"]["parts"][0]["text"];
    let message = &reply.body["error"]["message"];
    message.as_str().or(failed.as_str()).unwrap_or(reply.answer()).to_owned()
}

/// The id by which the fault is found in the log.
fn error_id(text: &str) -> Option<&str> {
    const LENGTH: usize = 36;
    let (_, rest) = text.split_once("error id ")?;
    rest.get(..LENGTH)
}

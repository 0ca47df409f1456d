//! Checks of the answers. Without these checks, an error or a lost state would be cheap to serve and would look like
//! speed.

use std::borrow::Cow;
use std::collections::HashMap;

use annex_test_support::STATE_KEY;
use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::http1;
use crate::request::TEXT;

/// The answer of an agent that knows its user from the injected state.
pub(crate) const KNOWN: &str = "You are Ada Lovelace and your email is ada@example.com.";
/// The answer of an agent that does not know its user.
const UNKNOWN: &str = "I can tell you who you are and what your email is.";

/// The expected answer to each request of a round.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedAnswer {
    /// A completed task.
    Completed,
    /// The text of the request.
    Echo,
    /// The text of the request, and the URIs of the extensions in the response header.
    EchoAndHeader,
    /// The answer of an agent without injected state.
    Unknown,
    /// The answer of an agent that knows its user, and the state after the turn, which contains that answer.
    AnswerState,
    /// Like `AnswerState`, with the URI of the extension in the response header.
    StateAndHeader,
}

impl ExpectedAnswer {
    /// Checks a whole HTTP/1.1 response to a request that activates `extensions`.
    pub(crate) fn check(self, answer: &[u8], extensions: &str) -> anyhow::Result<()> {
        let checked = match self {
            Self::Completed => http1::ensure_completed(answer),
            Self::Echo => text(answer, TEXT),
            Self::EchoAndHeader => text(answer, TEXT).and_then(|()| header(answer, extensions)),
            Self::Unknown => text(answer, UNKNOWN),
            Self::AnswerState => state(answer),
            Self::StateAndHeader => state(answer).and_then(|()| header(answer, extensions)),
        };
        checked.with_context(|| String::from_utf8_lossy(answer).into_owned())
    }
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    result: Outcome<'a>,
}

#[derive(Deserialize)]
struct Outcome<'a> {
    #[serde(borrow)]
    task: Task<'a>,
}

#[derive(Deserialize)]
struct Task<'a> {
    #[serde(borrow)]
    status: Status<'a>,
    #[serde(borrow)]
    artifacts: [Artifact<'a>; 1],
}

#[derive(Deserialize)]
struct Status<'a> {
    state: &'a str,
}

#[derive(Deserialize)]
struct Artifact<'a> {
    #[serde(borrow)]
    parts: [Part<'a>; 1],
    #[serde(borrow, default)]
    metadata: HashMap<Cow<'a, str>, AnswerState<'a>>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[derive(Deserialize)]
struct AnswerState<'a> {
    #[serde(borrow)]
    user_info: UserInfo<'a>,
    #[serde(borrow)]
    notes: Cow<'a, str>,
    #[serde(borrow)]
    last_answer: Cow<'a, str>,
}

#[derive(Deserialize, PartialEq)]
struct UserInfo<'a> {
    name: &'a str,
    role: &'a str,
    email: &'a str,
}

const USER: UserInfo<'static> = UserInfo { name: "Ada Lovelace", role: "Engineer", email: "ada@example.com" };

fn body(answer: &[u8]) -> anyhow::Result<&[u8]> {
    let head = http1::head(answer).context("a head")?;
    answer.get(head + 4..).context("a body")
}

/// The only artifact of a completed task. Fails if its text is not `expected`.
fn artifact<'a>(answer: &'a [u8], expected: &str) -> anyhow::Result<Artifact<'a>> {
    let answer: Answer<'a> = serde_json::from_slice(body(answer)?)?;
    let Task { status, artifacts: [artifact] } = answer.result.task;
    ensure!(status.state == "TASK_STATE_COMPLETED", "the task is not completed");
    let [Part { text }] = &artifact.parts;
    ensure!(text == expected, "another text than {expected:?}");
    Ok(artifact)
}

fn text(answer: &[u8], expected: &str) -> anyhow::Result<()> {
    artifact(answer, expected).map(drop)
}

fn state(answer: &[u8]) -> anyhow::Result<()> {
    let artifact = artifact(answer, KNOWN)?;
    let state = artifact.metadata.get(STATE_KEY).context("no state comes back")?;
    ensure!(state.user_info == USER, "another user");
    ensure!(state.last_answer == KNOWN, "the state is not that after the turn");
    ensure!(state.notes.bytes().all(|byte| byte == b'x'), "other notes");
    Ok(())
}

fn header(answer: &[u8], extensions: &str) -> anyhow::Result<()> {
    let named = http1::header(answer, "a2a-extensions")?;
    ensure!(named.unwrap_or_default() == extensions, "the header names {named:?} and not {extensions:?}");
    Ok(())
}

//! The file of a case.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use annex_files::Purpose;
use annex_runtime::{LoadError, Presence};
use serde::Deserialize;
use toml::{Table, Value};

use super::outcome;

/// The largest file, in bytes.
const MAX_BYTES: usize = 4 << 20;
/// The head of the table with the expected outcome. This table is the last one of the file, so that `--update` can
/// replace it.
const EXPECT: &str = "[expect]";

/// The reason why a case cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The file cannot be read or written.
    #[error("{}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of reading or writing the file.
        #[source]
        source: io::Error,
    },
    /// The file contains an invalid value.
    #[error("{0}")]
    Case(String),
    /// The settings or parameters cannot be used.
    #[error("the settings: {0}")]
    Settings(String),
    /// The component does not load.
    #[error("the component does not load")]
    Load(#[from] LoadError),
    /// The runtime does not start.
    #[error("the runtime does not start")]
    Runtime(#[source] annex_runtime::RuntimeError),
    /// The file has no expected outcome.
    #[error("nothing is expected; `annex test --update` writes the actual results")]
    NothingExpected,
}

impl CaseError {
    pub(super) fn wrong(key: &str, reason: impl std::fmt::Display) -> Self {
        Self::Case(format!("given.{key}: {reason}"))
    }
}

/// The content of a case's TOML file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseFile {
    #[serde(default)]
    pub(super) given: CaseInputs,
    pub(super) expect: Option<Table>,
    /// The text of the file before the expected outcome.
    #[serde(skip)]
    head: String,
}

/// The inputs of a case. All fields are optional.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CaseInputs {
    /// The only hook that runs. Without it the whole turn runs.
    pub(super) hook: Option<String>,
    /// The text of the message, or a Message object.
    pub(super) message: Option<Value>,
    /// The A2A operation. Default: SendMessage.
    pub(super) operation: Option<String>,
    /// The `metadata` of the request.
    pub(super) metadata: Table,
    /// The URIs of the extensions that the client requests. Default: the URI of the extension under test.
    pub(super) requested: Option<Vec<String>>,
    /// Parameters of this case. Each replaces the parameter with the same key in the settings.
    pub(super) parameters: Table,
    /// The values of secrets that the settings name. A secret without a value here gets a placeholder.
    pub(super) secrets: BTreeMap<String, String>,
    /// The state of the session when the turn begins.
    pub(super) session: Table,
    /// The keys that the extension has set earlier, by bucket: `lasting`, `context` and `task`.
    pub(super) keys: BTreeMap<String, BTreeMap<String, String>>,
    /// The time, or a list of times that the extension reads one after the other. Default: 2026-01-01T00:00:00Z.
    pub(super) clock: Option<Value>,
    /// The seed for random numbers, or the random bytes in hexadecimal. Default: the seed 0.
    pub(super) random: Option<Value>,
    /// Responses to the extension's HTTP requests.
    pub(super) http: Vec<HttpGiven>,
    /// The caller's tasks, in the form of ListTasks. The hook `reads` is shown these tasks.
    pub(super) tasks: Vec<Table>,
    /// The entry on the extended card, for the hook `extended-card`. Default: the entry that the extension declares.
    pub(super) entry: EntryGiven,
    /// The steps that the agent took in this turn.
    pub(super) steps: Vec<Table>,
    /// The caller. Default: an anonymous one.
    pub(super) caller: CallerGiven,
    /// The state in which the task waited for its client. Absent if the message begins a new task.
    pub(super) waits_in: Option<String>,
    /// The call of the model before the calls of tools, for the hook `steering`. Default: see [`ModelGiven`].
    pub(super) model: Option<ModelGiven>,
    /// The calls of tools that the model asks for, for the hook `steering`.
    pub(super) calls: Vec<CallGiven>,
    /// The agent's answer, event by event. Default: an artifact, and then the completed task.
    pub(super) answer: Option<Vec<AnswerGiven>>,
    /// A method to call instead of sending a message.
    pub(super) method: Option<MethodGiven>,
    /// A client's call instead of a turn. It runs the hook `client`.
    pub(super) client: Option<ClientGiven>,
}

/// A response to an HTTP request of the extension.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpGiven {
    /// Method and URL: `GET https://api.example.com/users`.
    pub(super) request: String,
    #[serde(default = "ok")]
    pub(super) status: u16,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) body: String,
}

fn ok() -> u16 {
    200
}

/// The caller with everything that a grant may show.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CallerGiven {
    /// Default: authenticated if there is a principal or a claim, otherwise anonymous.
    pub(super) presence: Option<Presence>,
    pub(super) principal: Option<String>,
    pub(super) claims: Table,
    /// Header fields of the request, each with a text or a list of texts.
    pub(super) headers: Table,
}

/// An entry of the extended card. A missing field is as the extension declares it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EntryGiven {
    pub(super) description: Option<String>,
    pub(super) params: Option<Table>,
}

/// A call of the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ModelGiven {
    /// The number of rounds of tools before the call.
    pub(super) round: u32,
    pub(super) name: String,
    /// The models that can be called instead.
    pub(super) lent: Vec<String>,
    pub(super) instruction: Vec<String>,
    pub(super) parameters: Table,
    pub(super) tools: Vec<String>,
}

impl Default for ModelGiven {
    fn default() -> Self {
        let name = "default".to_owned();
        Self {
            round: 0,
            lent: vec![name.clone()],
            name,
            instruction: Vec::new(),
            parameters: Table::new(),
            tools: Vec::new(),
        }
    }
}

/// A call of a tool, with the result that it has if it is made.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallGiven {
    pub(super) tool: String,
    /// The name of the server that offers the tool. Default: `tools`.
    pub(super) origin: Option<String>,
    #[serde(default)]
    pub(super) arguments: Table,
    /// Default: an empty object.
    pub(super) result: Option<Value>,
    /// True if the tool reports an error.
    #[serde(default)]
    pub(super) failed: bool,
    /// True if the extension has made the call wait before.
    #[serde(default)]
    pub(super) has_waited: bool,
}

/// One event of the agent: an artifact, a state with or without a message, a message as the whole answer, or any other
/// event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AnswerGiven {
    /// The text of an artifact.
    pub(super) artifact: Option<String>,
    /// The task's new state, such as `completed`.
    pub(super) state: Option<String>,
    /// The text of a message.
    pub(super) message: Option<String>,
    /// Any StreamResponse.
    pub(super) event: Option<Value>,
}

/// A call of a method.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MethodGiven {
    pub(super) name: String,
    /// A table, or a string with JSON. Default: empty.
    pub(super) params: Option<Value>,
}

/// A call of a client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ClientGiven {
    /// The URL of the agent's card.
    pub(super) agent: String,
    /// True if the agent declares the extension.
    pub(super) declared: bool,
    /// The input that the calling program gives to the client's side of the extension.
    pub(super) input: Option<Value>,
    /// The agent's answer, as StreamResponses.
    pub(super) events: Vec<Table>,
}

impl Default for ClientGiven {
    fn default() -> Self {
        Self { agent: "https://agent.example".to_owned(), declared: true, input: None, events: Vec::new() }
    }
}

impl CaseFile {
    pub(super) fn read(path: &Path) -> Result<Self, CaseError> {
        let text = annex_files::read_text(path, Purpose::Named, MAX_BYTES);
        let text = text.map_err(|source| CaseError::File { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    pub(super) fn parse(text: &str) -> Result<Self, CaseError> {
        let mut case: Self =
            toml::from_str(text).map_err(|error| CaseError::Case(error.to_string().trim_end().to_owned()))?;
        let begins_expectation = |line: &str| line.trim() == EXPECT || line.trim().starts_with("[expect.");
        let head = text.split_inclusive('\n').take_while(|line| !begins_expectation(line));
        case.head = head.collect();
        if text.split_inclusive('\n').skip(case.head.split_inclusive('\n').count()).any(is_of_given) {
            return Err(CaseError::Case(format!("{EXPECT} comes last in the file, so that it can be written anew")));
        }
        Ok(case)
    }

    /// Replaces the file. The inputs stay, and `expect` becomes the expected outcome.
    pub(super) fn write(&self, path: &Path, expect: &Table) -> Result<(), CaseError> {
        let text = self.text(expect)?;
        let written = annex_files::replace(path, text.as_bytes(), 0o644);
        written.map_err(|source| CaseError::File { path: path.to_owned(), source })
    }

    /// The text of the file with `expect` as the expected outcome. Fails if reading this text again would give another
    /// case.
    pub(super) fn text(&self, expect: &Table) -> Result<String, CaseError> {
        let head = self.head.trim_end();
        let gap = if head.is_empty() { "" } else { "\n\n" };
        let text = format!("{head}{gap}{}", outcome::text(expect));
        // An extension's own words are in it, and may look like the lines of a case.
        if Self::parse(&text).ok().and_then(|case| case.expect).as_ref() != Some(expect) {
            let reason =
                "what came out has lines that look like those of a case, so it cannot be written into the file";
            return Err(CaseError::Case(reason.to_owned()));
        }
        Ok(text)
    }
}

fn is_of_given(line: &str) -> bool {
    let line = line.trim();
    line == "[given]" || line.starts_with("[given.") || line.starts_with("[[given.")
}

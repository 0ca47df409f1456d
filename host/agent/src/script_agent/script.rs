//! The script of a script agent: events for each message, checked on reading, so that every script can be played.

use std::cmp::Reverse;

use annex_protocol::{Json, Part, PartContent, TaskState};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// The rules of a script agent. If several rules match a message, the rule with the longest `message_id` applies. If several of
/// these have equally long ids, the rule with the longest `text` applies.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Vec<EventRule>")]
pub struct EventScript {
    /// The rules, sorted so that the longest conditions come first.
    rules: Vec<EventRule>,
}

/// A condition on messages, and the steps of the agent for a message that meets the condition.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RuleTable")]
struct EventRule {
    message_id: String,
    text: String,
    steps: Vec<Step>,
}

/// A rule in the config file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleTable {
    /// The beginning of the message's id. Default: any id.
    #[serde(default)]
    message_id: String,
    /// The beginning of the message's text. Default: any text.
    #[serde(default)]
    text: String,
    /// The steps, in their order.
    steps: Vec<Step>,
}

/// One step of the agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// Changes the task's state.
    Status(StatusStep),
    /// Sends an artifact or a piece of an artifact.
    Artifact(ArtifactStep),
    /// Answers with a message instead of a task.
    Message(MessageStep),
    /// Waits this number of milliseconds.
    WaitMs(u64),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusStep {
    pub(crate) state: StepState,
    /// The agent's message about the state. Default: none.
    pub(crate) text: Option<String>,
}

/// States that an agent can set. `submitted` is reserved for the server.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StepState {
    Working,
    InputRequired,
    AuthRequired,
    Completed,
    Failed,
    Rejected,
    Canceled,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArtifactStep {
    /// The id of the artifact. All pieces of one artifact have the same id.
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) parts: Vec<StepPart>,
    /// True if the parts are appended to the pieces that were sent before. Default: false.
    #[serde(default)]
    pub(crate) append: bool,
    /// True if no more pieces of the artifact follow. Default: false.
    #[serde(default)]
    pub(crate) last_chunk: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageStep {
    pub(crate) parts: Vec<StepPart>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "PartTable")]
pub(crate) struct StepPart(Part);

/// A part in the config file: exactly one of the first four fields is set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartTable {
    text: Option<String>,
    /// The bytes of a file in base64.
    raw: Option<String>,
    url: Option<String>,
    /// Data as JSON text.
    data: Option<String>,
    #[serde(default)]
    filename: String,
    #[serde(default)]
    media_type: String,
}

/// The reason why a script cannot be played. Steps are counted from 1.
#[derive(Debug, thiserror::Error)]
enum EventScriptError {
    #[error("two rules have the same message_id {message_id:?} and text {text:?}; remove one")]
    Ambiguous { message_id: String, text: String },
    #[error("step {step} can never happen: the turn ends with the step before it")]
    AfterTheEnd { step: usize },
    #[error("step {step}: a message can only be sent before any status and artifact, because it stands for the task")]
    LateMessage { step: usize },
    #[error("step {step}: at least one part is needed")]
    NoParts { step: usize },
    #[error("a part has exactly one of `text`, `raw`, `url` and `data`")]
    Content,
    #[error("`raw` is not base64 with padding")]
    Base64,
    #[error("`data` is not the text of a JSON value: {reason}")]
    Json { reason: String },
}

impl EventScript {
    /// The number of rules.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// The number of steps of the rule with the most steps.
    pub fn longest_rule(&self) -> usize {
        self.rules.iter().map(|rule| rule.steps.len()).max().unwrap_or(0)
    }

    /// The steps of the first rule that matches a message with this id and text. `None` if no rule matches.
    pub(crate) fn steps_for(&self, id: &str, text: &str) -> Option<&[Step]> {
        let applies = |rule: &&EventRule| id.starts_with(&rule.message_id) && text.starts_with(&rule.text);
        self.rules.iter().find(applies).map(|rule| rule.steps.as_slice())
    }
}

impl TryFrom<Vec<EventRule>> for EventScript {
    type Error = EventScriptError;

    fn try_from(mut rules: Vec<EventRule>) -> Result<Self, EventScriptError> {
        // Once they are sorted, two rules for the same messages are neighbours.
        rules.sort_by_cached_key(|rule| {
            let lengths = Reverse((rule.message_id.len(), rule.text.len()));
            (lengths, rule.message_id.clone(), rule.text.clone())
        });
        let same = rules.iter().zip(rules.iter().skip(1)).find(|(one, other)| one.is_for_the_same_as(other));
        match same {
            Some((EventRule { message_id, text, .. }, _)) => {
                Err(EventScriptError::Ambiguous { message_id: message_id.clone(), text: text.clone() })
            }
            None => Ok(Self { rules }),
        }
    }
}

impl EventRule {
    fn is_for_the_same_as(&self, other: &Self) -> bool {
        (&self.message_id, &self.text) == (&other.message_id, &other.text)
    }
}

impl TryFrom<RuleTable> for EventRule {
    type Error = EventScriptError;

    fn try_from(table: RuleTable) -> Result<Self, EventScriptError> {
        let mut has_task = false;
        let mut is_over = false;
        for (step, number) in table.steps.iter().zip(1..) {
            if is_over {
                return Err(EventScriptError::AfterTheEnd { step: number });
            }
            if step.parts().is_some_and(<[StepPart]>::is_empty) {
                return Err(EventScriptError::NoParts { step: number });
            }
            if has_task && matches!(step, Step::Message(_)) {
                return Err(EventScriptError::LateMessage { step: number });
            }
            has_task |= matches!(step, Step::Status(_) | Step::Artifact(_));
            is_over = step.ends_the_turn();
        }
        Ok(Self { message_id: table.message_id, text: table.text, steps: table.steps })
    }
}

impl Step {
    /// Tells whether the turn ends with this step.
    fn ends_the_turn(&self) -> bool {
        match self {
            Self::Message(_) => true,
            Self::Status(status) => {
                let state = TaskState::from(status.state);
                state.is_terminal() || state.is_interrupted()
            }
            Self::Artifact(_) | Self::WaitMs(_) => false,
        }
    }

    fn parts(&self) -> Option<&[StepPart]> {
        match self {
            Self::Message(MessageStep { parts }) | Self::Artifact(ArtifactStep { parts, .. }) => Some(parts),
            Self::Status(_) | Self::WaitMs(_) => None,
        }
    }
}

impl TryFrom<PartTable> for StepPart {
    type Error = EventScriptError;

    fn try_from(table: PartTable) -> Result<Self, EventScriptError> {
        if let Some(raw) = &table.raw {
            STANDARD.decode(raw).map_err(|_| EventScriptError::Base64)?;
        }
        let data = table.data.map(Json::parse).transpose();
        let data = data.map_err(|error| EventScriptError::Json { reason: error.to_string() })?;
        let contents = [
            table.text.map(PartContent::Text),
            table.raw.map(PartContent::Raw),
            table.url.map(PartContent::Url),
            data.map(PartContent::Data),
        ];
        let mut contents = contents.into_iter().flatten();
        let (Some(content), None) = (contents.next(), contents.next()) else { return Err(EventScriptError::Content) };
        Ok(Self(Part { filename: table.filename, media_type: table.media_type, ..content.into() }))
    }
}

/// Converts the parts of a step to A2A's form.
pub(crate) fn parts(parts: &[StepPart]) -> Vec<Part> {
    parts.iter().map(|part| part.0.clone()).collect()
}

impl From<StepState> for TaskState {
    fn from(state: StepState) -> Self {
        match state {
            StepState::Working => Self::Working,
            StepState::InputRequired => Self::InputRequired,
            StepState::AuthRequired => Self::AuthRequired,
            StepState::Completed => Self::Completed,
            StepState::Failed => Self::Failed,
            StepState::Rejected => Self::Rejected,
            StepState::Canceled => Self::Canceled,
        }
    }
}

//! The hook `reply`: the answer of an extension in place of the agent.

use annex_protocol::{ExtensionUri, Metadata, Part, TaskState};

use crate::chain::{outgoing, rewriting};
use crate::contract::ReplyAnswer;
use crate::load::descriptor::Descriptor;

/// Maximum length of the name of an artifact, in bytes.
const MAX_ARTIFACT_NAME: usize = 256;

/// An answer of an extension in place of the agent.
#[derive(Clone, Debug)]
pub struct ReadyAnswer {
    /// The extension that answers.
    pub by: ExtensionUri,
    /// The state of the task after the answer: final or interrupted.
    pub state: TaskState,
    /// The parts of the answer, at least one.
    pub parts: Vec<Part>,
    /// The name of the artifact that consists of the parts. `None` if the parts are the message of the status.
    pub artifact: Option<String>,
    /// Metadata of the artifact or the message.
    pub metadata: Metadata,
}

impl ReadyAnswer {
    /// Checks the answer of an extension.
    ///
    /// # Errors
    /// The answer has no part, an unreadable part, an artifact that is misnamed or belongs to a waiting task, or metadata
    /// of others.
    pub(crate) fn checked(answer: ReplyAnswer, descriptor: &Descriptor) -> Result<Self, String> {
        let ReplyAnswer { state, parts, artifact, metadata } = answer;
        let place = match &artifact {
            Some(name) => {
                check_name(name)?;
                if state.is_interrupted() {
                    return Err(format!("it answers with an artifact although the task waits in {state}"));
                }
                "artifact"
            }
            None => "status.message",
        };
        Ok(Self {
            by: descriptor.uri.clone(),
            state,
            parts: rewriting::new_parts(&parts, &descriptor.metadata_keys)?,
            artifact,
            metadata: outgoing::checked_entries(place, descriptor, metadata, None)?.into_iter().collect(),
        })
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_ARTIFACT_NAME {
        return Err(format!("the name of its artifact has {} bytes; 1 to {MAX_ARTIFACT_NAME} are allowed", name.len()));
    }
    if name.contains(char::is_control) {
        return Err("the name of its artifact has a control character".to_owned());
    }
    Ok(())
}

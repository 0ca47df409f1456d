//! Runs the output hooks on a refusal by the agent, which is an error and no event.

use annex_agent::readable;
use annex_protocol::{A2aError, StreamResponse, TaskState};

use super::Turn;

/// The text of a refusal whose own text an extension has removed.
const NO_REASON: &str = "an extension has removed the reason";

impl Turn {
    /// The refusal as the extensions leave it. They get its text as that of a task that the agent rejects.
    pub(super) async fn revised_refusal(&mut self, refusal: A2aError) -> A2aError {
        let Some(text) = text_of(&refusal).filter(|_| self.chain.revises_output()) else { return refusal };
        let update = self.status_update(TaskState::Rejected, Some(self.message(text.clone())));
        let left = match self.output(StreamResponse::StatusUpdate(update)).await {
            Ok(Some(StreamResponse::StatusUpdate(update))) => update.status.message,
            Ok(_) => None,
            Err(error) => return error,
        };
        let left = left.map(|message| readable(message.parts.as_slice())).unwrap_or_default();
        if left == text { refusal } else { with_text(&refusal, left) }
    }
}

/// The text in a refusal that may be the agent's own. `None` for errors whose text is always of this server.
fn text_of(refusal: &A2aError) -> Option<String> {
    match refusal {
        A2aError::InvalidParams { violations } => {
            let texts = violations.iter().map(ToString::to_string);
            Some(texts.collect::<Vec<_>>().join("; "))
        }
        A2aError::UnsupportedOperation { reason } => Some(reason.clone()),
        A2aError::ContentTypeNotSupported { content_type } => Some(content_type.clone()),
        _ => None,
    }
}

/// The refusal with another text.
fn with_text(refusal: &A2aError, text: String) -> A2aError {
    let text = if text.is_empty() { NO_REASON.to_owned() } else { text };
    match refusal {
        A2aError::InvalidParams { .. } => A2aError::invalid_params(text),
        A2aError::ContentTypeNotSupported { .. } => A2aError::ContentTypeNotSupported { content_type: text },
        _ => A2aError::UnsupportedOperation { reason: text },
    }
}

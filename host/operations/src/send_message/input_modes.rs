//! Which media types messages may have (A2A 1.0 section 4.4.1, `defaultInputModes`).

use annex_protocol::{A2aError, Message, Part, PartContent};

/// The media types that the agent takes.
#[derive(Clone, Debug)]
pub struct InputModes(Vec<String>);

impl InputModes {
    pub fn new(modes: &[String]) -> Self {
        Self(modes.iter().map(|mode| mode.to_ascii_lowercase()).collect())
    }

    /// # Errors
    /// [`A2aError::ContentTypeNotSupported`] for the first part that the agent does not take.
    pub(crate) fn check(&self, message: &Message) -> Result<(), A2aError> {
        let types = message.parts.iter().filter_map(media_type);
        match types.into_iter().find(|media_type| !self.take(media_type)) {
            Some(refused) => Err(A2aError::ContentTypeNotSupported { content_type: refused.to_owned() }),
            None => Ok(()),
        }
    }

    fn take(&self, media_type: &str) -> bool {
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        self.0.iter().any(|mode| match mode.strip_suffix('*') {
            Some("*/") => true,
            Some(kind) => essence.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)),
            None => essence.eq_ignore_ascii_case(mode),
        })
    }
}

/// The media type that the part names, or that follows from its kind. None follows for files.
fn media_type(part: &Part) -> Option<&str> {
    let implied = match &part.content {
        PartContent::Text(_) => Some("text/plain"),
        PartContent::Data(_) => Some("application/json"),
        PartContent::Raw(_) | PartContent::Url(_) => None,
    };
    Some(part.media_type.as_str()).filter(|named| !named.is_empty()).or(implied)
}

#[cfg(test)]
mod tests {
    use annex_protocol::{Message, Part};

    use super::InputModes;

    fn takes(modes: &[&str], media_type: &str) -> bool {
        let modes: Vec<String> = modes.iter().map(|mode| (*mode).to_owned()).collect();
        let mut part = Part::text("x");
        media_type.clone_into(&mut part.media_type);
        let message = Message { parts: vec![part].into(), ..Message::default() };
        InputModes::new(&modes).check(&message).is_ok()
    }

    #[test]
    fn types_match_without_case_and_parameters_and_by_wildcard() {
        assert!(takes(&["text/plain"], ""));
        assert!(takes(&["Text/Plain"], "text/PLAIN; charset=utf-8"));
        assert!(takes(&["image/*", "text/*"], "text/markdown"));
        assert!(takes(&["*/*"], "application/x-anything"));
        assert!(!takes(&["text/plain"], "text/markdown"));
        assert!(!takes(&["text/*"], "textual/x"));
        assert!(!takes(&["application/json"], ""));
    }
}

//! The media types that messages may have (A2A 1.0 section 4.4.1, `defaultInputModes`).

use annex_protocol::{A2aError, Message, Part, PartContent};

/// The accepted media types.
#[derive(Clone, Debug)]
pub struct InputModes(Vec<String>);

impl InputModes {
    pub fn new(modes: &[String]) -> Self {
        Self(modes.iter().map(|mode| mode.to_ascii_lowercase()).collect())
    }

    /// Checks that the agent accepts all parts.
    ///
    /// # Errors
    /// [`A2aError::ContentTypeNotSupported`] for the first part that the agent does not accept.
    pub(crate) fn check(&self, message: &Message) -> Result<(), A2aError> {
        match message.parts.iter().find(|part| !self.take_part(part)).and_then(media_type) {
            Some(refused) => Err(A2aError::ContentTypeNotSupported { content_type: refused.to_owned() }),
            None => Ok(()),
        }
    }

    /// True if the agent accepts the part. A data part with a type that ends in `+json` is JSON (RFC 6839 section 3.1),
    /// so an agent that accepts JSON accepts such a part. A2UI 0.8 writes the two words the other way round:
    /// `application/json+a2ui`.
    fn take_part(&self, part: &Part) -> bool {
        let Some(named) = media_type(part) else { return true };
        self.take(named)
            || matches!(part.content, PartContent::Data(_)) && is_json_by_suffix(named) && self.take("application/json")
    }

    fn take(&self, media_type: &str) -> bool {
        let essence = essence(media_type);
        self.0.iter().any(|mode| match mode.strip_suffix('*') {
            Some("*/") => true,
            Some(kind) => essence.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)),
            None => essence.eq_ignore_ascii_case(mode),
        })
    }
}

/// The media type without its parameters.
fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

/// True for `application/…+json` and `application/json+…`.
fn is_json_by_suffix(media_type: &str) -> bool {
    let essence = essence(media_type).to_ascii_lowercase();
    let is_json = |subtype: &str| subtype.ends_with("+json") || subtype.starts_with("json+");
    essence.strip_prefix("application/").is_some_and(is_json)
}

/// The media type that the part names, or the default of its kind. Files have no default.
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
    use annex_protocol::{Json, Message, Part, PartContent};

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

    #[test]
    fn a_data_part_of_a_json_type_is_taken_where_json_is() {
        let takes = |modes: &[&str], media_type: &str, content: PartContent| {
            let modes: Vec<String> = modes.iter().map(|mode| (*mode).to_owned()).collect();
            let part = Part { content, media_type: media_type.to_owned(), ..Part::text("") };
            let message = Message { parts: vec![part].into(), ..Message::default() };
            InputModes::new(&modes).check(&message).is_ok()
        };
        let data = || PartContent::Data(Json::parse("[]".to_owned()).expect("JSON"));
        let json = ["text/plain", "application/json"];
        for named in [
            "",
            "application/json",
            "application/vnd.ag2.history+json",
            "Application/A2UI+JSON; v=1",
            "application/json+a2ui",
        ] {
            assert!(takes(&json, named, data()), "{named}");
            assert!(!takes(&["text/plain"], named, data()), "{named}");
        }
        for named in ["application/json-seq", "application/xml", "text/x+json", "+json"] {
            assert!(!takes(&json, named, data()), "{named}");
        }
        // Only data parts are JSON by construction.
        assert!(!takes(&json, "application/vnd.ag2.history+json", PartContent::Text("[]".to_owned())));
        assert!(!takes(&json, "application/vnd.ag2.history+json", PartContent::Raw("W10=".to_owned())));
    }
}

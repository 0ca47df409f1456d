//! Redaction of recordings and examples: hides secrets, and the values of keys in `sessions.hide`.

use std::sync::Arc;

use annex_protocol::Json;
use annex_runtime::{Extension, Hide};

use crate::redaction::Redaction;

/// Redacts the secrets of extensions, and the values of the keys in `sessions.hide`.
pub(crate) struct RecordingRedactor {
    pub(crate) redaction: Redaction,
    pub(crate) extensions: Vec<Arc<Extension>>,
}

impl Hide for RecordingRedactor {
    fn hides(&self, key: &str) -> bool {
        self.redaction.hides(key)
    }

    fn text(&self, text: &str) -> String {
        self.extensions.iter().fold(text.to_owned(), |text, extension| extension.without_secrets(&text))
    }

    fn json(&self, value: &Json) -> Json {
        self.redaction.json_and_texts(value, &|text| self.text(text))
    }
}

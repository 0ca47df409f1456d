//! Hides in recordings and examples what operators must not see: secrets, and the values that `sessions.hide` names.

use std::sync::Arc;

use annex_protocol::Json;
use annex_runtime::{Extension, Hide};

use crate::redaction::Redaction;

/// Hides the secrets of these extensions and the values of these keys.
pub(crate) struct Hiding {
    pub(crate) redaction: Redaction,
    pub(crate) extensions: Vec<Arc<Extension>>,
}

impl Hide for Hiding {
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

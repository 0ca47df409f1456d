//! Remarks about a project that several commands make.

use annex_authoring::EXAMPLE_URI;

use crate::output;

/// Advice for a component that still has an example URI.
pub(crate) fn example_uri(uri: &str) -> String {
    format!("the URI {} is an example: give the extension one of your own before others use it", annex_text::line(uri))
}

/// Prints [`example_uri`] if the URI is an example.
pub(crate) fn on_uri(uri: &str) {
    if uri.starts_with(EXAMPLE_URI) {
        output::note(&example_uri(uri));
    }
}

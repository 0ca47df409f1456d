//! Remarks about a project that more than one command prints.

use annex_authoring::EXAMPLE_URI;

use crate::output;

/// The remark that the URI of a component is still the example URI of `annex new`.
pub(crate) fn example_uri(uri: &str) -> String {
    format!("the URI {} is an example: give the extension one of your own before others use it", annex_text::line(uri))
}

/// Prints [`example_uri`] if the URI is an example.
pub(crate) fn on_uri(uri: &str) {
    if uri.starts_with(EXAMPLE_URI) {
        output::note(&example_uri(uri));
    }
}

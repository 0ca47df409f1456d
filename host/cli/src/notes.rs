//! Remarks about a project that several commands make.

use annex_authoring::EXAMPLE_URI;

use crate::output;

/// What to do about a URI that is nobody's.
pub(crate) fn example_uri(uri: &str) -> String {
    format!("the URI {} is an example: give the extension one of your own before others use it", annex_text::line(uri))
}

/// Says so where a component still has such a URI.
pub(crate) fn on_uri(uri: &str) {
    if uri.starts_with(EXAMPLE_URI) {
        output::note(&example_uri(uri));
    }
}

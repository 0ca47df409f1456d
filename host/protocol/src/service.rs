//! Service parameters, which travel in HTTP headers and gRPC metadata (specification section 3.2.6).

use indexmap::IndexSet;

use crate::ExtensionUri;
use crate::error::comma_separated;

/// The version of A2A that this crate describes; only Major.Minor is negotiated.
pub const VERSION: &str = "1.0";

/// Tells whether a version from a peer has this Major.Minor. The patch number is ignored (section 3.6).
///
/// ```
/// use annex_protocol::service::is_version;
///
/// assert!(is_version("1.0", "1.0") && is_version("1.0.1", "1.0"));
/// assert!(!is_version("1.0.", "1.0") && !is_version("1.00", "1.0") && !is_version("1.0.1.2", "1.0"));
/// ```
pub fn is_version(sent: &str, version: &str) -> bool {
    let Some(rest) = sent.strip_prefix(version) else { return false };
    let patch = rest.strip_prefix('.').filter(|patch| !patch.is_empty());
    rest.is_empty() || patch.is_some_and(|patch| patch.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The header with the protocol version of a request.
pub const A2A_VERSION: &str = "a2a-version";

/// The header that lists extensions: in a request those that the client requests, and in a response those that were
/// active.
pub const A2A_EXTENSIONS: &str = "a2a-extensions";

/// The number of URIs that are compared one by one. Further URIs are looked up by hash.
const FEW: usize = 8;

/// The extensions in all [`A2A_EXTENSIONS`] values of one request. Each extension occurs once, in the order of the first
/// mentions.
///
/// ```
/// use annex_protocol::service::parse_extensions;
///
/// let extensions = parse_extensions(["urn:b, urn:a", "urn:b,"].into_iter());
/// assert_eq!(extensions, ["urn:b".into(), "urn:a".into()]);
/// ```
pub fn parse_extensions<'a>(values: impl Iterator<Item = &'a str>) -> Vec<ExtensionUri> {
    // Clients send one field with commas or several fields, with and without spaces; an empty entry names nothing.
    let uris = values.flat_map(|value| value.split(',')).map(str::trim).filter(|uri| !uri.is_empty());
    let mut unique: Vec<ExtensionUri> = Vec::new();
    // Beyond the first few, each URI is looked up by its hash: a header may contain thousands.
    let mut others: IndexSet<&str> = IndexSet::new();
    for uri in uris {
        // URIs are compared exactly: a URI whose host differs in case names another extension.
        if unique.iter().any(|known| known.as_str() == uri) {
            continue;
        }
        if unique.len() < FEW {
            unique.push(uri.into());
        } else {
            others.insert(uri);
        }
    }
    unique.extend(others.into_iter().map(ExtensionUri::from));
    unique
}

/// One [`A2A_EXTENSIONS`] value with all of `extensions`.
pub fn format_extensions<'a>(extensions: impl IntoIterator<Item = &'a ExtensionUri, IntoIter: Clone>) -> String {
    comma_separated(extensions)
}

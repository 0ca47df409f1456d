//! Error messages that depend on the client's request.

use crate::ExtensionUri;

/// The maximum number of unknown extensions that an error shows. If there are more, the error shows none.
const MAX_UNKNOWN: usize = 3;
/// The maximum length of an unknown URI that an error shows, in bytes.
const MAX_URI: usize = 200;
/// The maximum number of bytes in which a misspelt URI may differ from the required one.
const MAX_SLIP: usize = 3;

/// The error message for an unsupported version. A request that names no version is a request of 0.3 (specification
/// section 3.6.2).
pub(crate) fn version(requested: &str, supported: &[&str]) -> String {
    if requested.is_empty() {
        let versions = supported.join("` or `");
        return format!("no A2A version was sent, which stands for 0.3; send the header `A2A-Version: {versions}`");
    }
    format!(
        "A2A version `{requested}` is not supported; set the A2A-Version header to one of: {}",
        supported.join(", ")
    )
}

/// The error message for a wrong content type. Programs such as curl send forms by default.
pub(crate) fn body_type(content_type: &str) -> String {
    let sent = if content_type.is_empty() {
        "the request has a body and no content type".to_owned()
    } else {
        format!("the body has the content type {content_type}, and only JSON is accepted")
    };
    format!("{sent}; send the header `Content-Type: application/json` (with curl: -H 'content-type: application/json')")
}

/// The suffix of the error message that reports missing required extensions. It shows extensions that the client
/// requested and that this server does not know, because they are probably misspelt required ones. Empty if there are
/// none.
pub(crate) fn unknown_extensions(missing: &[ExtensionUri], unknown: &[ExtensionUri]) -> String {
    let one = |uri: &ExtensionUri| {
        let uri = uri.as_str();
        let meant = missing.iter().find(|missing| is_near(uri, missing.as_str()));
        let shown = uri.get(..uri.floor_char_boundary(MAX_URI)).unwrap_or(uri);
        match meant {
            Some(meant) => format!("; {shown} is not known here, did you mean {meant}?"),
            None => format!("; {shown} is not known here"),
        }
    };
    unknown.iter().take(MAX_UNKNOWN).map(one).collect()
}

/// True if the texts are equal except for a few adjacent bytes, or except for upper and lower case.
fn is_near(one: &str, other: &str) -> bool {
    let same = |(one, other): &(u8, u8)| one.eq_ignore_ascii_case(other);
    let begins = one.bytes().zip(other.bytes()).take_while(same).count();
    let shorter = one.len().min(other.len());
    let ends = one.bytes().rev().zip(other.bytes().rev()).take(shorter - begins).take_while(same).count();
    one.len().max(other.len()) - begins - ends <= MAX_SLIP
}

#[cfg(test)]
mod tests {
    use super::is_near;

    #[test]
    fn a_uri_is_near_one_from_which_it_differs_by_a_slip() {
        let uri = "https://example.com/state_injection/v1";
        let near = [
            "http://example.com/state_injection/v1",
            "https://example.com/state-injection/v1",
            "https://example.com/state_injection/v1/",
            "https://example.com/state_injection/v2",
            "https://example.com/stateinjection/v1",
            "https://example.com/State_Injection/V1",
            "https://example.com/state_injectoin/v1",
        ];
        for near in near {
            assert!(is_near(near, uri) && is_near(uri, near), "{near}");
        }
        for far in ["", "https://example.com/timestamp/v1", "https://example.com/state_injection/v1/more", "urn:x"] {
            assert!(!is_near(far, uri) && !is_near(uri, far), "{far}");
        }
    }
}

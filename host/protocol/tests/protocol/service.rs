//! Service parameters.

use annex_protocol::ExtensionUri;
use annex_protocol::service::{format_extensions, parse_extensions};

fn check(values: &[&str], expected: &[&str]) {
    let expected: Vec<ExtensionUri> = expected.iter().copied().map(ExtensionUri::from).collect();
    assert_eq!(parse_extensions(values.iter().copied()), expected, "{values:?}");
}

#[test]
fn extensions_are_the_union_of_all_headers_in_order() {
    check(&[], &[]);
    check(&["", " , ,"], &[]);
    check(&["urn:b,urn:a"], &["urn:b", "urn:a"]);
    check(&[" urn:b ,\turn:a", "urn:c,urn:b"], &["urn:b", "urn:a", "urn:c"]);
}

#[test]
fn extension_uris_are_compared_exactly() {
    check(&["https://e/V1,https://e/v1,https://e/v1/"], &["https://e/V1", "https://e/v1", "https://e/v1/"]);
}

#[test]
fn extensions_are_written_as_one_value() {
    assert_eq!(format_extensions(&["urn:b".into(), "urn:a".into()]), "urn:b,urn:a");
    assert_eq!(format_extensions(&[]), "");
}

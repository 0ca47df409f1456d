//! Files that are not extensions for this host.

use annex_runtime::{LoadError, MAX_COMPONENT_BYTES};

use crate::incidents::hand_made;
use crate::support::{chain_of, component, installation, refused};

/// An empty component: magic number, version and layer.
const EMPTY_COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
const EMPTY_CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// The test extension with every `from` replaced by `to`, which must have the same length.
fn patched(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = component(annex_components::TEST_EXTENSION);
    let mut found = 0;
    while let Some(at) = bytes.windows(from.len()).position(|window| window == from.as_bytes()) {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        found += 1;
    }
    assert!(found > 0, "{from} is not in the component");
    bytes
}

/// Numbers of a linear congruential generator: random enough and reproducible.
fn noise(length: usize) -> impl Iterator<Item = u8> {
    let step = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(Some(42), step).map(|state: u32| (state >> 24) as u8).take(length)
}

#[tokio::test]
async fn a_core_module_is_refused_with_advice() {
    let error = refused(EMPTY_CORE_MODULE.to_vec(), installation()).await;
    assert!(matches!(error, LoadError::NotAComponent { .. }), "{error:?}");
    assert!(error.to_string().contains("core module"), "{error}");
}

#[tokio::test]
async fn files_that_are_not_webassembly_are_refused() {
    let behind_a_header = EMPTY_COMPONENT.iter().copied().chain(noise(1000)).collect();
    for bytes in [Vec::new(), noise(1000).collect(), behind_a_header, b"\0asm".to_vec(), b"(component)".to_vec()] {
        let error = refused(bytes, installation()).await;
        assert!(matches!(error, LoadError::NotAComponent { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_truncated_component_is_refused_at_every_length() {
    let whole = component(annex_components::HELLO_EXTENSION);
    for kept in [7, 8, 9, 100, whole.len() / 4, whole.len() / 2, whole.len() * 3 / 4, whole.len() - 1] {
        let error = refused(whole[..kept].to_vec(), installation()).await;
        let expected = match kept {
            8 => matches!(error, LoadError::NoDescriptor),
            _ => matches!(error, LoadError::NotAComponent { .. }),
        };
        assert!(expected, "{kept} of {} bytes: {error:?}", whole.len());
    }
}

#[tokio::test]
async fn a_component_without_a_descriptor_is_no_extension() {
    let error = refused(EMPTY_COMPONENT.to_vec(), installation()).await;
    assert!(matches!(error, LoadError::NoDescriptor), "{error:?}");
    let error = refused(patched("annex:extension/", "other:extension/"), installation()).await;
    assert!(matches!(error, LoadError::NoDescriptor), "{error:?}");
}

#[tokio::test]
async fn a_file_beyond_the_size_limit_is_not_even_parsed() {
    let error = refused(vec![0; MAX_COMPONENT_BYTES + 1], installation()).await;
    assert!(matches!(error, LoadError::TooLarge { limit: MAX_COMPONENT_BYTES, .. }), "{error:?}");
}

#[tokio::test]
async fn an_unsupported_contract_version_is_named_with_the_supported_ones() {
    let error = refused(patched("extension/state@0.1.0", "extension/state@0.2.0"), installation()).await;
    let LoadError::Contract { found, supported } = error else { unreachable!("{error:?}") };
    assert_eq!((found.as_str(), supported), ("0.2.0", &["0.1.0"][..]));
}

#[tokio::test]
async fn a_hook_that_the_contract_does_not_have_is_refused() {
    let error = refused(patched("extension/state@0.1.0", "extension/stale@0.1.0"), installation()).await;
    assert!(matches!(&error, LoadError::UnknownHook { name } if name == "annex:extension/stale@0.1.0"), "{error:?}");
}

#[tokio::test]
async fn a_component_that_declares_its_entry_in_two_hooks_is_refused() {
    let export = |hook: &str| format!(r#"(export "annex:extension/{hook}@0.1.0" (instance $nothing))"#);
    let exports = ["descriptor", "card", "live-card"].map(export).concat();
    let component = wat::parse_str(format!("(component (instance $nothing) {exports})")).expect("a component");
    let error = refused(component, installation()).await;
    assert!(matches!(error, LoadError::TwoCards), "{error:?}");
}

#[tokio::test]
async fn an_import_that_no_host_has_is_refused() {
    let error = refused(patched("wasi:config/store@", "wasi:config/stone@"), installation()).await;
    assert!(matches!(&error, LoadError::UnknownImport { name } if name.starts_with("wasi:config/stone")), "{error:?}");
}

/// A name is displayed before it is validated, so it must neither look like another line nor control a terminal.
#[tokio::test]
async fn names_that_would_forge_a_line_are_refused_and_shown_harmlessly() {
    for (from, to) in [
        ("wasi:config/store@", "wasi:config/s\nore@"),
        ("wasi:config/store@", "wasi:config/s\x1bore@"),
        ("extension/state@0.1.0", "extension/st\nte@0.1.0"),
    ] {
        let error = refused(patched(from, to), installation()).await;
        assert!(matches!(error, LoadError::NotAComponent { .. }), "{error:?}");
        assert!(!error.to_string().chars().any(char::is_control), "{error}");
    }
}

#[tokio::test]
async fn an_export_of_another_type_is_refused_at_load_with_the_place_in_the_type() {
    let cases = [
        (r#"(field "code" s32)"#, r#"(field "code" u32)"#, "validate /state result case error, field code, s32 u32"),
        (r#"(field "task-id" (option string))"#, r#"(field "task" (option string))"#, "/state parameters task-id task"),
        (r#"(field "payload" bool)"#, r#"(field "payload" u8)"#, "/descriptor result payload bool u8"),
        (r#"(enum "message" "request")"#, r#"(enum "message" "query")"#, "/state parameters request query"),
    ];
    for (ours, theirs, expected) in cases {
        let error = refused(hand_made(&[(ours, theirs)]), installation()).await;
        assert!(matches!(error, LoadError::ExportType { .. }), "{theirs}: {error:?}");
        let text = chain_of(&error);
        for part in expected.split([' ', ',']) {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}

//! Card entries of extensions.

use std::sync::Arc;

use annex_protocol::AgentExtension;
use annex_runtime::{Extension, Installed, LoadError};

use crate::support::{component, refused, runtime, with_parameters};

/// The test extension under this URI, with `bytes` of filler in its card entry.
fn saying(uri: &str, bytes: usize) -> annex_runtime::Installation {
    let behaviour = format!(r#"{{"declare": "big-result {bytes}"}}"#);
    with_parameters(&format!(r#"{{"uri": "https://annex.example/{uri}", "behaviour": {behaviour}}}"#))
}

async fn loaded(uri: &str, bytes: usize) -> Arc<Extension> {
    let loaded = runtime().load(component(annex_components::TEST_EXTENSION), saying(uri, bytes)).await;
    Arc::new(loaded.expect("the entry is small enough"))
}

#[tokio::test]
async fn an_entry_that_fills_the_card_is_refused_at_load() {
    for bytes in [1_048_000, 33_000] {
        let error = refused(component(annex_components::TEST_EXTENSION), saying("large", bytes)).await;
        let LoadError::CardEntry { uri, size, limit } = &error else { unreachable!("{error:?}") };
        assert_eq!((uri.as_str(), *limit), ("https://annex.example/large", 32 << 10));
        assert!(*size > bytes, "{size}");
        assert!(error.to_string().contains("at most 32768"), "{error}");
    }
    assert!(loaded("small", 32_000).await.card().params.is_some());
}

#[tokio::test]
async fn entries_that_fill_the_card_together_are_refused_with_who_is_largest() {
    let mut installed = Installed::default();
    installed.push(loaded("largest", 32_000).await).expect("there is room");
    for number in 0..7 {
        installed.push(loaded(&number.to_string(), 31_000).await).expect("there is room");
    }
    let error = installed.push(loaded("last", 31_000).await).expect_err("there is no room");
    let LoadError::CardEntries { uri, largest, .. } = &error else { unreachable!("{error:?}") };
    assert_eq!((uri.as_str(), largest.as_str()), ("https://annex.example/last", "https://annex.example/largest"));
    assert_eq!(installed.iter().count(), 8);
    installed.push(loaded("small", 100).await).expect("there is room for a small one");
}

#[tokio::test]
async fn an_entry_that_grows_beyond_the_room_on_the_card_is_refused_with_who_is_largest() {
    let mut installed = Installed::default();
    for number in 0..8 {
        installed.push(loaded(&number.to_string(), 30_000).await).expect("there is room");
    }
    let extension = installed.iter().next().expect("an extension");
    let grown =
        |bytes: usize| AgentExtension { description: "x".repeat(bytes), ..AgentExtension::clone(&extension.card()) };
    installed.check_entry(&grown(1_000)).expect("there is room");
    let error = installed.check_entry(&grown(25_000)).expect_err("there is no room");
    assert!(matches!(&error, LoadError::CardEntries { uri, largest, .. } if uri == largest), "{error:?}");
}

#[tokio::test]
async fn a_uri_without_end_is_refused() {
    let uri = "x".repeat(2_100);
    let error = refused(component(annex_components::TEST_EXTENSION), saying(&uri, 1)).await;
    assert!(matches!(&error, LoadError::Description { reason } if reason.contains("2048 bytes")), "{error:?}");
}

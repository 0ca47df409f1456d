//! The extension that steers turns on command.

use std::sync::Arc;

use annex_protocol::JsonObject;
use annex_runtime::{CallerGrant, Extension, Grants, Installation, Runtime};

use crate::support::{component, installation};

/// Settings with the grants that the extension needs.
pub(crate) fn all_grants() -> Installation {
    let caller = CallerGrant { principal: true, ..CallerGrant::default() };
    let grants =
        Grants { caller: Some(caller), task_metadata: true, rewrite_answer: true, answer: true, ..Grants::default() };
    Installation { grants, ..installation() }
}

/// Loads the extension with parameters, given as a JSON object.
pub(crate) async fn steering(runtime: &Runtime, parameters: &str, installation: Installation) -> Arc<Extension> {
    let parameters = JsonObject::parse(parameters).expect("a JSON object");
    let installation = Installation { parameters, ..installation };
    let loaded = runtime.load(component(annex_components::TEST_STEERING), installation).await;
    Arc::new(loaded.expect("the steering extension loads"))
}

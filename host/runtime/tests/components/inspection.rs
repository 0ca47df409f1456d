//! Facts about a component that are known before it runs.

use annex_runtime::{Access, Digest, GrantNeeded, Hook};

use crate::support::{component, runtime};

const CONFIG: (&str, Access) = ("wasi:config/store@0.2.0-rc.1", Access::Free);
const LOGGING: (&str, Access) = ("wasi:logging/logging@0.1.0-draft", Access::Free);
const SCHEMA: (&str, Access) = ("annex:extension/json-schema@0.1.0", Access::Free);
const TYPES: (&str, Access) = ("annex:extension/types@0.1.0", Access::Free);

/// Checks hooks and imports. Imports are in order of name, and no WASI is linked without an import.
async fn check(path: &str, hooks: &[Hook], imports: &[(&str, Access)]) {
    let bytes = component(path);
    let mut inspection = runtime().inspect(bytes.clone()).await.expect("an extension").inspection;
    assert_eq!(inspection.contract, "0.1.0");
    assert_eq!((inspection.size, inspection.digest), (bytes.len(), Digest::of(&bytes)));
    assert_eq!(inspection.hooks, hooks);
    inspection.imports.sort_by(|left, right| left.name.cmp(&right.name));
    let found: Vec<_> = inspection.imports.iter().map(|import| (import.name.as_str(), import.access)).collect();
    assert_eq!(found, imports);
}

#[tokio::test]
async fn state_injection_works_on_its_own_state_and_needs_the_session() {
    let hooks = [Hook::Descriptor, Hook::Card, Hook::State, Hook::Response, Hook::Client];
    let session = ("annex:extension/session-state@0.1.0", Access::Needs(GrantNeeded::SessionState));
    check(annex_components::STATE_INJECTION, &hooks, &[SCHEMA, session, TYPES, CONFIG, LOGGING]).await;
}

#[tokio::test]
async fn timestamp_stamps_on_both_ends_and_needs_the_clock() {
    let clock = ("wasi:clocks/wall-clock@0.2.12", Access::Needs(GrantNeeded::Clock));
    let hooks = [Hook::Descriptor, Hook::Response, Hook::Client];
    check(annex_components::TIMESTAMP, &hooks, &[TYPES, clock, CONFIG, LOGGING]).await;
}

#[tokio::test]
async fn the_extensions_for_tests_and_examples_need_no_grant() {
    let without_grant: Vec<Hook> = Hook::ALL.into_iter().filter(|hook| hook.grant().is_none()).collect();
    check(annex_components::TEST_EXTENSION, &without_grant, &[SCHEMA, TYPES, CONFIG, LOGGING]).await;
    check(annex_components::HELLO_EXTENSION, &[Hook::Descriptor, Hook::Response], &[TYPES, CONFIG, LOGGING]).await;
}

#[tokio::test]
async fn a_component_needs_the_grants_of_its_imports_and_hooks_each_once() {
    let needs = async |path: &str| {
        let inspection = runtime().inspect(component(path)).await.expect("an extension").inspection;
        inspection.needs().into_iter().map(GrantNeeded::name).collect::<Vec<_>>()
    };
    assert_eq!(needs(annex_components::TIMESTAMP).await, ["clock"]);
    assert_eq!(needs(annex_components::HELLO_EXTENSION).await, Vec::<&str>::new());
    let all = needs(annex_components::TEST_STEERING).await;
    assert!(all.is_sorted_by(|one, other| one < other) && all.contains(&"agent-steps.steer"), "{all:?}");
}

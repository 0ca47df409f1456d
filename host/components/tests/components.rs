//! Checks the imports and exports of each component. The imports show which abilities a component uses.

use std::fs;

use anyhow::{Context as _, Result};
use wasmparser::{Parser, Payload};

const CONFIG: &str = "wasi:config/store@0.2.0-rc.1";
const LOGGING: &str = "wasi:logging/logging@0.1.0-draft";
const CLOCK: &str = "wasi:clocks/wall-clock@0.2.12";
const SCHEMA: &str = "annex:extension/json-schema@0.1.0";
const SESSION: &str = "annex:extension/session-state@0.1.0";
const TASKS: &str = "annex:extension/tasks@0.1.0";
const RESUMPTION: &str = "annex:extension/task-resumption@0.1.0";
const STEPS: &str = "annex:extension/agent-steps@0.1.0";
const CALLER: &str = "annex:extension/caller@0.1.0";
const TASK_METADATA: &str = "annex:extension/task-metadata@0.1.0";
const COUNTERS: &str = "wasi:keyvalue/atomics@0.2.0-draft";
const KEYS: &str = "wasi:keyvalue/store@0.2.0-draft";
/// The interface that only declares types and has no functions.
const TYPES: &str = "annex:extension/types@0.1.0";

#[derive(Debug, Default, PartialEq)]
struct Interface {
    imports: Vec<String>,
    /// The names of the exports, without package and version.
    exports: Vec<String>,
    /// The initial size of the memory, in pages of 64 KiB.
    memory_pages: u64,
}

fn interface(path: &str) -> Result<Interface> {
    let bytes = fs::read(path).with_context(|| format!("read {path}"))?;
    let mut interface = Interface::default();
    // The parser descends into nested modules and components: only depth 0 is the component's own.
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(&bytes) {
        match payload? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::MemorySection(memories) => {
                for memory in memories {
                    interface.memory_pages += memory?.initial;
                }
            }
            Payload::ComponentImportSection(imports) if depth == 0 => {
                for import in imports {
                    interface.imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(exports) if depth == 0 => {
                for export in exports {
                    let name = export?.name.name;
                    let hook = name.trim_start_matches("annex:extension/").trim_end_matches("@0.1.0");
                    interface.exports.push(hook.to_owned());
                }
            }
            _ => {}
        }
    }
    interface.imports.sort();
    interface.exports.sort();
    Ok(interface)
}

/// Checks the imports and exports, and that stack and data are small, because a guest is created for each turn.
fn check(component: &str, imports: &[&str], exports: &[&str]) -> Result<()> {
    let interface = interface(component)?;
    assert_eq!(interface.imports, imports, "{component}");
    assert_eq!(interface.exports, exports, "{component}");
    // 128 KiB of stack and 192 KiB of the allocator's arena are five pages.
    assert!(interface.memory_pages <= 7, "{component}: {} pages of 64 KiB", interface.memory_pages);
    Ok(())
}

#[test]
fn state_injection_reads_the_session_and_nothing_else() -> Result<()> {
    check(
        annex_components::STATE_INJECTION,
        &[SCHEMA, SESSION, TYPES, CONFIG, LOGGING],
        &["card", "client", "descriptor", "response", "state"],
    )
}

#[test]
fn the_timestamp_extension_reads_the_clock_and_nothing_else() -> Result<()> {
    check(annex_components::TIMESTAMP, &[TYPES, CLOCK, CONFIG, LOGGING], &["client", "descriptor", "response"])
}

#[test]
fn session_sharing_keeps_keys_and_nothing_else() -> Result<()> {
    check(
        annex_components::SESSION_SHARING,
        &[TYPES, CONFIG, KEYS, LOGGING],
        &["card", "client", "descriptor", "message", "response", "transition"],
    )
}

#[test]
fn agent_payments_keep_keys_and_reach_nobody() -> Result<()> {
    check(
        annex_components::AP2,
        &[SCHEMA, TYPES, CLOCK, CONFIG, COUNTERS, KEYS, LOGGING],
        &["card", "descriptor", "message", "response", "transition"],
    )
}

#[test]
fn payments_by_x402_keep_keys_and_ask_a_server() -> Result<()> {
    check(
        annex_components::X402,
        &[
            TASK_METADATA,
            TYPES,
            CLOCK,
            CONFIG,
            "wasi:http/outgoing-handler@0.2.12",
            "wasi:http/types@0.2.12",
            "wasi:io/error@0.2.12",
            "wasi:io/poll@0.2.12",
            "wasi:io/streams@0.2.12",
            COUNTERS,
            KEYS,
            LOGGING,
        ],
        &["descriptor", "message", "output", "response", "transition"],
    )
}

#[test]
fn approvals_keep_keys_see_the_caller_and_reach_nobody() -> Result<()> {
    check(
        annex_components::APPROVAL,
        &[CALLER, RESUMPTION, TYPES, CLOCK, CONFIG, COUNTERS, KEYS, LOGGING],
        &["card", "descriptor", "message", "method", "reply", "steering", "transition"],
    )
}

#[test]
fn the_extensions_of_agentstack_need_no_import_of_a_grant() -> Result<()> {
    check(
        annex_components::AGENTSTACK,
        &[TYPES, CONFIG, LOGGING],
        &["card", "descriptor", "response", "state", "transition"],
    )?;
    check(annex_components::AGENTSTACK_TRAJECTORY, &[TYPES, CONFIG, LOGGING], &["descriptor", "steering"])
}

#[test]
fn authorizations_of_agentstack_keep_keys_and_ask_a_server() -> Result<()> {
    check(
        annex_components::AGENTSTACK_OAUTH,
        &[
            TYPES,
            CONFIG,
            "wasi:http/outgoing-handler@0.2.12",
            "wasi:http/types@0.2.12",
            "wasi:io/error@0.2.12",
            "wasi:io/poll@0.2.12",
            "wasi:io/streams@0.2.12",
            COUNTERS,
            KEYS,
            LOGGING,
        ],
        &["card", "descriptor", "state", "transition"],
    )
}

#[test]
fn the_integration_of_adk_sets_the_metadata_of_the_task() -> Result<()> {
    check(
        annex_components::ADK_INTEGRATION,
        &[TASK_METADATA, TYPES, CONFIG, LOGGING],
        &["descriptor", "response", "transition"],
    )
}

#[test]
fn the_test_extension_exports_each_hook_that_needs_no_grant_and_imports_nothing_that_needs_one() -> Result<()> {
    check(
        annex_components::TEST_EXTENSION,
        &[SCHEMA, TYPES, CONFIG, LOGGING],
        &["activation", "card", "client", "descriptor", "message", "method", "response", "state", "transition"],
    )
}

#[test]
fn the_steering_extension_exports_the_hooks_that_need_a_grant() -> Result<()> {
    check(
        annex_components::TEST_STEERING,
        &[CALLER, SCHEMA, TASK_METADATA, TYPES, CONFIG, COUNTERS, KEYS, LOGGING],
        &[
            "descriptor",
            "extended-card",
            "live-card",
            "message",
            "method",
            "output",
            "reads",
            "reply",
            "response",
            "steering",
            "transition",
        ],
    )
}

#[test]
fn the_hello_extension_exports_only_the_hook_that_it_names() -> Result<()> {
    check(annex_components::HELLO_EXTENSION, &[TYPES, CONFIG, LOGGING], &["descriptor", "response"])
}

#[test]
fn the_badges_the_profile_the_card_numbers_and_the_sub_state_need_no_grant() -> Result<()> {
    check(annex_components::COMPLIANCE_BADGE, &[TYPES, CONFIG, LOGGING], &["card", "descriptor"])?;
    check(annex_components::STRICT_PARTS, &[SCHEMA, TYPES, CONFIG, LOGGING], &["card", "descriptor", "message"])?;
    check(annex_components::PAYMENT_CARDS, &[TYPES, CONFIG, LOGGING], &["descriptor", "message"])?;
    check(annex_components::GENERATING_IMAGE, &[TYPES, CONFIG, LOGGING], &["descriptor", "transition"])?;
    check(annex_components::SECURE_PASSPORT, &[TYPES, CONFIG, LOGGING], &["card", "client", "descriptor", "state"])
}

#[test]
fn traces_show_the_agents_steps_and_the_history_the_callers_tasks() -> Result<()> {
    check(annex_components::TRACEABILITY, &[STEPS, TYPES, CONFIG, LOGGING], &["descriptor", "response"])?;
    check(annex_components::TASK_HISTORY, &[TASKS, TYPES, CONFIG, LOGGING], &["descriptor", "method"])
}

#[test]
fn the_gateway_and_the_authorization_keep_keys() -> Result<()> {
    check(
        annex_components::AGENT_GATEWAY_PROTOCOL,
        &[TYPES, CLOCK, CONFIG, KEYS, LOGGING],
        &["card", "descriptor", "message", "method", "response"],
    )?;
    check(
        annex_components::IN_TASK_AUTHORIZATION,
        &[RESUMPTION, TYPES, CONFIG, COUNTERS, KEYS, LOGGING],
        &["card", "descriptor", "method", "transition"],
    )
}

#[test]
fn the_shipped_components_are_where_the_library_says() {
    for (name, path) in annex_components::shipped() {
        assert!(path.is_absolute() && path.is_file(), "{name}: {}", path.display());
    }
}

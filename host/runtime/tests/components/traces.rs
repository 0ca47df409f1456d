//! The stack of a trap, for the extension's author: function names and source positions.

use annex_runtime::{Fault, Hook, Runtime, RuntimeConfig};

use crate::support::{Turn, chain_of, config, installation};

/// `hand_made.wat` with a hook that calls a trapping function. With `lines` it has debug information.
fn trapping(lines: bool) -> Vec<u8> {
    let text = include_str!("hand_made.wat")
        .replace(";; => MODULE", r#"(func $_RNvNtCs1234_7mycrate5inner5price (unreachable))"#)
        .replace(";; => VALIDATE", "(call $_RNvNtCs1234_7mycrate5inner5price)");
    let mut parser = wat::Parser::new();
    if lines {
        parser.generate_dwarf(wat::GenerateDwarf::Lines);
    }
    parser.parse_str(Some("quota.wat".as_ref()), text).expect("a component")
}

async fn told(component: Vec<u8>, debug_info: bool) -> String {
    let runtime = Runtime::new(&RuntimeConfig { instances: 1, debug_info, ..config() }).expect("the runtime starts");
    let extension = runtime.load(component, installation()).await.expect("it loads");
    let fault = Turn::with("{}").fault(&[extension.into()]).await;
    assert!(matches!(fault, Fault::Trapped { hook: Hook::State, .. }), "{fault:?}");
    assert!(fault.error_id().is_some());
    chain_of(&fault)
}

#[tokio::test]
async fn a_trap_names_the_functions_that_ran() {
    let told = told(trapping(false), false).await;
    let expected = "trapped in state: wasm trap: wasm `unreachable` instruction executed: in mycrate::inner::price < ";
    assert!(told.contains(expected), "{told}");
}

#[tokio::test]
async fn a_trap_names_the_line_when_the_host_reads_debug_information() {
    let with_lines = told(trapping(true), true).await;
    assert!(with_lines.contains("mycrate::inner::price at ./quota.wat:"), "{with_lines}");
    let without = told(trapping(true), false).await;
    assert!(!without.contains("quota.wat"), "{without}");
}

//! Components that are designed to make compilation expensive.

use std::fmt::Display;

use annex_runtime::LoadError;

use crate::support::{component, installation, kept, refused, runtime};

/// A component with `parts` that passes for an extension until it is compiled.
fn extension(parts: &str) -> Vec<u8> {
    let text = format!(
        r#"(component {parts} (instance $nothing) (export "annex:extension/descriptor@0.1.0" (instance $nothing)))"#
    );
    wat::parse_str(&text).expect("a component")
}

fn times(count: usize, text: impl Display) -> String {
    format!("{text} ").repeat(count)
}

/// Checks that the component is refused before it is compiled, because it has too many of `what`.
async fn check(what: &str, limit: u64, parts: &str) {
    check_named(what, what, limit, parts).await;
}

async fn check_named(name: &str, what: &str, limit: u64, parts: &str) {
    let error = refused(extension(parts), installation()).await;
    let LoadError::TooComplex { what: told, found, limit: told_limit } = &error else {
        unreachable!("{name}: {error:?}")
    };
    assert_eq!((told.as_ref(), *told_limit), (what, limit), "{name}");
    assert!(*found > limit, "{name}: {error}");
}

async fn check_module(what: &str, limit: u64, fields: &str) {
    check(what, limit, &format!("(core module {fields})")).await;
}

#[tokio::test]
async fn a_component_of_too_many_parts_is_not_compiled() {
    check("components inside it", 200, &times(201, "(component)")).await;
    check("core modules", 100, &times(101, "(core module)")).await;
    let instances = times(2_001, "(core instance (instantiate $m))");
    check("instances", 2_000, &format!("(core module $m) {instances}")).await;
    let nested = format!("{}{}", "(component ".repeat(11), ")".repeat(11));
    check("levels of components in components", 10, &nested).await;
    check("types", 20_000, &times(20_001, "(type (list u8))")).await;
    check_module("types", 20_000, &times(20_001, "(type (func))")).await;
    check_module("functions", 100_000, &times(100_001, "(func)")).await;
    check_module("data segments", 100_000, &times(100_001, "(data \"\")")).await;
    let computed = times(20_001, "(data (global.get $g) \"\")");
    check_module(
        "data segments at computed places",
        20_000,
        &format!("(import \"\" \"\" (global $g i32)) (memory 1) {computed}"),
    )
    .await;
    check_module("element segments", 20_000, &times(20_001, "(elem func)")).await;
    check_module("globals", 20_000, &times(20_001, "(global i32 (i32.const 0))")).await;
}

#[tokio::test]
async fn parts_are_counted_in_nested_components_too() {
    let module = format!("(core module {})", times(10_000, "(type (func))"));
    check("types", 20_000, &format!("(component {module}) {module} (core module (type (func)))")).await;
}

#[tokio::test]
async fn a_function_that_is_too_large_is_not_compiled() {
    let statements = times(120_000, "i32.const 1000000 drop");
    check_module("bytes in one function", 512 << 10, &format!("(func {statements})")).await;
    check_module("locals in one function", 5_000, &format!("(func (local {}))", times(5_001, "i64"))).await;
    let blocks = format!("(func {} {})", times(5_001, "block"), times(5_001, "end"));
    check_module("blocks within blocks", 5_000, &blocks).await;
}

/// A function with `count` locals and `blocks` consecutive blocks.
fn function(declared: &str, count: usize, blocks: usize) -> String {
    let used = format!("local.get {} drop", count - 1);
    format!("(func ({declared} {}) {used} {})", times(count, "i64"), times(blocks, "block end"))
}

#[tokio::test]
async fn a_function_whose_locals_and_blocks_multiply_is_not_compiled() {
    let what = "locals times blocks in one function";
    check_module(what, 2_000_000, &function("local", 2_000, 1_001)).await;
    check_module(what, 2_000_000, &function("param", 1_000, 2_001)).await;
    let many = times(27, function("local", 1_900, 1_000));
    check_module("locals times blocks over all functions", 50_000_000, &many).await;
}

#[tokio::test]
async fn a_component_that_begins_with_too_much_is_not_compiled() {
    for pages in [1_025, 65_536] {
        check_module("bytes of memory to begin with", 64 << 20, &format!("(memory {pages})")).await;
    }
    for elements in [20_001, u32::MAX] {
        check_module("elements of a table to begin with", 20_000, &format!("(table {elements} funcref)")).await;
    }
}

/// The component passes the structure checks, and fails later because it is not an extension.
#[tokio::test]
async fn components_within_the_limits_are_compiled() {
    let blocks = format!("(func {} {})", times(5_000, "block"), times(5_000, "end"));
    let parts = format!("(core module (memory 1024) (table 20000 funcref) (type (func)) {blocks})");
    let error = refused(extension(&parts), installation()).await;
    assert!(matches!(error, LoadError::Link(_)), "{error:?}");
}

/// Functions with the maximum number of instructions, none of which can be optimised away.
pub(crate) fn deep(count: usize) -> Vec<u8> {
    let statements = times(30_000, "local.get 0 i64.mul local.get 1 i64.xor");
    let function = format!("(func (param i64 i64) (result i64) local.get 0 {statements})");
    extension(&format!("(core module {})", times(count, function)))
}

/// A module with a type of `values` parameters and results, which the bombs pass on repeatedly.
fn of_type(values: usize, body: &str) -> String {
    let values = times(values, "i32");
    format!(
        "(core module (type $t (func (param {values}) (result {values}))) (type $p (func (param {values})))
            (table 1 funcref) (func $call (type $t) unreachable) (func (type $t) {body}))"
    )
}

#[tokio::test]
async fn values_that_few_bytes_pass_on_by_the_thousand_are_not_compiled() {
    let what = "values passed by blocks, branches and calls in one function";
    let push = times(1_000, "i32.const 0");
    for (name, body) in [
        ("blocks", format!("{push} {}", times(500, "block (type $t) end"))),
        ("loops", format!("{push} {}", times(5_000, "loop (type $t) end"))),
        ("ifs", format!("{push} {}", times(5_000, "i32.const 1 if (type $t) end"))),
        ("calls", format!("{push} {}", times(500, "call $call"))),
        ("indirect calls", format!("{push} {}", times(500, "i32.const 0 call_indirect (type $t)"))),
        ("tail calls", format!("{push} {}", times(500, "i32.const 1 if (type $t) return_call $call end"))),
        ("branches", format!("{push} {}", times(500, "i32.const 0 br_if 0"))),
        ("one table", format!("{push} i32.const 0 br_table {}", times(500, "0"))),
        ("returns", format!("{push} {}", times(500, "block return end"))),
    ] {
        check_named(name, what, 100_000, &of_type(1_000, &body)).await;
    }
}

/// `functions` functions that each pass almost the maximum number of values.
fn passing(functions: usize) -> String {
    let values = times(100, "i32");
    let body = format!("{} {}", times(100, "i32.const 0"), times(300, "block (type $t) end"));
    let functions = times(functions, format!("(func (type $t) {body})"));
    format!("(type $t (func (param {values}) (result {values}))) {functions}")
}

#[tokio::test]
async fn values_are_counted_over_all_functions() {
    let what = "values passed by blocks, branches and calls over all functions";
    check_module(what, 10_000_000, &passing(130)).await;
}

#[tokio::test]
async fn names_are_counted_over_all_sections() {
    let names: String = (0..50_001).map(|name| format!("(export \"{name}\" (func 0)) ")).collect();
    check_module("imports and exports", 50_000, &format!("(func) {names}")).await;
}

/// A valid component with an added section: `levels` nested types of components or instances.
fn with_nested_types(kind: u8, levels: usize) -> Vec<u8> {
    let mut section = vec![1];
    for _ in 0..levels {
        section.extend([kind, 1, 1]);
    }
    section.extend([kind, 0]);
    let mut bytes = component(annex_components::HELLO_EXTENSION);
    bytes.push(7);
    let mut length = section.len();
    while length >= 0x80 {
        bytes.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(section);
    bytes
}

#[tokio::test]
async fn types_that_nest_too_deep_for_a_stack_are_refused_and_not_read() {
    for kind in [0x41, 0x42] {
        for levels in [50, 1_500, 100_000] {
            let bytes = with_nested_types(kind, levels);
            for installation in [installation(), kept(installation())] {
                let error = refused(bytes.clone(), installation).await;
                let LoadError::TooComplex { what, limit: 50, .. } = &error else { unreachable!("{levels}: {error:?}") };
                assert_eq!(what, "levels of types in types");
            }
            let inspected = runtime().inspect(bytes).await.expect("it is looked at all the same");
            let reason = inspected.unkeepable.expect("a reason");
            assert!(reason.contains("levels of types in types"), "{reason}");
        }
    }
}

#[tokio::test]
async fn types_that_nest_as_deep_as_they_may_load() {
    for kind in [0x41, 0x42] {
        let loaded = runtime().load(with_nested_types(kind, 49), installation()).await;
        assert!(loaded.is_ok(), "{:?}", loaded.err());
    }
}

//! Components that are made to cost the compiler more than they are worth.

use std::fmt::Display;
use std::time::Duration;

use annex_runtime::{LoadError, Runtime, RuntimeConfig};

use crate::support::{component, installation, refused};

/// A component that passes for an extension as long as nobody compiles it, with `parts` in it.
fn extension(parts: &str) -> Vec<u8> {
    let text = format!(
        r#"(component {parts} (instance $nothing) (export "annex:extension/descriptor@0.1.0" (instance $nothing)))"#
    );
    wat::parse_str(&text).expect("a component")
}

fn times(count: usize, text: impl Display) -> String {
    format!("{text} ").repeat(count)
}

/// The component is refused before it is compiled, for having too much of `what`.
async fn check(what: &str, limit: u64, parts: &str) {
    let error = refused(extension(parts), installation()).await;
    let LoadError::TooComplex { what: told, found, limit: told_limit } = &error else {
        unreachable!("{what}: {error:?}")
    };
    assert_eq!((*told, *told_limit), (what, limit));
    assert!(*found > limit, "{error}");
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
    check_module("segments", 20_000, &times(20_001, "(data \"\")")).await;
    check_module("globals", 20_000, &times(20_001, "(global i32 (i32.const 0))")).await;
}

#[tokio::test]
async fn parts_are_counted_over_all_that_is_nested() {
    let module = format!("(core module {})", times(10_000, "(type (func))"));
    check("types", 20_000, &format!("(component {module}) {module} (core module (type (func)))")).await;
}

#[tokio::test]
async fn a_function_that_is_too_large_is_not_compiled() {
    let statements = times(60_000, "i32.const 1000000 drop");
    check_module("bytes in one function", 256 << 10, &format!("(func {statements})")).await;
    check_module("locals in one function", 5_000, &format!("(func (local {}))", times(5_001, "i64"))).await;
    let blocks = format!("(func {} {})", times(5_001, "block"), times(5_001, "end"));
    check_module("blocks within blocks", 5_000, &blocks).await;
}

/// One function with so many locals, and as many blocks one after another.
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

/// It passes the checks of its structure and ends where anything else would that is no extension.
#[tokio::test]
async fn what_is_within_the_limits_is_compiled() {
    let blocks = format!("(func {} {})", times(5_000, "block"), times(5_000, "end"));
    let parts = format!("(core module (memory 1024) (table 20000 funcref) (type (func)) {blocks})");
    let error = refused(extension(&parts), installation()).await;
    assert!(matches!(error, LoadError::Link(_)), "{error:?}");
}

#[tokio::test]
async fn a_compilation_that_takes_too_long_is_refused_and_its_result_is_kept_for_the_next_load() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let compile_time = Duration::from_millis(1);
    let config = RuntimeConfig { compile_time, cache: Some(cache.path().to_owned()), ..RuntimeConfig::default() };
    let runtime = Runtime::new(&config).expect("the runtime starts");
    let load = async || runtime.load(component(annex_components::HELLO_EXTENSION), installation()).await;
    let error = load().await.expect_err("compiling takes longer");
    assert!(matches!(error, LoadError::CompileTime { .. }), "{error:?}");
    assert!(error.to_string().contains("runtime.compile_seconds"), "{error}");
    // Others wait for the compiler, and give up as soon.
    let (other, again) = tokio::join!(load(), load());
    assert!(other.is_err() && again.is_err());
    let loaded = async {
        loop {
            match load().await {
                Ok(extension) => break extension,
                Err(LoadError::CompileTime { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(other) => unreachable!("{other:?}"),
            }
        }
    };
    let extension = tokio::time::timeout(Duration::from_secs(60), loaded).await.expect("it is compiled by then");
    assert!(!extension.was_compiled());
}

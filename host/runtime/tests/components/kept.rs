//! Kept instances: each turn finds the initial state, and instances that cannot be reset are not kept.

use std::sync::Arc;
use std::time::Duration;

use annex_runtime::{Extension, Installation, Instances, LoadError, Runtime, RuntimeConfig};

use crate::hostile::HandMade;
use crate::support::{
    Turn, config, installation, kept, log_of, refused, respond, runtime, test_extension, with_parameters,
};

/// A runtime with four instances, so that one may be kept.
fn few_places() -> Runtime {
    Runtime::new(&RuntimeConfig { instances: 4, ..config() }).expect("the runtime starts")
}

/// Why instances of the component cannot be kept.
async fn why_unkeepable(bytes: Vec<u8>) -> Option<String> {
    runtime().inspect(bytes).await.expect("an extension").unkeepable
}

async fn load(runtime: &Runtime, parts: &HandMade) -> Arc<Extension> {
    Arc::new(runtime.load(parts.bytes(), kept(installation())).await.expect("the component loads"))
}

/// Runs `count` turns without failures. Returns how many got a reused instance.
async fn turns(extension: &Arc<Extension>, count: u64) -> u64 {
    let before = extension.metrics().kept_turns;
    for _ in 0..count {
        Turn::with("{}").chain(std::slice::from_ref(extension)).await;
    }
    extension.metrics().kept_turns - before
}

/// Traps if a mark is found in a global or in the memory, and leaves marks everywhere.
const MARKS: &str = r#"
    (global $integer (mut i32) (i32.const 7))
    (global $wide (mut i64) (i64.const 0))
    (global $single (mut f32) (f32.const 1.5))
    (global $double (mut f64) (f64.const nan:0x8000000000001))
    (global $vector (mut v128) (v128.const i64x2 1 2))
    (global $exported (export "exported") (mut i32) (i32.const 9))
    (func $seen unreachable)
    (func $search (local $at i32)
        (if (i32.ne (global.get $integer) (i32.const 7)) (then (call $seen)))
        (if (i32.ne (global.get $exported) (i32.const 9)) (then (call $seen)))
        (if (i64.ne (global.get $wide) (i64.const 0)) (then (call $seen)))
        (if (f32.ne (global.get $single) (f32.const 1.5)) (then (call $seen)))
        (if (i64.ne (i64.reinterpret_f64 (global.get $double)) (i64.const 0x7ff8000000000001)) (then (call $seen)))
        (if (v128.any_true (v128.xor (global.get $vector) (v128.const i64x2 1 2))) (then (call $seen)))
        (if (i32.ne (memory.size) (i32.const 2)) (then (call $seen)))
        ;; What the data segments put there, and what nobody wrote.
        (if (i32.ne (i32.load8_u (i32.const 0x140)) (i32.const 0x68)) (then (call $seen)))
        (local.set $at (i32.const 0x11000))
        (loop $words
            (if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then (call $seen)))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (br_if $words (i32.lt_u (local.get $at) (i32.const 0x20000)))))
    (func $leave
        (global.set $integer (i32.const -1))
        (global.set $exported (i32.const -1))
        (global.set $wide (i64.const -1))
        (global.set $single (f32.const -1))
        (global.set $double (f64.const -1))
        (global.set $vector (v128.const i64x2 -1 -1))
        (memory.fill (i32.const 0x140) (i32.const 0xaa) (i32.const 8))
        (memory.fill (i32.const 0x11000) (i32.const 0xaa) (i32.const 0xf000)))
"#;

fn marking(validate: &'static str) -> HandMade {
    HandMade { module: MARKS, validate, ..HandMade::default() }
}

#[tokio::test]
async fn a_canary_finds_nothing_of_the_turns_before_it_in_a_kept_instance() {
    let runtime = few_places();
    // The search finds marks of the same turn.
    let both = load(&runtime, &marking("(call $leave) (call $search)")).await;
    Turn::with("{}").fault(&[both]).await;
    let canary = load(&runtime, &marking("(call $search) (call $leave)")).await;
    assert_eq!(turns(&canary, 20).await, 19, "one instance served them all");
}

#[tokio::test]
async fn an_instance_that_failed_or_was_given_up_serves_no_other_turn() {
    let extension = test_extension(&few_places(), kept(installation())).await;
    let extensions = [Arc::clone(&extension)];
    for command in ["\"trap\"", "\"loop\"", "\"memory-bomb\"", "\"bad-json\"", "\"scope-escalation\""] {
        turns(&extension, 1).await;
        let before = extension.metrics().kept_turns;
        Turn::commanding(command).fault(&extensions).await;
        assert_eq!(extension.metrics().kept_turns, before + 1, "{command} was told to a kept instance");
        assert_eq!(turns(&extension, 1).await, 0, "{command}: the instance is gone");
    }
    // A refusal is not a failure.
    Turn::commanding("\"violation\"").refusal(&extensions).await;
    assert_eq!(turns(&extension, 1).await, 1);
    // A call that is cancelled while the guest yields.
    {
        let turn = Turn::commanding("\"loop\"");
        let given_up = turn.start(&extensions);
        assert!(tokio::time::timeout(Duration::from_millis(1), given_up).await.is_err());
    }
    assert_eq!(turns(&extension, 1).await, 0, "nothing enters a call that was broken off");
}

#[tokio::test]
async fn an_instance_that_grew_serves_no_other_turn() {
    let growing = "(call $search) (drop (memory.grow (i32.const 1))) (i32.store (i32.const 0x20000) (i32.const -1))";
    let extension = load(&few_places(), &marking(growing)).await;
    assert_eq!(turns(&extension, 3).await, 0);
    // Growing by nothing, or beyond the limit, changes nothing.
    let not_growing = "(call $search) (drop (memory.grow (i32.const 0)))";
    let extension = load(&few_places(), &marking(not_growing)).await;
    assert_eq!(turns(&extension, 3).await, 2);
}

#[tokio::test]
async fn a_kept_instance_serves_its_maximum_of_turns() {
    let installation = Installation { instances: Instances::Kept { turns: 2 }, ..installation() };
    let extension = test_extension(&few_places(), installation).await;
    assert_eq!(turns(&extension, 6).await, 3);
}

#[tokio::test]
async fn installations_and_tenants_share_no_instance() {
    let runtime = few_places();
    let canary = marking("(call $search) (call $leave)");
    let first = load(&runtime, &canary).await;
    let second = load(&runtime, &canary).await;
    let tenant = load(&runtime.of_tenant("other"), &canary).await;
    for extension in [&first, &second, &tenant] {
        assert_eq!(turns(extension, 1).await, 0, "its first turn has an instance of its own");
    }
}

#[tokio::test]
async fn each_turn_has_its_limits_in_full() {
    let mut installation = kept(installation());
    installation.limits.host_calls = 100;
    installation.limits.log_lines = 60;
    let extension = test_extension(&few_places(), installation).await;
    for _ in 0..4 {
        Turn::commanding("\"log-flood 50\"").chain(std::slice::from_ref(&extension)).await;
    }
    let metrics = extension.metrics();
    assert_eq!((metrics.kept_turns, metrics.log_lines, metrics.log_lines_dropped), (3, 200, 0));
    assert!(metrics.host_calls >= 200, "{}", metrics.host_calls);
    assert!(metrics.memory_peak > 0);
    Turn::commanding("\"log-flood 200\"").fault(&[extension]).await;
}

/// There is one slot. A turn gets it although an idle instance of another installation holds it.
#[tokio::test]
async fn an_instance_that_waits_gives_way_to_a_turn() {
    let instance_timeout = Duration::from_millis(100);
    let runtime = Runtime::new(&RuntimeConfig { instances: 1, instance_timeout, ..config() }).expect("a runtime");
    let first = test_extension(&runtime, kept(with_parameters(r#"{"uri": "urn:first"}"#))).await;
    let second = test_extension(&runtime, installation()).await;
    assert_eq!(turns(&first, 2).await, 1);
    assert_eq!(turns(&second, 1).await, 0);
    assert_eq!(second.metrics().waits, 0, "it had not to wait");
    assert_eq!(turns(&first, 2).await, 1);
    // A waiting turn gets the slot of a turn that ends, whose instance is then not kept.
    let running = Turn::with("{}").chain(std::slice::from_ref(&first)).await;
    let others = [second];
    let turn = Turn::with("{}");
    tokio::join!(biased; turn.chain(&others), async { drop(running) });
}

#[tokio::test]
async fn turns_at_once_have_an_instance_each() {
    let extensions = [test_extension(&few_places(), kept(installation())).await];
    let turn = Turn::with("{}");
    let first = turn.chain(&extensions).await;
    let second = turn.chain(&extensions).await;
    drop((first, second));
    // One instance may be parked: a quarter of four.
    let _third = turn.chain(&extensions).await;
    let _fourth = turn.chain(&extensions).await;
    assert_eq!(extensions[0].metrics().kept_turns, 1);
}

#[tokio::test]
async fn the_way_out_belongs_to_the_turn_as_in_a_fresh_instance() {
    let extensions = [test_extension(&runtime(), kept(installation())).await];
    for _ in 0..3 {
        let mut told = Turn::commanding(r#"{"respond": "none"}"#).chain(&extensions).await;
        assert!(respond(&mut told).await.expect("no fault").metadata.is_empty());
        drop(told);
        let mut untold = Turn::with("{}").chain(&extensions).await;
        assert!(!respond(&mut untold).await.expect("no fault").metadata.is_empty());
    }
    assert_eq!(extensions[0].metrics().kept_turns, 5);
}

/// A component with state that the host cannot reset is refused, and the error names the state.
#[tokio::test]
async fn what_cannot_be_put_back_is_not_admitted() {
    const TABLE: &str = "(table $t 4 10 funcref) (elem $e func $answer) (data $d \"x\")";
    for (validate, expected) in [
        ("(table.set $t (i32.const 0) (ref.null func))", "changes a table"),
        ("(drop (table.grow $t (ref.null func) (i32.const 1)))", "changes a table"),
        ("(table.fill $t (i32.const 0) (ref.null func) (i32.const 1))", "changes a table"),
        ("(table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 1))", "changes a table"),
        ("(table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1))", "changes a table"),
        ("(elem.drop $e)", "drops a segment"),
        ("(data.drop $d)", "drops a segment"),
    ] {
        check_refusal(&HandMade { module: TABLE, validate, ..HandMade::default() }, expected).await;
    }
    for (module, expected) in [
        ("(global (mut funcref) (ref.null func))", "a global of references"),
        ("(global (mut externref) (ref.null extern))", "a global of references"),
        ("(memory $second 127)", "at most"),
        ("(memory $second 0)", "empty"),
        ("(global (export \"annex-keep:x\") i32 (i32.const 0))", "annex-keep"),
    ] {
        check_refusal(&HandMade { module, ..HandMade::default() }, expected).await;
    }
    for (before, after, expected) in [
        // A second instance of the module.
        ("", "(core instance $again (instantiate $guest))", "more than once"),
        // The component's own handles, and a nested component with state.
        ("", "(type $handle (resource (rep i32)))", "handles"),
        ("", "(component (core module) (core instance (instantiate 0)))", "a component inside it"),
        ("", "(alias outer 0 $guest (core module $twin)) (core instance (instantiate $twin))", "a second name"),
        // An export is another name: for a module without shadows, and for a module in place of another.
        ("", "(core module $spare) (export \"spare\" (core module $spare))", "a second name"),
        ("", "(component $spare) (export \"spare\" (component $spare))", "a second name"),
        ("(import \"other\" (core module))", "", "a module or a component"),
        ("(import \"handles\" (instance (export \"handle\" (type (sub resource)))))", "", "handles"),
        // Uses the names of added functions, and an invalid component stays invalid.
        (
            "",
            "(core module $thief (import \"guest\" \"annex-keep:save\" (func)))
             (core instance (instantiate $thief (with \"guest\" (instance $guest))))",
            "not valid",
        ),
        (
            "",
            "(func $keep (canon lift (core func $guest \"nothing\"))) (export \"annex-keep-x\" (func $keep))",
            "begins with",
        ),
    ] {
        let text = HandMade { module: "(func (export \"nothing\"))", ..HandMade::default() }.text();
        let text = text.replacen("(component", &format!("(component {before}"), 1);
        let end = text.rfind(')').expect("the end");
        let bytes = wat::parse_str(format!("{} {after})", &text[..end])).expect("a component");
        let reason = why_unkeepable(bytes).await.expect("a reason");
        assert!(reason.contains(expected), "{before}{after}: {reason}");
    }
}

async fn check_refusal(parts: &HandMade, expected: &str) {
    let error = refused(parts.bytes(), kept(installation())).await;
    let LoadError::Unkeepable { reason } = &error else { unreachable!("{}: {error:?}", parts.module) };
    assert!(reason.contains(expected), "{}{}: {reason}", parts.module, parts.validate);
    assert_eq!(why_unkeepable(parts.bytes()).await.as_ref(), Some(reason));
}

/// The tested component has state in a second core module, and state that a start function has set.
#[tokio::test]
async fn a_second_memory_and_a_start_function_are_put_back_too() {
    const OTHER: &str = r#"(component
        (core module $other
            (memory 1)
            (global $begun (mut i32) (i32.const 0))
            (func $start
                (global.set $begun (i32.const 5))
                (i32.store (i32.const 0) (i32.const 6)))
            (start $start)
            (func (export "check")
                (if (i32.ne (global.get $begun) (i32.const 5)) (then unreachable))
                (if (i32.ne (i32.load (i32.const 0)) (i32.const 6)) (then unreachable))
                (if (i32.ne (i32.load (i32.const 0x8000)) (i32.const 0)) (then unreachable))
                (global.set $begun (i32.const 1))
                (i64.store (i32.const 0) (i64.const -1))
                (i64.store (i32.const 0x8000) (i64.const -1))))
        (core instance $other (instantiate $other))"#;
    let parts =
        HandMade { module: MARKS, validate: "(call $search) (call $leave) (call $check)", ..HandMade::default() };
    let bytes = importing(&parts, OTHER, r#"(import "other" "check" (func $check))"#, "other");
    let extension = Arc::new(few_places().load(bytes, kept(installation())).await.expect("the component loads"));
    assert_eq!(turns(&extension, 5).await, 4);
}

/// A component whose core module imports an item of the instance `$from`, which `before` defines.
fn importing(parts: &HandMade, before: &str, import: &str, from: &str) -> Vec<u8> {
    let text = parts.text().replacen("(component", before, 1);
    let text = text.replace("(core module $guest", &format!("(core module $guest {import}"));
    let with = format!(r#"(instantiate $guest (with "{from}" (instance ${from})))"#);
    wat::parse_str(text.replace("(instantiate $guest)", &with)).expect("a component")
}

#[tokio::test]
async fn instances_of_shipped_components_can_be_kept() {
    for (component, expected) in [
        (annex_components::STATE_INJECTION, None),
        (annex_components::TEST_EXTENSION, None),
        (annex_components::HELLO_EXTENSION, None),
        (annex_components::TEST_CAPABILITIES, Some("it imports or makes a type of handles")),
    ] {
        let reason = why_unkeepable(crate::support::component(component)).await;
        assert_eq!(reason.as_deref(), expected, "{component}");
    }
}

/// The start function writes a random number into the memory.
#[tokio::test]
async fn instances_that_begin_differently_are_not_kept() {
    const IMPORT: &str = r#"(component
        (import "wasi:random/random@0.2.12" (instance $random (export "get-random-u64" (func (result u64)))))
        (core func $random (canon lower (func $random "get-random-u64")))
        (core instance $host (export "random" (func $random)))"#;
    const MODULE: &str = "(func $start (i64.store (i32.const 0x15000) (call $random))) (start $start)";
    let parts = HandMade { module: MODULE, ..HandMade::default() };
    let import = r#"(import "host" "random" (func $random (result i64)))"#;
    let bytes = importing(&parts, IMPORT, import, "host");
    let mut installation = kept(installation());
    installation.grants.random = true;
    let log = log_of(Box::pin(async {
        let extension = Arc::new(few_places().load(bytes, installation).await.expect("the component loads"));
        // Two turns at once, so that there is a second instance.
        let extensions = [Arc::clone(&extension)];
        let turn = Turn::with("{}");
        let both = (turn.chain(&extensions).await, turn.chain(&extensions).await);
        drop(both);
        assert_eq!(turns(&extension, 3).await, 0);
    }))
    .await;
    assert!(log.contains("no instance is kept"), "{log}");
}

//! Hand-made components that no toolchain produces and that violate the rules of the boundary. They only fail their
//! own call, and the next turn in the same pool slot succeeds.

use std::sync::Arc;
use std::time::Duration;

use annex_runtime::{Extension, Fault, Hook, LimitReached, LoadError, Runtime, RuntimeConfig};

use crate::support::{Turn, config, installation, log_of, refused, test_extension};

/// Changes to `hand_made.wat`: additional parts of the module, and code at the beginning of functions.
#[derive(Default)]
pub(crate) struct HandMade {
    pub(crate) module: &'static str,
    pub(crate) realloc: &'static str,
    pub(crate) validate: &'static str,
    /// String encoding of `validate`; UTF-8 if empty.
    pub(crate) encoding: &'static str,
}

impl HandMade {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        wat::parse_str(self.text()).expect("a component")
    }

    pub(crate) fn text(&self) -> String {
        let text = include_str!("hand_made.wat")
            .replace(";; => MODULE", self.module)
            .replace(";; => REALLOC", self.realloc)
            .replace(";; => VALIDATE", self.validate);
        let lifted = r#"(core func $guest "validate") "#;
        text.replace(lifted, &format!("{lifted}{}", self.encoding))
    }

    async fn load(&self, runtime: &Runtime) -> Arc<Extension> {
        Arc::new(runtime.load(self.bytes(), installation()).await.expect("the component loads"))
    }
}

/// A runtime with one instance: every turn has the slot of the previous one.
fn one_place() -> Runtime {
    let instance_timeout = Duration::from_millis(100);
    Runtime::new(&RuntimeConfig { instances: 1, instance_timeout, ..config() }).expect("the runtime starts")
}

async fn turn(extension: &Arc<Extension>) -> Result<(), annex_runtime::HookError> {
    Turn::with("{}").start(std::slice::from_ref(extension)).await.map(drop)
}

/// The fault of a turn. Also checks that a good component works in the same slot afterwards.
async fn fault(parts: HandMade) -> Fault {
    let runtime = one_place();
    let bad = parts.load(&runtime).await;
    let good = HandMade::default().load(&runtime).await;
    let fault = Turn::with("{}").fault(&[bad]).await;
    turn(&good).await.expect("the next turn is served");
    fault
}

/// Reason of the trap.
async fn traps(parts: HandMade) -> String {
    let what = parts.module.to_owned() + parts.realloc + parts.validate;
    match fault(parts).await {
        Fault::Trapped { hook: Hook::State, source, .. } => source.to_string(),
        other => unreachable!("{what}: {other:?}"),
    }
}

async fn reaches(parts: HandMade, expected: LimitReached) {
    let what = parts.module.to_owned() + parts.realloc + parts.validate;
    match fault(parts).await {
        Fault::LimitReached { hook: Hook::State, limit, .. } => assert_eq!(limit, expected, "{what}"),
        other => unreachable!("{what}: {other:?}"),
    }
}

async fn refusal(module: &'static str) -> LoadError {
    refused(HandMade { module, ..HandMade::default() }.bytes(), installation()).await
}

#[tokio::test]
async fn a_component_made_by_hand_that_keeps_the_rules_is_served() {
    let extension = HandMade::default().load(&one_place()).await;
    assert_eq!(extension.uri().as_str(), "https://annex.example/hand-made/v1");
    for _ in 0..3 {
        turn(&extension).await.expect("the turn starts");
    }
}

/// Strings and lists whose pointers or lengths are wrong.
#[tokio::test]
async fn results_that_lie_about_themselves_trap() {
    let lies = [
        // Invalid UTF-8.
        "(i32.store (i32.const 0x300) (i32.const 0xfeff)) (call $answer (i32.const 0) (i32.const 1) (i32.const 0x300) (i32.const 2))",
        // A surrogate, and a truncated character.
        "(i32.store (i32.const 0x300) (i32.const 0x80a0ed)) (call $answer (i32.const 0) (i32.const 1) (i32.const 0x300) (i32.const 3))",
        // 1 GiB, 4 GiB, and one byte beyond the end.
        "(call $answer (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 0x40000000))",
        "(call $answer (i32.const 0) (i32.const 1) (i32.const -1) (i32.const -1))",
        "(call $answer (i32.const 0) (i32.const 1) (i32.const 0x1ffff) (i32.const 2))",
        // Undefined cases of option, result and variant.
        "(call $answer (i32.const 0) (i32.const 7) (i32.const 0) (i32.const 0))",
        "(call $answer (i32.const 9) (i32.const 0) (i32.const 0) (i32.const 0))",
        "(call $answer (i32.const 1) (i32.const 2) (i32.const 0) (i32.const 0))",
        // A list of 256 million violations, and a misaligned list.
        "(call $answer (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0x10000000))",
        "(call $answer (i32.const 1) (i32.const 0) (i32.const 0x10001) (i32.const 1))",
        // The result pointer lies outside of the memory, or is misaligned.
        "(return (i32.const -4))",
        "(return (i32.const 0x201))",
    ];
    for validate in lies {
        traps(HandMade { validate, ..HandMade::default() }).await;
    }
}

/// GHSA-394w-hwhg-8vgm and similar: transcoded strings have the declared length or are refused.
#[tokio::test]
async fn results_that_lie_in_the_other_encodings_trap() {
    let utf16 = "string-encoding=utf16 ";
    let latin1 = "string-encoding=latin1+utf16 ";
    for (encoding, validate) in [
        // Half of a surrogate pair, and a misaligned address.
        (
            utf16,
            "(i32.store (i32.const 0x300) (i32.const 0xd800)) (call $answer (i32.const 0) (i32.const 1) (i32.const 0x300) (i32.const 1))",
        ),
        (utf16, "(call $answer (i32.const 0) (i32.const 1) (i32.const 0x301) (i32.const 1))"),
        // 65,536 units have twice as many bytes as are left in the memory, and two billion units overflow.
        (utf16, "(call $answer (i32.const 0) (i32.const 1) (i32.const 0x10000) (i32.const 0x10000))"),
        (utf16, "(call $answer (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 0x7fffffff))"),
        // The top bit marks UTF-16.
        (
            latin1,
            "(i32.store (i32.const 0x300) (i32.const 0xd800)) (call $answer (i32.const 0) (i32.const 1) (i32.const 0x300) (i32.const 0x80000001))",
        ),
        (latin1, "(call $answer (i32.const 0) (i32.const 1) (i32.const 0x10000) (i32.const 0x80010000))"),
        (latin1, "(call $answer (i32.const 0) (i32.const 1) (i32.const 0) (i32.const -1))"),
        (latin1, "(call $answer (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 0x7fffffff))"),
        (latin1, "(call $answer (i32.const 0) (i32.const 1) (i32.const 0x1ffff) (i32.const 2))"),
    ] {
        traps(HandMade { validate, encoding, ..HandMade::default() }).await;
    }
}

/// Both results need more memory on the host than in the guest: 65,536 items of 16 bytes, and 512 strings that share
/// the same bytes.
#[tokio::test]
async fn a_small_result_that_grows_on_the_host_is_not_taken() {
    let many = "(drop (memory.grow (i32.const 16)))
        (call $answer (i32.const 1) (i32.const 0) (i32.const 0x20000) (i32.const 0x10000))";
    reaches(HandMade { validate: many, ..HandMade::default() }, LimitReached::Output).await;
    let shared = r#"(local $item i32)
        (local.set $item (i32.const 0x1000))
        (loop $next
            (i32.store (i32.add (local.get $item) (i32.const 4)) (i32.const 0x10000))
            (local.set $item (i32.add (local.get $item) (i32.const 8)))
            (br_if $next (i32.lt_u (local.get $item) (i32.const 0x2000))))
        (call $answer (i32.const 1) (i32.const 0) (i32.const 0x1000) (i32.const 0x100))"#;
    reaches(HandMade { validate: shared, ..HandMade::default() }, LimitReached::Output).await;
}

#[tokio::test]
async fn an_allocator_that_lies_traps_and_one_that_loops_is_stopped() {
    for realloc in ["(return (i32.const -8))", "(return (i32.const 0x1ffff))", "(return (i32.const 0x10001))"] {
        traps(HandMade { realloc, ..HandMade::default() }).await;
    }
    traps(HandMade { realloc: "unreachable", ..HandMade::default() }).await;
    reaches(HandMade { realloc: "(loop $ever (br $ever))", ..HandMade::default() }, LimitReached::Cpu).await;
    let growing = "(loop $ever (drop (memory.grow (i32.const 16))) (br $ever))";
    reaches(HandMade { realloc: growing, ..HandMade::default() }, LimitReached::Memory).await;
}

/// All host data is written to the same address, so the guest only harms itself.
#[tokio::test]
async fn an_allocator_that_gives_the_same_place_each_time_harms_only_its_guest() {
    let runtime = one_place();
    let parts = HandMade { realloc: "(return (i32.const 0x10000))", ..HandMade::default() };
    turn(&parts.load(&runtime).await).await.expect("the turn starts");
}

#[tokio::test]
async fn a_guest_that_does_what_wasm_forbids_traps() {
    for validate in [
        "unreachable",
        "(drop (i32.load (i32.const -4)))",
        "(i64.store (i32.const 0x1fffc) (i64.const 1))",
        "(drop (i32.div_u (i32.const 1) (i32.const 0)))",
        "(drop (i32.trunc_f64_s (f64.const nan)))",
        "(memory.fill (i32.const 0) (i32.const 1) (i32.const -1))",
        "(memory.copy (i32.const 0) (i32.const 0x10000) (i32.const 0x20000))",
    ] {
        traps(HandMade { validate, ..HandMade::default() }).await;
    }
    let module = "(table 4 funcref) (type $none (func)) (func $deep (call $deep))";
    for validate in ["(call_indirect (type $none) (i32.const 0))", "(call_indirect (type $none) (i32.const 9))"] {
        traps(HandMade { module, validate, ..HandMade::default() }).await;
    }
    traps(HandMade { module, validate: "(call $deep)", ..HandMade::default() }).await;
}

/// GHSA-2hw9-mc66-jc2q: interrupting a bulk operation corrupted the state of the engine.
#[tokio::test]
async fn bulk_operations_over_all_of_the_memory_are_stopped_at_the_cpu_limit() {
    for bulk in [
        "(drop (memory.grow (i32.const 200)))
         (loop $ever (memory.fill (i32.const 0x10000) (i32.const 0xaa) (i32.const 0xc80000)) (br $ever))",
        "(drop (memory.grow (i32.const 200)))
         (loop $ever (memory.copy (i32.const 0x10000) (i32.const 0x10001) (i32.const 0xc80000)) (br $ever))",
    ] {
        reaches(HandMade { validate: bulk, ..HandMade::default() }, LimitReached::Cpu).await;
    }
    let module = "(table $table 9000 funcref)";
    let filling = "(loop $ever (table.fill $table (i32.const 0) (ref.null func) (i32.const 9000)) (br $ever))";
    reaches(HandMade { module, validate: filling, ..HandMade::default() }, LimitReached::Cpu).await;
}

#[tokio::test]
async fn a_table_bomb_is_stopped_at_the_limit_of_tables() {
    let module = "(table $table 1 funcref)";
    let growing = "(loop $ever (drop (table.grow $table (ref.null func) (i32.const 1000))) (br $ever))";
    reaches(HandMade { module, validate: growing, ..HandMade::default() }, LimitReached::TableElements).await;
}

/// GHSA-p8xm-42r7-89xg: a table declared with more elements than fit into memory.
#[tokio::test]
async fn parts_that_are_declared_too_large_or_too_many_are_refused() {
    for module in [
        "(table 4294967295 funcref)",
        "(table 100000 funcref)",
        "(memory $second 65536)",
        "(memory $second 1025)",
        "(memory $second 1) (memory $third 1)",
        "(table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref)
         (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref)",
    ] {
        let error = refusal(module).await;
        let is_refused = matches!(error, LoadError::TooComplex { .. } | LoadError::Compile { .. });
        assert!(is_refused, "{module}: {error:?}");
    }
    for (module, expected) in [
        ("(table 10001 funcref)", LimitReached::TableElements),
        ("(func $ever (loop $ever (br $ever))) (start $ever)", LimitReached::Cpu),
    ] {
        let error = refusal(module).await;
        let LoadError::SelfTest(Fault::LimitReached { limit, .. }) = error else { unreachable!("{module}: {error:?}") };
        assert_eq!(limit, expected, "{module}");
    }
    let error = refusal("(func $start unreachable) (start $start)").await;
    assert!(matches!(error, LoadError::SelfTest(Fault::Trapped { .. })), "{error:?}");
}

#[tokio::test]
async fn a_descriptor_that_lies_about_itself_is_refused() {
    for module in [
        // The URI is invalid UTF-8, 1 GiB long, or outside of the memory.
        r#"(data (i32.const 0x100) "\ff\fe")"#,
        r#"(data (i32.const 8) "\00\00\00\40")"#,
        r#"(data (i32.const 4) "\ff\ff\ff\ff")"#,
        // Undefined cases: neither some nor none, neither ok nor error.
        r#"(data (i32.const 36) "\07")"#,
        r#"(data (i32.const 0) "\07")"#,
        // 256 million metadata keys.
        r#"(data (i32.const 52) "\00\00\00\10")"#,
    ] {
        let error = refusal(module).await;
        assert!(
            matches!(error, LoadError::SelfTest(Fault::Trapped { hook: Hook::Descriptor, .. })),
            "{module}: {error:?}"
        );
    }
    for module in [r#"(data (i32.const 0x100) "https://a/ ")"#, r#"(data (i32.const 0x100) "https://a\0ab,")"#] {
        let error = refusal(module).await;
        assert!(matches!(error, LoadError::Description { .. }), "{module}: {error:?}");
        assert!(!error.to_string().chars().any(char::is_control), "{error}");
    }
}

/// GHSA-m758-wjhj-p3jq: flags with undefined bits, and booleans other than 0 and 1.
#[tokio::test]
async fn flags_and_truth_values_out_of_range_are_taken_as_what_they_can_be() {
    let module = r#"(data (i32.const 72) "\ff\ff")"#;
    let extension = HandMade { module, ..HandMade::default() }.load(&one_place()).await;
    let events = extension.descriptor().events;
    assert!(events.message && events.status && events.artifact && extension.descriptor().payload);
}

const EMPTY_DESCRIPTOR: &str = r#"(instance $none) (export "annex:extension/descriptor@0.1.0" (instance $none))"#;

#[tokio::test]
async fn interfaces_with_other_functions_than_the_contracts_do_not_fit() {
    for imports in [
        "",
        // Functions with wrong types, and undefined functions.
        r#"(import "wasi:logging/logging@0.1.0-draft" (instance (export "log" (func (param "text" string)))))"#,
        r#"(import "wasi:logging/logging@0.1.0-draft" (instance (export "shell" (func))))"#,
        r#"(import "wasi:config/store@9.9.9" (instance (export "get" (func))))"#,
        // A module or a component instead of an instance.
        r#"(import "wasi:logging/logging@0.1.0-draft" (core module))"#,
        r#"(import "wasi:logging/logging@0.1.0-draft" (component))"#,
    ] {
        let bytes = wat::parse_str(format!("(component {imports} {EMPTY_DESCRIPTOR})")).expect("a component");
        let error = refused(bytes, installation()).await;
        assert!(matches!(error, LoadError::Link(_) | LoadError::Compile { .. }), "{imports}: {error:?}");
    }
}

/// GHSA-6wgr-89rj-399p, CVE-2022-39393: data of an instance was visible to the next instance in the same slot.
///
/// Each turn searches its memory, table and globals for values that differ from the declared ones, and then leaves
/// marks everywhere. Interrupted turns leave marks in the middle of a call.
#[tokio::test]
async fn a_canary_finds_nothing_of_the_instances_before_it() {
    const MODULE: &str = r#"
        (table $table 64 100 funcref)
        (global $mark (mut i64) (i64.const 0))
        (func $seen unreachable)
        (elem declare func $seen)
        (func $search (local $at i32)
            (if (i64.ne (global.get $mark) (i64.const 0)) (then (call $seen)))
            (loop $elements
                (if (i32.eqz (ref.is_null (table.get $table (local.get $at)))) (then (call $seen)))
                (local.set $at (i32.add (local.get $at) (i32.const 1)))
                (br_if $elements (i32.lt_u (local.get $at) (i32.const 64))))
            (if (i32.ne (memory.size) (i32.const 2)) (then (call $seen)))
            (drop (memory.grow (i32.const 30)))
            (local.set $at (i32.const 0x11000))
            (loop $words
                (if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then (call $seen)))
                (local.set $at (i32.add (local.get $at) (i32.const 8)))
                (br_if $words (i32.lt_u (local.get $at) (i32.const 0x200000)))))
        (func $leave
            (global.set $mark (i64.const -1))
            (table.fill $table (i32.const 0) (ref.func $seen) (i32.const 64))
            (memory.fill (i32.const 0x11000) (i32.const 0xaa) (i32.const 0x1ef000)))
    "#;
    let runtime = one_place();
    let canary = |validate| HandMade { module: MODULE, validate, ..HandMade::default() };
    // The search finds marks of the same turn.
    traps(canary("(call $leave) (call $search)")).await;
    let polite = canary("(call $search) (call $leave)").load(&runtime).await;
    let looping = canary("(call $search) (call $leave) (loop $ever (br $ever))");
    let foreign = test_extension(&runtime, installation()).await;
    for _ in 0..10 {
        turn(&polite).await.expect("it found nothing");
        // A new extension each time, because it would be quarantined.
        let fault = Turn::with("{}").fault(&[looping.load(&runtime).await]).await;
        assert!(matches!(fault, Fault::LimitReached { limit: LimitReached::Cpu, .. }), "{fault:?}");
        turn(&foreign).await.expect("the turn starts");
        let _ = Turn::commanding("\"memory-bomb\"").fault(std::slice::from_ref(&foreign)).await;
    }
}

#[tokio::test]
async fn work_on_the_host_is_stopped_by_a_limit_too() {
    let extension = test_extension(&one_place(), installation()).await;
    for command in ["costly-schema", "costly-pattern"] {
        let fault = Turn::commanding(&format!("\"{command}\"")).fault(std::slice::from_ref(&extension)).await;
        let Fault::LimitReached { limit, .. } = fault else { unreachable!("{command}: {fault:?}") };
        assert!(matches!(limit, LimitReached::Cpu | LimitReached::Wall), "{command}: {limit}");
        turn(&extension).await.expect("the next turn is served");
    }
}

#[tokio::test]
async fn json_that_nests_deeply_breaks_the_contract() {
    let extension = test_extension(&one_place(), installation()).await;
    for depth in [101, 10_000, 100_000] {
        let fault = Turn::commanding(&format!("\"deep-json {depth}\"")).fault(std::slice::from_ref(&extension)).await;
        let Fault::BrokeContract { hook: Hook::State, reason, .. } = fault else { unreachable!("{fault:?}") };
        assert!(reason.contains("nest deeper"), "{reason}");
    }
}

/// Unpaired surrogates, numbers beyond the range of a double, and duplicate keys are valid JSON, but official clients
/// fail on them.
#[tokio::test]
async fn what_an_extension_returns_can_be_read_by_every_client() {
    for (odd, expected) in
        [(0, "half of a surrogate pair"), (1, "beyond the range"), (2, "beyond the range"), (3, "stands twice")]
    {
        let extension = test_extension(&one_place(), installation()).await;
        let fault = Turn::commanding(&format!("\"odd-json {odd}\"")).fault(std::slice::from_ref(&extension)).await;
        let Fault::BrokeContract { hook: Hook::State, reason, .. } = fault else { unreachable!("{fault:?}") };
        assert!(reason.contains(expected), "{reason}");
    }
}

/// 10 million lines, with as many host calls as needed.
#[tokio::test]
async fn a_flood_of_log_lines_leaves_what_the_log_takes() {
    let mut installation = installation();
    installation.limits.host_calls = u32::MAX;
    let log = log_of(Box::pin(async {
        let extension = test_extension(&one_place(), installation).await;
        let fault = Turn::commanding("\"log-flood 10000000\"").fault(&[extension]).await;
        assert!(matches!(fault, Fault::LimitReached { limit: LimitReached::Cpu, .. }), "{fault:?}");
    }))
    .await;
    assert_eq!(log.lines().filter(|line| line.contains(": line ")).count(), 100, "{log}");
    assert!(log.contains("further log lines of this turn are dropped"), "{log}");
}

//! Incidents of other plug-in hosts, reproduced here. `host/docs/incidents.md` lists all incidents, including those
//! that other tests cover.

use std::sync::Arc;
use std::time::Duration;

use annex_protocol::JsonObject;
use annex_runtime::{
    Extension, Fault, Grants, Hook, HookError, Installation, LoadError, SessionStateGrant, StateScope,
};

use crate::support::{Turn, chain_of, installation, refused, runtime, test_extension};

/// `hand_made.wat` with each pair of texts replaced.
pub(crate) fn hand_made(changes: &[(&str, &str)]) -> Vec<u8> {
    let mut text = include_str!("hand_made.wat").to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "hand_made.wat has no {from}");
        text = text.replace(from, to);
    }
    wat::parse_str(&text).unwrap_or_else(|error| unreachable!("{changes:?}: {error}"))
}

async fn load(changes: &[(&str, &str)], installation: Installation) -> Arc<Extension> {
    Arc::new(runtime().load(hand_made(changes), installation).await.expect("the component loads"))
}

const LIFT: &str = r#"(canon lift (core func $guest "validate")"#;
const UTF16: &str = r#"(canon lift (core func $guest "validate") string-encoding=utf16"#;
const LATIN1: &str = r#"(canon lift (core func $guest "validate") string-encoding=latin1+utf16"#;

/// Changes for an extension that owns `test/key` and returns the key's value as its delta.
const ECHO: &[(&str, &str)] = &[
    (
        ";; => MODULE",
        r#"(data (i32.const 48) "\80\01\00\00\01\00\00\00")
           (data (i32.const 0x180) "\90\01\00\00\08\00\00\00")
           (data (i32.const 0x190) "test/key")"#,
    ),
    (
        ";; => VALIDATE",
        "(call $answer (i32.const 0) (i32.const 1)
            (i32.load (i32.add (local.get 10) (i32.const 12)))
            (i32.load (i32.add (local.get 10) (i32.const 16))))",
    ),
    // Reallocates and copies a string when its encoding turns out to be another.
    (
        ";; => REALLOC",
        "(local.set $at (i32.and
            (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
            (i32.sub (i32.const 0) (local.get $align))))
         (global.set $free (i32.add (local.get $at) (local.get $size)))
         (memory.copy (local.get $at) (local.get 0)
            (select (local.get 1) (local.get $size) (i32.lt_u (local.get 1) (local.get $size))))
         (return (local.get $at))",
    ),
];

/// Strings whose bytes differ between encodings, including switches of encoding within a string.
fn texts() -> Vec<String> {
    let kinds = ["a", "\u{e9}", "\u{ff}", "\u{100}", "\u{540d}", "\u{1f600}", "\u{10ffff}", "\u{0}", "\\", "\""];
    let mut texts: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    for length in [1, 2, 7, 255, 256, 4_000] {
        // Long Latin-1 text that ends with a character outside of Latin-1.
        texts.extend(kinds.map(|last| format!("{}{last}", "\u{e9}".repeat(length))));
        texts.extend(kinds.map(|first| format!("{first}{}", "a".repeat(length))));
    }
    let mut random = fastrand::Rng::with_seed(19);
    let mixed = |_| (0..random.usize(..600)).map(|_| kinds[random.usize(..kinds.len())]).collect();
    texts.extend((0..50).map(mixed));
    texts
}

/// GHSA-394w-hwhg-8vgm, GHSA-hx6p-xpx3-jvvv: strings survive transcoding between UTF-8 and guest encodings in both
/// directions.
#[tokio::test]
async fn texts_in_every_encoding_of_guests_come_back_as_they_went_in() {
    for encoding in [LIFT, UTF16, LATIN1] {
        let changes: Vec<_> = ECHO.iter().copied().chain([(LIFT, encoding)]).collect();
        let extensions = [load(&changes, installation()).await];
        for text in texts() {
            let value: JsonObject = [(text.clone(), annex_protocol::Json::string(&text))].into_iter().collect();
            let value = value.to_json_string();
            let turn = Turn::with(&format!(r#"{{"test/key": {value}}}"#));
            let (_, delta) =
                turn.start(&extensions).await.unwrap_or_else(|error| unreachable!("{encoding}: {error:?}"));
            assert_eq!(delta.to_json_string(), value, "{encoding}");
        }
    }
}

/// GHSA-jxhv-7h78-9775, GHSA-394w-hwhg-8vgm: UTF-16 strings whose pointers or lengths are wrong.
#[tokio::test]
async fn texts_in_other_encodings_that_lie_about_themselves_trap() {
    let answer = |pointer: &str, length: &str| {
        format!("(call $answer (i32.const 0) (i32.const 1) (i32.const {pointer}) (i32.const {length}))")
    };
    let surrogate = "(i32.store (i32.const 0x300) (i32.const 0x0061d800))";
    let lies = [
        // Misaligned.
        (UTF16, answer("0x301", "1")),
        (LATIN1, answer("0x301", "1")),
        (LATIN1, answer("0x301", "0x80000001")),
        // An unpaired surrogate.
        (UTF16, surrogate.to_owned() + &answer("0x300", "2")),
        (LATIN1, surrogate.to_owned() + &answer("0x300", "0x80000002")),
        // Beyond the end: by one unit, completely, and by a byte count that overflows.
        (UTF16, answer("0x1fffe", "2")),
        (UTF16, answer("0", "0x40000000")),
        (UTF16, answer("0", "0x7fffffff")),
        (UTF16, answer("0", "-1")),
        (UTF16, answer("-2", "1")),
        (LATIN1, answer("0x1fffe", "3")),
        (LATIN1, answer("0", "0x7fffffff")),
        (LATIN1, answer("0x1fffe", "0x80000002")),
        (LATIN1, answer("0", "-1")),
    ];
    for (encoding, validate) in lies {
        let extensions = [load(&[(LIFT, encoding), (";; => VALIDATE", &validate)], installation()).await];
        let fault = Turn::with("{}").fault(&extensions).await;
        assert!(matches!(fault, Fault::Trapped { hook: Hook::State, .. }), "{encoding} {validate}: {fault:?}");
    }
}

/// An allocator that returns a wrong address for UTF-16 strings.
#[tokio::test]
async fn an_allocator_for_other_encodings_that_lies_traps() {
    for encoding in [UTF16, LATIN1] {
        for place in ["0x10001", "0x1ffff", "-2", "-1"] {
            let realloc = format!("(return (i32.const {place}))");
            let extensions = [load(&[(LIFT, encoding), (";; => REALLOC", &realloc)], installation()).await];
            let fault = Turn::with("{}").fault(&extensions).await;
            assert!(matches!(fault, Fault::Trapped { hook: Hook::State, .. }), "{encoding} {place}: {fault:?}");
        }
    }
}

/// GHSA-m758-wjhj-p3jq in the other direction: the host passes only defined flags to a guest.
#[tokio::test]
async fn flags_that_the_host_hands_over_are_what_is_granted() {
    let import = r#"
      (import "annex:extension/session-state@0.1.0" (instance $session
        (type $scopes' (flags "session" "user" "app" "temp"))
        (export "scopes" (type $scopes (eq $scopes')))
        (export "writable" (func (result $scopes)))))
      (core func $writable (canon lower (func $session "writable")))
      (core module $guest
        (import "host" "writable" (func $writable (result i32)))"#;
    let linked = r#"(core instance $guest (instantiate $guest
        (with "host" (instance (export "writable" (func $writable))))))"#;
    let granted = [
        (vec![], 0b0001),
        (vec![StateScope::User], 0b0011),
        (vec![StateScope::App, StateScope::Temp], 0b1101),
        (vec![StateScope::User, StateScope::App, StateScope::Temp], 0b1111),
    ];
    for (scopes, expected) in granted {
        let check = format!("(if (i32.ne (call $writable) (i32.const {expected})) (then unreachable))");
        let changes = [
            ("(core module $guest", import),
            ("(core instance $guest (instantiate $guest))", linked),
            (";; => VALIDATE", &check),
        ];
        let grant = SessionStateGrant { scopes: scopes.clone(), ..SessionStateGrant::default() };
        let grants = Grants { session_state: Some(grant), ..Grants::default() };
        let extensions = [load(&changes, Installation { grants, ..installation() }).await];
        let started = Turn::with("{}").start(&extensions).await;
        assert!(started.is_ok(), "{scopes:?}: {:?}", started.err());
    }
}

/// GHSA-x84v-gj2h-g759, GHSA-32h6-97mm-8q3c: asynchronous components are refused before they are compiled.
#[tokio::test]
async fn components_that_are_asynchronous_are_refused() {
    let before_types = "(type $event-kinds (flags \"message\" \"status\" \"artifact\"))\n  (type $extension";
    let with = |part: &str| hand_made(&[(before_types, &format!("{part} {before_types}"))]);
    let parts = [
        "(type $s (stream u8)) (core func (canon stream.new $s))",
        "(type $f (future u8)) (core func (canon future.new $f))",
        "(type $s (stream string)) (core func (canon stream.read $s async (memory $memory) (realloc $realloc)))",
        "(core func (canon waitable-set.new))",
        "(core func (canon task.return (result u32)))",
        "(core func (canon backpressure.inc))",
        "(core func (canon subtask.drop))",
        "(core func (canon error-context.new (memory $memory)))",
        "(core func (canon context.get i32 0))",
        "(core func (canon thread.yield))",
    ];
    let mut components: Vec<(String, Vec<u8>)> = parts.iter().map(|part| ((*part).to_owned(), with(part))).collect();
    let lift = r#"(canon lift (core func $guest "describe") async (memory $memory))"#;
    components.push((
        lift.to_owned(),
        hand_made(&[(r#"(canon lift (core func $guest "describe") (memory $memory))"#, lift)]),
    ));
    for (part, component) in components {
        let error = refused(component, installation()).await;
        let LoadError::Compile { .. } = &error else { unreachable!("{part}: {error:?}") };
        let reason = chain_of(&error);
        assert!(reason.contains("requires the component model"), "{part}: {reason}");
    }
}

/// GHSA-hgjw-h833-99q9: a store must be created by the engine of its linker. Two engines in one turn do not
/// interfere. A process of Annex has one engine.
#[tokio::test]
async fn components_of_two_engines_take_part_in_one_turn_each_in_its_own() {
    let first = runtime();
    let second = runtime();
    let by_hand = Arc::new(first.load(hand_made(ECHO), installation()).await.expect("it loads"));
    let other = test_extension(&second, installation()).await;
    for extensions in [[Arc::clone(&by_hand), Arc::clone(&other)], [other, by_hand]] {
        let turn = Turn::with(r#"{"test/key": {"echo": 1}, "test/command": "delta"}"#);
        let (chain, delta) = turn.start(&extensions).await.expect("the turn starts");
        assert_eq!(chain.active().count(), 2);
        assert!(delta.get("echo").is_some() && delta.get("test").is_some(), "{}", delta.to_json_string());
        let looping = Turn::with(r#"{"test/key": {"echo": 1}, "test/command": "loop"}"#).fault(&extensions).await;
        assert!(matches!(looping, Fault::LimitReached { .. }), "each engine has its ticks: {looping:?}");
    }
}

/// GHSA-hfr4-7c6c-48w2: a linked component depends neither on the linker nor on the runtime, which may have been
/// dropped.
#[tokio::test]
async fn an_extension_outlives_the_runtime_that_linked_it() {
    let mut extensions = Vec::new();
    for _ in 0..8 {
        let runtime = runtime();
        extensions.push(test_extension(&runtime, installation()).await);
        extensions.push(Arc::new(runtime.load(hand_made(&[]), installation()).await.expect("it loads")));
    }
    for extension in &extensions {
        Turn::with("{}").chain(std::slice::from_ref(extension)).await;
    }
    let looping = Turn::commanding("\"loop\"").fault(&extensions[..1]).await;
    assert!(matches!(looping, Fault::LimitReached { .. }), "it is stopped still: {looping:?}");
}

/// An incident of kubewarden: the epoch advances on its own thread. So guests are stopped even if guests occupy every
/// worker, and no turn gets ticks that another one missed.
#[tokio::test]
async fn guests_that_loop_on_every_worker_stop_each_other_nowhere() {
    let runtime = runtime();
    let mut slow = installation();
    slow.limits.cpu = Duration::from_millis(500);
    slow.limits.wall = Duration::from_secs(60);
    let looping = test_extension(&runtime, slow).await;
    let turn = || async { Turn::commanding("\"loop\"").refusal(std::slice::from_ref(&looping)).await };
    let (a, b, c) = tokio::join!(turn(), turn(), turn());
    for refused in [a, b, c] {
        let HookError::Fault(fault) = refused else { unreachable!("{refused:?}") };
        assert!(matches!(fault, Fault::LimitReached { .. }), "{fault:?}");
    }
    Turn::with("{}").chain(std::slice::from_ref(&looping)).await;
}

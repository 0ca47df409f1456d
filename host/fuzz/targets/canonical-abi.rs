//! Texts and lists across the boundary in each encoding of the canonical ABI. The guest's answer is the fuzzer's input,
//! including pointers, lengths, cases and flags. A panic, or memory that the host allocates for the answer beyond a
//! bound, is a finding.
//!
//! The guest is a component written by hand, as in tests. The host writes the bytes into the guest's memory as a text
//! in the encoding, and the guest answers with that memory.

#![no_main]

use std::fs;
use std::sync::{Arc, LazyLock};

use annex_protocol::{ExtensionUri, Message, Metadata};
use annex_runtime::{
    Chain, Extension, Installation, Limits, NoTurn, Runtime, RuntimeConfig, TurnRequest,
};
use libfuzzer_sys::fuzz_target;

const GUEST: &str = include_str!("../../runtime/tests/components/hand_made.wat");

/// Copies the value of the first metadata entry over the answer. A long value also overwrites the memory after the
/// answer.
const ANSWER: &str = "
    (local.get 11) (if (then
      (memory.copy
        (i32.const 0x200)
        (i32.load offset=12 (local.get 10))
        (i32.and (i32.load offset=16 (local.get 10)) (i32.const 0x3ff)))))";

const ENCODINGS: [&str; 3] = ["utf16", "latin1+utf16", "utf8"];

/// The most pages by which a turn may enlarge the process: 64 MiB.
const MAX_GROWTH: u64 = 16 << 10;

struct Host {
    executor: tokio::runtime::Runtime,
    _runtime: Runtime,
    /// One for each encoding.
    extensions: Vec<Arc<Extension>>,
}

static HOST: LazyLock<Host> = LazyLock::new(|| {
    let executor = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("an executor");
    let runtime =
        Runtime::new(&RuntimeConfig { instances: 2, ..RuntimeConfig::default() }).expect("the runtime starts");
    let lifted = r#"(core func $guest "validate") "#;
    let load = |encoding: &&str| {
        let text =
            GUEST.replace(";; => VALIDATE", ANSWER).replace(lifted, &format!("{lifted}string-encoding={encoding} "));
        let component = wat::parse_str(&text).expect("a component");
        let limits = Limits { memory: 4 << 20, ..Limits::standard() };
        let installation = Installation::with_limits(limits);
        Arc::new(executor.block_on(runtime.load(component, installation)).expect("the component loads"))
    };
    let extensions = ENCODINGS.iter().map(load).collect();
    Host { executor, _runtime: runtime, extensions }
});

/// The text whose encoding is `bytes`, as far as there is one.
fn text(encoding: usize, bytes: &[u8]) -> String {
    match encoding {
        0 => {
            let units: Vec<u16> = bytes
                .chunks(2)
                .map(|pair| pair.iter().rev().fold(0, |unit, byte| unit << 8 | u16::from(*byte)))
                .collect();
            String::from_utf16_lossy(&units)
        }
        1 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

async fn turn(extension: &Arc<Extension>, value: &str) {
    let value = serde_json::to_string(value).expect("JSON");
    let Ok(metadata) = Metadata::parse(&format!(r#"{{"key": {value}}}"#)) else { return };
    let message = Message { metadata, ..Message::user_text("Hello") };
    let requested: Vec<ExtensionUri> = vec![extension.uri().clone()];
    let request = TurnRequest {
        operation: "SendMessage",
        context_id: None,
        task_id: None,
        requested: &requested,
        message: &message,
        request: &Metadata::new(),
        view: Arc::new(NoTurn),
        resumed: false,
    };
    drop(Chain::run_request_hooks(std::slice::from_ref(extension), &request).await);
}

/// Pages of memory that the process has.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("numbers of this process");
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number")
}

fuzz_target!(init: annex_runtime::compile_if_asked(), |bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let host = &*HOST;
    let encoding = usize::from(*choice) % ENCODINGS.len();
    let before = resident();
    host.executor.block_on(turn(&host.extensions[encoding], &text(encoding, rest)));
    let grown = resident().saturating_sub(before);
    assert!(grown <= MAX_GROWTH, "the turn left {grown} pages more");
});

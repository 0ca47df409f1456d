//! Components that do harm while they load. Each is refused with the reason, within its limits.

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use annex_test_support::TestServer;
use tempfile::TempDir;

use super::decisions::grants;
use super::{LIMITS, Row, hand_made};
use crate::agent;

const MINIMAL: &str = r#"
card = { name = "n", description = "d" }
agent = { kind = "template", name = "a", instruction = "i", model.scripted.fallback = "f" }
"#;
const URI: &str = "https://annex.example/hand-made/v1";

/// A component file, and the further keys of its table in the config.
struct Suspect {
    case: &'static str,
    bytes: Vec<u8>,
    config: String,
    /// The expected text for the operator. For a component that makes the host work, either of two limits comes first.
    expected: &'static str,
}

fn file(case: &'static str, bytes: Vec<u8>, expected: &'static str) -> Suspect {
    Suspect { case, bytes, config: String::new(), expected }
}

/// The component of `hand_made.wat`, with `module` inserted into its core module.
fn module(case: &'static str, module: &str, expected: &'static str) -> Suspect {
    file(case, hand_made(URI, module, ""), expected)
}

/// The test extension, told what to do in a hook that runs at load.
fn told(case: &'static str, behaviour: &str, expected: &'static str) -> Suspect {
    let bytes = fs::read(annex_test_support::component("test-extension")).expect("the component was built");
    Suspect { case, bytes, config: format!("{LIMITS}\n[extension.parameters.behaviour]\n{behaviour}"), expected }
}

fn malformed() -> Vec<Suspect> {
    let whole = fs::read(annex_test_support::component("test-extension")).expect("the component was built");
    let renamed = |from: &str, to: &str| {
        let mut bytes = whole.clone();
        while let Some(at) = bytes.windows(from.len()).position(|window| window == from.as_bytes()) {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
        bytes
    };
    vec![
        file("no WebAssembly", b"#!/bin/sh\nrm -rf /\n".to_vec(), "not a WebAssembly component"),
        file("a core module", b"\0asm\x01\0\0\0".to_vec(), "it is a core module"),
        file("nothing", Vec::new(), "not a WebAssembly component"),
        file("cut off in the middle", whole[..whole.len() / 2].to_vec(), "not a WebAssembly component"),
        file(
            "random bytes behind a header",
            [b"\0asm\x0d\0\x01\0", &whole[9_999..]].concat(),
            "not a WebAssembly component",
        ),
        file("an empty component", b"\0asm\x0d\0\x01\0".to_vec(), "exports no annex:extension/descriptor"),
        file("another version of the contract", renamed("extension/state@0.1.0", "extension/state@0.2.0"), "0.2.0"),
        file(
            "a hook that nobody defined",
            renamed("extension/state@0.1.0", "extension/stale@0.1.0"),
            "does not define",
        ),
        file("a foreign import", renamed("wasi:config/store@", "wasi:config/stone@"), "which this host does not offer"),
    ]
}

fn hostile() -> Vec<Suspect> {
    vec![
        module("a table of 4 billion elements", "(table 4294967295 funcref)", "elements of a table"),
        module("a memory of 4 GiB", "(memory $second 65536)", "bytes of memory"),
        module(
            "a loop while it is instantiated",
            "(func $ever (loop $ever (br $ever))) (start $ever)",
            "CPU time limit",
        ),
        module("a URI that is not UTF-8", r#"(data (i32.const 0x100) "\ff\fe")"#, "the self-test failed"),
        module("a URI of 1 GiB by its length", r#"(data (i32.const 8) "\00\00\00\40")"#, "the self-test failed"),
        module("a URI with a line break", r#"(data (i32.const 0x100) "https://a\0ab")"#, "absolute URI"),
        told("describe loops", r#"describe = "loop""#, "reached its CPU time limit in descriptor"),
        told("describe traps", r#"describe = "trap""#, "trapped in descriptor"),
        told("describe fills the memory", r#"describe = "memory-bomb""#, "reached its memory limit in descriptor"),
        told("describe recurses", r#"describe = "stack-overflow""#, "trapped in descriptor"),
        told("describe floods the log", r#"describe = "log-flood 10000000""#, "limit of host calls in descriptor"),
        told("describe works the host", r#"describe = "costly-schema""#, "reached its "),
        told("describe says too much", r#"describe = "big-result 2000000""#, "limit of output bytes in descriptor"),
        told("describe has no URI", r#"describe = "no-uri""#, "absolute URI"),
        told("describe has no schema", r#"describe = "bad-json""#, "its parameter schema"),
        told("describe nests its schema deeply", r#"describe = "deep-json""#, "its parameter schema"),
        told("declare loops", r#"declare = "loop""#, "reached its CPU time limit in card"),
        told("declare says too much", r#"declare = "big-result 2000000""#, "limit of output bytes in card"),
        told("declare nests deeply", r#"declare = "deep-json""#, "nest deeper than 40 levels"),
        told("declare says no object", r#"declare = "not-an-object""#, "params is not a JSON object"),
    ]
}

/// An extension that declares its entry on the card again and again, told what to do in the hook `live-card`.
fn live(case: &'static str, command: &str, expected: &'static str) -> Suspect {
    let bytes = fs::read(annex_test_support::component("test-steering")).expect("the component was built");
    Suspect {
        case,
        bytes,
        config: format!("{LIMITS}\n{}\n[extension.parameters]\nlive = {command:?}", grants()),
        expected,
    }
}

fn hostile_on_the_card() -> Vec<Suspect> {
    vec![
        live("declare-live loops", "loop", "reached its CPU time limit in live-card"),
        live("declare-live traps", "trap", "trapped in live-card"),
        live("declare-live fills the memory", "memory-bomb", "reached its memory limit in live-card"),
        live("declare-live works the host", "costly-schema", "reached its "),
        live("declare-live floods the log", "log-flood 10000000", "limit of host calls in live-card"),
        live("declare-live fails", "error", "declare-live was told to fail"),
        live("declare-live says too much", "big 1100000", "limit of output bytes in live-card"),
        live("declare-live says too much for a card", "big 40000", "on the card has"),
        live("declare-live describes too much", "big-description 40000", "on the card has"),
        live("declare-live says no JSON", "bad-json", "params is not a JSON object"),
        live("declare-live says no object", "not-an-object", "params is not a JSON object"),
    ]
}

/// The reason for which the server does not start with this file.
async fn refusal(path: &Path, config: &str) -> String {
    let extension = format!("[[extension]]\ncomponent = {path:?}\n{config}");
    match TestServer::start(&format!("{MINIMAL}{extension}")).await {
        Ok(_) => unreachable!("the server started with {extension}"),
        Err(error) => format!("{error:#}"),
    }
}

#[tokio::test]
async fn every_component_that_harms_at_load_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    println!("| case | what the operator saw | refused after |\n|---|---|---|");
    let suspects = malformed().into_iter().chain(hostile()).chain(hostile_on_the_card());
    for (number, suspect) in suspects.enumerate() {
        let path = folder.path().join(format!("{number}.wasm"));
        fs::write(&path, &suspect.bytes).expect("a file");
        check(&path, &suspect).await;
    }
    check_large(&folder).await;
    // The process is none the worse for it.
    let server = agent("Say something.", &super::neighbour()).await;
    assert_eq!(server.say("prompt").send().await.expect("a reply").code(), 0);
}

async fn check(path: &Path, suspect: &Suspect) {
    let started = Instant::now();
    let seen = refusal(path, &suspect.config).await;
    // The path is another one each time.
    let said = seen.replace(&format!("extension.component = {path:?} "), "");
    println!("{}", Row { case: suspect.case, columns: &[&said], took: started.elapsed() });
    assert!(seen.contains(suspect.expected), "{}: {seen}", suspect.case);
    assert!(seen.contains(&format!("{path:?}")), "{}: {seen}", suspect.case);
    assert!(!seen.contains('\u{1b}'), "{}: {seen}", suspect.case);
}

async fn check_large(folder: &TempDir) {
    let path = folder.path().join("large.wasm");
    File::create(&path).and_then(|file| file.set_len(50 << 20)).expect("a file");
    let expected = "it is larger than 32 MiB, the limit for this file";
    let suspect = Suspect { case: "50 MB", bytes: Vec::new(), config: String::new(), expected };
    check(&path, &suspect).await;
}

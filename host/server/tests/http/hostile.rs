//! Hostile extensions in a real server that also serves others.
//!
//! `requests` and `loading` run their cases one after the other and print a table for the operator:
//!
//! ```sh
//! cargo test -p annex-server --test http hostile -- --nocapture --test-threads=1
//! ```
//!
//! The cases without a server are in `host/runtime/tests/components`. SECURITY.md lists the promises and their tests.

use std::fmt;
use std::fs;
use std::time::Duration;

use annex_test_support::TestServer;
use tempfile::TempDir;

use crate::agent;

mod attack;
mod claims;
mod decisions;
mod loading;
pub(crate) mod log;
mod memory;
mod requests;

/// The URIs of the installed extensions: one that misbehaves on command, one that uses its grants on command, and a
/// harmless neighbour. No other test uses the first two, so their log lines can be distinguished.
const TEST: &str = "https://annex.example/hostile/test/v1";
const CAPABLE: &str = "https://annex.example/hostile/capable/v1";
const NEIGHBOUR: &str = "https://annex.example/hello/v1";

/// The component that is made by hand, with what its `validate` does.
const HAND_MADE: [(&str, &str); 6] = [
    (
        "https://annex.example/hand-made/v1",
        "(call $answer (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 0x40000000))",
    ),
    (
        "https://annex.example/hand-made/v2",
        "(i32.store (i32.const 0x300) (i32.const 0xfeff))
         (call $answer (i32.const 0) (i32.const 1) (i32.const 0x300) (i32.const 2))",
    ),
    (
        "https://annex.example/hand-made/v3",
        "(loop $ever (drop (table.grow $table (ref.null func) (i32.const 1000))) (br $ever))",
    ),
    (
        "https://annex.example/hand-made/v4",
        "(drop (memory.grow (i32.const 200)))
         (loop $ever (memory.fill (i32.const 0x10000) (i32.const 0xaa) (i32.const 0xc80000)) (br $ever))",
    ),
    // 65,536 violations of 16 bytes each.
    (
        "https://annex.example/hand-made/v5",
        "(drop (memory.grow (i32.const 16)))
         (call $answer (i32.const 1) (i32.const 0) (i32.const 0x20000) (i32.const 0x10000))",
    ),
    ("https://annex.example/hand-made/v6", "(call $answer (i32.const 0) (i32.const 9) (i32.const 0) (i32.const 0))"),
];

/// A server with all these extensions, and the files of the generated components.
struct Arena {
    server: TestServer,
    _components: TempDir,
}

impl Arena {
    /// `port` is on loopback; the extension with grants may send requests there, were it not for the screen.
    async fn open(port: u16) -> Self {
        let components = tempfile::tempdir().expect("a folder");
        let few = "[tasks]\nmax_tasks = 100\n[sessions]\nmax_sessions = 100";
        let mut extensions = format!("{few}\n{}\n{}\n{}\n", test_extension(), capable(CAPABLE, port), neighbour());
        for (number, (uri, validate)) in HAND_MADE.into_iter().enumerate() {
            let path = components.path().join(format!("{number}.wasm"));
            fs::write(&path, hand_made(uri, "(table $table 1 funcref)", validate)).expect("a file");
            extensions += &format!("[[extension]]\ncomponent = {path:?}\n");
        }
        Self { server: agent("{results?}", &extensions).await, _components: components }
    }
}

fn test_extension() -> String {
    let component = annex_test_support::component("test-extension");
    format!("[[extension]]\ncomponent = {component:?}\n{LIMITS}\n[extension.parameters]\nuri = {TEST:?}\n")
}

/// The memory and the host calls are used up before the CPU time is, on a busy machine too.
const LIMITS: &str = "[extension.limits]\ncpu_ms = 250\nmemory_mib = 12\nhost_calls = 500";

/// May send requests to `port` of this machine, were it not for the screen.
fn capable(uri: &str, port: u16) -> String {
    let component = annex_test_support::component("test-capabilities");
    format!(
        r#"
        [[extension]]
        component = {component:?}
        [extension.parameters]
        uri = {uri:?}
        [extension.grants]
        clock = true
        random = true
        keyvalue = {{ max_keys = 10 }}
        session-state = {{ read = true }}
        task = true
        tasks = true
        task-resumption = true
        agent-steps = true
        [[extension.grants.http.allow]]
        scheme = "http"
        host = "localhost"
        port = {port}
        [[extension.grants.http.allow]]
        scheme = "http"
        host = "127.0.0.1"
        port = {port}
        [[extension.grants.http.allow]]
        scheme = "http"
        host = "169.254.169.254"
        {LIMITS}
        "#
    )
}

/// A neighbour's extension. Its limits suit a slow machine that is busy with other tests.
fn neighbour() -> String {
    let component = annex_test_support::component("hello-extension");
    format!("[[extension]]\ncomponent = {component:?}\n[extension.limits]\ncpu_ms = 5000\nwall_ms = 30000\n")
}

/// The component of `hand_made.wat`, with `module` inserted into its core module and `validate` into its hook.
fn hand_made(uri: &str, module: &str, validate: &str) -> Vec<u8> {
    let text = include_str!("../../../runtime/tests/components/hand_made.wat")
        .replace("https://annex.example/hand-made/v1", uri)
        .replace(";; => MODULE", module)
        .replace(";; => VALIDATE", validate);
    wat::parse_str(text).expect("a component")
}

/// One line of a table for the operator.
struct Row<'a> {
    case: &'a str,
    columns: &'a [&'a str],
    took: Duration,
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "| {} |", short(self.case))?;
        for column in self.columns {
            write!(formatter, " {} |", short(column))?;
        }
        write!(formatter, " {:.1} ms |", self.took.as_secs_f64() * 1e3)
    }
}

/// The part of a text that fits into a table: the beginning and the end, which has the cause.
fn short(text: &str) -> String {
    const HALF: usize = 90;
    let text = text.replace('|', "\\|");
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= 2 * HALF {
        return text;
    }
    let first = &characters[..HALF];
    let last = &characters[characters.len() - HALF..];
    format!("{} … {}", first.iter().collect::<String>(), last.iter().collect::<String>())
}

//! The attacks. Each function returns when its attack has ended, or has run long enough to have its effect.

use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::http::{TEST_URI, call, connect, exchange, get, head, message};
use crate::process::Server;
use crate::{decisions, peer};

/// An attack, with the CPU time that it may cause.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// The CPU time that guests or clients may use within their own limits.
    pub(crate) allowed: Duration,
    pub(crate) run: fn(&Server) -> Result<()>,
}

/// The turns of one extension that run at once. The server would quarantine the extension after a fifth failure.
pub(crate) const TURNS: usize = 4;
/// The CPU time that [`TURNS`] turns of the extension may take together on a busy machine.
const OF_TURNS: Duration = Duration::from_millis(100 * TURNS as u64);
/// The CPU time that [`TURNS`] turns may take together if the extension is called again and again in each of them.
const OF_LONG_TURNS: Duration = Duration::from_secs(2 * TURNS as u64);
/// The CPU time that the extension may take together in all reads on a busy machine.
const OF_READS: Duration = Duration::from_millis(100 * decisions::READERS as u64);
/// The CPU time that the server may spend on the clients' own requests.
const OF_REQUESTS: Duration = Duration::from_secs(4);
/// The CPU time for reading a peer's answers up to the server's limits.
const OF_PEERS: Duration = Duration::from_secs(1);
/// The CPU time that compiling in a child process may take within its limits.
const OF_COMPILING: Duration = Duration::from_secs(12);
/// The CPU time that searches with a tenant's patterns may take within their limits, including the time to read the
/// messages.
const OF_SEARCHES: Duration = Duration::from_secs(3 * TURNS as u64);

pub(crate) const ATTACKS: [Attack; 27] = [
    Attack { name: "unevaluated", allowed: OF_TURNS, run: |server| misuse(server, "schema 0") },
    Attack { name: "patterns", allowed: OF_TURNS, run: |server| misuse(server, "schema 1") },
    Attack { name: "automaton", allowed: OF_TURNS, run: |server| misuse(server, "schema 2") },
    Attack { name: "quoted-violations", allowed: OF_TURNS, run: |server| misuse(server, "schema 3") },
    Attack { name: "slow-schema", allowed: OF_TURNS, run: |server| misuse(server, "schema 4") },
    Attack { name: "new-schemas", allowed: OF_TURNS, run: |server| misuse(server, "schema 5") },
    Attack { name: "loop", allowed: OF_TURNS, run: |server| misuse(server, "loop") },
    Attack { name: "memory-bomb", allowed: OF_TURNS, run: |server| misuse(server, "memory-bomb") },
    Attack { name: "unreadable-json", allowed: OF_TURNS, run: |server| misuse(server, "odd-json 1") },
    Attack { name: "output-loop", allowed: OF_TURNS, run: decisions::output_loop },
    Attack { name: "hold-flood", allowed: OF_LONG_TURNS, run: decisions::hold_flood },
    Attack { name: "remark-flood", allowed: OF_TURNS, run: decisions::remark_flood },
    Attack { name: "reads-loop", allowed: OF_READS, run: decisions::reads_loop },
    Attack { name: "arity-bombs", allowed: OF_COMPILING, run: arity_bombs },
    Attack { name: "compile-bomb", allowed: OF_COMPILING, run: compile_bomb },
    Attack { name: "nested-types", allowed: OF_COMPILING, run: nested_types },
    Attack { name: "parameter-schema", allowed: OF_COMPILING, run: parameter_schema },
    Attack { name: "tenant-search", allowed: OF_SEARCHES, run: tenant_search },
    Attack { name: "tenant-patterns", allowed: Duration::ZERO, run: tenant_patterns },
    Attack { name: "one-byte-connections", allowed: Duration::from_millis(500), run: one_byte_connections },
    Attack { name: "unfinished-bodies", allowed: OF_REQUESTS, run: unfinished_bodies },
    Attack { name: "large-task", allowed: Duration::from_secs(12), run: large_task },
    Attack { name: "waiting-tasks", allowed: Duration::from_secs(16), run: waiting_tasks },
    Attack { name: peer::MODELS[0], allowed: OF_PEERS, run: |server| ask(server, peer::MODELS[0]) },
    Attack { name: peer::MODELS[1], allowed: OF_PEERS, run: |server| ask(server, peer::MODELS[1]) },
    Attack { name: peer::MODELS[2], allowed: OF_PEERS, run: |server| ask(server, peer::MODELS[2]) },
    Attack { name: peer::TOOLS, allowed: OF_PEERS, run: |server| ask(server, peer::TOOLS) },
];

/// Sends as many requests at once, each by a client of its own. Returns the answers.
pub(crate) fn at_once(server: &Server, count: usize, request: impl Fn(usize) -> Vec<u8>) -> Result<Vec<String>> {
    let send = |number: usize| {
        let (address, request) = (server.address.clone(), request(number));
        thread::spawn(move || exchange(&address, &request))
    };
    let clients: Vec<_> = (0..count).map(send).collect();
    clients.into_iter().map(|client| client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?).collect()
}

/// In several turns at once, makes a tenant's agent call a peer that answers without end.
fn ask(server: &Server, tenant: &str) -> Result<()> {
    let turn = |number: usize| {
        let message = message(&format!("{tenant}-{number}"), "Hello", "");
        call("SendMessage", &message.replacen('{', &format!(r#"{{"tenant":"{tenant}","#), 1), "")
    };
    for answer in at_once(server, TURNS, turn)? {
        let has_failed = answer.contains("\"error\"") || answer.contains("TASK_STATE_FAILED");
        ensure!(has_failed, "the peer was believed: {answer}");
    }
    Ok(())
}

/// In several turns at once, makes the test extension run `command`. The extension has no grants.
fn misuse(server: &Server, command: &str) -> Result<()> {
    let turn = |number: usize| {
        let metadata = format!(r#","metadata":{{"test/command":"{command}"}}"#);
        call("SendMessage", &message(&format!("attack-{number}"), "Hello", &metadata), TEST_URI)
    };
    for answer in at_once(server, TURNS, turn)? {
        ensure!(answer.contains("\"error\""), "the attack was answered: {answer}");
    }
    Ok(())
}

fn times(count: usize, text: impl Display) -> String {
    format!("{text} ").repeat(count)
}

/// A component with the core module `module`. It looks like an extension until it is compiled.
fn component(module: &str) -> Result<Vec<u8>> {
    let text = format!(
        r#"(component (core module {module}) (instance $nothing)
            (export "annex:extension/descriptor@0.1.0" (instance $nothing)))"#
    );
    Ok(wat::parse_str(&text)?)
}

/// Puts components into the managed folder, one after the other, and waits until the server has checked the folder.
fn install(server: &Server, components: &[(String, Vec<u8>)]) -> Result<()> {
    for (name, bytes) in components {
        let aside = server.extensions().join(format!(".{name}"));
        fs::write(&aside, bytes)?;
        fs::rename(&aside, server.extensions().join(format!("{name}.wasm")))?;
    }
    thread::sleep(Duration::from_secs(8));
    Ok(())
}

/// Installs components with blocks, loops and calls that pass on a thousand values each.
fn arity_bombs(server: &Server) -> Result<()> {
    let values = times(1_000, "i32");
    let types = format!("(type $t (func (param {values}) (result {values}))) (func $f (type $t) unreachable)");
    let bodies = [("block", "block (type $t) end"), ("loop", "loop (type $t) end"), ("call", "call $f")];
    let bombs =
        bodies.iter().flat_map(|(name, body)| [500, 5_000].map(|count| (format!("{name}-{count}"), *body, count)));
    let bombs = bombs.map(|(name, body, count)| {
        let arguments = times(1_000, "i32.const 0");
        let module = format!("{types} (func (result {values}) {arguments} {})", times(count, body));
        Ok((name, component(&module)?))
    });
    install(server, &bombs.collect::<Result<Vec<_>>>()?)
}

/// Installs a component with as many large functions as the structure check allows.
fn compile_bomb(server: &Server) -> Result<()> {
    let statements = times(30_000, "local.get 0 i64.mul local.get 1 i64.xor");
    let function = format!("(func (param i64 i64) (result i64) local.get 0 {statements})");
    install(server, &[("deep".to_owned(), component(&times(60, function))?)])
}

/// Installs components with deeply nested component types and instance types, and with `instances = "kept"`.
fn nested_types(server: &Server) -> Result<()> {
    let mut components = Vec::new();
    for (kind, levels) in [(0x41, 1_500), (0x41, 300_000), (0x42, 1_500), (0x42, 300_000)] {
        let name = format!("nested-{kind}-{levels}");
        fs::write(server.extensions().join(format!("{name}.toml")), "instances = \"kept\"\n")?;
        let section = [vec![1], [kind, 1, 1].repeat(levels), vec![kind, 0]].concat();
        let length = (0..3).map(|place| (section.len() >> (7 * place) & 0x7f) as u8 | if place < 2 { 0x80 } else { 0 });
        let good = fs::read(annex_components::TEST_EXTENSION)?;
        components.push((name, [good, vec![7], length.collect(), section].concat()));
    }
    install(server, &components)
}

fn parameter_schema(server: &Server) -> Result<()> {
    let settings = "[parameters]\nuri = \"https://annex.example/other/v1\"\nbehaviour = { describe = \"schema\" }\n";
    fs::write(server.extensions().join("schema.toml"), settings)?;
    install(server, &[("schema".to_owned(), fs::read(annex_components::TEST_EXTENSION)?)])
}

/// Sends messages for which a search with a tenant's patterns takes the longest allowed time. One more message is too
/// long and is refused.
fn tenant_search(server: &Server) -> Result<()> {
    let turn = |length: usize| {
        let message = message(&format!("search-{length}"), &letters(length), "");
        let params = message.replacen('{', r#"{"tenant":"searching","#, 1);
        let (address, request) = (server.address.clone(), call("SendMessage", &params, ""));
        thread::spawn(move || exchange(&address, &request))
    };
    let lengths = (0..TURNS).map(|number| 30_000 + number).chain([1_000_000]);
    let turns: Vec<_> = lengths.map(turn).collect();
    for turn in turns {
        let answer = turn.join().map_err(|_| anyhow::anyhow!("a turn panicked"))??;
        ensure!(answer.contains("nothing matched") || answer.contains("too long"), "the search found: {answer}");
    }
    Ok(())
}

/// Pseudo-random letters that do not compress.
fn letters(count: usize) -> String {
    let mut number = 12_345_u64;
    let letter = |_| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if number >> 63 == 0 { 'a' } else { 'b' }
    };
    (0..count).map(letter).collect()
}

/// Requests the card of a tenant whose patterns would take gigabytes of memory when compiled.
fn tenant_patterns(server: &Server) -> Result<()> {
    let answer = exchange(&server.address, &get("/refused/.well-known/agent-card.json"))?;
    ensure!(answer.contains(" 503 "), "the tenant is served: {answer}");
    Ok(())
}

/// Opens connections that send the first byte of the HTTP/2 preface and nothing more.
fn one_byte_connections(server: &Server) -> Result<()> {
    let connections = hold(server, 3_900, |stream| stream.write_all(b"P"))?;
    thread::sleep(Duration::from_secs(10));
    drop(connections);
    Ok(())
}

fn hold(
    server: &Server,
    count: usize,
    begin: impl Fn(&mut TcpStream) -> std::io::Result<()>,
) -> Result<Vec<TcpStream>> {
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = connect(&server.address)?;
        // One that is refused has done no harm.
        if begin(&mut stream).is_ok() {
            held.push(stream);
        }
    }
    Ok(held)
}

/// Sends requests whose body lacks its last byte.
fn unfinished_bodies(server: &Server) -> Result<()> {
    let body = vec![b' '; (1 << 20) - 1];
    let connections = hold(server, 1_500, |stream| {
        stream.set_write_timeout(Some(Duration::from_millis(200)))?;
        stream.write_all(&head(1 << 20, ""))?;
        stream.write_all(&body)
    })?;
    thread::sleep(Duration::from_secs(5));
    drop(connections);
    Ok(())
}

/// Continues one waiting task with large messages. Other clients query the task and do not read the answers.
fn large_task(server: &Server) -> Result<()> {
    let first = exchange(&server.address, &call("SendMessage", &message("wait-first", "Hello", ""), ""))?;
    let task = id_of(&first).context("the first task")?;
    let text = "x".repeat(900_000);
    for number in 0..60 {
        let more = format!(r#","taskId":"{task}""#);
        exchange(&server.address, &call("SendMessage", &message(&format!("wait-{number}"), &text, &more), ""))?;
    }
    let request = call("GetTask", &format!(r#"{{"id":"{task}"}}"#), "");
    let unread = hold(server, 100, |stream| stream.write_all(&request))?;
    thread::sleep(Duration::from_secs(5));
    drop(unread);
    Ok(())
}

pub(crate) fn id_of(answer: &str) -> Option<&str> {
    answer.split_once(r#""task":{"id":""#).and_then(|(_, rest)| rest.split('"').next())
}

/// Creates more waiting tasks than a store has room for.
fn waiting_tasks(server: &Server) -> Result<()> {
    let threads = (0..4).map(|thread| {
        let address = server.address.clone();
        thread::spawn(move || {
            for number in 0..2_750 {
                exchange(
                    &address,
                    &call("SendMessage", &message(&format!("wait-{thread}-{number}"), "Hello", ""), ""),
                )?;
            }
            Ok::<_, anyhow::Error>(())
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    }
    Ok(())
}

//! The compiling processes: their environment, their end, and that no other code compiles.

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use annex_runtime::{COMPILE_ARGUMENT, CompilerProcess, Extension, LoadError, Runtime, RuntimeConfig};
use tempfile::TempDir;

use crate::bombs;
use crate::support::{component, installation};

fn runtime(config: RuntimeConfig) -> Runtime {
    Runtime::new(&RuntimeConfig { instances: 4, ..config }).expect("the runtime starts")
}

async fn load(runtime: &Runtime) -> Result<Extension, LoadError> {
    runtime.load(component(annex_components::HELLO_EXTENSION), installation()).await
}

/// Loads the component with a mark in its own section, so that each is compiled separately.
async fn load_marked(runtime: &Runtime, mark: u8) -> Result<Extension, LoadError> {
    let mut bytes = component(annex_components::HELLO_EXTENSION);
    bytes.extend([0, 3, 1, b'm', mark]);
    runtime.load(bytes, installation()).await
}

/// A config with a shell in place of the compiler.
fn shell(script: &str) -> RuntimeConfig {
    let arguments = vec!["-c".into(), script.into()];
    RuntimeConfig { compiler: CompilerProcess { program: "/bin/sh".into(), arguments }, ..RuntimeConfig::default() }
}

/// The error of a load with a shell script in place of the compiler.
async fn error_of(script: &str) -> LoadError {
    load(&runtime(shell(script))).await.expect_err("nothing is compiled")
}

/// A script that sends the greeting of a compiler and continues with `script`.
fn greeting_then(script: &str) -> String {
    format!("echo 'annex compiles: 1' >&0; {script}")
}

/// A folder and the path of a file in it that does not exist yet.
fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    (folder, file)
}

/// Descriptors that this process has inherited and passes on to its children.
fn left_open() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd").expect("descriptors").filter_map(Result::ok);
    let left_open = entries.filter(|entry| {
        let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
        let info = fs::read_to_string(info).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or_default();
        i64::from_str_radix(flags.trim(), 8).is_ok_and(|flags| flags & 0o2_000_000 == 0)
    });
    left_open.filter_map(|entry| fs::read_link(entry.path()).ok()).map(|to| to.display().to_string()).collect()
}

/// Polls until `found` returns a value.
async fn until<T>(found: impl Fn() -> Option<T>) -> T {
    loop {
        if let Some(found) = found() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The process id that a script writes to the file.
async fn written_pid(file: &Path) -> PathBuf {
    let text = until(|| fs::read_to_string(file).ok().filter(|text| text.ends_with('\n'))).await;
    Path::new("/proc").join(text.trim())
}

#[tokio::test]
async fn the_process_gets_the_pipe_and_nothing_else() {
    let (_folder, file) = file();
    let shown = file.display();
    // `ls` has a descriptor for the listed folder, and the redirection is descriptor 1.
    let error = error_of(&format!("{{ ls -l /proc/$$/fd; pwd; env; }} > {shown}; exit 1")).await;
    assert!(matches!(error, LoadError::CompilerStart { .. }), "{error:?}");
    let text = fs::read_to_string(&file).expect("the shell has written");
    let descriptors: Vec<&str> = text.lines().filter_map(|line| line.split_once(" -> ")).map(|(_, to)| to).collect();
    assert!(descriptors[0].starts_with("socket:"), "{text}");
    assert_eq!(descriptors[2], "/dev/null", "{text}");
    // The shell keeps a copy of the redirected descriptor, and a test runner may have left some open.
    let left_open: Vec<String> = left_open();
    let foreign = |to: &&&str| {
        let known = to.starts_with("socket:") || **to == "/dev/null" || **to == shown.to_string();
        !known && !left_open.iter().any(|open| open == **to)
    };
    assert_eq!(descriptors.iter().find(foreign), None, "{text}");
    assert!(descriptors.iter().filter(|to| to.starts_with("socket:")).count() == 1, "{text}");
    assert!(text.lines().any(|line| line == "/"), "{text}");
    assert!(!text.contains("PATH=/") && !text.contains("CARGO"), "{text}");
}

#[tokio::test]
async fn a_program_that_cannot_be_started_or_does_not_compile_is_named_as_the_reason() {
    let compiler = CompilerProcess { program: "/nowhere/annex".into(), arguments: Vec::new() };
    let error = load(&runtime(RuntimeConfig { compiler, ..RuntimeConfig::default() })).await.expect_err("no program");
    assert!(matches!(error, LoadError::CompilerStart { .. }), "{error:?}");
    for script in ["exit 0", "exit 3", "echo 'Usage: sh [FILES]' >&0", "head -c 100 /dev/zero >&0"] {
        let error = error_of(script).await;
        let LoadError::CompilerStart { reason } = &error else { unreachable!("{script}: {error:?}") };
        assert!(reason.to_string().contains("compile_if_asked"), "{script}: {reason}");
    }
}

#[tokio::test]
async fn each_way_that_a_process_ends_has_its_error() {
    let error = error_of(&greeting_then("kill -ABRT $$")).await;
    assert!(matches!(error, LoadError::CompileMemory { .. }), "{error:?}");
    let error = error_of(&greeting_then("kill -XCPU $$")).await;
    assert!(matches!(error, LoadError::CompileTime { .. }), "{error:?}");
    let error = error_of(&greeting_then("kill -SYS $$")).await;
    assert!(matches!(error, LoadError::CompilerForbidden { .. }), "{error:?}");
    for end in ["kill -SEGV $$", "kill -KILL $$", "exit 101", "exit 0"] {
        let error = error_of(&greeting_then(end)).await;
        assert!(matches!(error, LoadError::CompilerCrash { .. }), "{end}: {error:?}");
        // Only a process with this signal has overflowed its stack.
        assert_eq!(error.to_string().contains("nest too deep"), end == "kill -SEGV $$", "{error}");
    }
}

#[tokio::test]
async fn what_is_no_answer_is_not_believed() {
    for nonsense in
        ["head -c 100000 /dev/zero >&0", "printf '\\377\\377\\377\\177' >&0", "printf '\\002\\0\\0\\0[]' >&0"]
    {
        let error = error_of(&greeting_then(&format!("{nonsense}; cat <&0 >/dev/null"))).await;
        assert!(matches!(error, LoadError::CompilerAnswer { .. }), "{nonsense}: {error:?}");
    }
}

/// Checks that a process that sends `first` and nothing else is killed after the timeout.
async fn check_killed(first: &str) {
    let (_folder, file) = file();
    let script = format!("{first} echo $$ > {}; exec sleep 1000", file.display());
    let compile_time = Duration::from_secs(3);
    let error = load(&runtime(RuntimeConfig { compile_time, ..shell(&script) })).await.expect_err("it sleeps");
    assert!(matches!(error, LoadError::CompileTime { .. }), "{first}: {error:?}");
    assert!(error.to_string().contains("runtime.compile_seconds"), "{error}");
    let process = written_pid(&file).await;
    until(|| (!process.exists()).then_some(())).await;
}

#[tokio::test]
async fn a_compiling_process_is_killed_after_its_timeout() {
    tokio::join!(check_killed(""), check_killed("echo 'annex compiles: 1' >&0;"));
}

#[tokio::test]
async fn a_load_that_is_given_up_ends_its_process() {
    let (_folder, file) = file();
    let runtime = runtime(shell(&greeting_then(&format!("echo $$ > {}; exec sleep 1000", file.display()))));
    let process = {
        let mut loading = pin!(load(&runtime));
        tokio::select! {
            loaded = &mut loading => unreachable!("{:?}", loaded.err()),
            process = written_pid(&file) => process,
        }
    };
    until(|| (!process.exists()).then_some(())).await;
}

#[tokio::test]
async fn a_component_that_exceeds_the_memory_limit_is_refused_and_others_load() {
    let runtime = runtime(RuntimeConfig { compile_memory: 96 << 20, ..RuntimeConfig::default() });
    let error = runtime.load(bombs::deep(20), installation()).await.expect_err("it takes more");
    let LoadError::CompileMemory { limit, .. } = error else { unreachable!("{error:?}") };
    assert_eq!(limit, 96 << 20);
    assert!(error.to_string().contains("runtime.compile_memory_bytes"), "{error}");
    load(&runtime).await.expect("the next one loads");
}

#[tokio::test]
async fn others_load_while_one_is_compiled() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = folder.path().join("first");
    let program = std::env::current_exe().expect("the test binary");
    // The first process never ends. All others are those that a host starts.
    let script = format!(
        "mkdir {} && echo 'annex compiles: 1' >&0 && exec sleep 1000; exec {} {COMPILE_ARGUMENT}",
        first.display(),
        program.display()
    );
    let runtime = runtime(shell(&script));
    let mut endless = pin!(load(&runtime));
    tokio::select! {
        loaded = &mut endless => unreachable!("{:?}", loaded.err()),
        () = until(|| first.exists().then_some(())) => {}
    }
    tokio::select! {
        loaded = &mut endless => unreachable!("{:?}", loaded.err()),
        loaded = load_marked(&runtime, 1) => drop(loaded.expect("it loads")),
    }
}

#[tokio::test]
async fn no_more_components_are_compiled_at_once_than_the_config_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Each process counts the running ones, and stays until the others had time to start.
    let here = folder.path().display();
    let script = format!("cd {here}; touch $$; sleep 0.2; ls | grep -c -v seen >> seen; rm $$; exit 1");
    let runtime = runtime(RuntimeConfig { compile_processes: 2, ..shell(&script) });
    let load = |mark| load_marked(&runtime, mark);
    let loads = tokio::join!(load(0), load(1), load(2), load(3), load(4));
    assert!(loads.0.is_err() && loads.4.is_err());
    let seen = fs::read_to_string(folder.path().join("seen")).expect("they have counted");
    assert_eq!(seen.lines().count(), 5, "{seen}");
    assert!(seen.lines().all(|count| count == "1" || count == "2"), "{seen}");
}

#[tokio::test]
async fn a_cached_component_needs_no_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = || Some(folder.path().join("cache"));
    load(&runtime(RuntimeConfig { cache: cache(), ..RuntimeConfig::default() })).await.expect("it is compiled");
    let none = runtime(RuntimeConfig { cache: cache(), ..shell("exit 1") });
    assert!(!load(&none).await.expect("it is in the cache").was_compiled());
}

/// Paths of host sources for which `finds` returns true, relative to the folder of crates.
fn sources_with(finds: impl Fn(&str) -> bool) -> Vec<String> {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates");
    let crates = fs::read_dir(host).expect("the folder of crates").map(|entry| entry.expect("a crate").path());
    let mut folders: Vec<PathBuf> = crates.map(|path| path.join("src")).filter(|path| path.is_dir()).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if finds(&fs::read_to_string(&path).expect("source text")) {
                found.push(path.strip_prefix(host).expect("a file of the host").display().to_string());
            }
        }
    }
    found
}

#[test]
fn only_the_process_that_compiles_calls_the_compiler() {
    let calls = ["precompile_", "Component::new(", "Component::from_", "CodeBuilder"];
    // Hashing settings compiles nothing.
    let hash = "precompile_compatibility_hash";
    let found = sources_with(|text| calls.iter().any(|call| text.replace(hash, "").contains(call)));
    assert_eq!(found, ["runtime/src/load/compile/child.rs"]);
}

/// The parsers are private modules of the process's file, so that no other code can call them.
#[test]
fn only_the_process_that_compiles_reads_a_component() {
    let parsers = [
        "wasmparser",
        "wit_parser",
        "wit_component",
        "wasm_metadata",
        "wasm_encoder",
        "wasmprinter",
        "gimli",
        "addr2line",
        "Module::new(",
        "Module::from_",
        "Module::validate",
        "detect_precompiled",
    ];
    let readers = [
        "runtime/src/load/compile/child",
        // A loop of the host itself, and test modules.
        "runtime/src/confinement/self_check.rs",
        "runtime/src/confinement/store/tests.rs",
        "authoring/src/contract.rs",
        // Encodes a section that is appended to a component, and reads nothing of the component.
        "manifest/src/section.rs",
        // `annex build` reads only what the project's own commands have built. Those commands can do more than a
        // component.
        "authoring/src/build/",
    ];
    let found = sources_with(|text| parsers.iter().any(|parser| text.contains(parser)));
    for reader in readers {
        assert!(found.iter().any(|path| path.starts_with(reader)), "{reader} reads no components any more: {found:?}");
    }
    let others: Vec<_> = found.iter().filter(|path| !readers.iter().any(|reader| path.starts_with(reader))).collect();
    assert!(others.is_empty(), "these read components outside of the process that compiles: {others:?}");
}

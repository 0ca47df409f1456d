//! Reads and compiles components in separate processes with limits on time and memory, a few at a time.
//!
//! The host takes compiled code from the cache or from such a process, and never calls the compiler or a parser
//! itself: these cannot be interrupted, and a stack overflow in them ends their process. A process can be killed.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use annex_fairness::FairPlaces;
use tokio::sync::oneshot;
use tokio::time::timeout;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::config::RuntimeConfig;
use crate::confinement::engine::EngineOptions;
use crate::confinement::grants::Grants;
use crate::digest::Digest;
use crate::error::LoadError;
use crate::load::cache::{CompileCache, Facts};
use crate::load::compile::shared::{Code, SharedCode};
use crate::load::inspect::{Inspection, InspectionResult, MAX_COMPONENT_BYTES};
use crate::load::memory_images;
use crate::load::source::Source;

mod child;
mod confine;
mod process;
pub(crate) mod shared;
mod under_way;
mod wire;

pub use child::{COMPILE_ARGUMENT, compile_if_asked};
pub use process::CompilerProcess;
use process::{CompilerOutput, Job};
use under_way::UnderWay;
pub use under_way::{Compilation, compilations};
use wire::Task;

/// The unparsed bytes of a component.
pub(crate) struct ComponentFile {
    /// The tenant that loads the component. Waiting tenants are served round robin.
    tenant: Arc<str>,
    /// Display name; may be empty.
    name: Arc<str>,
    bytes: Vec<u8>,
    digest: Digest,
}

impl ComponentFile {
    /// Computes the digest on a thread for blocking work, because hashing a large file would delay requests on a
    /// worker.
    pub(crate) async fn of(tenant: &Arc<str>, name: &str, bytes: Vec<u8>) -> Result<Self, LoadError> {
        if bytes.len() > MAX_COMPONENT_BYTES {
            return Err(LoadError::TooLarge { size: bytes.len(), limit: MAX_COMPONENT_BYTES });
        }
        let tenant = Arc::clone(tenant);
        let name = Arc::from(name);
        let digested = tokio::task::spawn_blocking(move || Self { tenant, name, digest: Digest::of(&bytes), bytes });
        let digested = digested.await;
        digested.map_err(|panicked| LoadError::CompilerStart { reason: panicked.into() })
    }
}

#[derive(Clone)]
pub(crate) struct Compiler {
    engine: Engine,
    cache: Option<Arc<CompileCache>>,
    shared: Arc<SharedCode>,
    process: CompilerProcess,
    /// Timeout for one component. Waiting for other compilations does not count.
    time: Duration,
    /// Memory limit of a process, in bytes.
    memory: u64,
    options: EngineOptions,
    /// One place per running process. Waiting tenants are served round robin.
    places: FairPlaces,
}

impl Compiler {
    pub(crate) fn new(engine: Engine, cache: Option<CompileCache>, config: &RuntimeConfig) -> Self {
        let places = usize::try_from(config.compile_processes).unwrap_or(usize::MAX).max(1);
        Self {
            engine,
            cache: cache.map(Arc::new),
            shared: Arc::default(),
            process: config.compiler.clone(),
            time: config.compile_time,
            memory: config.compile_memory,
            options: config.engine_options(),
            places: FairPlaces::new(places),
        }
    }

    /// Inspects a component in a separate process.
    pub(crate) async fn inspect(&self, component: ComponentFile) -> Result<InspectionResult, LoadError> {
        let (digest, size) = (component.digest, component.bytes.len());
        let CompilerOutput { outline, unkeepable, .. } =
            self.in_process(component, Task::Inspect, Grants::default(), |_| Ok(())).await?.0;
        Ok(InspectionResult { inspection: Inspection::of(digest, size, outline)?, unkeepable })
    }

    /// Returns the code of a component, and whether it was compiled now. Code in use comes first, then cached code.
    /// Without both the component is compiled, but only if the grants cover its imports. Code for kept instances is
    /// separate code.
    pub(crate) async fn code(
        &self,
        component: ComponentFile,
        keep: bool,
        grants: &Grants,
    ) -> Result<(Arc<Code>, bool), LoadError> {
        let (digest, size) = (component.digest, component.bytes.len());
        let key = self.key(&component, keep);
        let place = self.shared.place(key);
        // Held until the end, so that of concurrent loads of one component only one compiles.
        let mut in_use = place.lock().await;
        if let Some(code) = in_use.upgrade() {
            return Ok((code, false));
        }
        let ((facts, component), compiled) = match self.cached(key).await {
            Some(cached) => (cached, false),
            None => (self.compile(component, key, keep, grants).await?, true),
        };
        let inspection = Inspection::of(digest, size, facts.outline)?;
        let code = Arc::new(Code { component, inspection, functions: facts.functions });
        *in_use = Arc::downgrade(&code);
        Ok((code, compiled))
    }

    /// The digest that identifies the code of a component. It depends on the component and on the options that change
    /// its code. The engine is not part of it.
    fn key(&self, component: &ComponentFile, keep: bool) -> Digest {
        let digest = component.digest;
        // Other bytes may look like the name of a debug section. Then the component is compiled once more than
        // needed.
        let has_debug_info = self.options.debug_info && contains(&component.bytes, DEBUG_SECTION);
        match (keep, has_debug_info) {
            (false, false) => digest,
            (true, false) => Digest::of(&[digest.as_bytes(), KEPT].concat()),
            (false, true) => Digest::of(&[digest.as_bytes(), DEBUG_SECTION].concat()),
            (true, true) => Digest::of(&[digest.as_bytes(), KEPT, DEBUG_SECTION].concat()),
        }
    }

    async fn cached(&self, key: Digest) -> Option<(Facts, Component)> {
        let engine = self.engine.clone();
        let cache = Arc::clone(self.cache.as_ref()?);
        // A damaged cache only costs a compilation.
        tokio::task::spawn_blocking(move || cache.read(&engine, &key)).await.ok().flatten()
    }

    /// Compiles a component and caches the code under `key`.
    async fn compile(
        &self,
        component: ComponentFile,
        key: Digest,
        keep: bool,
        grants: &Grants,
    ) -> Result<(Facts, Component), LoadError> {
        let engine = self.engine.clone();
        let cache = self.cache.clone();
        let digest = component.digest;
        let finish = move |made: &CompilerOutput| {
            let component = deserialize(&engine, &made.code, digest)?;
            if let Some(cache) = cache {
                let facts = Facts { outline: made.outline.clone(), functions: made.functions };
                cache.write(&key, &facts, &made.code);
            }
            Ok(component)
        };
        let (made, compiled) = self.in_process(component, Task::Compile { keep }, grants.clone(), finish).await?;
        Ok((Facts { outline: made.outline, functions: made.functions }, compiled))
    }

    /// Runs a process for the component, and calls `finish` within the timeout. Dropping the future ends the process.
    async fn in_process<T: Send + 'static>(
        &self,
        component: ComponentFile,
        task: Task,
        grants: Grants,
        finish: impl FnOnce(&CompilerOutput) -> Result<T, LoadError> + Send + 'static,
    ) -> Result<(CompilerOutput, T), LoadError> {
        // This process itself was started to compile, and its main function did not check for that. Starting another
        // process would repeat this endlessly.
        if child::asked() {
            return Err(LoadError::CompilerStart { reason: NOT_ENTERED.into() });
        }
        let cannot = |error: io::Error| LoadError::CompilerStart { reason: error.into() };
        let place = self.places.take(&component.tenant).await;
        let compiles = matches!(task, Task::Compile { .. });
        let under_way = compiles.then(|| UnderWay::begin(Arc::clone(&component.name), Arc::clone(&component.tenant)));
        // One socket for both directions: shutting it down from either side ends the conversation.
        let (pipe, end_of_child) = UnixStream::pair().map_err(cannot)?;
        let hang_up = HangUp(pipe.try_clone().map_err(cannot)?);
        let process = self.process.clone();
        let ComponentFile { bytes, digest, .. } = component;
        let job = Job {
            bytes,
            digest,
            task,
            grants,
            engine: crate::confinement::engine::identity(&self.engine),
            time: self.time,
            memory: self.memory,
            options: self.options,
        };
        let (sender, made) = oneshot::channel();
        let work = move || {
            let made = process.run(&job, &pipe, end_of_child).and_then(|made| {
                let finished = finish(&made)?;
                Ok((made, finished))
            });
            // The process has ended, so another one may start already.
            drop(place);
            // Sending fails if the load was abandoned.
            let _ = sender.send(made);
        };
        // The kernel kills the process when the thread that started it ends, so this must not be a thread of a pool.
        thread::Builder::new().name("annex-compile".to_owned()).spawn(work).map_err(cannot)?;
        // The CPU limit does not count sleeping, so a wall-clock limit is needed too.
        let made = timeout(self.time, made).await;
        drop(hang_up);
        let made = match made {
            Ok(Ok(made)) => made,
            Ok(Err(panicked)) => Err(LoadError::CompilerStart { reason: panicked.into() }),
            Err(_) => Err(LoadError::CompileTime { digest, limit: self.time }),
        };
        if let Some(under_way) = under_way {
            under_way.end(made.as_ref().err());
        }
        made
    }
}

/// Part of the key of code for kept instances.
const KEPT: &[u8] = b"kept";
/// Prefix of the names of debug sections. Part of the key of code with debug information.
const DEBUG_SECTION: &[u8] = b".debug_";

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

const NOT_ENTERED: &str = "this process was started to compile a component, and its main function has not called \
                           annex_runtime::compile_if_asked() before all else";

/// Shuts the socket down when dropped, which ends the process.
struct HangUp(UnixStream);

impl Drop for HangUp {
    fn drop(&mut self) {
        // Fails if the other end is closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

#[expect(unsafe_code, reason = "wasmtime trusts the bytes that it deserialises")]
fn deserialize(engine: &Engine, code: &[u8], digest: Digest) -> Result<Component, LoadError> {
    // SAFETY: the bytes come through a socket that only a process of this program had, which this process has
    // started. Its engine has the same version and settings (`Job::engine`), and the bytes match the digest that it
    // sent.
    let component = unsafe { Component::deserialize(engine, code) };
    let with_memory = component.and_then(memory_images::make);
    with_memory.map_err(|error| LoadError::Compile { digest, source: Source::from(error) })
}

#[cfg(test)]
mod tests {
    use crate::confinement::engine::{self, EngineOptions};

    crate::compile_in_tests!();

    #[test]
    fn the_compiling_engine_makes_code_for_the_running_engine() {
        let none = EngineOptions::default();
        let debugging = EngineOptions { debug_info: true, ..none };
        let counting = EngineOptions { count_instructions: true, ..none };
        let identities = [none, debugging, counting].map(|options| {
            let runs = engine::start(4, options).expect("the engine starts");
            let compiles = engine::for_compiling(options).expect("the engine starts");
            assert_eq!(engine::identity(&compiles), engine::identity(&runs));
            engine::identity(&runs)
        });
        let [none, debugging, counting] = identities;
        assert_eq!(none, debugging, "authors and servers share the code of components without debug information");
        assert_ne!(none, counting, "code that counts is other code");
    }
}

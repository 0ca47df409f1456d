//! Reads and compiles components, each in a process of its own with limits on its time and memory, and a few at a time.
//!
//! The host takes compiled code from the cache or from such a process, and never calls the compiler or a parser itself:
//! neither can be stopped from inside, and one that recurses too deep ends its process. A process can be killed.

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
use crate::load::inspect::{Inspected, Inspection, MAX_COMPONENT_BYTES};
use crate::load::source::Source;

mod child;
mod confine;
mod process;
pub(crate) mod shared;
mod under_way;
mod wire;

pub use child::{COMPILE_ARGUMENT, compile_if_asked};
pub use process::CompilerProcess;
use process::{Job, Made};
use under_way::UnderWay;
pub use under_way::{Compilation, compilations};
use wire::Task;

/// The bytes of a component, which nobody has read yet.
pub(crate) struct ComponentFile {
    /// Whose load it is: tenants that wait for a process get one in turn.
    tenant: Arc<str>,
    /// The name that people know it by; may be empty.
    name: Arc<str>,
    bytes: Vec<u8>,
    digest: Digest,
}

impl ComponentFile {
    /// Digests the bytes on a thread for blocking work: a large one would keep a worker from requests for too long.
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
    /// The longest that one component may take. Waiting for others does not count: nobody else's load may cost a load.
    time: Duration,
    /// Bytes of memory that one process may have.
    memory: u64,
    options: EngineOptions,
    /// Each process holds one until it has ended. Tenants that wait get them in turn.
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

    /// What the component says of itself. The process that finds it out reads it, as one that compiles would.
    pub(crate) async fn inspect(&self, component: ComponentFile) -> Result<Inspected, LoadError> {
        let (digest, size) = (component.digest, component.bytes.len());
        let Made { outline, unkeepable, .. } =
            self.in_process(component, Task::Inspect, Grants::default(), |_| Ok(())).await?.0;
        Ok(Inspected { inspection: Inspection::of(digest, size, outline)?, unkeepable })
    }

    /// The component's code, and whether it had to be compiled: it is in use already, or in the cache, or is compiled, if
    /// the grants cover what it imports. Code that is for instances that are kept is other code.
    pub(crate) async fn code(
        &self,
        component: ComponentFile,
        keep: bool,
        grants: &Grants,
    ) -> Result<(Arc<Code>, bool), LoadError> {
        let (digest, size) = (component.digest, component.bytes.len());
        let key = self.key(&component, keep);
        let place = self.shared.place(key);
        // Locked to the end, so that of many who load one component at the same time one compiles it.
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

    /// The digest under which the code of a component is found, which says all that the code depends on beside the engine.
    fn key(&self, component: &ComponentFile, keep: bool) -> Digest {
        let digest = component.digest;
        // Other bytes may look like the name of a section. Then the component is compiled once more.
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
        // A damaged cache costs a compilation.
        tokio::task::spawn_blocking(move || cache.read(&engine, &key)).await.ok().flatten()
    }

    /// Compiles the component, and keeps its code in the cache under the key.
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
        let finish = move |made: &Made| {
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

    /// Starts a process for the component, and does `finish` before its time is over. Dropping the future, because a client
    /// went away for instance, ends the process.
    async fn in_process<T: Send + 'static>(
        &self,
        component: ComponentFile,
        task: Task,
        grants: Grants,
        finish: impl FnOnce(&Made) -> Result<T, LoadError> + Send + 'static,
    ) -> Result<(Made, T), LoadError> {
        // This process was itself started to compile, and its main function has not looked at the arguments. A process
        // that it started would not either, and so on without end.
        if child::asked() {
            return Err(LoadError::CompilerStart { reason: NOT_ENTERED.into() });
        }
        let cannot = |error: io::Error| LoadError::CompilerStart { reason: error.into() };
        let place = self.places.take(&component.tenant).await;
        let compiles = matches!(task, Task::Compile { .. });
        let under_way = compiles.then(|| UnderWay::begin(Arc::clone(&component.name), Arc::clone(&component.tenant)));
        // One socket for both directions: shutting it down ends the conversation from either side.
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
            // The process has ended, so another one may start before the load is over.
            drop(place);
            // A load that gave up wants no component.
            let _ = sender.send(made);
        };
        // The process is killed when the thread that started it ends, so that is no worker of a pool.
        thread::Builder::new().name("annex-compile".to_owned()).spawn(work).map_err(cannot)?;
        // The limit on CPU time does not count what a process sleeps, so the clock bounds it as well.
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

/// What makes the key of code for instances that are kept.
const KEPT: &[u8] = b"kept";
/// The beginning of the names of sections with debug information, which makes the key of code that has it.
const DEBUG_SECTION: &[u8] = b".debug_";

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

const NOT_ENTERED: &str = "this process was started to compile a component, and its main function has not called \
                           annex_runtime::compile_if_asked() before all else";

/// Ends the conversation with the process, and thereby the process.
struct HangUp(UnixStream);

impl Drop for HangUp {
    fn drop(&mut self) {
        // It fails when the other end is closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

#[expect(unsafe_code, reason = "wasmtime trusts the bytes that it deserialises")]
fn deserialize(engine: &Engine, code: &[u8], digest: Digest) -> Result<Component, LoadError> {
    // SAFETY: the bytes come through a socket that only a process of this very program had, started by this one, whose
    // engine has the same version and settings (`Job::engine`), and have the digest that it gave.
    let component = unsafe { Component::deserialize(engine, code) };
    component.map_err(|error| LoadError::Compile { digest, source: Source::from(error) })
}

#[cfg(test)]
mod tests {
    use crate::confinement::engine::{self, EngineOptions};

    crate::compile_in_tests!();

    #[test]
    fn the_engine_that_compiles_makes_code_for_the_one_that_runs_it() {
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

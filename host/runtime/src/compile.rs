//! Compiles components, one at a time and on a thread of its own, so that a large one takes one core and no more.
//!
//! A thread cannot be ended from outside. When a compilation takes too long its load is refused, and the thread runs on
//! until the compiler is done; further ones wait for it that long. What really bounds it is [`structure`].

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::cache::CompileCache;
use crate::digest::Digest;
use crate::error::{LoadError, Source};
use crate::structure;

#[derive(Clone)]
pub(crate) struct Compiler {
    engine: Engine,
    cache: Option<Arc<CompileCache>>,
    /// The longest that a load waits for its component, others before it included.
    time: Duration,
    /// Taken by whoever compiles, until it is done.
    worker: Arc<Semaphore>,
}

impl Compiler {
    pub(crate) fn new(engine: Engine, cache: Option<CompileCache>, time: Duration) -> Self {
        Self { engine, cache: cache.map(Arc::new), time, worker: Arc::new(Semaphore::new(1)) }
    }

    /// The component, and whether it had to be compiled rather than taken from the cache.
    pub(crate) async fn component(&self, bytes: Vec<u8>, digest: Digest) -> Result<(Component, bool), LoadError> {
        if let Some(component) = self.cached(digest).await {
            return Ok((component, false));
        }
        let compiled = timeout(self.time, self.compile(bytes, digest)).await;
        let component = compiled.unwrap_or(Err(LoadError::CompileTime { digest, limit: self.time }))?;
        Ok((component, true))
    }

    async fn cached(&self, digest: Digest) -> Option<Component> {
        let (engine, cache) = (self.engine.clone(), Arc::clone(self.cache.as_ref()?));
        // A damaged cache costs a compilation.
        tokio::task::spawn_blocking(move || cache.read(&engine, &digest)).await.ok().flatten()
    }

    async fn compile(&self, bytes: Vec<u8>, digest: Digest) -> Result<Component, LoadError> {
        let refuse = |source: Source| LoadError::Compile { digest, source };
        let worker = Arc::clone(&self.worker).acquire_owned().await.map_err(|error| refuse(error.into()))?;
        let (engine, cache) = (self.engine.clone(), self.cache.clone());
        let (sender, compiled) = oneshot::channel();
        let work = move || {
            let compiled = compile(&engine, cache.as_deref(), &bytes, digest, worker);
            // A load that gave up wants no component; the cache has it.
            let _ = sender.send(compiled);
        };
        thread::Builder::new().name("annex-compile".to_owned()).spawn(work).map_err(|error| refuse(error.into()))?;
        compiled.await.unwrap_or_else(|panicked| Err(refuse(panicked.into())))
    }
}

/// Holds the worker until it is done.
fn compile(
    engine: &Engine,
    cache: Option<&CompileCache>,
    bytes: &[u8],
    digest: Digest,
    _worker: OwnedSemaphorePermit,
) -> Result<Component, LoadError> {
    structure::check(bytes)?;
    let component =
        Component::new(engine, bytes).map_err(|error| LoadError::Compile { digest, source: error.into() })?;
    if let Some(cache) = cache {
        match component.serialize() {
            Ok(compiled) => cache.write(&digest, &compiled),
            Err(error) => tracing::warn!(component = %digest, %error, "the compiled component could not be cached"),
        }
    }
    Ok(component)
}

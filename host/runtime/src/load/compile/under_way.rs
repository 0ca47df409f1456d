//! Lists the components that are being compiled, so that operators can see why they wait. Compiling an interpreter
//! takes a minute.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::error::LoadError;

/// A running compilation.
#[derive(Clone, Debug)]
pub struct Compilation {
    /// Display name of the component; may be empty.
    pub name: Arc<str>,
    /// The tenant that loads the component; empty for a server without tenants.
    pub tenant: Arc<str>,
    /// Start time of the compiling process.
    pub since: Instant,
}

/// All running compilations of this process.
static UNDER_WAY: Mutex<Vec<Arc<Compilation>>> = Mutex::new(Vec::new());

/// The running compilations of this process, oldest first.
#[must_use]
pub fn compilations() -> Vec<Arc<Compilation>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Keeps a compilation in the list. Dropping this value removes the compilation from the list.
pub(super) struct UnderWay(Arc<Compilation>);

impl UnderWay {
    pub(super) fn begin(name: Arc<str>, tenant: Arc<str>) -> Self {
        tracing::info!(tenant = tenant_of(&tenant), "compiling {}", shown(&name));
        let compilation = Arc::new(Compilation { name, tenant, since: Instant::now() });
        UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&compilation));
        Self(compilation)
    }

    /// Logs the result and the duration. The caller logs the reason of a failure.
    pub(super) fn end(self, failure: Option<&LoadError>) {
        let Compilation { name, tenant, since } = &*self.0;
        let (name, tenant) = (shown(name), tenant_of(tenant));
        let seconds = since.elapsed().as_secs_f64();
        match failure {
            None => tracing::info!(tenant, "compiled {name} in {seconds:.1} s"),
            Some(error) if is_of_compiler(error) => {
                tracing::info!(tenant, "{name} could not be compiled; the attempt took {seconds:.1} s");
            }
            Some(_) => tracing::info!(tenant, "{name} was refused before it was compiled"),
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, &self.0));
    }
}

fn tenant_of(tenant: &str) -> Option<&str> {
    Some(tenant).filter(|tenant| !tenant.is_empty())
}

fn shown(name: &str) -> &str {
    if name.is_empty() { "the component" } else { name }
}

/// True for an error of the compiler itself. All other errors occur before compilation starts.
fn is_of_compiler(error: &LoadError) -> bool {
    matches!(
        error,
        LoadError::Compile { .. }
            | LoadError::CompileTime { .. }
            | LoadError::CompileMemory { .. }
            | LoadError::CompilerStart { .. }
            | LoadError::CompilerForbidden { .. }
            | LoadError::CompilerCrash { .. }
            | LoadError::CompilerAnswer { .. }
    )
}

//! Loads components in these steps: inspect, check grants, compile, link, self-test. A failure at any step leaves
//! nothing behind. A separate process reads and compiles the component (`load/compile`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use annex_egress::Resolver;
use annex_keyvalue::{KeyValueStore, MemoryKeyValueStore};
use annex_protocol::ExtensionUri;
use futures::future::BoxFuture;
use wasmtime::Engine;
use wasmtime::component::InstancePre;

use crate::bindings::Hooks;
use crate::config::RuntimeConfig;
use crate::confinement::breaker::Breaker;
use crate::confinement::engine;
use crate::confinement::grants::{GrantNeeded, Grants, HttpGrant};
use crate::confinement::guest_time::GuestTime;
use crate::confinement::http_sender::Sender;
use crate::confinement::instance::GuestInstance;
use crate::confinement::kept::{self, InstanceKeeper};
use crate::confinement::linker::linker;
use crate::confinement::profile::{Profile, Services, Validators};
use crate::confinement::slots::Slots;
use crate::confinement::store::HostState;
use crate::contract::Description;
use crate::error::{LoadError, RuntimeError};
use crate::extension::Extension;
use crate::hook::{Hook, HookSet};
use crate::load::cache::CompileCache;
use crate::load::card::EntryBasis;
use crate::load::compile::shared::Code;
use crate::load::compile::{Compiler, ComponentFile};
use crate::load::descriptor::Descriptor;
use crate::load::inspect::{Inspection, InspectionResult};
use crate::load::installation::{Installation, Instances};
use crate::load::program::Program;
use crate::observation::log::Log;
use crate::observation::metrics::{BusyTime, HookTotals, Registry};
use crate::overrides::{ServiceOverrides, UnreachableClient};
use crate::recording::observer_slot::ObserverSlot;

pub(crate) mod cache;
pub(crate) mod card;
pub(crate) mod compile;
pub(crate) mod descriptor;
pub(crate) mod inspect;
pub(crate) mod installation;
pub(crate) mod keep_functions;
pub(crate) mod manifest;
mod memory_images;
pub(crate) mod method;
mod methods;
pub(crate) mod program;
pub(crate) mod selection;
pub(crate) mod source;

/// Loads components. A `Runtime` owns the engine, its ticker and the instance pool. A process has one runtime, and one
/// further runtime per tenant. The runtime of a tenant shares the engine and the pool.
pub struct Runtime {
    engine: Engine,
    slots: Slots,
    compiler: Compiler,
    keyvalue: Arc<dyn KeyValueStore>,
    resolver: Arc<dyn Resolver>,
    metrics: Arc<Registry>,
    validators: Validators,
    guest_time: GuestTime,
    quarantine: bool,
    overrides: ServiceOverrides,
    counts_instructions: bool,
    /// The tenant whose extensions are loaded; empty for a server without tenants.
    tenant: Arc<str>,
}

impl Runtime {
    /// Starts the engine.
    ///
    /// # Errors
    /// The engine cannot be set up. An unusable cache folder is only logged.
    pub fn new(config: &RuntimeConfig) -> Result<Self, RuntimeError> {
        let engine = engine::start(config.instances, config.engine_options())?;
        let open = |folder| CompileCache::open(folder, config.cache_bytes, &engine);
        let cache = config.cache.as_deref().and_then(open);
        Ok(Self {
            compiler: Compiler::new(engine.clone(), cache, config),
            engine,
            slots: Slots::new(config.instances, config.instance_timeout),
            keyvalue: Arc::clone(&config.keyvalue),
            resolver: Arc::clone(&config.resolver),
            metrics: Arc::default(),
            validators: Validators::default(),
            guest_time: GuestTime::new(),
            quarantine: config.quarantine,
            overrides: config.overrides.clone(),
            counts_instructions: config.count_instructions,
            tenant: Arc::default(),
        })
    }

    /// Creates the runtime of a tenant. It shares the engine, the instance pool and the compiler with this runtime, and
    /// has its own keys and metrics.
    #[must_use]
    pub fn of_tenant(&self, name: &str) -> Self {
        let tenant = Arc::from(name);
        Self {
            engine: self.engine.clone(),
            slots: self.slots.of_tenant(&tenant),
            compiler: self.compiler.clone(),
            keyvalue: Arc::clone(&self.keyvalue),
            resolver: Arc::clone(&self.resolver),
            metrics: Arc::new(self.metrics.of_tenant(BusyTime::default())),
            validators: self.validators.of_tenant(&tenant),
            guest_time: self.guest_time.of_tenant(&tenant),
            quarantine: self.quarantine,
            overrides: self.overrides.clone(),
            counts_instructions: self.counts_instructions,
            tenant,
        }
    }

    /// Returns this runtime with `busy` as the counter to which all calls add their thread time.
    #[must_use]
    pub fn counting_in(self, busy: BusyTime) -> Self {
        Self { metrics: Arc::new(self.metrics.of_tenant(busy)), ..self }
    }

    /// Creates a runtime for components that run as shadows, in addition to the installed components. Its metrics are
    /// separate, and its turns use an instance only if enough instances are free. The view of each turn provides the
    /// services that a shadow calls.
    #[must_use]
    pub fn aside(&self) -> Self {
        // No turn exists while a shadow is loaded, so its requests fail then, and its keys are empty and soon forgotten.
        let overrides = ServiceOverrides {
            http: Some(Arc::new(UnreachableClient)),
            keyvalue: Some(Arc::<MemoryKeyValueStore>::default()),
            ..self.overrides.clone()
        };
        let guest_time = self.guest_time.clone();
        Self {
            overrides,
            slots: self.slots.spare(),
            metrics: Arc::default(),
            guest_time,
            ..self.of_tenant(&self.tenant)
        }
    }

    /// Metrics of all calls, over all tenants and including removed extensions.
    #[must_use]
    pub fn totals(&self) -> Vec<HookTotals> {
        self.metrics.totals()
    }

    /// Inspects a component without running it. Only the compiling process parses it.
    ///
    /// # Errors
    /// The file is too large, not a component, or not an extension of a supported contract.
    pub fn inspect(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<InspectionResult, LoadError>> {
        Box::pin(async move { self.compiler.inspect(ComponentFile::of(&self.tenant, "", bytes).await?).await })
    }

    /// Loads a component.
    ///
    /// # Errors
    /// A step of the load fails. The error names the step, and a remedy for the operator or the author.
    pub async fn load(&self, bytes: Vec<u8>, installation: Installation) -> Result<Extension, LoadError> {
        self.load_named("", bytes, installation).await
    }

    /// Like [`load`](Self::load), but the component has the display name `name` in
    /// [`compilations`](crate::compilations).
    ///
    /// # Errors
    /// A step of the load fails. The error names the step, and a remedy for the operator or the author.
    pub fn load_named<'a>(
        &'a self,
        name: &'a str,
        bytes: Vec<u8>,
        installation: Installation,
    ) -> BoxFuture<'a, Result<Extension, LoadError>> {
        self.load_accepted(name, bytes, installation, None)
    }

    /// Like [`load_named`](Self::load_named), but refuses a component that declares a need for another grant than those in
    /// `accepted`. None of the component's code has run then. `None` accepts all grants of `installation`.
    ///
    /// # Errors
    /// A step of the load fails. The error names the step, and a remedy for the operator or the author.
    pub fn load_accepted<'a>(
        &'a self,
        name: &'a str,
        bytes: Vec<u8>,
        installation: Installation,
        accepted: Option<&'a [String]>,
    ) -> BoxFuture<'a, Result<Extension, LoadError>> {
        Box::pin(async move {
            let started = Instant::now();
            let component = ComponentFile::of(&self.tenant, name, bytes).await?;
            check_secrets(&installation)?;
            let services = self.services(&installation.grants)?;
            let keep = matches!(installation.instances, Instances::Kept { .. });
            if keep && !kept::can_be_put_back() {
                let reason =
                    "the kernel cannot list the pages that a turn has written (PAGEMAP_SCAN, Linux 6.7)".to_owned();
                return Err(LoadError::Unkeepable { reason });
            }
            let (code, compiled) = self.compiler.code(component, keep, &installation.grants).await?;
            code.inspection.check_manifest()?;
            accepted.map_or(Ok(()), |accepted| code.inspection.check_accepted(accepted))?;
            // Cached code may have been compiled for an installation with other grants.
            code.inspection.check_grants(&installation.grants)?;
            let Inspection { digest, size, hooks: exported, .. } = code.inspection.clone();
            let mut program = self.link(code, &installation)?;
            let (profile, descriptor) = describe(&program, &installation, services).await?;
            let basis = EntryBasis {
                descriptor: &descriptor,
                selection: &installation.selection,
                required: installation.required,
            };
            let card = card::declared(&program, &profile, basis).await?;
            let methods = methods::declared(&program, &profile, &descriptor).await?;
            program.keeping = self.keeping(&program, &installation)?;
            Ok(Extension {
                breaker: Breaker::new(descriptor.uri.clone(), self.quarantine),
                turns: self.slots.of_extension(installation.limits.turns),
                observer: ObserverSlot::default(),
                selection: installation.selection.clone(),
                on_failure: installation.on_failure,
                descriptor,
                profile,
                required: installation.required,
                card,
                methods,
                program,
                hook_set: HookSet::of(&exported),
                exported,
                digest,
                settings: installation.digest(),
                size,
                load_time: started.elapsed(),
                compiled,
            })
        })
    }

    fn services(&self, grants: &Grants) -> Result<Services, LoadError> {
        let sender = |grant: &HttpGrant| Sender::new(grant.clone(), Arc::clone(&self.resolver)).map(Arc::new);
        let http = grants.http.as_ref().map(sender).transpose().map_err(LoadError::HttpClient)?;
        let keyvalue = Arc::clone(&self.keyvalue);
        let metrics = Arc::clone(&self.metrics);
        let validators = self.validators.clone();
        let tenant = Arc::clone(&self.tenant);
        let overrides = self.overrides.clone();
        let guest_time = self.guest_time.clone();
        Ok(Services { keyvalue, overrides, http, metrics, validators, guest_time, tenant })
    }

    fn link(&self, code: Arc<Code>, installation: &Installation) -> Result<Program, LoadError> {
        let linked = || -> wasmtime::Result<(InstancePre<HostState>, Hooks)> {
            let linker = linker(&self.engine, &code.inspection, &installation.grants)?;
            let component = linker.instantiate_pre(&code.component)?;
            let hooks = Hooks::of(&component, &code.inspection.hooks)?;
            Ok((component, hooks))
        };
        let (component, hooks) = linked().map_err(|error| LoadError::Link(error.into()))?;
        let counts_instructions = self.counts_instructions;
        Ok(Program { component, hooks, code, slots: self.slots.clone(), keeping: None, counts_instructions })
    }

    /// The functions and data for keeping instances of the component. `None` if each turn gets a fresh instance.
    fn keeping(&self, program: &Program, installation: &Installation) -> Result<Option<InstanceKeeper>, LoadError> {
        let Instances::Kept { turns } = installation.instances else { return Ok(None) };
        let Some(functions) = program.code.functions else { return Ok(None) };
        let Some(parked) = self.slots.parked() else { return Ok(None) };
        let keeping = InstanceKeeper::of(&program.component, functions, parked, turns);
        keeping.map(Some).map_err(|error| LoadError::Link(error.into()))
    }
}

/// Refuses a secret that has the same name as a parameter. Guests read both from one store by name.
fn check_secrets(installation: &Installation) -> Result<(), LoadError> {
    let shared = installation.grants.secrets.keys().find(|name| installation.parameters.contains_key(name));
    match shared {
        Some(name) => Err(LoadError::SharedName { name: name.clone() }),
        None => Ok(()),
    }
}

/// Calls `describe`. The URI is not known before this call, so faults of the call show a placeholder.
async fn describe(
    program: &Program,
    installation: &Installation,
    services: Services,
) -> Result<(Arc<Profile>, Descriptor), LoadError> {
    let unnamed = ExtensionUri::from("(not yet described)");
    let unnamed = Arc::new(Profile::new(unnamed, installation, services.clone()));
    let mut instance = start(program, &unnamed, Hook::Descriptor).await?;
    let hooks = &program.hooks;
    let checked = instance
        // Checked here, because otherwise a wrong type would only fail in a turn.
        .call(Hook::Descriptor, async |store, component| Ok(hooks.check_types(store, component)))
        .await
        .map_err(LoadError::SelfTest)?;
    checked.map_err(|(hook, error)| LoadError::ExportType { hook, source: error.into() })?;
    let described = instance
        .call(Hook::Descriptor, async |store, component| hooks.describe(store, component).await)
        .await
        .map_err(LoadError::SelfTest)?;
    let described = described.map_err(|reason| LoadError::Description { reason: unnamed.words(&reason) })?;
    // A second profile, because keys and metrics belong to the URI, which is known only now.
    let mut profile = Profile::new(ExtensionUri::from(described.uri.as_str()), installation, services);
    // A wrong parameter may be the cause of other errors, so it is reported first.
    check_parameters(&profile, described.parameter_schema.as_deref()).await?;
    if described.uri.is_empty() && described.parameter_schema.is_some() {
        // The extension could not parse its parameters although its schema allows them.
        return Err(LoadError::Description { reason: unnamed.words(&described.description) });
    }
    if let Some(manifest) = &program.code.inspection.manifest {
        manifest::check_descriptor(manifest, &described.uri, &described.grants, &installation.parameters)?;
    }
    let descriptor = check_descriptor(described, installation)?;
    profile.metadata_keys.clone_from(&descriptor.metadata_keys);
    Ok((Arc::new(profile), descriptor))
}

async fn start(program: &Program, profile: &Arc<Profile>, hook: Hook) -> Result<GuestInstance, LoadError> {
    // There is no turn while an extension is loaded: no session, no task and no keys.
    let log = Log::new(Arc::clone(profile), None);
    GuestInstance::start(program, profile, None, log, hook).await.map_err(LoadError::SelfTest)
}

/// Maximum number of metadata keys of one extension. Its dependencies and the grants that it needs have the same limit.
const MAX_NAMES: usize = 64;
/// Maximum length of a text in a descriptor, in bytes.
const MAX_WORDS: usize = 4 << 10;
/// Maximum length of a URI, a metadata key or the name of a grant, in bytes.
const MAX_NAME: usize = 2 << 10;

fn check_descriptor(described: Description, installation: &Installation) -> Result<Descriptor, LoadError> {
    let wrong = |reason: String| Err(LoadError::Description { reason: annex_text::line_within(&reason, MAX_WORDS) });
    if let Some(uri) = described.depends_on.iter().chain([&described.uri]).find(|uri| !is_uri(uri)) {
        return wrong(format!("{uri:?} is not an absolute URI without spaces and commas"));
    }
    let names = [&described.metadata_keys, &described.depends_on, &described.grants];
    if names.iter().any(|names| names.len() > MAX_NAMES) {
        return wrong(format!("it has more than {MAX_NAMES} metadata keys, dependencies or grants"));
    }
    if names.iter().copied().flatten().chain([&described.uri]).any(|name| name.len() > MAX_NAME) {
        return wrong(format!("its URI, a metadata key, a dependency or a grant has more than {MAX_NAME} bytes"));
    }
    if described.metadata_keys.iter().any(String::is_empty) {
        return wrong("a metadata key is empty".to_owned());
    }
    let reserved = |key: &String| ["annex/", "adk_"].into_iter().find(|prefix| key.starts_with(prefix));
    if let Some((key, prefix)) = described.metadata_keys.iter().find_map(|key| Some((key, reserved(key)?))) {
        return wrong(format!("its metadata key {key:?} begins with {prefix}, which is reserved for this server"));
    }
    // Requests iterate over these lists, so duplicates are refused.
    for (names, what) in [(&described.depends_on, "dependency"), (&described.metadata_keys, "metadata key")] {
        let mut before = names.iter().enumerate();
        let twice = before.find(|(index, name)| names.iter().take(*index).any(|other| other == *name));
        if let Some((_, name)) = twice {
            return wrong(format!("it names its {what} {name} twice"));
        }
    }
    for name in &described.grants {
        let Some(grant) = GrantNeeded::from_name(name) else {
            return wrong(format!("{name:?} is not a grant that this host knows"));
        };
        if !installation.grants.allow(grant) {
            return Err(LoadError::NotGranted { needs: format!("extension {}", described.uri), grant });
        }
    }
    Ok(Descriptor {
        uri: ExtensionUri::from(described.uri),
        // Operators and clients see these three, so they become single lines without control characters.
        name: annex_text::line_within(&described.name, MAX_WORDS),
        version: annex_text::line_within(&described.version, MAX_WORDS),
        description: annex_text::line_within(&described.description, MAX_WORDS),
        parameter_schema: described.parameter_schema,
        metadata_keys: described.metadata_keys,
        depends_on: described.depends_on.into_iter().map(ExtensionUri::from).collect(),
        events: described.events,
        payload: described.payload,
    })
}

/// True for an absolute URI that fits into a comma-separated header.
fn is_uri(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    plain && text.split_once(':').is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty())
}

/// Validates the parameters against the extension's schema, with the wall-clock limit of one call.
async fn check_parameters(profile: &Profile, schema: Option<&str>) -> Result<(), LoadError> {
    let Some(schema) = schema else { return Ok(()) };
    let allowed = profile.limits.wall;
    let mut spent = Duration::ZERO;
    let violations = profile.schemas.validate(schema, &profile.parameters.text, allowed, &mut spent).await;
    let violations =
        violations.map_err(|error| LoadError::Description { reason: format!("its parameter schema: {error}") })?;
    match violations.into_iter().next() {
        Some(first) => {
            Err(LoadError::Parameters { pointer: first.pointer, reason: first.message, schema: schema.to_owned() })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;

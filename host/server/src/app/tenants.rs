//! Loads a tenant from its file or its text, with its agent and its extensions.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annex_fairness::of_tenant;
use annex_runtime::Installed;
use annex_telemetry::fault;
use annex_tenants::StoredTenant;
use futures::future::BoxFuture;
use tokio::task::spawn_blocking;
use tokio::time::{timeout, timeout_at};

use super::agents::{self, agent};
use super::{AppError, ServedAgent, SharedParts};
use crate::authentication::Authentication;
use crate::config::served::ServedConfig;
use crate::config::tenant_text::{AdmittedTenant, TenantText, TenantTextError, key_in_text};
use crate::config::{AgentConfig, Config, ExtensionConfig, StoredTenantsConfig, TenantConfig};
use crate::installation::allowed::AllowedComponents;
use crate::installation::installer::Installer;
use crate::installation::issuer::Issuer;
use crate::installation::named;
use crate::installation::pulling::Puller;
use crate::locations::Locations;
use crate::settings::Settings;
use crate::stores::tenant_store::TenantStoreOpenError;
use crate::tenants::{
    AddedTenants, Attempt, Bounds, Directory, LoadPlaces, OtherTenants, PATIENCE, Serving, TenantLoader,
};

/// Time limit for loading a text on trial. It starts when the trial gets a place, and is slightly shorter than the
/// timeout of clients of the admin API.
const TRIAL: Duration = Duration::from_secs(240);

/// The parts that are needed to load a tenant.
#[derive(Clone)]
struct Loader {
    settings: Arc<Settings>,
    locations: Locations,
    shared: Arc<SharedParts>,
    components: Arc<Mutex<ComponentsOf>>,
    places: LoadPlaces,
    puller: Puller,
}

/// The components that the texts of tenants may name under `config`.
struct ComponentsOf {
    config: Arc<Config>,
    allowed: Arc<AllowedComponents>,
}

impl ComponentsOf {
    fn new(config: Arc<Config>, locations: &Locations) -> Self {
        let allowed = Arc::new(AllowedComponents::of_config(&config, locations));
        Self { config, allowed }
    }
}

/// Opens the tenants of the config and the added tenants. No tenant is loaded yet.
pub(super) async fn open(
    settings: &Arc<Settings>,
    locations: &Locations,
    shared: &Arc<SharedParts>,
) -> Result<OtherTenants, AppError> {
    let config = settings.config();
    let loader = Loader {
        settings: Arc::clone(settings),
        locations: locations.clone(),
        shared: Arc::clone(shared),
        components: Arc::new(Mutex::new(ComponentsOf::new(Arc::clone(&config), locations))),
        places: LoadPlaces::new(),
        puller: Puller {
            components: Arc::clone(&shared.tenants.components),
            denied: Arc::clone(&shared.denied),
            locations: locations.clone(),
            turn: Arc::default(),
        },
    };
    let of_files = loader.clone();
    let load = move |tenant: Arc<TenantConfig>, attempt| -> BoxFuture<'static, _> {
        let loader = of_files.clone();
        let name = tenant.name.as_str().into();
        Box::pin(of_tenant(name, async move {
            loader.load_named(&tenant, attempt).await.map_err(|error| error.public_text())
        }))
    };
    let named = Directory::new(&config.tenants, Box::new(load));
    let added = match &config.stored_tenants {
        Some(stored) => {
            let bounds = Bounds::of(stored);
            let opened = AddedTenants::<Serving>::open(shared.tenants.clone(), Box::new(loader), bounds).await;
            Some(opened.map_err(TenantStoreOpenError::from)?)
        }
        None => None,
    };
    Ok(OtherTenants { named, added })
}

impl Loader {
    /// Loads a tenant of the config.
    async fn load_named(&self, tenant: &TenantConfig, attempt: Attempt) -> Result<Serving, AppError> {
        let config = ServedConfig::of_tenant(tenant, &self.settings.config(), &self.locations.config)?;
        let folder = self.locations.config.join(&tenant.config);
        let folder = folder.parent().unwrap_or(&self.locations.config).to_owned();
        // Relative paths in a tenant's file start at its folder. Shipped components and the cache are those of the
        // process.
        let locations = Locations { config: folder, ..self.locations.clone() };
        let served = ServedAgent { name: tenant.name.clone(), config, locations, is_watched: true };
        Box::pin(self.serve(served, attempt)).await
    }

    async fn load_added(&self, tenant: &StoredTenant, attempt: Attempt) -> Result<Serving, AppError> {
        let name = tenant.name.as_str().into();
        let config = self.served(tenant.config.clone());
        let config = self.places.work.run(&name, attempt.failed_before, config).await?;
        let locations = self.locations.clone();
        // The components are identified by digest, so a changed file does not change the tenant.
        let served = ServedAgent { name: tenant.name.clone(), config, locations, is_watched: false };
        Box::pin(self.serve(served, attempt)).await
    }

    async fn serve(&self, served: ServedAgent, attempt: Attempt) -> Result<Serving, AppError> {
        let Attempt { until, failed_before } = attempt;
        let name = served.name.as_str().into();
        let config = served.config.agent()?;
        let stage = if asks_peers(config) { &self.places.peers } else { &self.places.work };
        // The timeout starts when the tenant gets a place, so waiting for the place does not shorten it.
        let agent = stage.run(&name, failed_before, timeout(PATIENCE, Box::pin(agent(config, &served.locations))));
        let agent = match until {
            Some(until) => timeout_at(until, agent).await.and_then(|agent| agent),
            None => agent.await,
        };
        let agent = agent.map_err(|_| AppError::AgentLate { peers: agents::peers(config) })??;
        self.places.work.run(&name, failed_before, Box::pin(self.shared.serve(served, agent))).await
    }

    /// Reads the text of a tenant into a config. If a digest is that of a file on the server, the path of that file
    /// replaces the digest.
    async fn served(&self, text: String) -> Result<ServedConfig, TenantTextError> {
        let config = self.settings.config();
        let components = self.components(&config);
        let allowed = config.stored_tenants.clone().unwrap_or_default();
        let admitting = spawn_blocking(move || admit(TenantText::parse(&text)?, &allowed, &components));
        let broke_off = |error: tokio::task::JoinError| TenantTextError::new("the text", fault::text(&error));
        let admitted: AdmittedTenant = admitting.await.map_err(broke_off)??;
        for digest in admitted.extensions.iter().filter_map(ExtensionConfig::uploaded) {
            self.check_uploaded(digest).await?;
        }
        let served = ServedConfig::of_added(admitted, &config);
        let wrong = served.wrong_as_added().into_iter().map(|(key, reason)| (key.to_owned(), reason.to_owned()));
        let wrong: Vec<(String, String)> = wrong.collect();
        if wrong.is_empty() { Ok(served) } else { Err(TenantTextError::of(wrong)) }
    }

    /// Checks that a component was uploaded.
    async fn check_uploaded(&self, digest: &str) -> Result<(), TenantTextError> {
        let place = "extension.component";
        match self.shared.tenants.components.has(digest).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let reason = format!(
                    "{digest} is not a component that a text may name; upload it (`annex component push`), or add its \
                     file to tenants.components of the config"
                );
                Err(TenantTextError::new(place, reason))
            }
            Err(error) => {
                fault::log(&error);
                Err(TenantTextError::new(place, "cannot read the uploaded components now; try again"))
            }
        }
    }

    /// The components that texts may name under this config. They are determined again after a reload of the config.
    fn components(&self, config: &Arc<Config>) -> Arc<AllowedComponents> {
        let mut components = self.components.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&components.config, config) {
            *components = ComponentsOf::new(Arc::clone(config), &self.locations);
        }
        Arc::clone(&components.allowed)
    }

    async fn check(&self, name: &str, text: String) -> Result<(), TenantTextError> {
        let name: Arc<str> = Arc::from(name);
        let served = self.places.work.run(&name, false, self.served(text)).await?;
        let mut found = named::wrong(&served.extensions, &self.locations, &served.process, None);
        if let Ok(agent) = served.agent() {
            found.extend(agents::wrong(agent, &self.locations.config).await);
        }
        if !found.is_empty() {
            let in_text = |(key, reason): (String, String)| (key_in_text(&key), reason);
            return Err(TenantTextError::of(found.into_iter().map(in_text).collect()));
        }
        let SharedParts { base_url, authentication, .. } = &*self.shared;
        let authenticator = authentication.as_ref().map(Authentication::current);
        let issuer = Issuer::new(&served, "", base_url, authenticator.as_deref(), &self.locations);
        let issuer = issuer.map_err(|error| wrong("card.signing", &error))?;
        // The card is checked before components are compiled, which takes longest.
        issuer.cards(&Installed::default()).map_err(|error| wrong("card", &error))?;
        let pulled = self.puller.pull(&name, &served.extensions, &served.process).await;
        pulled.map_err(|(key, reason)| TenantTextError::new(key_in_text(&key), reason))?;
        let runtime = self.shared.runtime.of_tenant(&name);
        let uploads = Arc::clone(&self.shared.tenants.components);
        let denied = Arc::clone(&self.shared.denied);
        let trial = Installer::try_out(&served, runtime, self.locations.clone(), uploads, denied);
        let trial = self.places.work.run(&name, false, timeout(TRIAL, Box::pin(trial)));
        let installed = of_tenant(Arc::clone(&name), trial).await.map_err(|_| {
            let seconds = TRIAL.as_secs();
            let reason = format!(
                "its components are not loaded after {seconds} seconds; those that were compiled are kept, so send the text again"
            );
            TenantTextError::new("extension", reason)
        })?;
        let installed = installed.map_err(|error| TenantTextError::new("extension", error.public_text()))?;
        issuer.cards(&installed).map_err(|error| wrong("card", &error))?;
        Ok(())
    }
}

/// Checks the text, and replaces each digest of a file by the path of the file. The function blocks: it may read all
/// files that texts may name.
fn admit(
    text: TenantText,
    allowed: &StoredTenantsConfig,
    components: &AllowedComponents,
) -> Result<AdmittedTenant, TenantTextError> {
    let mut admitted = text.admit(allowed)?;
    components.replace_digests(&mut admitted.extensions);
    Ok(admitted)
}

fn wrong(place: &str, error: &(dyn std::error::Error + 'static)) -> TenantTextError {
    TenantTextError::new(place, fault::text(error))
}

impl TenantLoader<Serving> for Loader {
    fn callers(&self, text: String) -> BoxFuture<'static, Result<Option<HashSet<String>>, String>> {
        // Parsing the longest texts takes a tenth of a second.
        let reading = spawn_blocking(move || {
            let text = TenantText::parse(&text).map_err(|error| error.to_string())?;
            Ok(text.callers.map(|callers| callers.into_iter().collect()))
        });
        Box::pin(async move { reading.await.unwrap_or_else(|broke_off| Err(fault::text(&broke_off))) })
    }

    fn check(&self, name: &str, text: String) -> BoxFuture<'static, Result<(), String>> {
        let (loader, name) = (self.clone(), name.to_owned());
        Box::pin(async move { Self::check(&loader, &name, text).await.map_err(|error| error.to_string()) })
    }

    fn stop_turns(&self, name: &str) {
        self.shared.process.tasks.stop_turns_of(name);
    }

    fn load(&self, tenant: Arc<StoredTenant>, attempt: Attempt) -> BoxFuture<'static, Result<Serving, String>> {
        let loader = self.clone();
        Box::pin(async move { loader.load_added(&tenant, attempt).await.map_err(|error| error.public_text()) })
    }
}

/// True if loading the agent connects to peers.
fn asks_peers(agent: &AgentConfig) -> bool {
    match agent {
        AgentConfig::Upstream { .. } => true,
        AgentConfig::Template(template) => !template.mcp.is_empty(),
        AgentConfig::Script { .. } => false,
    }
}

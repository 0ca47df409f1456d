//! Loading a tenant: its file or its text, its agent, its extensions.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use annex_fairness::of_tenant;
use annex_operations::fault;
use annex_runtime::Installed;
use annex_tasks::StoredTenant;
use futures::future::BoxFuture;
use tokio::task::spawn_blocking;
use tokio::time::{timeout, timeout_at};

use super::agents::{self, agent};
use super::{AppError, Served, Shared};
use crate::config::served::ServedConfig;
use crate::config::tenant_text::{TenantText, TenantTextError};
use crate::config::{AgentConfig, Config, StoredTenantsConfig, TenantConfig};
use crate::installation::allowed::AllowedComponents;
use crate::installation::issuer::Issuer;
use crate::locations::Locations;
use crate::stores::task_store::TaskStoreError;
use crate::tenants::{
    AddedTenants, Attempt, Bounds, Directory, LoadPlaces, OtherTenants, PATIENCE, Serving, TenantLoader,
};

/// All that loading a tenant takes.
#[derive(Clone)]
struct Loader {
    config: Arc<Config>,
    locations: Locations,
    shared: Arc<Shared>,
    components: Arc<AllowedComponents>,
    places: LoadPlaces,
}

/// The tenants, none of which is loaded yet.
pub(super) async fn open(
    config: &Arc<Config>,
    locations: &Locations,
    shared: &Arc<Shared>,
) -> Result<OtherTenants, AppError> {
    let added = config.stored_tenants.as_ref();
    let own = config.extensions.iter().map(|extension| &extension.component);
    let components = added.iter().flat_map(|added| added.components.iter().chain(own.clone()));
    let loader = Loader {
        config: Arc::clone(config),
        locations: locations.clone(),
        shared: Arc::clone(shared),
        components: Arc::new(AllowedComponents::new(components.map(|component| locations.component(component)))),
        places: LoadPlaces::new(),
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
    let added = match added {
        Some(StoredTenantsConfig { max_loaded, idle_seconds, .. }) => {
            let bounds = Bounds { max_loaded: *max_loaded, idle: Duration::from_secs(*idle_seconds) };
            let opened = AddedTenants::<Serving>::open(Arc::clone(&shared.store), Box::new(loader), bounds).await;
            Some(opened.map_err(TaskStoreError::from)?)
        }
        None => None,
    };
    Ok(OtherTenants { named, added })
}

impl Loader {
    /// Loads a tenant of the config.
    async fn load_named(&self, tenant: &TenantConfig, attempt: Attempt) -> Result<Serving, AppError> {
        let config = ServedConfig::of_tenant(tenant, &self.config, &self.locations.config)?;
        let folder = self.locations.config.join(&tenant.config);
        let folder = folder.parent().unwrap_or(&self.locations.config).to_owned();
        // Paths in a tenant's file start at its folder. Components that ship and the cache are the process's.
        let locations = Locations { config: folder, ..self.locations.clone() };
        let served = Served { name: tenant.name.clone(), config, locations, is_watched: true };
        Box::pin(self.serve(served, attempt)).await
    }

    async fn load_added(&self, tenant: &StoredTenant, attempt: Attempt) -> Result<Serving, AppError> {
        let name = tenant.name.as_str().into();
        let config = self.served(tenant.config.clone());
        let config = self.places.work.run(&name, attempt.failed_before, config).await?;
        let locations = self.locations.clone();
        // Its components are named by their digests, so that no change of a file is one of the tenant.
        let served = Served { name: tenant.name.clone(), config, locations, is_watched: false };
        Box::pin(self.serve(served, attempt)).await
    }

    async fn serve(&self, served: Served, attempt: Attempt) -> Result<Serving, AppError> {
        let Attempt { until, failed_before } = attempt;
        let name = served.name.as_str().into();
        let config = served.config.agent()?;
        let stage = if asks_peers(config) { &self.places.peers } else { &self.places.work };
        // The place comes first: a tenant that waits for one has its full time behind it.
        let agent = stage.run(&name, failed_before, timeout(PATIENCE, Box::pin(agent(config, &served.locations))));
        let agent = match until {
            Some(until) => timeout_at(until, agent).await.and_then(|agent| agent),
            None => agent.await,
        };
        let agent = agent.map_err(|_| AppError::AgentLate)??;
        self.places.work.run(&name, failed_before, Box::pin(self.shared.serve(served, agent))).await
    }

    /// The config of the text, whose components are files.
    async fn served(&self, text: String) -> Result<ServedConfig, TenantTextError> {
        let (config, components) = (Arc::clone(&self.config), Arc::clone(&self.components));
        // Digesting components reads their files.
        let admitting = spawn_blocking(move || {
            let allowed = config.stored_tenants.clone().unwrap_or_default();
            let mut admitted = TenantText::parse(&text)?.admit(&allowed)?;
            for extension in &mut admitted.extensions {
                let Some(digest) = &extension.digest else { continue };
                let Some(file) = components.find(digest) else {
                    let reason = format!(
                        "{digest} is no component that can be named; the operator adds its file to tenants.components of \
                         the config"
                    );
                    return Err(TenantTextError::new("extension.component", reason));
                };
                extension.component = file.to_string_lossy().into_owned();
            }
            let served = ServedConfig::of_added(admitted, &config);
            served.map_err(|(key, reason)| TenantTextError::new(key, reason))
        });
        let broke_off = |error: tokio::task::JoinError| TenantTextError::new("the text", fault::text(&error));
        admitting.await.map_err(broke_off)?
    }

    async fn check(&self, text: String) -> Result<(), TenantTextError> {
        let served = self.served(text).await?;
        for extension in &served.extensions {
            let callers = extension.check_callers(self.config.auth.as_ref());
            let installed = extension.installation(&self.locations.config, &self.config.runtime.ceiling);
            callers
                .and(installed.map(drop))
                .map_err(|(key, reason)| TenantTextError::new(format!("extension.{key}"), reason))?;
        }
        let agent = served.agent().map_err(|error| wrong("agent", &error))?;
        agents::check(agent).await.map_err(|error| wrong("agent", &error))?;
        let Shared { base_url, authenticator, .. } = &*self.shared;
        let issuer = Issuer::new(&served, "", base_url, authenticator.as_deref(), &self.locations);
        let issuer = issuer.map_err(|error| wrong("card.signing", &error))?;
        issuer.cards(&Installed::default()).map_err(|error| wrong("card", &error))?;
        Ok(())
    }
}

fn wrong(place: &str, error: &(dyn std::error::Error + 'static)) -> TenantTextError {
    TenantTextError::new(place, fault::text(error))
}

impl TenantLoader<Serving> for Loader {
    fn callers(&self, text: String) -> BoxFuture<'static, Result<Option<HashSet<String>>, String>> {
        // The longest texts take a tenth of a second to be read.
        let reading = spawn_blocking(move || {
            let text = TenantText::parse(&text).map_err(|error| error.to_string())?;
            Ok(text.callers.map(|callers| callers.into_iter().collect()))
        });
        Box::pin(async move { reading.await.unwrap_or_else(|broke_off| Err(fault::text(&broke_off))) })
    }

    fn check(&self, text: String) -> BoxFuture<'static, Result<(), String>> {
        let loader = self.clone();
        Box::pin(async move { Self::check(&loader, text).await.map_err(|error| error.to_string()) })
    }

    fn stop_turns(&self, name: &str) {
        self.shared.tasks.stop_turns_of(name);
    }

    fn load(&self, tenant: Arc<StoredTenant>, attempt: Attempt) -> BoxFuture<'static, Result<Serving, String>> {
        let loader = self.clone();
        Box::pin(async move { loader.load_added(&tenant, attempt).await.map_err(|error| error.public_text()) })
    }
}

/// True where the agent is there when others have answered.
fn asks_peers(agent: &AgentConfig) -> bool {
    match agent {
        AgentConfig::Upstream { .. } => true,
        AgentConfig::Template(template) => !template.mcp.is_empty(),
        AgentConfig::Script { .. } => false,
    }
}

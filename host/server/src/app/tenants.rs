//! How a tenant is loaded: its file, its agent, its extensions.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use super::agents::agent;
use super::{AppError, Served, Shared};
use crate::config::served::ServedConfig;
use crate::config::{Config, TenantConfig};
use crate::locations::Locations;
use crate::tenants::{Directory, Serving};

/// All that loading a tenant takes.
struct Loader {
    config: Arc<Config>,
    tenants: HashMap<String, TenantConfig>,
    locations: Locations,
    shared: Arc<Shared>,
}

/// The tenants of the config, none of which is loaded yet.
pub(super) fn directory(config: &Arc<Config>, locations: &Locations, shared: &Arc<Shared>) -> Arc<Directory<Serving>> {
    let loader = Arc::new(Loader {
        config: Arc::clone(config),
        tenants: config.tenants.iter().map(|tenant| (tenant.name.clone(), tenant.clone())).collect(),
        locations: locations.clone(),
        shared: Arc::clone(shared),
    });
    let tenants = config.tenants.iter().map(|tenant| {
        let callers = tenant.callers.as_ref().map(|callers| callers.iter().cloned().collect());
        (tenant.name.clone(), callers)
    });
    let load = move |name: String, until| -> BoxFuture<'static, _> {
        let loader = Arc::clone(&loader);
        Box::pin(async move {
            let tenant = loader.tenants.get(&name).ok_or_else(|| "the config does not name it".to_owned())?;
            loader.load(tenant, until).await.map_err(|error| error.public_text())
        })
    };
    Directory::new(tenants, Box::new(load))
}

impl Loader {
    /// Loads a tenant. Its agent must be there by `until`.
    async fn load(&self, tenant: &TenantConfig, until: Instant) -> Result<Serving, AppError> {
        let config = ServedConfig::of_tenant(tenant, &self.config, &self.locations.config)?;
        let folder = self.locations.config.join(&tenant.config);
        let folder = folder.parent().unwrap_or(&self.locations.config).to_owned();
        // Paths in a tenant's file start at its folder. Components that ship and the cache are the process's.
        let locations = Locations { config: folder, ..self.locations.clone() };
        let agent = timeout_at(until, agent(config.agent()?, &locations)).await;
        let agent = agent.map_err(|_| AppError::AgentLate)??;
        self.shared.serve(Served { name: tenant.name.clone(), config, locations, agent }).await
    }
}

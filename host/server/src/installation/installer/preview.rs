//! The facts that operators see about a component before and after its installation.

use annex_protocol::AgentExtension;
use annex_registry::{Reference, is_reference};

use super::{InstallError, Installer, Origin, loader};
use crate::config::ExtensionConfig;
use crate::lock::Lock;

impl Installer {
    /// The entry that a component would have on the card with these settings. The component is loaded without
    /// being installed, and declares its entry as in an installation. Requests are not affected.
    pub(crate) async fn preview(
        &self,
        name: &str,
        component: Vec<u8>,
        settings: &str,
    ) -> Result<AgentExtension, InstallError> {
        let origin = Origin::Added { name: name.to_owned() };
        let wrong = |reason| InstallError::Setting { origin: origin.clone(), key: "settings", reason };
        let read = ExtensionConfig::from_settings(name, settings).map_err(wrong)?;
        let extension = self.loader.load_aside(&origin, &read, component).await?;
        Ok(AgentExtension::clone(&extension.card()))
    }

    /// Reads and verifies the component of a reference from `annex.lock` and the cache.
    pub(crate) async fn locked_component(&self, reference: &str) -> Result<Vec<u8>, InstallError> {
        let origin = Origin::Added { name: reference.to_owned() };
        Ok(self.loader.read_reference(&origin, reference).await?.bytes)
    }

    /// The signers of a component that the config names by reference, from `annex.lock`. Empty for other components, and
    /// without a lock.
    pub(crate) async fn signers(&self, component: &str) -> Vec<String> {
        if !is_reference(component) {
            return Vec::new();
        }
        let Ok(reference) = component.parse::<Reference>() else { return Vec::new() };
        let folder = self.loader.locations.config.clone();
        let read = move || Ok(Lock::read(&folder).ok().flatten());
        let lock = loader::blocking(read).await.ok().flatten();
        lock.and_then(|lock| lock.find(&reference).map(|locked| locked.signers.clone())).unwrap_or_default()
    }
}

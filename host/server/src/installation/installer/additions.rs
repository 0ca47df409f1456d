//! Installs components that operators name over the admin API.

use annex_leases::editions::Consent;

use super::history::Action;
use super::sources::{AddedComponent, ComponentBytes};
use super::version::{Origin, Version};
use super::{InstallError, Installer, folder, loader};
use crate::config::ExtensionConfig;

impl Installer {
    /// Installs a component under the name `name`, and replaces the added extension that has this name. Bytes are stored in
    /// the managed folder. Without such a folder, and for a reference, the extension lasts until the restart. `settings` are
    /// the keys of an `[[extension]]` as TOML. If `settings` is `None`, the current settings stay.
    pub(crate) async fn add(
        &self,
        name: &str,
        component: AddedComponent,
        settings: Option<&str>,
        consent: Consent,
    ) -> Result<Version, InstallError> {
        if !folder::is_name(name) {
            return Err(InstallError::Name { name: name.to_owned() });
        }
        let _door = self.door.lock().await;
        let added = self.try_add(name, component, settings, consent).await;
        // The caller gets the error. It is logged but not kept as a failure, because no source has become worse.
        added.inspect_err(|error| drop(loader::failed(error)))
    }

    async fn try_add(
        &self,
        name: &str,
        component: AddedComponent,
        settings: Option<&str>,
        consent: Consent,
    ) -> Result<Version, InstallError> {
        let basis = self.basis(consent);
        // A file in the managed folder is not verified again, so the component of a reference is not copied there.
        let folder = self.loader.folder.as_ref().filter(|_| matches!(component, AddedComponent::Bytes(_)));
        let origin = match folder {
            Some(_) => Origin::Folder { name: name.to_owned() },
            None => Origin::Added { name: name.to_owned() },
        };
        let mut versions = self.lock().versions.clone();
        let place = versions.iter().position(|version| version.origin == origin);
        let there = place.and_then(|place| versions.get(place)).cloned();
        let read = match (settings, folder, &there) {
            (Some(text), _, _) => ExtensionConfig::from_settings(name, text),
            (None, Some(folder), _) => folder.settings(name),
            (None, None, Some(there)) => Ok(there.settings.clone()),
            (None, None, None) => ExtensionConfig::from_settings(name, ""),
        };
        let wrong = |reason| InstallError::Setting { origin: origin.clone(), key: "settings", reason };
        let mut read = read.map_err(wrong)?;
        let (component, file) = match component {
            AddedComponent::Bytes(bytes) => {
                read.component = format!("{name}.wasm");
                let file = folder.is_some().then(|| bytes.clone());
                (ComponentBytes::plain(bytes), file)
            }
            AddedComponent::Reference { reference, approved } => {
                let component = self.loader.read_reference(&origin, &reference).await?;
                if approved.is_some_and(|approved| approved != component.digest) {
                    let reason =
                        "has another digest in annex.lock now; look at it again before you install it".to_owned();
                    return Err(InstallError::Setting { origin, key: "component", reason });
                }
                read.component = reference;
                (component, None)
            }
        };
        let version = self.loader.load(origin.clone(), read, component, there.as_slice()).await?;
        version.check_in_service()?;
        match place {
            Some(place) => drop(versions.splice(place..=place, [version.clone()])),
            None => versions.push(version.clone()),
        }
        // All checks run before the folder changes, because the next start installs the files in it.
        let prepared = self.prepare_in_order(versions)?;
        if let Some(file) = file {
            // The watch sees the new file and starts a rescan, which waits for `door`. The rescan then finds this version
            // installed.
            self.write(name, file, settings.map(str::to_owned)).await?;
        }
        self.forgive(&origin);
        // Earlier decisions about this source, such as a rollback, no longer apply.
        self.lock().overruled.retain(|decision| decision.origin != origin);
        self.put_in_force(prepared, Action::Loaded, basis).await?;
        Ok(version)
    }
}

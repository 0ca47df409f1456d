//! The reads and changes of installed extensions, for the admin API and for the console.

use std::sync::Arc;

use annex_leases::editions::Consent;
use annex_protocol::{AgentExtension, ExtensionUri};
use annex_runtime::{Digest, Inspection, LoadError};
use axum::http::StatusCode;

use super::action::Action;
use super::caller::{AdminCaller, of_tenant};
use super::error::AdminError;
use super::shared::{Admin, OfTenant, digested, whole};
use crate::admin_api::extensions::{Details, List, Log, ReloadResult, RemovedExtension};
use crate::audit::record::{Effect, Subject};
use crate::installation::installer::{AddedComponent, ReloadOutcome, Version};

/// A component to install.
pub(crate) struct NewComponent {
    /// The name in the managed folder. An extension with this name is replaced.
    pub(crate) name: String,
    pub(crate) component: AddedComponent,
    /// The keys of an `[[extension]]` as TOML. `None`: the present settings of the name, or the defaults.
    pub(crate) settings: Option<String>,
}

impl Admin {
    /// The installed extensions of the agent that `of` names. The list of the config's own agent has the names of all
    /// tenants.
    pub(crate) async fn extensions(&self, of: &OfTenant) -> Result<List, AdminError> {
        let installer = self.installer(of).await?;
        let mut list = List::of(&installer);
        if of.tenant.is_none() {
            list.add_tenants(&self.installers);
        }
        Ok(list)
    }

    /// One installed extension. `id` is its URI or its digest.
    pub(crate) async fn extension(&self, of: &OfTenant, id: &str) -> Result<Details, AdminError> {
        let installer = self.installer(of).await?;
        Ok(Details::of(&installer, &installer.find(id)?))
    }

    /// The last lines that an extension wrote.
    pub(crate) async fn extension_log(&self, of: &OfTenant, id: &str) -> Result<Log, AdminError> {
        Ok(Log::of(&self.installer(of).await?.find(id)?))
    }

    /// The signers of an installed extension, from `annex.lock`. Empty if the config does not name it by reference.
    pub(crate) async fn signers(&self, of: &OfTenant, id: &str) -> Result<Vec<String>, AdminError> {
        let installer = self.installer(of).await?;
        let version = installer.find(id)?;
        Ok(installer.signers(version.origin.name()).await)
    }

    /// The settings of an installed extension, as the TOML of a settings file.
    pub(crate) async fn extension_settings(&self, of: &OfTenant, id: &str) -> Result<String, AdminError> {
        Ok(self.installer(of).await?.find(id)?.settings.to_settings())
    }

    /// The facts about a component that are known without running it.
    pub(crate) async fn inspect_component(&self, component: Vec<u8>) -> Result<Inspection, AdminError> {
        let refused = |error: LoadError| {
            AdminError::new(StatusCode::UNPROCESSABLE_ENTITY, "refused", annex_text::with_causes(&error))
        };
        Ok(self.runtime.inspect(component).await.map_err(refused)?.inspection)
    }

    /// The entries of extensions on the public card.
    pub(crate) async fn card_entries(&self, of: &OfTenant) -> Result<Vec<AgentExtension>, AdminError> {
        let published = self.installer(of).await?.publisher().current();
        let card = published.card.decoded().map_err(|error| AdminError::internal(&error))?;
        Ok(card.capabilities.extensions)
    }

    /// The entry that a component would have on the card. The component is loaded without effect on requests.
    pub(crate) async fn preview_extension(
        &self,
        of: &OfTenant,
        (name, component): (&str, Vec<u8>),
        settings: &str,
    ) -> Result<AgentExtension, AdminError> {
        Ok(self.changeable(of).await?.preview(name, component, settings).await?)
    }

    /// The bytes and the signers of a component in `annex.lock`, which is read from the cache and verified.
    pub(crate) async fn locked_component(
        &self,
        of: &OfTenant,
        reference: &str,
    ) -> Result<(Vec<u8>, Vec<String>), AdminError> {
        let installer = self.changeable(of).await?;
        let component = installer.locked_component(reference).await?;
        Ok((component, installer.signers(reference).await))
    }

    /// Installs a component, or replaces the extension that has its name.
    pub(crate) async fn add_extension(
        &self,
        caller: AdminCaller,
        of: OfTenant,
        component: NewComponent,
        consent: Consent,
    ) -> Result<Details, AdminError> {
        let here = self.changeable(&of).await?;
        let NewComponent { name, component, settings } = component;
        let (component, digest, reference) = match component {
            AddedComponent::Bytes(bytes) => {
                let (bytes, digest) = digested(bytes).await?;
                (AddedComponent::Bytes(bytes), Some(digest), None)
            }
            AddedComponent::Reference { reference, approved } => {
                let digest = approved.as_ref().map(Digest::to_string);
                (AddedComponent::Reference { reference: reference.clone(), approved }, digest, Some(reference))
            }
        };
        let caller = caller.about(
            Action::InstallExtension,
            Subject {
                tenant: of.tenant.clone(),
                extension: Some(name.clone()),
                component: digest,
                reference,
                text: settings.as_deref().map(|text| Digest::of(text.as_bytes()).to_string()),
                ..Subject::default()
            },
        );
        let installer = Arc::clone(&here);
        let change = async move { installer.add(&name, component, settings.as_deref(), consent).await };
        let added = whole(caller, change, move |added| effect_of_change("installed", added, &of)).await?;
        Ok(Details::of(&here, &added))
    }

    /// Removes an extension. `id` is its URI or its digest.
    pub(crate) async fn remove_extension(
        &self,
        caller: AdminCaller,
        of: OfTenant,
        id: &str,
        consent: Consent,
    ) -> Result<RemovedExtension, AdminError> {
        let here = self.changeable(&of).await?;
        let installer = Arc::clone(&here);
        let uri = here.find(id)?.uri().clone();
        let caller = caller.about(Action::RemoveExtension, subject(&of, &uri));
        let change = async move { installer.remove(&uri, consent).await };
        let removed = whole(caller, change, move |removed| effect_of_change("removed", removed, &of)).await?;
        Ok(RemovedExtension::of(&here, &removed))
    }

    /// Installs a replaced version again. `to` is the number of the version. `None`: the version that was replaced last.
    pub(crate) async fn roll_back_extension(
        &self,
        caller: AdminCaller,
        of: OfTenant,
        id: &str,
        to: Option<u64>,
    ) -> Result<Details, AdminError> {
        let here = self.changeable(&of).await?;
        let installer = Arc::clone(&here);
        let uri = here.find(id)?.uri().clone();
        let caller = caller.about(Action::RollBackExtension, subject(&of, &uri));
        let change = async move { installer.roll_back(&uri, to).await };
        let version = whole(caller, change, move |version| effect_of_change("rolled back", version, &of)).await?;
        Ok(Details::of(&here, &version))
    }

    /// Reads all configs again, or only the extensions of the tenant that `of` names.
    pub(crate) async fn reload(&self, caller: AdminCaller, of: OfTenant) -> Result<ReloadResult, AdminError> {
        let all = Arc::clone(&self.installers);
        let installer = self.installer(&of).await?;
        let subject = Subject { tenant: of.tenant.clone(), ..Subject::default() };
        let caller = caller.about(Action::Reload, subject);
        let reloaded = match of.tenant {
            Some(tenant) => {
                let told =
                    move |outcome: &ReloadOutcome| reload_line(&format!("the config of tenant {tenant}"), outcome);
                whole(caller, async move { installer.reload().await }, told).await?
            }
            None => {
                let told = |outcome: &ReloadOutcome| reload_line("the config", outcome);
                whole(caller, async move { all.reload().await }, told).await?
            }
        };
        Ok(ReloadResult::from(reloaded))
    }
}

/// The effect of a change of a version. `done` is the participle in its text, such as `installed`.
fn effect_of_change(done: &str, version: &Version, of: &OfTenant) -> Effect {
    let digest = version.extension.digest();
    let text = format!("extension {}{} was {done}: {digest}", version.uri(), of_tenant(of.tenant.as_deref()));
    effect(text, version)
}

/// The effect of a change that installed `version` or removed it.
pub(super) fn effect(text: String, version: &Version) -> Effect {
    Effect {
        text,
        digest: Some(version.extension.digest().to_string()),
        version: Some(version.number),
        grants: serde_json::to_value(&version.settings.grants).ok(),
    }
}

/// The subject of a change of an installed extension.
pub(super) fn subject(of: &OfTenant, uri: &ExtensionUri) -> Subject {
    Subject { tenant: of.tenant.clone(), extension: Some(uri.to_string()), ..Subject::default() }
}

/// The log line for a config that was read again.
fn reload_line(what: &str, outcome: &ReloadOutcome) -> String {
    let ReloadOutcome { changed, edition, failed, .. } = outcome;
    let changed = if *changed { "and has changed" } else { "and is as before" };
    let failed = if failed.is_empty() { String::new() } else { format!("; not installed: {}", failed.join(", ")) };
    format!("{what} was read again, {changed}: edition {edition}{failed}")
}

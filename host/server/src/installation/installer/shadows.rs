//! Starts, promotes and ends shadows.

use std::sync::Arc;

use annex_leases::editions::Consent;
use annex_protocol::ExtensionUri;
use annex_runtime::LoadError;

use super::history::Action;
use super::loader;
use super::sources::ComponentBytes;
use super::version::{Origin, Version};
use super::{InstallError, Installer};
use crate::config::ExtensionConfig;
use crate::installation::shadow::{Candidate, Shadow};
use crate::redaction::Redaction;

impl Installer {
    /// Runs a component as a shadow of the extension `uri`, on `share` percent of the extension's turns. The results of
    /// the shadow have no effect. If `settings` is `None`, the shadow has the settings of the installed version.
    pub(crate) async fn shadow(
        &self,
        uri: &ExtensionUri,
        component: Vec<u8>,
        settings: Option<String>,
        share: u8,
        redaction: Redaction,
    ) -> Result<Arc<Shadow>, InstallError> {
        let _door = self.door.lock().await;
        let of = self.find(uri.as_str())?;
        let read = settings.as_deref().map(|text| ExtensionConfig::from_settings(of.origin.name(), text));
        let wrong = |reason| InstallError::Setting { origin: of.origin.clone(), key: "settings", reason };
        let read = read.transpose().map_err(wrong)?.unwrap_or_else(|| of.settings.clone());
        let asks_for_more = |what: String| InstallError::AsksForMore { uri: uri.to_string(), what };
        if read.grants != of.settings.grants {
            return Err(asks_for_more("the settings have other grants".to_owned()));
        }
        let extension = match self.loader.load_aside(&of.origin, &read, component.clone()).await {
            Err(InstallError::Load { source: source @ LoadError::NotGranted { .. }, .. }) => {
                return Err(asks_for_more(source.to_string()));
            }
            loaded => loaded?,
        };
        if extension.uri() != uri {
            let (uri, found) = (uri.to_string(), extension.uri().to_string());
            return Err(InstallError::OtherExtension { uri, found });
        }
        // The checks of `promote` run now, such as the one for metadata keys that belong to another extension.
        let mut versions = self.lock().versions.clone();
        if let Some(version) = versions.iter_mut().find(|version| version.uri() == uri) {
            version.extension = Arc::clone(&extension);
            version.settings.clone_from(&read);
        }
        loader::in_order(versions)?;
        let candidate = Candidate { extension, settings: read, component, settings_text: settings };
        let shadow = Shadow::begin(&of.extension, candidate, share, redaction);
        let shadow = Arc::new(shadow.ok_or_else(|| InstallError::Observed { uri: uri.to_string() })?);
        tracing::info!(extension = %uri, digest = %shadow.candidate.digest(), share, "a shadow runs beside it");
        self.lock().shadows.insert(uri.clone(), Arc::clone(&shadow));
        Ok(shadow)
    }

    /// Installs the shadow in place of the version that the shadow observes. The promotion is permanent if the
    /// version's file is in the managed folder. Otherwise the promotion lasts until the source changes or the server
    /// restarts.
    pub(crate) async fn promote(&self, uri: &ExtensionUri) -> Result<Version, InstallError> {
        let _door = self.door.lock().await;
        let basis = self.basis(Consent::OfAll);
        let shadow = self.shadow_of(uri).ok_or_else(|| InstallError::NoShadow { uri: uri.to_string() })?;
        let mut versions = self.lock().versions.clone();
        let replaced = versions.iter_mut().find(|version| version.uri() == uri);
        let replaced = replaced.ok_or_else(|| InstallError::NotInstalled { id: uri.to_string() })?;
        let (origin, settings) = (replaced.origin.clone(), shadow.settings.clone());
        // The component is loaded again, from the cache, so that its calls count for the URI.
        let component =
            ComponentBytes { digest: shadow.candidate.digest(), bytes: shadow.component.clone(), provenance: None };
        let version = self.loader.load(origin.clone(), settings, component, &[]).await?;
        if version.uri() != uri {
            let (uri, found) = (uri.to_string(), version.uri().to_string());
            return Err(InstallError::OtherExtension { uri, found });
        }
        let before = std::mem::replace(replaced, version.clone());
        let prepared = self.prepare_in_order(versions)?;
        match &origin {
            Origin::Folder { name } => {
                self.write(name, shadow.component.clone(), shadow.settings_text.clone()).await?;
                self.lock().overruled.retain(|decision| decision.origin != origin);
            }
            Origin::Config { .. } if self.agreement.is_none() => self.overrule(&before, Some(version.clone())),
            Origin::Config { .. } | Origin::Added { .. } => {}
        }
        self.forgive(&origin);
        self.put_in_force(prepared, Action::Promoted, basis).await?;
        Ok(version)
    }

    /// Ends the shadow of an extension and returns the shadow with its results.
    pub(crate) async fn end_shadow(&self, uri: &ExtensionUri) -> Result<Arc<Shadow>, InstallError> {
        let _door = self.door.lock().await;
        let ended = self.lock().shadows.remove(uri).ok_or_else(|| InstallError::NoShadow { uri: uri.to_string() })?;
        tracing::info!(extension = %uri, digest = %ended.candidate.digest(), "its shadow was dropped");
        Ok(ended)
    }

    /// The shadow of an extension.
    pub(crate) fn shadow_of(&self, uri: &ExtensionUri) -> Option<Arc<Shadow>> {
        self.lock().shadows.get(uri).cloned()
    }
}

//! The extensions of an edition as the database stores them for all processes. Each extension is stored with its
//! source, its settings as TOML, and the digest of its component. Secrets are stored by name, and each process reads
//! the values of the secrets itself.

use annex_runtime::Digest;
use serde::{Deserialize, Serialize};

use super::version::{Origin, Version};
use crate::config::{ExtensionConfig, ExtensionPlace};

/// A stored component with its settings. Loading turns it into a version.
pub(super) struct KeptVersion {
    pub(super) origin: Origin,
    pub(super) settings: ExtensionConfig,
    /// The digest of the component, such as `sha256:…`.
    pub(super) digest: String,
}

/// The JSON form of a stored component.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WrittenVersion {
    origin: WrittenOrigin,
    name: String,
    component: String,
    settings: String,
    digest: String,
    /// True if the settings require the component to have this digest.
    #[serde(default)]
    is_named: bool,
    /// True if the component was pulled for a tenant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_pulled: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum WrittenOrigin {
    Config,
    Added,
}

/// Encodes versions in their order.
pub(super) fn write(versions: &[Version]) -> Result<String, String> {
    let written = versions.iter().map(|version| {
        let origin = match version.origin {
            Origin::Config { .. } => WrittenOrigin::Config,
            // A process that shares its database has no managed folder.
            Origin::Folder { .. } | Origin::Added { .. } => WrittenOrigin::Added,
        };
        Ok(WrittenVersion {
            origin,
            name: version.origin.name().to_owned(),
            component: version.settings.component.clone(),
            settings: settings_text(&version.settings)?,
            digest: version.extension.digest().to_string(),
            is_named: version.settings.digest.is_some(),
            is_pulled: version.settings.is_pulled,
        })
    });
    let written = written.collect::<Result<Vec<_>, String>>()?;
    serde_json::to_string(&written).map_err(|error| error.to_string())
}

/// Decodes stored versions. Fails if a process of another Annex version has written a setting that this version does
/// not know.
pub(super) fn read(text: &str) -> Result<Vec<KeptVersion>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let written: Vec<WrittenVersion> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    written.into_iter().map(kept).collect()
}

/// Computes the digest of the config's extensions. If all processes share their cards, `others` is the digest of all
/// other settings on which the cards depend. `None` if each process makes its own cards.
pub(super) fn config_digest(
    config: &[ExtensionConfig],
    digests: &[Digest],
    others: Option<&str>,
) -> Result<String, String> {
    let mut text = others.unwrap_or_default().to_owned();
    for (extension, digest) in config.iter().zip(digests) {
        text.push_str(&format!("\n{:?} {digest}\n{}", extension.component, settings_text(extension)?));
    }
    Ok(Digest::of(text.as_bytes()).hex())
}

fn kept(written: WrittenVersion) -> Result<KeptVersion, String> {
    let WrittenVersion { origin, name, component, settings, digest, is_named, is_pulled } = written;
    let wrong = |error: toml::de::Error| format!("the settings of {name}: {}", error.message());
    let mut table: toml::Table = toml::from_str(&settings).map_err(wrong)?;
    table.insert("component".to_owned(), component.into());
    let mut settings: ExtensionConfig = table.try_into().map_err(wrong)?;
    settings.digest = is_named.then(|| digest.clone());
    settings.is_pulled = is_pulled;
    let origin = match origin {
        WrittenOrigin::Config => Origin::Config { component: name, place: ExtensionPlace::default() },
        WrittenOrigin::Added => Origin::Added { name },
    };
    Ok(KeptVersion { origin, settings, digest })
}

/// The settings as TOML, without the component. The settings are first converted to a table, which sorts the keys.
fn settings_text(settings: &ExtensionConfig) -> Result<String, String> {
    let table = toml::Table::try_from(settings).map_err(|error| error.to_string())?;
    toml::to_string(&table).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{WrittenOrigin, WrittenVersion, config_digest, kept, settings_text};
    use crate::config::ExtensionConfig;

    const SETTINGS: &str = "
        required = true
        instances = \"kept\"
        instance_turns = 7
        [grants]
        clock = true
        keyvalue = {}
        http = { allow = [{ host = \"api.example.com\" }, { host = \"*.example.org\", methods = [\"POST\"] }] }
        session-state = { read = true }
        secrets = { KEY = { env = \"SECRET\" }, OTHER = { file = \"secret.txt\" } }
        [limits]
        cpu_ms = 20
        [parameters]
        when = 2026-01-01T00:00:00Z
        deep = { list = [1, 2.5, { x = \"y\" }], flag = false }";

    #[test]
    fn settings_are_the_same_when_they_are_read_again() {
        for text in ["", SETTINGS] {
            let settings = ExtensionConfig::from_settings("x", text).expect("settings");
            let written = WrittenVersion {
                origin: WrittenOrigin::Added,
                name: "x".to_owned(),
                component: settings.component.clone(),
                settings: settings_text(&settings).expect("a text"),
                digest: "sha256:1".to_owned(),
                is_named: false,
                is_pulled: false,
            };
            assert_eq!(kept(written).expect("what was written").settings, settings, "{text}");
        }
    }

    #[test]
    fn configs_that_differ_in_anything_have_different_digests() {
        let digest = |text: &str, component: &[u8], others| {
            let settings = ExtensionConfig::from_settings("x", text).expect("settings");
            config_digest(&[settings], &[annex_runtime::Digest::of(component)], others).expect("a digest")
        };
        let first = digest("", b"1", None);
        assert_eq!(first, digest("required = false", b"1", None));
        for other in [digest("required = true", b"1", None), digest("", b"2", None), digest("", b"1", Some("card"))] {
            assert_ne!(first, other);
        }
    }
}

//! Checks of components of registries: `annex.lock`, the signers of `[trust]`, and the cache. The check of the config reads and
//! verifies each component.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use annex_files::Purpose;
use annex_registry::{Reference, is_reference};
use annex_trust::{TrustConfig, Unruled};

use super::finding::Finding;
use crate::config::served::ServedConfig;
use crate::config::{Config, ExtensionConfig};
use crate::locations::Locations;
use crate::lock::{LOCK_FILE, Lock};

pub(super) fn examine(config: &Arc<Config>, locations: &Locations) -> Vec<Finding> {
    let lent = config.stored_tenants.iter().flat_map(|tenants| &tenants.components);
    let own = references(&config.extensions, lent);
    let mut findings: Vec<Finding> = lock(&own, &locations.config).into_iter().collect();
    let mut has_references = !own.is_empty();
    for tenant in &config.tenants {
        // The check of the config reports a tenant whose file is unreadable.
        let Ok(served) = ServedConfig::of_tenant(tenant, config, &locations.config) else { continue };
        let path = locations.config.join(&tenant.config);
        let of_tenant = references(&served.extensions, []);
        has_references |= !of_tenant.is_empty();
        findings.extend(lock(&of_tenant, path.parent().unwrap_or(Path::new(""))));
    }
    if has_references {
        findings.push(trust(config.trust.as_ref()));
        findings.push(cache(locations));
    }
    let unencrypted = config.registries.iter().filter(|(_, registry)| registry.plain_http);
    findings.extend(unencrypted.map(|(host, _)| {
        let text = format!(
            "registries.{host:?}.plain_http: passwords for this registry can be read in the network; use https"
        );
        Finding::warning("registry", text)
    }));
    findings
}

/// The references of an agent's extensions and of `lent`. A reference with a mistake is left out.
fn references<'a>(
    extensions: &'a [ExtensionConfig],
    lent: impl IntoIterator<Item = &'a String>,
) -> BTreeSet<Reference> {
    let components = extensions.iter().map(|extension| &extension.component).chain(lent);
    components.filter(|component| is_reference(component)).filter_map(|component| component.parse().ok()).collect()
}

/// Compares the lock in a folder with the references of its config. `None` if there are neither.
fn lock(references: &BTreeSet<Reference>, folder: &Path) -> Option<Finding> {
    let path = folder.join(LOCK_FILE);
    let shown = path.display();
    // The check of the config reports a lock that is missing or has a mistake, for each reference.
    let lock = Lock::read(folder).ok()??;
    let missing = references.iter().filter(|reference| lock.find(reference).is_none()).count();
    let superfluous = lock.components.iter().filter(|locked| !references.contains(&locked.reference)).count();
    Some(match (missing, superfluous) {
        (0, 0) => Finding::fine("lock", format!("{shown} has all components of registries: {}", references.len())),
        (0, _) => {
            let text =
                format!("{shown} has components that the config does not name: {superfluous}; run: annex lock CONFIG");
            Finding::warning("lock", text)
        }
        _ => {
            Finding::error("lock", format!("{shown} lacks components of the config: {missing}; run: annex lock CONFIG"))
        }
    })
}

/// Tells whether components need signers.
fn trust(trust: Option<&TrustConfig>) -> Finding {
    let Some(trust) = trust else {
        let text = "the config has no [trust], so no component of a registry is installed; name the keys of its signers in \
                    trust.all_of";
        return Finding::error("trust", text);
    };
    let names_none = trust.all_of.is_empty() && trust.any_of.is_none();
    if names_none && trust.default == Unruled::Allow {
        let text = "trust.default = \"allow\" accepts components without signatures; name the keys of their signers in \
                    trust.all_of";
        return Finding::warning("trust", text);
    }
    Finding::fine("trust", format!("components of registries need signers; rules for prefixes: {}", trust.rule.len()))
}

/// Checks the folder of pulled components.
fn cache(locations: &Locations) -> Finding {
    let Some(folder) = locations.registry_cache() else {
        let text = "there is no folder for the components of registries; set XDG_CACHE_HOME or HOME";
        return Finding::error("registry", text);
    };
    let shown = folder.display();
    match annex_files::remark(&folder, Purpose::Private) {
        Ok(None) => Finding::fine("registry", format!("components of registries are in {shown}")),
        Ok(Some(remark)) => Finding::warning("registry", format!("{shown}: {remark}")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Finding::error("registry", format!("{shown} does not exist; run: annex lock CONFIG, or annex load FILE"))
        }
        Err(error) => Finding::error("registry", format!("{shown}: {error}")),
    }
}

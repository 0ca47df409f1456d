//! Looks at all that a server needs around it, before it is started: what the config names, folders and their rights, keys,
//! databases, agents elsewhere, the clock, the machine, and known faults of the engine. Nothing is changed.

use std::path::Path;
use std::sync::Arc;

use annex_telemetry::fault;

use crate::app;
use crate::config::{Config, ConfigError};
use crate::locations::Locations;

mod finding;
mod folders;
mod machine;
mod peers;

pub use finding::{Finding, Gravity};

/// Looks at everything, in an order that the causes come before what comes of them.
pub async fn examine(path: &Path, locations: &Locations) -> Vec<Finding> {
    let mut findings = config(path, locations).await;
    // What the config says is looked at as far as it can be read.
    if let Ok(config) = Config::read(path).map(Arc::new) {
        findings.extend(folders::examine(&config, locations));
        findings.extend(peers::examine(&config, locations).await);
        findings.extend(machine::examine(&config));
    } else {
        findings.push(Finding::warning("config", "the rest is not looked at before the config can be read"));
    }
    findings.extend(machine::confinement());
    findings.extend(engine());
    findings
}

async fn config(path: &Path, locations: &Locations) -> Vec<Finding> {
    match app::check(path, locations).await {
        Ok(checked) => {
            let app::Checked { extensions, tenants } = checked;
            vec![Finding::fine("config", format!("no errors; extensions: {extensions}, tenants: {tenants}"))]
        }
        Err(ConfigError::Problems(problems)) => {
            problems.iter().map(|problem| Finding::error("config", problem.to_string())).collect()
        }
        Err(error @ ConfigError::Read { .. }) => vec![Finding::error("config", fault::text(&error))],
    }
}

/// The known faults of the engine, and whether an extension may reach them.
fn engine() -> Vec<Finding> {
    let version = annex_runtime::ENGINE_VERSION;
    let advisories = annex_runtime::advisories();
    if advisories.is_empty() {
        return vec![Finding::fine("engine", format!("wasmtime {version} has no fault that is known to this release"))];
    }
    let finding = |advisory: &annex_runtime::Advisory| {
        let annex_runtime::Advisory { id, about, mended, kept_off } = advisory;
        match kept_off {
            Some(reason) => Finding::fine("engine", format!("{id} ({about}) is not reached by extensions: {reason}")),
            None => Finding::warning(
                "engine",
                format!(
                    "{id} ({about}) may be reached by extensions; take a release of Annex that is built with wasmtime \
                     {mended} or later"
                ),
            ),
        }
    };
    advisories.into_iter().map(finding).collect()
}

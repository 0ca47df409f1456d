//! The checks behind `annex doctor`, run before a server starts. They examine the config, folders and their
//! permissions, components of registries, keys, databases, upstream agents, ports, certificates of listeners, the clock, limits of the machine,
//! and known faults of the engine. The checks change nothing.

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
mod ports;
mod registries;
mod tls;

pub use finding::{Finding, Gravity};

/// Runs all checks. A finding about a cause comes before the findings about its consequences. For example, the config
/// comes before the folders.
pub async fn examine(path: &Path, locations: &Locations) -> Vec<Finding> {
    let mut findings = config(path, locations).await;
    // `app::check` also loads components and reads keys. The checks below need only a config that parses.
    if let Ok(config) = Config::read(path).map(Arc::new) {
        findings.extend(folders::examine(&config, locations));
        findings.extend(registries::examine(&config, locations));
        findings.extend(peers::examine(&config, locations).await);
        findings.extend(ports::examine(&config));
        findings.extend(tls::examine(&config, &locations.config));
        findings.extend(machine::examine(&config));
    } else {
        findings.push(Finding::warning("config", "the other checks need a config that can be read"));
    }
    findings.extend(machine::confinement());
    findings.extend(engine());
    findings
}

async fn config(path: &Path, locations: &Locations) -> Vec<Finding> {
    let app::CheckReport { warnings, outcome } = app::check(path, locations).await;
    let mut findings = match outcome {
        Ok(app::Counts { extensions, tenants }) => {
            vec![Finding::fine("config", format!("no errors; extensions: {extensions}, tenants: {tenants}"))]
        }
        Err(ConfigError::Problems(problems)) => {
            problems.iter().map(|problem| Finding::error("config", problem.to_string())).collect()
        }
        Err(error @ ConfigError::Read { .. }) => vec![Finding::error("config", fault::text(&error))],
    };
    findings.extend(warnings.iter().map(|warning| Finding::warning("config", warning.to_string())));
    findings
}

/// One finding for each known fault of the engine that an extension may reach, and one finding with the number of all
/// other known faults.
fn engine() -> Vec<Finding> {
    let version = annex_runtime::ENGINE_VERSION;
    let (kept_off, reached): (Vec<_>, Vec<_>) =
        annex_runtime::advisories().into_iter().partition(|advisory| advisory.kept_off.is_some());
    let reached = reached.into_iter().map(|annex_runtime::Advisory { id, about, mended, .. }| {
        let remedy = format!("take a release of Annex that is built with wasmtime {mended} or later");
        Finding::warning("engine", format!("{id} ({about}) may be reached by extensions; {remedy}"))
    });
    let others = match kept_off.len() {
        0 => format!("wasmtime {version}"),
        number => format!("wasmtime {version}; known faults that no extension reaches: {number}"),
    };
    reached.chain([Finding::fine("engine", others)]).collect()
}

/// The known faults of the engine that no extension reaches, each with the reason.
#[must_use]
pub fn advisories() -> Vec<Finding> {
    let kept_off = annex_runtime::advisories().into_iter().filter_map(|advisory| {
        let annex_runtime::Advisory { id, about, kept_off, .. } = advisory;
        Some(Finding::fine("engine", format!("{id} ({about}) is not reached by extensions: {}", (*kept_off)?)))
    });
    kept_off.collect()
}

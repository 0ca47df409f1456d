//! `annex outdated`

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use annex_registry::{Reference, ReferenceError, is_reference};
use annex_server::Config;
use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::{RegistryArgs, failed};
use crate::output;

/// List newer versions of the components that a config names by reference.
#[derive(Args)]
#[command(
    after_help = "Example:\n  annex outdated annex.toml\n\nA version is a tag of numbers, such as 1.2 or v1.2.3. A \
                        newer version has as many numbers. Nothing is changed: to update, name the newer version in \
                        the config."
)]
pub(crate) struct Outdated {
    /// The config
    config: PathBuf,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// A component of the config, and its newer versions.
#[derive(Serialize)]
struct Versions {
    reference: String,
    /// The version in the config; `None` if its tag is no version.
    version: Option<String>,
    /// The newer versions, ascending.
    newer: Vec<String>,
}

impl Outdated {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let references = references(&self.config)?;
        let mut found = Vec::with_capacity(references.len());
        for reference in &references {
            found.push(self.versions(reference).await?);
        }
        if self.json {
            return output::json(&serde_json::to_string(&found)?);
        }
        if found.is_empty() {
            output::note(&format!("{} names no component by reference", self.config.display()));
        }
        output::show(&found.iter().map(Versions::row).collect::<String>())
    }

    async fn versions(&self, reference: &Reference) -> anyhow::Result<Versions> {
        let version = reference.tag().filter(|tag| numbers(tag).is_some());
        let newer = match version {
            Some(version) => {
                let client = self.registry.client(reference.registry()).await?;
                newer(version, client.tags(reference).await.map_err(failed)?)
            }
            None => Vec::new(),
        };
        Ok(Versions { reference: reference.to_string(), version: version.map(str::to_owned), newer })
    }
}

impl Versions {
    fn row(&self) -> String {
        let Self { reference, version, newer } = self;
        match (version, newer.last()) {
            (None, _) => format!("{reference}  its tag is no version\n"),
            (Some(_), None) => format!("{reference}  is the newest version\n"),
            (Some(_), Some(newest)) => format!("{reference}  newest {newest}, newer versions: {}\n", newer.len()),
        }
    }
}

/// The references of a config, each once.
fn references(config: &Path) -> anyhow::Result<BTreeSet<Reference>> {
    let read = Config::read(config)?;
    let components = read.extensions.iter().map(|extension| extension.component.as_str());
    let named = components.filter(|component| is_reference(component)).map(str::parse::<Reference>);
    let references: Result<BTreeSet<Reference>, ReferenceError> = named.collect();
    references.with_context(|| config.display().to_string())
}

/// The tags that are newer versions, ascending.
fn newer(version: &str, tags: Vec<String>) -> Vec<String> {
    let Some(current) = numbers(version) else { return Vec::new() };
    let versions = tags.into_iter().filter_map(|tag| Some((numbers(&tag)?, tag)));
    let is_newer = |(other, _): &(Vec<u64>, String)| other.len() == current.len() && *other > current;
    let mut newer: Vec<(Vec<u64>, String)> = versions.filter(is_newer).collect();
    newer.sort();
    newer.into_iter().map(|(_, tag)| tag).collect()
}

/// The numbers of a version such as `v1.2`. `None` for any other tag.
fn numbers(tag: &str) -> Option<Vec<u64>> {
    tag.strip_prefix('v').unwrap_or(tag).split('.').map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::newer;

    fn check(version: &str, tags: &[&str], expected: &[&str]) {
        assert_eq!(newer(version, tags.iter().map(|tag| (*tag).to_owned()).collect()), expected, "{version}");
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let tags = ["1.10", "latest", "1.3", "1.2", "1.4-rc", "2", "1.2.9", "v1.4", "1.1", "1..3"];
        check("1.2", &tags, &["1.3", "v1.4", "1.10"]);
        check("2", &tags, &[]);
        check("latest", &tags, &[]);
        check("v1.2.3", &tags, &["1.2.9"]);
    }
}

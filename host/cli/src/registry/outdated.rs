//! `annex outdated`

use std::collections::BTreeSet;
use std::path::PathBuf;

use annex_registry::{Digest, Reference, ReferenceError, is_reference};
use annex_server::Config;
use annex_server::lock::{LOCK_FILE, Lock};
use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::source::{client_in_config, failed_in_config};
use crate::{output, serve};

/// List newer versions of the components that a config names by reference.
#[derive(Args)]
#[command(
    after_help = "Example:\n  annex outdated annex.toml\n\nA version is a tag of numbers, such as 1.2 or v1.2.3. A \
                        newer version has as many numbers. A tag can also have moved since `annex lock` has written \
                        annex.lock. Nothing is changed: to update, name the newer version in the config, and run `annex \
                        lock`, with --update for a tag that moved. The config's [registries] says how a registry is \
                        called."
)]
pub(crate) struct Outdated {
    /// The config
    config: PathBuf,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// A config and its lock.
struct LockedConfig {
    config: Config,
    /// The folder at which relative paths of the config start.
    folder: PathBuf,
    lock: Lock,
}

/// A component of the config, and its newer versions.
#[derive(Serialize)]
struct Versions {
    reference: String,
    /// The version in the config; `None` if its tag is no version.
    version: Option<String>,
    /// The newer versions, ascending.
    newer: Vec<String>,
    /// The digest in `annex.lock`.
    locked: Option<Digest>,
    /// True if the tag means another component than `annex.lock` has.
    has_moved: bool,
}

impl Outdated {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let config = Config::read(&self.config)?;
        let references = references(&config).with_context(|| self.config.display().to_string())?;
        let folder = serve::locations(&self.config).config;
        let lock = Lock::read(&folder)?.unwrap_or_default();
        let locked = LockedConfig { config, folder, lock };
        let mut found = Vec::with_capacity(references.len());
        for reference in &references {
            found.push(locked.versions(reference).await?);
        }
        if self.json {
            return output::json(&serde_json::to_string(&found)?);
        }
        if found.is_empty() {
            output::note(&format!("{} names no component by reference", self.config.display()));
        }
        output::show(&found.iter().map(Versions::row).collect::<String>())
    }
}

impl LockedConfig {
    async fn versions(&self, reference: &Reference) -> anyhow::Result<Versions> {
        let failed = |error| failed_in_config(reference, error);
        let version = reference.tag().filter(|tag| numbers(tag).is_some());
        let client = client_in_config(&self.config, &self.folder, reference.registry()).await?;
        let newer = match version {
            Some(version) => newer(version, client.tags(reference).await.map_err(failed)?),
            None => Vec::new(),
        };
        let locked = self.lock.find(reference).map(|locked| locked.manifest.clone());
        let has_moved = match &locked {
            Some(locked) if reference.digest().is_none() => {
                client.resolve(reference).await.map_err(failed)?.digest != *locked
            }
            _ => false,
        };
        let (reference, version) = (reference.to_string(), version.map(str::to_owned));
        Ok(Versions { reference, version, newer, locked, has_moved })
    }
}

impl Versions {
    fn row(&self) -> String {
        let Self { reference, version, newer, has_moved, .. } = self;
        let news = match (version, newer.last()) {
            (None, _) => "its tag is no version".to_owned(),
            (Some(_), None) => "is the newest version".to_owned(),
            (Some(_), Some(newest)) => format!("newest {newest}, newer versions: {}", newer.len()),
        };
        let moved =
            if *has_moved { format!("; its tag has moved since {LOCK_FILE} was written") } else { String::new() };
        format!("{reference}  {news}{moved}\n")
    }
}

/// The references of a config, each once.
fn references(config: &Config) -> Result<BTreeSet<Reference>, ReferenceError> {
    let components = config.extensions.iter().map(|extension| extension.component.as_str());
    let named = components.filter(|component| is_reference(component)).map(str::parse::<Reference>);
    named.collect()
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

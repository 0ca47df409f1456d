//! `annex lock`

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use annex_registry::{Digest, Reference, is_reference};
use annex_runtime::GrantNeeded;
use annex_server::lock::{LOCK_FILE, Lock as LockFile, LockedComponent};
use annex_server::{Config, ExtensionConfig, GrantsConfig, TenantComponents};
use annex_trust::Policy;
use anyhow::Context;
use clap::Args;

use super::grants::{self, AcceptedGrants};
use super::source::{ComponentSource, InspectedComponent};
use crate::exit::Failure;
use crate::inspect::trial;
use crate::{output, serve};

/// Pull the components that a config names by reference, and write their digests into annex.lock.
///
/// `annex serve` serves only components in annex.lock, which is in the folder of the config. A component in annex.lock stays
/// the same until --update. New components are pulled, their signatures are verified by `[trust]`, and their imports are
/// compared with the config's grants. None of their code runs.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex lock annex.toml\n  annex lock annex.toml --update\n  annex lock annex.toml \
                        --update --accept clock,keyvalue\n\nThe file of a tenant has its annex.lock in its own folder. \
                        Commit the files annex.lock. Nothing is written if one component is refused. Exit code 3: a \
                        component is not trusted, or wants grants that nobody has accepted."
)]
pub(crate) struct Lock {
    /// The config, a TOML file
    config: PathBuf,
    /// Look up each tag again, and lock the component that it names now
    #[arg(long)]
    update: bool,
    /// Accept these grants, with commas between them
    #[arg(long, value_name = "GRANTS", value_parser = AcceptedGrants::parse)]
    accept: Option<AcceptedGrants>,
}

/// The files of one folder, which share a lock.
struct LockFolder {
    folder: PathBuf,
    uses: BTreeMap<Reference, Vec<Use>>,
}

/// An `[[extension]]` that names a reference, or an entry of `tenants.components`.
struct Use {
    file: PathBuf,
    /// `None` for the components of added tenants, whose texts give the grants.
    grants: Option<GrantsConfig>,
    /// The policy of a tenant, which adds to that of the config.
    policy: Option<Policy>,
}

impl Use {
    fn gives(&self, grant: GrantNeeded) -> bool {
        self.grants.as_ref().is_some_and(|given| grants::gives(given, grant))
    }
}

/// What happened to one reference.
enum Change {
    New,
    Unchanged,
    Moved { from: Box<LockedComponent>, version: Option<String> },
}

/// A component that a lock gets, unless it is refused.
struct Step<'a> {
    reference: &'a Reference,
    uses: &'a [Use],
    component: InspectedComponent,
    change: Change,
    /// The needed grants that are not accepted.
    missing: Vec<GrantNeeded>,
}

/// The new content of a lock.
struct NewLock<'a> {
    folder: &'a Path,
    lock: LockFile,
    /// The output if no component is refused.
    rows: String,
    remarks: Vec<String>,
    refusals: Vec<String>,
    /// The grants that the refused components lack.
    missing: Vec<GrantNeeded>,
}

impl Lock {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let locations = serve::locations(&self.config);
        let config = Config::read(&self.config)?;
        let folders = folders(&config, &self.config, &locations.config)?;
        if folders.iter().all(|folder| folder.uses.is_empty()) {
            output::note(&format!("{} names no component by reference", self.config.display()));
        }
        let source = ComponentSource::new(&config, &locations)?;
        let mut locks = Vec::new();
        for folder in &folders {
            locks.extend(self.new_lock(folder, &source).await?);
        }
        if let Some(error) = self.refused(&locks) {
            return Err(error);
        }
        for NewLock { folder, lock, rows, remarks, .. } in locks {
            lock.write(folder)?;
            output::write(&rows)?;
            remarks.iter().for_each(|remark| output::note(remark));
        }
        Ok(())
    }

    /// The new content of the folder's lock. `None` if the folder needs no lock and has none.
    async fn new_lock<'a>(
        &self,
        LockFolder { folder, uses }: &'a LockFolder,
        source: &ComponentSource<'_>,
    ) -> anyhow::Result<Option<NewLock<'a>>> {
        let before = LockFile::read(folder)?;
        if before.is_none() && uses.is_empty() {
            return Ok(None);
        }
        let before = before.unwrap_or_default();
        let mut new = NewLock::empty(folder);
        for (reference, uses) in uses {
            let step = self.step(reference, uses, before.find(reference), source).await?;
            new.rows += &step.row();
            new.refusals.extend(step.refusal());
            new.remarks.extend(step.remarks());
            new.missing.extend(&step.missing);
            new.lock.put(step.component.to_lock(reference));
        }
        for gone in before.components.iter().filter(|locked| !uses.contains_key(&locked.reference)) {
            new.rows += &format!("{}  left {LOCK_FILE}: no config names it\n", gone.reference);
        }
        Ok(Some(new))
    }

    async fn step<'a>(
        &self,
        reference: &'a Reference,
        uses: &'a [Use],
        locked: Option<&LockedComponent>,
        source: &ComponentSource<'_>,
    ) -> anyhow::Result<Step<'a>> {
        let of_tenants = uses.iter().filter_map(|one| one.policy.as_ref());
        let policy = of_tenants.fold(source.policy().clone(), |policy, tenant| policy.strengthened(tenant));
        let (component, change) = Box::pin(self.component(reference, locked, source, &policy)).await?;
        let is_accepted = |grant: &GrantNeeded| match locked {
            Some(locked) => locked.grants.iter().any(|name| name == grant.name()),
            None => uses.iter().all(|one| one.gives(*grant)),
        };
        let mut missing = component.needs();
        missing.retain(|grant| !is_accepted(grant) && !self.accept.as_ref().is_some_and(|all| all.has(*grant)));
        Ok(Step { reference, uses, component, change, missing })
    }

    /// The component for the lock.
    async fn component(
        &self,
        reference: &Reference,
        locked: Option<&LockedComponent>,
        source: &ComponentSource<'_>,
        policy: &Policy,
    ) -> anyhow::Result<(InspectedComponent, Change)> {
        let Some(locked) = locked else {
            return Ok((source.pull(reference, policy).await?, Change::New));
        };
        if self.update {
            let now = source.resolve(reference).await?.digest;
            if now != locked.manifest {
                let version = source.version_in_cache(locked).await;
                let change = Change::Moved { from: Box::new(locked.clone()), version };
                return Ok((source.pull(&reference.with_digest(&now), policy).await?, change));
            }
        }
        Ok((source.locked(locked, policy).await?, Change::Unchanged))
    }

    /// The error about all refused components, with the command that accepts their grants.
    fn refused(&self, locks: &[NewLock<'_>]) -> Option<anyhow::Error> {
        let refusals: Vec<&str> = locks.iter().flat_map(|lock| &lock.refusals).map(String::as_str).collect();
        if refusals.is_empty() {
            return None;
        }
        let mut names: BTreeSet<&str> = locks.iter().flat_map(|lock| grants::names(&lock.missing)).collect();
        // What was accepted in this run has not been written either.
        names.extend(self.accept.iter().flat_map(AcceptedGrants::names));
        let names: Vec<&str> = names.into_iter().collect();
        let update = if self.update { " --update" } else { "" };
        let accept = format!("annex lock {}{update} --accept {}", self.config.display(), names.join(","));
        Some(Failure::Refused.error(format!("{}\nto accept these grants: {accept}", refusals.join("\n"))))
    }
}

impl<'a> NewLock<'a> {
    fn empty(folder: &'a Path) -> Self {
        let (rows, remarks) = (String::new(), Vec::new());
        Self { folder, lock: LockFile::default(), rows, remarks, refusals: Vec::new(), missing: Vec::new() }
    }
}

impl Step<'_> {
    /// The reason for which the component is refused.
    fn refusal(&self) -> Option<String> {
        let Self { reference, missing, component, .. } = self;
        if missing.is_empty() {
            return None;
        }
        let names = grants::names(missing).join(", ");
        let wants = match &self.change {
            Change::New => format!("{reference} needs grants that the config does not give: {names}"),
            Change::Unchanged => format!("{reference} needs grants that {LOCK_FILE} does not list: {names}"),
            Change::Moved { from, version } => {
                let from = named(&from.manifest, version.as_deref());
                let to = named(&component.pulled.manifest_digest, component.version().as_deref());
                format!("{reference} moved from {from} to {to}, which needs further grants: {names}")
            }
        };
        let lines = trial::lines_of(missing).join("\n    ");
        Some(format!("{wants}\n  what its [extension.grants] needs:\n    {lines}"))
    }

    fn row(&self) -> String {
        let Self { reference, component, .. } = self;
        let now = named(&component.pulled.manifest_digest, component.version().as_deref());
        match &self.change {
            Change::New => format!("{reference}  locked at {now}\n"),
            Change::Unchanged => format!("{reference}  stays at {now}\n"),
            Change::Moved { from, version } => {
                let before = named(&from.manifest, version.as_deref());
                let size = component.pulled.component.len();
                let grants = [listed(&from.grants), listed(&grants::names(&component.needs()))].join(" -> ");
                format!(
                    "{reference}  moved from {before} to {now}\n  size: {} -> {size} bytes; grants: {grants}\n",
                    from.size
                )
            }
        }
    }

    /// The accepted grants that a config does not give yet.
    fn remarks(&self) -> Vec<String> {
        let needs = self.component.needs();
        let remark = |one: &Use| {
            one.grants.as_ref()?;
            let mut lacks = needs.clone();
            lacks.retain(|grant| !one.gives(*grant));
            let lines = trial::lines_of(&lacks).join("\n");
            let text = format!(
                "{} does not give {} what it needs; write into its [extension.grants]:\n{lines}",
                one.file.display(),
                self.reference
            );
            (!lacks.is_empty()).then_some(text)
        };
        self.uses.iter().filter_map(remark).collect()
    }
}

fn listed(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// A digest with the version, if that is known.
fn named(digest: &Digest, version: Option<&str>) -> String {
    version.map_or_else(|| digest.to_string(), |version| format!("{digest} (version {version})"))
}

/// The folders of the config and of its tenants' files, each once.
fn folders(config: &Config, file: &Path, folder: &Path) -> anyhow::Result<Vec<LockFolder>> {
    let mut folders = BTreeMap::new();
    note_uses(&mut folders, file, &config.extensions, None)?;
    for component in config.stored_tenants.iter().flat_map(|tenants| &tenants.components) {
        note_use(&mut folders, file, component, None, None)?;
    }
    for tenant in &config.tenants {
        let TenantComponents { extensions, policy } = tenant.read_components(folder)?;
        note_uses(&mut folders, &folder.join(&tenant.config), &extensions, policy.as_ref())?;
    }
    Ok(folders.into_values().collect())
}

/// Adds the references of a file's extensions to those of its folder.
fn note_uses(
    folders: &mut BTreeMap<PathBuf, LockFolder>,
    file: &Path,
    extensions: &[ExtensionConfig],
    policy: Option<&Policy>,
) -> anyhow::Result<()> {
    for extension in extensions {
        note_use(folders, file, &extension.component, Some(&extension.grants), policy)?;
    }
    // A folder without references may have a lock of earlier ones.
    folder_of(folders, file).map(drop)
}

/// Adds a component that a file names, if it is a reference.
fn note_use(
    folders: &mut BTreeMap<PathBuf, LockFolder>,
    file: &Path,
    component: &str,
    grants: Option<&GrantsConfig>,
    policy: Option<&Policy>,
) -> anyhow::Result<()> {
    if is_reference(component) {
        let reference = component.parse::<Reference>().with_context(|| file.display().to_string())?;
        let one = Use { file: file.to_owned(), grants: grants.cloned(), policy: policy.cloned() };
        folder_of(folders, file)?.uses.entry(reference).or_default().push(one);
    }
    Ok(())
}

/// The folder of a file. Two spellings of a folder have one lock.
fn folder_of<'a>(folders: &'a mut BTreeMap<PathBuf, LockFolder>, file: &Path) -> anyhow::Result<&'a mut LockFolder> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let real = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let real = real.canonicalize().with_context(|| format!("cannot find the folder {}", real.display()))?;
    Ok(folders.entry(real).or_insert_with(|| LockFolder { folder: folder.to_owned(), uses: BTreeMap::new() }))
}

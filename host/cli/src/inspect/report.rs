//! The result of an inspection, with the fields of its JSON.

use annex_protocol::{ExtensionUri, Json};
use annex_runtime::{
    Access, Descriptor, Events, Extension, Grants, Hook, Import, InspectionResult, LoadError, ManifestSection, Method,
};
use serde::Serialize;
use toml::Table;

use super::Candidate;
use super::trial::{self, Trial};
use crate::registry::origin::Origin;

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) file: String,
    /// The registry, and the signatures; `None` for a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<Origin>,
    pub(super) digest: String,
    /// The size of the file in bytes.
    pub(super) size: usize,
    pub(super) contract: String,
    /// The manifest section that the component's project embedded.
    pub(super) manifest: Option<ManifestSection>,
    pub(super) hooks: Vec<&'static str>,
    pub(super) imports: Vec<ImportReport>,
    /// The reason why the component's instances cannot be kept between turns; `None` if they can.
    pub(super) unkeepable: Option<String>,
    /// Sentences about the trust that the component's grants require.
    pub(super) trust: Vec<&'static str>,
    /// The component's description of itself; `None` if the component was refused.
    pub(super) descriptor: Option<DescriptorReport>,
    /// The reason for which the component was refused; `None` if it loaded.
    pub(super) problem: Option<String>,
    /// True if the settings of the trial have parameters.
    #[serde(skip)]
    pub(super) has_parameters: bool,
    /// The schema of the parameters, if the component refused its parameters.
    pub(super) parameter_schema: Option<Json>,
    /// The `[[extension]]` table for a config. `None` if the component was refused, unless only its parameters were the
    /// reason.
    pub(super) config: Option<String>,
}

#[derive(Serialize)]
pub(super) struct ImportReport {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) access: AccessReport,
}

#[derive(Serialize)]
#[serde(tag = "access", rename_all = "lowercase")]
pub(super) enum AccessReport {
    Free,
    /// The import needs a grant. `grant` is the line for the config's `[extension.grants]`.
    Needs {
        grant: String,
    },
    Unknown,
}

#[derive(Serialize)]
pub(super) struct DescriptorReport {
    pub(super) uri: ExtensionUri,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) description: String,
    pub(super) metadata_keys: Vec<String>,
    pub(super) depends_on: Vec<ExtensionUri>,
    pub(super) events: Vec<&'static str>,
    /// True if the extension gets these events as JSON.
    pub(super) payload: bool,
    /// The methods that the component declares, without the methods that its parameters add.
    pub(super) methods: Vec<MethodReport>,
    pub(super) parameter_schema: Option<Json>,
}

#[derive(Serialize)]
pub(super) struct MethodReport {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) streams: bool,
}

impl Report {
    pub(super) fn new(candidate: Candidate<'_>, inspected: InspectionResult, trial: &Trial) -> Self {
        let Candidate { file, in_config, settings, mut origin, .. } = candidate;
        let InspectionResult { inspection, unkeepable } = inspected;
        if let Some(locked) = origin.as_mut().and_then(|origin| origin.locked.as_mut()) {
            locked.compare(&inspection.needs());
        }
        let descriptor = trial.loaded.as_ref().ok().map(DescriptorReport::new);
        let parameters = settings.get("parameters").and_then(toml::Value::as_table);
        let has_parameters = parameters.is_some_and(|parameters| !parameters.is_empty());
        Self {
            file: file.display().to_string(),
            origin,
            digest: inspection.digest.to_string(),
            size: inspection.size,
            contract: inspection.contract,
            manifest: inspection.manifest,
            hooks: inspection.hooks.iter().copied().map(Hook::name).collect(),
            imports: inspection.imports.iter().map(ImportReport::new).collect(),
            unkeepable,
            trust: trust(&trial.grants),
            problem: trial.loaded.as_ref().err().map(|error| annex_text::with_causes(error)),
            has_parameters,
            parameter_schema: match &trial.loaded {
                Err(LoadError::Parameters { schema, .. }) => Json::parse(schema.clone()).ok(),
                _ => None,
            },
            config: trial.fits_a_config().then(|| config(in_config, settings, trial)),
            descriptor,
        }
    }
}

/// Sentences about the trust that these grants require.
fn trust(grants: &Grants) -> Vec<&'static str> {
    let mut trust = Vec::new();
    if grants.rewrite_answer || grants.answer {
        trust.push("it speaks for the agent: clients, and the model in later turns, take its words for the agent's");
    }
    if grants.steering {
        trust.push("it decides what the agent's model is asked, and which tools are called with which arguments");
    }
    if grants.caller.is_some() && grants.http.is_some() {
        trust.push("it can tell the hosts that it calls who uses the agent");
    }
    trust
}

impl ImportReport {
    fn new(import: &Import) -> Self {
        let access = match import.access {
            Access::Free => AccessReport::Free,
            Access::Needs(grant) => AccessReport::Needs { grant: grant.to_string() },
            Access::Unknown => AccessReport::Unknown,
        };
        Self { name: import.name.clone(), access }
    }
}

impl DescriptorReport {
    fn new(extension: &Extension) -> Self {
        let descriptor: &Descriptor = extension.descriptor();
        let schema = descriptor.parameter_schema.clone();
        Self {
            uri: descriptor.uri.clone(),
            name: descriptor.name.clone(),
            version: descriptor.version.clone(),
            description: descriptor.description.clone(),
            metadata_keys: descriptor.metadata_keys.clone(),
            depends_on: descriptor.depends_on.clone(),
            events: events(descriptor.events),
            payload: descriptor.payload,
            methods: extension.methods().iter().map(MethodReport::new).collect(),
            // The host has compiled the schema, so it is JSON.
            parameter_schema: schema.and_then(|schema| Json::parse(schema).ok()),
        }
    }
}

impl MethodReport {
    fn new(method: &Method) -> Self {
        Self { name: method.name.clone(), description: method.description.clone(), streams: method.streams }
    }
}

fn events(events: Events) -> Vec<&'static str> {
    let kinds = [(events.message, "message"), (events.status, "status"), (events.artifact, "artifact")];
    kinds.into_iter().filter_map(|(is_wanted, name)| is_wanted.then_some(name)).collect()
}

/// The `[[extension]]` table for a config, with the settings of the trial and any other grants that the component
/// needs. If the component refuses to load without parameters, the table has sample parameters.
fn config(component: &str, mut settings: Table, trial: &Trial) -> String {
    let mut missing = Vec::new();
    let given = settings.entry("grants").or_insert_with(|| Table::new().into());
    if let Some(given) = given.as_table_mut() {
        missing = trial::in_config(&trial.grants);
        missing.retain(|line| !line.split_once(" =").is_some_and(|(name, _)| given.contains_key(name)));
    }
    // Without given settings, the grants are written on lines of their own, as a person writes them.
    let is_bare = settings.values().all(|value| value.as_table().is_some_and(Table::is_empty));
    let mut text = format!("[[extension]]\ncomponent = {}\n", toml::Value::from(component));
    if is_bare {
        if !missing.is_empty() {
            let lines: Vec<String> = missing.into_iter().map(with_remark).collect();
            text.push_str(&format!("\n[extension.grants]\n{}\n", lines.join("\n")));
        }
    } else {
        let lines = missing.join("\n").parse::<Table>().unwrap_or_default();
        if let Some(given) = settings.get_mut("grants").and_then(toml::Value::as_table_mut) {
            given.extend(lines);
        }
        settings.retain(|_, value| !value.as_table().is_some_and(Table::is_empty));
        settings.insert("component".to_owned(), component.into());
        text = Table::from_iter([("extension".to_owned(), vec![settings].into())]).to_string();
    }
    match &trial.sample {
        Some(sample) => text.push_str(&format!("\n{}", parameters(sample))),
        None if matches!(trial.loaded, Err(LoadError::Parameters { .. } | LoadError::Description { .. })) => {
            text.push_str("\n# It is refused as it is: it needs parameters in a table [extension.parameters].\n");
        }
        None => {}
    }
    text
}

/// Adds a comment to the line of a grant whose value the operator has to replace.
fn with_remark(grant: String) -> String {
    if grant.starts_with("http =") {
        format!("{grant} # replace the rule by the requests that it sends")
    } else {
        grant
    }
}

fn parameters(sample: &Table) -> String {
    let inner = Table::from_iter([("parameters".to_owned(), sample.clone().into())]);
    // Written as a part of the `[[extension]]` above, and not as a table of its own.
    let whole = Table::from_iter([("extension".to_owned(), inner.into())]).to_string();
    format!("# Made up from its schema: replace them by yours.\n{whole}")
}

//! `annex-extension.toml`: how a project is built and tested, and what its component says about itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use annex_protocol::Json;
use serde::Deserialize;

use crate::error::ManifestError;
use crate::section::{ManifestGrants, ManifestParameters, ManifestSection};
use crate::toml_json;

/// The name of the manifest file.
pub const FILE: &str = "annex-extension.toml";

/// The parsed manifest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The name of the project. Its component is the file `NAME.wasm`.
    pub name: String,
    /// The project's version.
    pub version: String,
    /// The URI of the extension.
    pub uri: Option<String>,
    /// The licence of the component, as an SPDX expression.
    #[serde(alias = "license")]
    pub licence: Option<String>,
    /// The URL of the sources.
    pub source: Option<String>,
    /// The name of each grant that the component needs, with the reason. `None` if the project does not say what its
    /// component needs.
    pub grants: Option<BTreeMap<String, String>>,
    /// The parameters of the extension.
    pub parameters: Option<Parameters>,
    /// The build of the component.
    pub build: Build,
    /// The keys of an `[[extension]]` in a server's config without `component`. `annex test`, `annex dev` and `annex
    /// bench` run the component with these settings.
    #[serde(default)]
    pub settings: toml::Table,
}

/// The parameters of the extension, for people who read the manifest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The file with the JSON Schema of the parameters.
    pub schema: PathBuf,
    /// An example of parameters.
    pub example: Option<toml::Table>,
}

/// The build of the component. Each command is a program with its arguments and runs without a shell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// Commands that run in order before the first build, to download tools and libraries.
    #[serde(default)]
    pub setup: Vec<Vec<String>>,
    /// The file or folder that `setup` creates. While it exists, `setup` is not run.
    pub setup_makes: Option<PathBuf>,
    /// The language of the bindings that are generated in `generated` before each build.
    pub bindings: Option<Bindings>,
    /// The command that builds `output`.
    pub command: Vec<String>,
    /// The file that `command` writes: a component, or a core module that is converted to a component.
    pub output: PathBuf,
    /// Files and folders whose changes cause another build.
    #[serde(default)]
    pub watch: Vec<PathBuf>,
    /// Environment variables for the commands, in addition to the environment of `annex`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// A language for which `annex build` generates the bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bindings {
    /// C: a header and its sources.
    C,
    /// Go: a package for each interface.
    Go,
    /// TypeScript: the types of the contract.
    #[serde(rename = "ts")]
    TypeScript,
}

impl Manifest {
    /// Parses the text of the file.
    ///
    /// # Errors
    /// When the text is not TOML with these keys.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// The content of the component's section. `schema` is the text of the file that `parameters.schema` names.
    ///
    /// # Errors
    /// [`ManifestError::Schema`] or [`ManifestError::Example`].
    pub fn section(&self, schema: Option<String>) -> Result<ManifestSection, ManifestError> {
        let grants = match &self.grants {
            Some(reasons) => ManifestGrants::Reasons(reasons.clone()),
            None => {
                let tested = self.settings.get("grants").and_then(toml::Value::as_table);
                ManifestGrants::Tested(tested.into_iter().flat_map(toml::Table::keys).cloned().collect())
            }
        };
        let example = self.parameters.as_ref().and_then(|parameters| parameters.example.as_ref());
        let example = example.map(|example| Json::parse(toml_json::object(example).to_string()));
        let example = example.transpose().map_err(ManifestError::Example)?;
        let schema = schema.map(Json::parse).transpose().map_err(ManifestError::Schema)?;
        Ok(ManifestSection {
            name: self.name.clone(),
            version: self.version.clone(),
            grants,
            uri: self.uri.clone(),
            licence: self.licence.clone(),
            source: self.source.clone(),
            parameters: schema.map(|schema| ManifestParameters { schema, example }),
        })
    }
}

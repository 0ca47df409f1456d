//! The content of a component's manifest section, from `annex-extension.toml`.

use std::path::Path;
use std::time::Duration;

use annex_files::Purpose;
use annex_protocol::Json;
use annex_runtime::{MAX_MANIFEST_BYTES, ManifestGrants, ManifestParameters, ManifestSection};
use annex_schema::{Schemas, ValidatorBudget, Workers};

use crate::case::json_of_table;
use crate::error::ProjectError;
use crate::manifest::{FILE, Manifest, Parameters, Project};

/// Maximum time to validate the example.
const VALIDATION_TIME: Duration = Duration::from_secs(10);
/// Maximum memory of the schema's validator, in bytes.
const VALIDATOR_BYTES: usize = 8 << 20;

/// The content of the manifest section.
pub(super) async fn of(project: &Project) -> Result<Vec<u8>, ProjectError> {
    let Manifest { name, version, uri, licence, source, grants, parameters, settings, .. } = &project.manifest;
    let grants = match grants {
        Some(reasons) => ManifestGrants::Reasons(reasons.clone()),
        None => {
            let tested = settings.get("grants").and_then(toml::Value::as_table);
            ManifestGrants::Tested(tested.into_iter().flat_map(toml::Table::keys).cloned().collect())
        }
    };
    let parameters = match parameters {
        Some(parameters) => Some(read(project, parameters).await?),
        None => None,
    };
    let section = ManifestSection {
        name: name.clone(),
        version: version.clone(),
        grants,
        uri: uri.clone(),
        licence: licence.clone(),
        source: source.clone(),
        parameters,
    };
    section.to_section().map_err(|error| wrong(&project.path(FILE), error.to_string()))
}

/// Reads the schema of the parameters, and checks the example against it.
async fn read(project: &Project, parameters: &Parameters) -> Result<ManifestParameters, ProjectError> {
    let path = project.path(&parameters.schema);
    let text = annex_files::read_text(&path, Purpose::Named, MAX_MANIFEST_BYTES).map_err(ProjectError::file(&path))?;
    let schema = Json::parse(text).map_err(|error| wrong(&path, error.to_string()))?;
    let in_manifest = |reason: String| wrong(&project.path(FILE), format!("parameters.example: {reason}"));
    let example = parameters.example.as_ref().map(|example| Json::parse(json_of_table(example).to_string()));
    let example = example.transpose().map_err(|error| in_manifest(error.to_string()))?;
    if let Some(example) = &example {
        let schemas = Schemas::new(&ValidatorBudget::new(VALIDATOR_BYTES), Workers::new(1));
        let mut spent = Duration::ZERO;
        let violations = schemas.validate(schema.get(), example.get(), VALIDATION_TIME, &mut spent).await;
        let violations = violations.map_err(|error| wrong(&path, error.to_string()))?;
        if let Some(first) = violations.into_iter().next() {
            let schema = parameters.schema.display();
            return Err(in_manifest(format!("{}: {}, says {schema}", first.pointer, first.message)));
        }
    }
    Ok(ManifestParameters { schema, example })
}

fn wrong(path: &Path, reason: String) -> ProjectError {
    ProjectError::Manifest { path: path.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The manifest section of a project with these keys in its manifest, and with this schema.
    async fn section(keys: &str, schema: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let build = "[build]\ncommand = [\"true\"]\noutput = \"o\"";
        let manifest = format!("name = \"a\"\nversion = \"1\"\n{keys}\n{build}\n");
        fs::write(folder.path().join(FILE), manifest).expect("a manifest");
        fs::write(folder.path().join("s.json"), schema).expect("a schema");
        let project = Project::open(folder.path()).map_err(|error| error.to_string())?;
        let section = of(&project).await.map_err(|error| error.to_string())?;
        Ok(String::from_utf8(section).expect("JSON"))
    }

    #[tokio::test]
    async fn a_section_says_what_the_manifest_says() {
        let keys = "uri = \"urn:a\"\nlicense = \"MIT\"\nsource = \"https://a.example\"\n[grants]\nclock = \"why\"\n\
                    [parameters]\nschema = \"s.json\"\nexample = { limit = 20 }\n";
        let expected = r#"{"name":"a","version":"1","grants":{"clock":"why"},"uri":"urn:a","licence":"MIT","source":"https://a.example","parameters":{"schema":{"type":"object"},"example":{"limit":20}}}"#;
        assert_eq!(section(keys, "{\n  \"type\": \"object\"\n}\n").await.as_deref(), Ok(expected));
    }

    #[tokio::test]
    async fn without_grants_a_section_has_the_grants_of_the_tests() {
        let expected = r#"{"name":"a","version":"1","grants":["clock","keyvalue"]}"#;
        assert_eq!(section("settings.grants = { clock = true, keyvalue = {} }", "").await.as_deref(), Ok(expected));
    }

    #[tokio::test]
    async fn an_example_that_the_schema_does_not_allow_is_refused_with_its_place() {
        let keys = "[parameters]\nschema = \"s.json\"\nexample = { limit = \"20\" }\n";
        let schema = r#"{"properties":{"limit":{"type":"integer"}}}"#;
        let refused = section(keys, schema).await.expect_err("a violation");
        assert!(refused.contains("annex-extension.toml: parameters.example: /limit: "), "{refused}");
        let refused = section(keys, "{").await.expect_err("no JSON");
        assert!(refused.contains("s.json: "), "{refused}");
        let long = format!("[grants]\nclock = \"{}\"", "x".repeat(3000));
        let refused = section(&long, "").await.expect_err("it is too long");
        assert!(refused.contains("the reason for `clock` has 3000 bytes"), "{refused}");
    }
}

//! The content of a component's manifest section, from `annex-extension.toml`.

use std::path::Path;
use std::time::Duration;

use annex_files::Purpose;
use annex_manifest::{FILE, MAX_MANIFEST_BYTES, ManifestError, ManifestParameters, Parameters};
use annex_schema::{Schemas, ValidatorBudget, Workers};

use crate::error::ProjectError;
use crate::manifest::Project;

/// Maximum time to validate the example.
const VALIDATION_TIME: Duration = Duration::from_secs(10);
/// Maximum memory of the schema's validator, in bytes.
const VALIDATOR_BYTES: usize = 8 << 20;

/// The content of the manifest section.
pub(super) async fn of(project: &Project) -> Result<Vec<u8>, ProjectError> {
    let of_project = project.manifest.parameters.as_ref();
    let schema = of_project.map(|parameters| read(&project.path(&parameters.schema))).transpose()?;
    let section = project.manifest.section(schema);
    let section = section.map_err(|error| match (&error, of_project) {
        (ManifestError::Schema(_), Some(parameters)) => wrong(&project.path(&parameters.schema), error.to_string()),
        _ => wrong(&project.path(FILE), error.to_string()),
    })?;
    if let (Some(of_project), Some(of_section)) = (of_project, &section.parameters) {
        check_example(project, of_project, of_section).await?;
    }
    section.to_section().map_err(|error| wrong(&project.path(FILE), error.to_string()))
}

fn read(path: &Path) -> Result<String, ProjectError> {
    annex_files::read_text(path, Purpose::Named, MAX_MANIFEST_BYTES).map_err(ProjectError::file(path))
}

/// Checks the example of the parameters against their schema.
async fn check_example(
    project: &Project,
    of_project: &Parameters,
    ManifestParameters { schema, example }: &ManifestParameters,
) -> Result<(), ProjectError> {
    let Some(example) = example else { return Ok(()) };
    let schemas = Schemas::new(&ValidatorBudget::new(VALIDATOR_BYTES), Workers::new(1));
    let mut spent = Duration::ZERO;
    let violations = schemas.validate(schema.get(), example.get(), VALIDATION_TIME, &mut spent).await;
    let violations = violations.map_err(|error| wrong(&project.path(&of_project.schema), error.to_string()))?;
    match violations.into_iter().next() {
        Some(first) => {
            let file = of_project.schema.display();
            let reason = format!("parameters.example: {}: {}, says {file}", first.pointer, first.message);
            Err(wrong(&project.path(FILE), reason))
        }
        None => Ok(()),
    }
}

fn wrong(path: &Path, reason: String) -> ProjectError {
    ProjectError::Manifest { path: path.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{FILE, Project, of};

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

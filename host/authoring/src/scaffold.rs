//! New projects, written from templates.

use std::fs;
use std::path::{Path, PathBuf};

use annex_runtime::GrantNeeded;
use include_dir::{Dir, DirEntry, include_dir};
use minijinja::{Environment, UndefinedBehavior, Value, context};

use crate::choice::{Capability, Choice, HOOKS, Language};
use crate::contract;
use crate::error::ProjectError;
use crate::sdk;

/// A folder for each language, and `common` for what all have.
static TEMPLATES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates");

/// Makes a project in the folder of its name, inside `parent`. It is there as a whole or not at all.
///
/// # Errors
/// [`ProjectError::Exists`], and when the folder cannot be written.
pub fn create(parent: &Path, choice: &Choice) -> Result<PathBuf, ProjectError> {
    let folder = parent.join(choice.name.as_str());
    if folder.symlink_metadata().is_ok() {
        return Err(ProjectError::Exists { path: folder });
    }
    // Beside the place where it goes, because a rename does not lead to another file system.
    let aside = tempfile::Builder::new().prefix(".annex-new-").tempdir_in(parent);
    let aside = aside.map_err(ProjectError::file(parent))?;
    let written = aside.path().join(choice.name.as_str());
    write(&written, choice)?;
    fs::rename(&written, &folder).map_err(ProjectError::file(&folder))?;
    Ok(folder)
}

fn write(folder: &Path, choice: &Choice) -> Result<(), ProjectError> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(true);
    // A misspelt variable is an error of the template and not an empty text.
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let values = values(choice);
    fs::create_dir_all(folder).map_err(ProjectError::file(folder))?;
    for name in ["common", choice.language.name()] {
        let Some(template) = TEMPLATES.get_dir(name) else { continue };
        render(template, template.path(), folder, &environment, &values)?;
    }
    if choice.language == Language::Rust {
        let vendor = folder.join("vendor").join("annex-sdk");
        return sdk::write(&vendor).map_err(ProjectError::file(&vendor));
    }
    let wit = folder.join("wit");
    contract::write_world(&wit, choice).map_err(ProjectError::file(&wit))
}

fn render(
    template: &Dir<'_>,
    root: &Path,
    folder: &Path,
    environment: &Environment<'_>,
    values: &Value,
) -> Result<(), ProjectError> {
    for entry in template.entries() {
        let file = match entry {
            DirEntry::Dir(inner) => {
                render(inner, root, folder, environment, values)?;
                continue;
            }
            DirEntry::File(file) => file,
        };
        let name = file.path().strip_prefix(root).unwrap_or(file.path());
        let broken = |reason: String| ProjectError::Template { file: file.path().display().to_string(), reason };
        let text = file.contents_utf8().ok_or_else(|| broken("it is not UTF-8".to_owned()))?;
        let text = environment.render_str(text, values).map_err(|error| broken(error.to_string()))?;
        // A file that the choice has no use for is empty.
        if text.trim().is_empty() {
            continue;
        }
        let path = folder.join(name);
        let inside = path.parent().unwrap_or(folder);
        fs::create_dir_all(inside).and_then(|()| fs::write(&path, text)).map_err(ProjectError::file(&path))?;
    }
    Ok(())
}

fn values(choice: &Choice) -> Value {
    let hooks: Vec<&str> = choice.hooks.iter().map(|hook| hook.name()).collect();
    let h: Value = HOOKS.map(|hook| (hook.name(), choice.hooks.contains(&hook))).into_iter().collect();
    let has = |capability: Capability| choice.capabilities.contains(&capability);
    let w: Value =
        Capability::ALL.map(|capability| (capability.name().replace('-', "_"), has(capability))).into_iter().collect();
    let grants = grants(choice);
    context! {
        name => choice.name.as_str(),
        snake => choice.name.snake(),
        camel => choice.name.camel(),
        uri => format!("https://example.com/extensions/{}/v1", choice.name),
        language => choice.language.name(),
        hooks,
        grants,
        h,
        w,
    }
}

/// The lines of `[settings.grants]` without which the component does not load.
fn grants(choice: &Choice) -> Vec<String> {
    let mut grants: Vec<GrantNeeded> = choice.capabilities.iter().filter_map(|capability| capability.grant()).collect();
    // The interpreters import both, whether a program in them asks for the time or not.
    if matches!(choice.language, Language::JavaScript | Language::TypeScript | Language::Python) {
        grants.extend(
            [GrantNeeded::Clock, GrantNeeded::Random]
                .into_iter()
                .filter(|grant| !grants.contains(grant))
                .collect::<Vec<_>>(),
        );
    }
    grants.iter().map(ToString::to_string).collect()
}

impl Capability {
    fn grant(self) -> Option<GrantNeeded> {
        match self {
            Self::Parameters | Self::JsonSchema | Self::Logging => None,
            Self::KeyValue => Some(GrantNeeded::KeyValue),
            Self::Clock => Some(GrantNeeded::Clock),
            Self::Random => Some(GrantNeeded::Random),
            Self::Http => Some(GrantNeeded::Http),
            Self::SessionState => Some(GrantNeeded::SessionState),
            Self::Task => Some(GrantNeeded::Task),
            Self::Tasks => Some(GrantNeeded::Tasks),
            Self::TaskResumption => Some(GrantNeeded::TaskResumption),
            Self::AgentSteps => Some(GrantNeeded::AgentSteps),
        }
    }
}

//! Creates new projects from templates.

use std::fs;
use std::path::{Path, PathBuf};

use annex_runtime::{GrantNeeded, Hook};
use include_dir::{Dir, DirEntry, include_dir};
use minijinja::{Environment, UndefinedBehavior, Value, context};
use serde::Serialize;

use crate::choice::{Capability, Choice, EXAMPLE_URI, HOOKS, Language};
use crate::contract;
use crate::error::ProjectError;
use crate::sdk;

/// The templates of projects. Each language has a folder; `script` is for both JavaScript and TypeScript, and `common`
/// for all languages. The names of files are templates too: `extension.{{language}}`.
static TEMPLATES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates");

/// Creates a project in a new folder inside `parent`. The folder has the name of the project. If this fails, no folder
/// is left.
///
/// # Errors
/// [`ProjectError::Exists`], and when the folder cannot be written.
pub fn create(parent: &Path, choice: &Choice) -> Result<PathBuf, ProjectError> {
    let folder = parent.join(choice.name.as_str());
    if folder.symlink_metadata().is_ok() {
        return Err(ProjectError::Exists { path: folder });
    }
    // In the same parent folder, because a rename cannot cross file systems.
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
    for name in folders(choice.language) {
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

/// The folders of templates that a project in this language uses.
fn folders(language: Language) -> &'static [&'static str] {
    match language {
        Language::JavaScript => &["common", "script"],
        Language::TypeScript => &["common", "script", "ts"],
        Language::Rust => &["common", "rust"],
        Language::Python => &["common", "python"],
        Language::C => &["common", "c"],
        Language::Go => &["common", "go"],
    }
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
        // Templates that the options do not need render as empty files.
        if text.trim().is_empty() {
            continue;
        }
        let name =
            environment.render_str(&name.to_string_lossy(), values).map_err(|error| broken(error.to_string()))?;
        let path = folder.join(name);
        let inside = path.parent().unwrap_or(folder);
        fs::create_dir_all(inside).and_then(|()| fs::write(&path, text)).map_err(ProjectError::file(&path))?;
    }
    Ok(())
}

fn values(choice: &Choice) -> Value {
    let hooks: Vec<&str> = choice.hooks.iter().map(|hook| hook.name()).collect();
    let h: Value =
        HOOKS.map(|hook| (hook.name().replace('-', "_"), choice.hooks.contains(&hook))).into_iter().collect();
    let has = |capability: Capability| choice.capabilities.contains(&capability);
    let w: Value =
        Capability::ALL.map(|capability| (capability.name().replace('-', "_"), has(capability))).into_iter().collect();
    let grants = grants(choice);
    let (needed, later) = reasons(choice);
    context! {
        name => choice.name.as_str(),
        snake => choice.name.snake(),
        camel => choice.name.camel(),
        uri => choice.uri.clone().unwrap_or_else(|| format!("{EXAMPLE_URI}extensions/{}/v1", choice.name)),
        language => choice.language.name(),
        hooks,
        grants,
        needed,
        later,
        h,
        w,
    }
}

/// The lines of `[settings.grants]` that the component needs to load.
fn grants(choice: &Choice) -> Vec<String> {
    let mut grants = all_grants(choice);
    // The grant for steering contains the grant for the import.
    if grants.contains(&GrantNeeded::Steering) {
        grants.retain(|grant| *grant != GrantNeeded::AgentSteps);
    }
    grants.iter().map(ToString::to_string).collect()
}

/// The grants of the hooks and the capabilities.
fn all_grants(choice: &Choice) -> Vec<GrantNeeded> {
    let of_hooks = choice.hooks.iter().filter_map(|hook| hook.grant());
    let of_capabilities = choice.capabilities.iter().filter_map(|capability| capability.grant());
    // The interpreters always import both.
    let of_interpreter: &[GrantNeeded] =
        if is_interpreted(choice.language) { &[GrantNeeded::Clock, GrantNeeded::Random] } else { &[] };
    let mut grants: Vec<GrantNeeded> = Vec::new();
    for grant in of_hooks.chain(of_capabilities).chain(of_interpreter.iter().copied()) {
        // Two hooks may need one grant.
        if !grants.contains(&grant) {
            grants.push(grant);
        }
    }
    grants
}

fn is_interpreted(language: Language) -> bool {
    matches!(language, Language::JavaScript | Language::TypeScript | Language::Python)
}

/// A line of `[grants]`.
#[derive(Serialize)]
struct GrantLine {
    key: String,
    reason: &'static str,
}

/// The lines of `[grants]`: the grants that the filled-in template needs, and the grants that it needs once its code
/// calls all of the capabilities.
fn reasons(choice: &Choice) -> (Vec<GrantLine>, Vec<GrantLine>) {
    let (needed, later): (Vec<_>, Vec<_>) =
        all_grants(choice).into_iter().partition(|grant| is_needed_at_once(choice, *grant));
    let lines = |grants: Vec<GrantNeeded>| grants.into_iter().map(|grant| grant_line(choice, grant)).collect();
    (lines(needed), lines(later))
}

/// True if the filled-in template has a hook or an import that needs the grant. A component of an interpreter imports
/// each interface of its world. Other components only import the interfaces that their code calls. Go's own runtime calls
/// the clock and random numbers if the world has them.
fn is_needed_at_once(choice: &Choice, grant: GrantNeeded) -> bool {
    let is_of_runtime = choice.language == Language::Go && matches!(grant, GrantNeeded::Clock | GrantNeeded::Random);
    let is_called =
        choice.hooks.contains(&Hook::Response) && matches!(grant, GrantNeeded::KeyValue | GrantNeeded::Clock);
    let is_imported = is_interpreted(choice.language) || is_of_runtime || is_called;
    is_imported || choice.hooks.iter().any(|hook| hook.grant() == Some(grant))
}

fn grant_line(choice: &Choice, grant: GrantNeeded) -> GrantLine {
    let name = grant.name();
    // A bare key of TOML has no dots.
    let key = if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() };
    let is_chosen = choice.capabilities.iter().any(|capability| capability.grant() == Some(grant));
    let reason = match grant {
        GrantNeeded::Clock | GrantNeeded::Random if !is_chosen => "The interpreter of its language needs it.",
        GrantNeeded::Clock => "It puts the time of day into answers.",
        GrantNeeded::Random => "It draws random numbers.",
        GrantNeeded::Http => "It sends requests to other hosts.",
        GrantNeeded::KeyValue => "It counts the answers of a conversation.",
        GrantNeeded::SessionState => "It reads the state of the session.",
        GrantNeeded::Scope(_) => "It writes state that other sessions share.",
        GrantNeeded::Task => "It reads the state of the task.",
        GrantNeeded::Tasks => "It lists the caller's tasks.",
        GrantNeeded::TaskResumption => "It resumes tasks that it has interrupted.",
        GrantNeeded::AgentSteps => "It reads the agent's steps.",
        GrantNeeded::Steering => "It denies calls of forbidden tools.",
        GrantNeeded::Caller => "It reads who calls.",
        GrantNeeded::TaskMetadata => "It sets metadata of the task.",
        GrantNeeded::ForgetMetadata => "It gets metadata that nobody else may see.",
        GrantNeeded::RewriteMessage => "It rewrites parts of messages.",
        GrantNeeded::RewriteAnswer => "It removes secrets from answers.",
        GrantNeeded::Answer => "It answers in place of the agent.",
        GrantNeeded::Reads => "It adds metadata to what readers are shown.",
        GrantNeeded::LiveCard => "It changes its entry on the Agent Card.",
    };
    GrantLine { key, reason }
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
            Self::Caller => Some(GrantNeeded::Caller),
            Self::TaskMetadata => Some(GrantNeeded::TaskMetadata),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::cases_in;
    use crate::choice::ProjectName;
    use crate::manifest::Project;

    /// The options of several test projects: each hook and each capability in a project of its own, and combinations of
    /// them. Options that the language does not support are left out.
    fn choices(language: Language) -> Vec<Choice> {
        let name = ProjectName::parse("word-count").expect("a name");
        let choice = |hooks: &[Hook], capabilities: &[Capability]| Choice {
            name: name.clone(),
            language,
            hooks: hooks.to_vec(),
            capabilities: capabilities.to_vec(),
            uri: None,
        };
        let all_but_http: Vec<Capability> =
            Capability::ALL.into_iter().filter(|capability| *capability != Capability::Http).collect();
        let mut choices: Vec<Choice> = HOOKS.iter().map(|hook| choice(&[*hook], &[])).collect();
        choices.extend(Capability::ALL.iter().map(|capability| choice(&[Hook::Response], &[*capability])));
        // Capabilities without the hook that calls them in other choices.
        choices.extend(HOOKS.iter().map(|hook| choice(&[*hook], &all_but_http)));
        for hooks in [hooks_but(Hook::LiveCard), hooks_but(Hook::Card)] {
            choices.extend([choice(&hooks, &[]), choice(&hooks, &all_but_http), choice(&hooks, &Capability::ALL)]);
        }
        choices.retain(|choice| choice.check().is_ok());
        choices
    }

    /// All hooks but this one.
    fn hooks_but(other: Hook) -> Vec<Hook> {
        HOOKS.into_iter().filter(|hook| *hook != other).collect()
    }

    /// The text of a project's file; `None` if it does not exist.
    fn text(folder: &Path, name: &str) -> Option<String> {
        fs::read_to_string(folder.join(name)).ok()
    }

    fn check(choice: &Choice) {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = create(parent.path(), choice).unwrap_or_else(|error| panic!("{choice:?}: {error}"));
        let project = Project::open(&folder).unwrap_or_else(|error| panic!("{choice:?}: {error}"));
        assert_eq!(project.manifest.name, choice.name.as_str());
        let named = project.manifest.grants.unwrap_or_else(|| panic!("{choice:?} says nothing of grants"));
        let hooks = choice.hooks.iter().filter_map(|hook| hook.grant());
        for grant in hooks {
            assert!(named.contains_key(grant.name()), "{choice:?}: {named:?}");
        }
        let cases = cases_in(&folder.join("cases")).expect("a folder of cases");
        assert!(!cases.is_empty(), "{choice:?} has no case");
        for case in cases {
            let case: toml::Table = toml::from_str(&fs::read_to_string(&case).expect("a case"))
                .unwrap_or_else(|error| panic!("{choice:?}: {}: {error}", case.display()));
            assert!(case.contains_key("expect"), "{choice:?}");
        }
        if let Some(package) = text(&folder, "package.json") {
            serde_json::from_str::<serde_json::Value>(&package).unwrap_or_else(|error| panic!("{choice:?}: {error}"));
        }
        if let Some(package) = text(&folder, "Cargo.toml") {
            toml::from_str::<toml::Table>(&package).unwrap_or_else(|error| panic!("{choice:?}: {error}"));
        }
        let sources = [
            "src/lib.rs",
            "src/extension.js",
            "src/extension.ts",
            "src/extension.py",
            "src/extension.c",
            "extension.go",
        ];
        let source = sources.iter().find_map(|name| text(&folder, name)).expect("a source");
        assert!(!source.contains("{%") && !source.contains("{{ "), "{choice:?}: {source}");
    }

    #[test]
    fn the_templates_of_each_language_are_filled_in_for_each_choice() {
        Language::ALL.into_iter().flat_map(choices).for_each(|choice| check(&choice));
    }

    #[test]
    fn a_keyword_of_the_language_is_a_name_as_any_other() {
        for word in ["match", "fn", "loop", "def", "class", "int", "func", "var"] {
            for language in Language::ALL {
                let Ok(name) = ProjectName::parse(word) else { continue };
                let hooks = hooks_but(Hook::LiveCard);
                check(&Choice { name, language, hooks, capabilities: Vec::new(), uri: None });
            }
        }
    }

    #[test]
    fn a_project_is_granted_what_its_hooks_need() {
        let choice = Choice {
            name: ProjectName::parse("x").expect("a name"),
            language: Language::Rust,
            hooks: vec![Hook::Reply, Hook::Output, Hook::Response],
            capabilities: vec![Capability::Caller, Capability::TaskMetadata],
            uri: None,
        };
        let expected =
            ["answer = true", "rewrite-answer = true", "caller = { principal = true }", "task-metadata = true"];
        assert_eq!(grants(&choice), expected);
    }

    #[test]
    fn a_project_that_steers_is_granted_the_steps_once() {
        let choice = Choice {
            name: ProjectName::parse("x").expect("a name"),
            language: Language::Rust,
            hooks: vec![Hook::Steering],
            capabilities: vec![Capability::AgentSteps],
            uri: None,
        };
        assert_eq!(grants(&choice), [GrantNeeded::Steering.to_string()]);
    }

    #[test]
    fn the_grants_of_calls_that_the_code_does_not_make_yet_are_comments() {
        let parent = tempfile::tempdir().expect("a folder");
        let manifest = |language: Language, hook: Hook| {
            let name = format!("{}-{}", language.name(), hook.name());
            let choice = Choice {
                name: ProjectName::parse(&name).expect("a name"),
                language,
                hooks: vec![hook],
                capabilities: vec![Capability::KeyValue, Capability::AgentSteps, Capability::Random],
                uri: None,
            };
            let folder = create(parent.path(), &choice).expect("a project");
            let project = Project::open(&folder).expect("a manifest");
            let named: Vec<String> = project.manifest.grants.expect("grants").into_keys().collect();
            (named, text(&folder, "annex-extension.toml").expect("a manifest"))
        };
        let (named, text) = manifest(Language::Go, Hook::Response);
        assert_eq!(named, ["keyvalue", "random"]);
        assert!(text.contains("\n# Once the code calls them:\n# agent-steps = \"It reads"), "{text}");
        let (named, text) = manifest(Language::C, Hook::Steering);
        assert_eq!(named, ["agent-steps.steer"]);
        assert!(text.contains("\n# keyvalue = \"It counts") && text.contains("\n# agent-steps = \""), "{text}");
        let (named, text) = manifest(Language::Python, Hook::Steering);
        assert_eq!(named, ["agent-steps", "agent-steps.steer", "clock", "keyvalue", "random"]);
        assert!(!text.contains("# Once the code calls them"), "{text}");
    }

    #[test]
    fn a_grant_that_two_hooks_need_is_listed_once() {
        let choice = Choice {
            name: ProjectName::parse("x").expect("a name"),
            language: Language::Rust,
            hooks: vec![Hook::Reads, Hook::ExtendedCard],
            capabilities: Vec::new(),
            uri: None,
        };
        assert_eq!(grants(&choice), ["reads = true"]);
    }

    #[test]
    fn an_entry_of_the_card_is_live_or_not() {
        let choice = |hooks: Vec<Hook>| Choice {
            name: ProjectName::parse("x").expect("a name"),
            language: Language::Rust,
            hooks,
            capabilities: Vec::new(),
            uri: None,
        };
        assert!(choice(vec![Hook::Card, Hook::Reads]).check().is_ok());
        assert!(choice(vec![Hook::LiveCard, Hook::Reads]).check().is_ok());
        assert!(choice(vec![Hook::Card, Hook::LiveCard]).check().expect_err("refused").contains("choose one of them"));
    }

    #[test]
    fn the_interpreters_are_granted_what_they_import() {
        let name = ProjectName::parse("x").expect("a name");
        let grants = |language: Language, capabilities: &[Capability]| {
            let capabilities = capabilities.to_vec();
            grants(&Choice { name: name.clone(), language, hooks: vec![Hook::Response], capabilities, uri: None })
        };
        assert_eq!(grants(Language::Python, &[]), ["clock = true", "random = true"]);
        assert_eq!(grants(Language::JavaScript, &[Capability::Random]), ["random = true", "clock = true"]);
        assert_eq!(grants(Language::Go, &[]), Vec::<String>::new());
    }
}

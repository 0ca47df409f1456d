//! The contract between hosts and extensions, as files, and worlds that use parts of the contract.

use std::fs;
use std::io;
use std::path::Path;

use include_dir::{Dir, include_dir};

use crate::choice::{Capability, Choice};

/// The package `annex:extension` with its dependencies in `deps`.
static CONTRACT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../wit/annex-extension@0.1.0");

/// The version of the contract that this program supports.
pub const VERSION: &str = "0.1.0";

/// Writes the contract with the repository's layout: the package in `folder`, its dependencies in `folder/deps`.
///
/// # Errors
/// When the folder contains files, is reached through a link, or cannot be written.
pub fn write(folder: &Path) -> io::Result<()> {
    // The system's own part of an absolute path may contain links.
    let links = |part: &Path| part == folder || folder.is_relative();
    if let Some(link) = folder.ancestors().find(|part| links(part) && part.is_symlink()) {
        let reason = format!("{} is a link, and nothing is written through links; name another folder", link.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    if folder.exists() && fs::read_dir(folder)?.next().is_some() {
        let reason = format!("{} has files already; name a folder that is not there", folder.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
    }
    fs::create_dir_all(folder)?;
    CONTRACT.extract(folder)
}

/// Writes `world.wit` for these options into `folder`, and the contract into `folder/deps`, where WIT tools expect
/// dependencies.
pub(crate) fn write_world(folder: &Path, choice: &Choice) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("world.wit"), world(choice))?;
    write_dependencies(folder, Path::new(""))
}

/// Writes the contract into the folder `deps` of `wit`. The path `wit` is relative to `base`.
pub(crate) fn write_dependencies(base: &Path, wit: &Path) -> io::Result<()> {
    let own = Path::new("deps").join("annex-extension");
    annex_files::create_folders(base, &wit.join(&own))?;
    let folder = base.join(wit);
    for file in CONTRACT.files() {
        fs::write(folder.join(&own).join(file.path()), file.contents())?;
    }
    for file in CONTRACT.get_dir("deps").into_iter().flat_map(Dir::files) {
        // Their paths begin with `deps`.
        fs::write(folder.join(file.path()), file.contents())?;
    }
    Ok(())
}

fn world(choice: &Choice) -> String {
    let imports = choice.capabilities.iter().flat_map(|capability| capability.interfaces());
    let imports = imports.map(|interface| format!("  import {interface};\n"));
    let exports = choice.hooks.iter().map(|hook| format!("  export annex:extension/{}@{VERSION};\n", hook.name()));
    let name = &choice.name;
    format!(
        "package my:%{name};\n\n/// The hooks that the extension has, and the capabilities that it calls.\nworld extension {{\n\
         {}  export annex:extension/descriptor@{VERSION};\n{}}}\n",
        imports.collect::<String>(),
        exports.collect::<String>(),
    )
}

impl Capability {
    /// The interfaces that a world with this capability imports.
    pub(crate) fn interfaces(self) -> &'static [&'static str] {
        match self {
            Self::Parameters => &["wasi:config/store@0.2.0-rc.1"],
            Self::KeyValue => &["wasi:keyvalue/store@0.2.0-draft", "wasi:keyvalue/atomics@0.2.0-draft"],
            Self::Clock => &["wasi:clocks/wall-clock@0.2.12"],
            Self::Random => &["wasi:random/random@0.2.12"],
            Self::Http => &["wasi:http/outgoing-handler@0.2.12"],
            Self::JsonSchema => &["annex:extension/json-schema@0.1.0"],
            Self::SessionState => &["annex:extension/session-state@0.1.0"],
            Self::Task => &["annex:extension/task@0.1.0"],
            Self::Tasks => &["annex:extension/tasks@0.1.0"],
            Self::TaskResumption => &["annex:extension/task-resumption@0.1.0"],
            Self::AgentSteps => &["annex:extension/agent-steps@0.1.0"],
            Self::Caller => &["annex:extension/caller@0.1.0"],
            Self::TaskMetadata => &["annex:extension/task-metadata@0.1.0"],
            Self::Logging => &["wasi:logging/logging@0.1.0-draft"],
        }
    }
}

#[cfg(test)]
mod tests {
    use annex_runtime::Hook;
    use wit_bindgen_core::wit_parser::Resolve;

    use super::*;
    use crate::choice::{HOOKS, Language, ProjectName};

    fn choice(name: &str, hooks: &[Hook], capabilities: &[Capability]) -> Option<Choice> {
        let name = ProjectName::parse(name).ok()?;
        Some(Choice {
            name,
            language: Language::C,
            hooks: hooks.to_vec(),
            capabilities: capabilities.to_vec(),
            uri: None,
        })
    }

    /// Checks that WIT tools can read the world for these options, with all hooks.
    fn check(choice: &Choice) {
        let folder = tempfile::tempdir().expect("a folder");
        write_world(folder.path(), choice).expect("it can be written");
        let mut resolve = Resolve::default();
        let pushed = resolve.push_dir(folder.path());
        let (package, _) = pushed.unwrap_or_else(|error| panic!("{choice:?}: {error:#}"));
        let world = resolve.select_world(&[package], Some("extension")).expect("a world");
        let exports = resolve.worlds.get(world).map(|world| world.exports.len());
        assert_eq!(exports, Some(choice.hooks.len() + 1), "{choice:?}");
    }

    #[test]
    fn tools_read_the_world_of_each_choice() {
        let hooks = HOOKS.iter().map(|hook| choice("word-count", &[*hook], &[]));
        let each = Capability::ALL.iter().map(|capability| choice("word-count", &[Hook::Response], &[*capability]));
        hooks.chain(each).chain([choice("x", &HOOKS, &Capability::ALL)]).flatten().for_each(|choice| check(&choice));
    }

    /// A reserved word of WIT is refused as a name, or escaped in the world.
    #[test]
    fn tools_read_the_world_of_each_name() {
        let words = "use type func u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 char bool string list map record resource own borrow \
                     flags variant enum option result future stream static interface world import export package include \
                     with constructor from tuple error-context as async match loop fn my wasi annex";
        words
            .split_whitespace()
            .filter_map(|word| choice(word, &[Hook::Response], &[]))
            .for_each(|choice| check(&choice));
    }
}

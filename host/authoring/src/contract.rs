//! The contract of this host as files, and worlds that name parts of it.

use std::fs;
use std::io;
use std::path::Path;

use include_dir::{Dir, include_dir};

use crate::choice::{Capability, Choice};

/// The package `annex:extension` and, in `deps`, the packages that it builds on.
static CONTRACT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../wit/annex-extension@0.1.0");

/// The version of the contract in the program.
pub const VERSION: &str = "0.1.0";

/// Writes the contract as it lies in the repository: the package in `folder`, what it builds on in `folder/deps`.
///
/// # Errors
/// When the folder has files already, or cannot be written.
pub fn write(folder: &Path) -> io::Result<()> {
    if folder.exists() && fs::read_dir(folder)?.next().is_some() {
        let reason = format!("{} has files already; name a folder that is not there", folder.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
    }
    fs::create_dir_all(folder)?;
    CONTRACT.extract(folder)
}

/// Writes a world of the choice and, in `folder/deps`, the contract, as tools for WIT look for them.
pub(crate) fn write_world(folder: &Path, choice: &Choice) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("world.wit"), world(choice))?;
    write_dependencies(folder)
}

/// Writes the contract into `folder/deps`.
pub(crate) fn write_dependencies(folder: &Path) -> io::Result<()> {
    let deps = folder.join("deps");
    let own = deps.join("annex-extension");
    fs::create_dir_all(&own)?;
    for file in CONTRACT.files() {
        fs::write(own.join(file.path()), file.contents())?;
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
        "package my:{name};\n\n/// The hooks that the extension has, and the capabilities that it calls.\nworld extension {{\n\
         {}  export annex:extension/descriptor@{VERSION};\n{}}}\n",
        imports.collect::<String>(),
        exports.collect::<String>(),
    )
}

impl Capability {
    /// The interfaces that a world imports for it.
    fn interfaces(self) -> &'static [&'static str] {
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
            Self::Logging => &["wasi:logging/logging@0.1.0-draft"],
        }
    }
}

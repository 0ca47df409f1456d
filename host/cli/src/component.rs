//! Components that a project has built, for the commands that run them.

use std::path::Path;

use annex_authoring::Project;
use annex_files::Purpose;
use annex_runtime::MAX_COMPONENT_BYTES;
use anyhow::Context;

use crate::output;

/// Reads the component of a project, and tells when it is older than a source of the project.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn of_project(project: &Project) -> anyhow::Result<Vec<u8>> {
    let path = project.component();
    if let Some(source) = project.newer_source() {
        output::note(&format!("{} is older than {}; `annex build` builds it", path.display(), source.display()));
    }
    read(&path)
}

/// Reads a component that `annex build` makes.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let component = annex_files::read(path, Purpose::Named, MAX_COMPONENT_BYTES);
    component.with_context(|| format!("cannot read {}; `annex build` makes it", path.display()))
}

//! Reads the components that commands run: built by a project, or named in an argument.

use std::io::ErrorKind;
use std::path::Path;

use annex_authoring::Project;
use annex_files::Purpose;
use annex_runtime::MAX_COMPONENT_BYTES;
use annex_server::Locations;
use annex_text::instead;
use anyhow::{Context, anyhow};

use crate::exit::Failure;
use crate::output;

/// Reads the component of a project, and prints a remark if a source of the project is newer than the component.
///
/// # Errors
/// When the component cannot be read.
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
/// When the component cannot be read.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let component = annex_files::read(path, Purpose::Named, MAX_COMPONENT_BYTES);
    component.with_context(|| format!("cannot read {}; `annex build` makes it", path.display()))
}

/// Reads a component from a file, or by its bare name if the component ships with Annex.
///
/// # Errors
/// When the component cannot be read. If the bare name is unknown, the error lists the components that ship.
pub(crate) fn named(component: &str, locations: &Locations) -> anyhow::Result<Vec<u8>> {
    if annex_registry::is_reference(component) {
        let text = format!("{component} is in a registry, and this command takes a file; run: annex pull {component}");
        return Err(Failure::Usage.error(text));
    }
    let file = locations.component(component);
    annex_files::read(&file, Purpose::Named, MAX_COMPONENT_BYTES).map_err(|error| {
        if error.kind() == ErrorKind::NotFound && file.starts_with(&locations.components) {
            let shipped = locations.shipped();
            if shipped.is_empty() {
                let folder = locations.components.display();
                return anyhow!(
                    "cannot find the component `{component}`: a name without `/` and `.` is a component that ships, and \
                     {folder} has none; put the folder `components` of the build beside the executable, or name a file, \
                     as in ./{component}.wasm"
                );
            }
            let meant = instead(component, &shipped, "these do:");
            return anyhow!("no component `{component}` ships with Annex{meant}");
        }
        anyhow::Error::new(error).context(format!("cannot read the component {}", file.display()))
    })
}

//! Bindings of the project's world, for languages whose tools do not generate them.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use annex_manifest::Bindings;
use include_dir::{Dir, include_dir};
use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::{Resolve, WorldId, WorldItem};

use super::component;
use crate::choice::upper_camel;
use crate::error::ProjectError;
use crate::manifest::{GENERATED as FOLDER, Project};

/// Generates the bindings of the world in `wit/`.
pub(super) fn write(project: &Project, language: Bindings) -> Result<(), ProjectError> {
    let failed = |reason: String| ProjectError::Bindings { reason };
    let (mut resolve, world) = component::world(project).map_err(failed)?;
    let files = match language {
        Bindings::C => c(&mut resolve, world),
        Bindings::Go => go(&mut resolve, world, &go_module(project)),
        Bindings::TypeScript => Ok(typescript()),
    };
    let files = files.map_err(|error| failed(format!("{error:#}")))?;
    let folder = project.folder.join(FOLDER);
    replace(&folder, &files).map_err(ProjectError::file(&folder))
}

fn c(resolve: &mut Resolve, world: WorldId) -> anyhow::Result<Files> {
    let mut files = Files::default();
    wit_bindgen_c::Opts::default().build().generate(resolve, world, &mut files)?;
    Ok(files)
}

/// The TypeScript types of the whole contract. They are the same for every world.
const TS_TYPES: &str = include_str!("../../ts/annex.d.ts");

fn typescript() -> Files {
    let mut files = Files::default();
    files.push("annex.d.ts", TS_TYPES.as_bytes());
    files
}

/// The Go package that the generated Go bindings call.
static GO_PACKAGE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/go");

/// The module path in the project's `go.mod`. The import paths of the project's packages begin with this path. Without
/// a `go.mod`, the name of the project.
fn go_module(project: &Project) -> String {
    let file = fs::read_to_string(project.folder.join("go.mod")).unwrap_or_default();
    let named = file.lines().find_map(|line| line.strip_prefix("module "));
    named.map_or_else(|| project.manifest.name.clone(), |module| module.trim().to_owned())
}

/// Generates the Go bindings. Go needs a package for each exported interface. The generated packages forward to the
/// author's package in the root folder of the module.
fn go(resolve: &mut Resolve, world: WorldId, module: &str) -> anyhow::Result<Files> {
    let mut files = Files::default();
    let options = wit_bindgen_go::Opts { pkg_name: Some(format!("{module}/{FOLDER}")), ..Default::default() };
    options.build().generate(resolve, world, &mut files)?;
    let main = format!("package main\n\nimport _ \"{module}/{FOLDER}/exports/wit_exports\"\n\nfunc main() {{}}\n");
    files.push("main.go", main.as_bytes());
    let Some(world) = resolve.worlds.get(world) else { return Ok(files) };
    for export in world.exports.values() {
        let WorldItem::Interface { id, .. } = export else { continue };
        let Some(interface) = resolve.interfaces.get(*id) else { continue };
        let package =
            format!("export_annex_extension_{}", interface.name.as_deref().unwrap_or_default().replace('-', "_"));
        let functions = interface.functions.keys().map(|name| upper_camel(name));
        let lines: String = functions.map(|name| format!("var {name} = extension.{name}\n")).collect();
        let file = format!("package {package}\n\nimport extension \"{module}\"\n\n{lines}");
        files.push(&format!("exports/{package}/hooks.go"), file.as_bytes());
    }
    add(&GO_PACKAGE, &mut files);
    Ok(files)
}

/// Adds the files of a folder and its subfolders to `files`, below `pkg`.
fn add(folder: &Dir<'_>, files: &mut Files) {
    for file in folder.files() {
        files.push(&format!("pkg/{}", file.path().display()), file.contents());
    }
    folder.dirs().for_each(|inner| add(inner, files));
}

fn replace(folder: &Path, files: &Files) -> std::io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for (name, contents) in files.iter() {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, contents)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;
    use crate::choice::{Capability, Choice, HOOKS, Language, ProjectName};
    use crate::scaffold;

    fn output(program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The folder of the Go package in the sources of `wit-bindgen-go`, in the release that this workspace uses.
    fn original() -> PathBuf {
        let version = output("rustc", &["-vV"]);
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        // Crates of other platforms need not be on this machine.
        let arguments =
            ["metadata", "--offline", "--format-version", "1", "--filter-platform", host, "--manifest-path", manifest];
        let metadata: serde_json::Value = serde_json::from_str(&output(env!("CARGO"), &arguments)).expect("JSON");
        let packages = metadata["packages"].as_array().expect("packages");
        let package = packages.iter().find(|package| package["name"] == "wit-bindgen-go").expect("the crate");
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        manifest.parent().expect("a folder").join("src/pkg")
    }

    fn check(folder: &Dir<'_>, original: &Path) {
        for file in folder.files() {
            let path = original.join(file.path());
            let expected = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(
                file.contents() == expected,
                "go/{}: host/authoring/README.md says how to update it",
                file.path().display()
            );
        }
        folder.dirs().for_each(|inner| check(inner, original));
    }

    #[test]
    fn the_package_for_go_is_that_of_the_crate_that_writes_its_bindings() {
        check(&GO_PACKAGE, &original());
    }

    #[test]
    fn a_build_in_typescript_gets_the_types_of_all_that_a_world_can_name() {
        let capabilities: Vec<Capability> =
            Capability::ALL.into_iter().filter(|capability| *capability != Capability::Http).collect();
        let name = ProjectName::parse("word-count").expect("a name");
        let choice = Choice { name, language: Language::TypeScript, hooks: HOOKS.to_vec(), capabilities, uri: None };
        let parent = tempfile::tempdir().expect("a folder");
        let folder = scaffold::create(parent.path(), &choice).expect("a project");
        let project = Project::open(&folder).expect("a manifest");
        write(&project, project.manifest.build.bindings.expect("bindings")).expect("types");
        let types = fs::read_to_string(folder.join("generated/annex.d.ts")).expect("a file");
        let interfaces = choice.capabilities.iter().flat_map(|capability| capability.interfaces());
        let modules = interfaces.map(|interface| format!("declare module \"{interface}\" {{"));
        let hooks = HOOKS.iter().map(|hook| format!("export interface {} {{", upper_camel(hook.name())));
        for declaration in modules.chain(hooks) {
            assert!(types.contains(&declaration), "{declaration}");
        }
    }

    #[test]
    fn a_name_of_wit_becomes_one_of_go() {
        assert_eq!(upper_camel("declare-methods"), "DeclareMethods");
        assert_eq!(upper_camel("respond"), "Respond");
    }
}

//! The project of an extension: its folder with `annex-extension.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use annex_files::Purpose;
use annex_manifest::{Build, FILE, Manifest};

use crate::choice::ProjectName;
use crate::error::ProjectError;

/// The maximum size of a manifest, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// The folder for generated bindings. A build replaces the whole folder.
pub(crate) const GENERATED: &str = "generated";

/// A project: its folder and its manifest.
#[derive(Clone, Debug)]
pub struct Project {
    /// The folder with the manifest.
    pub folder: PathBuf,
    /// The content of `annex-extension.toml`.
    pub manifest: Manifest,
}

impl Project {
    /// Reads the project in `folder`.
    ///
    /// # Errors
    /// When the folder has no manifest, or the manifest is invalid.
    pub fn open(folder: &Path) -> Result<Self, ProjectError> {
        let path = folder.join(FILE);
        let text = annex_files::read_text(&path, Purpose::Named, MAX_BYTES);
        let text = text.map_err(|source| ProjectError::NoProject { path: path.clone(), source })?;
        let wrong = |reason: String| ProjectError::Manifest { path: path.clone(), reason };
        let manifest = Manifest::parse(&text).map_err(|error| wrong(error.to_string()))?;
        ProjectName::parse(&manifest.name).map_err(|reason| wrong(format!("name: {reason}")))?;
        check(&manifest).map_err(wrong)?;
        Ok(Self { folder: folder.to_owned(), manifest })
    }

    /// The path of a file of the project, as a person would write it: without a leading `.`.
    #[must_use]
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.strip_prefix(".").unwrap_or(&self.folder).join(name)
    }

    /// The path of the built component.
    #[must_use]
    pub fn component(&self) -> PathBuf {
        self.path(format!("{}.wasm", self.manifest.name))
    }

    /// The paths in `build.watch` that do not exist.
    #[must_use]
    pub fn unwatchable(&self) -> Vec<PathBuf> {
        let watch = self.manifest.build.watch.iter();
        watch.filter(|path| fs::symlink_metadata(self.folder.join(path)).is_err()).cloned().collect()
    }

    /// The files in `build.watch`, the manifest and the schema of the parameters, each with its modification time and
    /// its size.
    #[must_use]
    pub fn sources(&self) -> Sources {
        let declared = self.manifest.build.watch.iter().map(|path| self.path(plain(path)));
        let mut walk =
            Walk { sources: Sources::new(), made: self.made(), seen: BTreeSet::new(), project: &self.folder };
        let schema = self.manifest.parameters.iter().map(|parameters| self.path(plain(&parameters.schema)));
        declared.chain(schema).chain([self.path(FILE)]).for_each(|root| walk.add(&root));
        walk.sources
    }

    /// The files and folders that a build creates. If such a file is in a folder without sources, such as `target`, the
    /// result has that folder instead of the file.
    fn made(&self) -> Vec<PathBuf> {
        let Build { output, setup_makes, bindings, watch, .. } = &self.manifest.build;
        let has_sources = |folder: &Path| watch.iter().any(|path| plain(path).starts_with(folder));
        let whole = |path: &PathBuf| {
            let path = plain(path);
            let mut folders: Vec<&Path> = path.ancestors().filter(|folder| !folder.as_os_str().is_empty()).collect();
            folders.reverse();
            folders.into_iter().find(|folder| !has_sources(folder)).unwrap_or(&path).to_owned()
        };
        let made = [output].into_iter().chain(setup_makes).map(whole);
        let bindings = bindings.iter().map(|_| PathBuf::from(GENERATED));
        made.chain(bindings).map(|path| self.path(path)).chain([self.component()]).collect()
    }

    /// A source file that is newer than the component. `None` if no source is newer, or if there is no component.
    #[must_use]
    pub fn newer_source(&self) -> Option<PathBuf> {
        let built = fs::metadata(self.component()).and_then(|metadata| metadata.modified()).ok()?;
        self.sources()
            .into_iter()
            .find(|(_, (changed, _))| changed.is_some_and(|changed| changed > built))
            .map(|(path, _)| path)
    }

    /// The settings of the extension as text: the keys of an `[[extension]]` without `component`.
    #[must_use]
    pub fn settings(&self) -> String {
        self.manifest.settings.to_string()
    }
}

fn check(manifest: &Manifest) -> Result<(), String> {
    let Build { setup, command, output, watch, setup_makes, .. } = &manifest.build;
    if setup.iter().chain([command]).any(Vec::is_empty) {
        return Err("build: a command names no program".to_owned());
    }
    let paths = watch.iter().chain(setup_makes).chain([output]);
    if let Some(path) = paths.into_iter().find(|path| !is_inside(path)) {
        return Err(format!("build: {} is not a path inside the project", path.display()));
    }
    match manifest.parameters.as_ref().map(|parameters| &parameters.schema).filter(|path| !is_inside(path)) {
        Some(path) => Err(format!("parameters: {} is not a path inside the project", path.display())),
        None => Ok(()),
    }
}

/// Files, each with its modification time and its size.
pub type Sources = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

/// The folder with compiled modules that Python creates next to its sources.
const PYTHON_CACHE: &str = "__pycache__";

/// A walk through a project's source files.
struct Walk<'a> {
    sources: Sources,
    /// Paths of build outputs, which the walk skips.
    made: Vec<PathBuf>,
    /// The real paths of the visited folders. Several links may lead to one folder.
    seen: BTreeSet<PathBuf>,
    project: &'a Path,
}

impl Walk<'_> {
    fn add(&mut self, path: &Path) {
        // A file that was deleted in between is not a source.
        let Ok(metadata) = fs::metadata(path) else { return };
        if self.made.iter().any(|made| made == path) {
            return;
        }
        if metadata.is_file() {
            self.sources.insert(path.to_owned(), (metadata.modified().ok(), metadata.len()));
        } else if metadata.is_dir() && self.enters(path) {
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                let name = entry.file_name();
                // Editors keep their own files under names with a dot.
                if name != PYTHON_CACHE && !name.to_string_lossy().starts_with('.') {
                    self.add(&entry.path());
                }
            }
        }
    }

    /// True if the walk must enter `folder`: the walk has not visited this folder yet, and the folder is no link to a
    /// parent of the project.
    fn enters(&mut self, folder: &Path) -> bool {
        let Ok(real) = fs::canonicalize(folder) else { return false };
        let leads_up =
            fs::canonicalize(self.project).is_ok_and(|project| project != real && project.starts_with(&real));
        !leads_up && self.seen.insert(real)
    }
}

/// The path with only those components that are names, so without `.`, `..` and `/`.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

fn is_inside(path: &Path) -> bool {
    let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    !path.as_os_str().is_empty() && path.components().all(plain)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_of_the_project_leads_nowhere_else() {
        for inside in ["out.wasm", "build/out.wasm", "./src", "a..b", "..."] {
            assert!(is_inside(Path::new(inside)), "{inside}");
        }
        for outside in ["", "/", "/out.wasm", "..", "../out.wasm", "build/../../out.wasm", "build/.."] {
            assert!(!is_inside(Path::new(outside)), "{outside}");
        }
    }

    fn opened(manifest: &str) -> Result<Project, String> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(FILE), manifest).expect("a file");
        Project::open(folder.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_manifest_needs_little() {
        let project = opened("name = \"x\"\nversion = \"1\"\nbuild = { command = [\"true\"], output = \"o\" }")
            .expect("a project");
        assert!(project.component().ends_with("x.wasm"));
        assert!(project.manifest.build.watch.is_empty() && project.manifest.settings.is_empty());
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_key() {
        let build = "build = { command = [\"true\"], output = \"o\" }";
        for (manifest, expected) in [
            (format!("name = \"X\"\nversion = \"1\"\n{build}"), "name: \"X\" does not begin"),
            (format!("version = \"1\"\n{build}"), "missing field `name`"),
            (format!("name = \"x\"\nversion = \"1\"\n{build}\n[setings]"), "unknown field `setings`"),
            (
                "name = \"x\"\nversion = \"1\"\n[build]\ncommand = [\"true\"]\noutput = \"o\"\nsetup = [[]]".to_owned(),
                "a command names no program",
            ),
            (
                "name = \"x\"\nversion = \"1\"\n[build]\ncommand = [\"true\"]\noutput = \"o\"\nsetup_makes = \"/o\""
                    .to_owned(),
                "/o is not a path inside",
            ),
            (
                "name = \"x\"\nversion = \"1\"\n[build]\ncommand = [\"true\"]\noutput = \"o\"\nbindings = \"rust\""
                    .to_owned(),
                "unknown variant `rust`, expected one of `c`, `go`, `ts`",
            ),
            (
                format!("name = \"x\"\nversion = \"1\"\n{build}\n[parameters]\nschema = \"../s.json\""),
                "parameters: ../s.json is not a path inside",
            ),
            (format!("name = \"x\"\nversion = \"1\"\n{build}\n[grants]\nclock = true"), "expected a string"),
        ] {
            let reason = opened(&manifest).expect_err("a mistake");
            assert!(reason.contains(expected), "{expected}: {reason}");
        }
    }

    fn sources_of(watch: &str, files: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let build = format!(
            "bindings = \"c\"\ncommand = [\"true\"]\noutput = \"build/out.wasm\"\nsetup_makes = \"node_modules/x\"\nwatch = {watch}"
        );
        let manifest = format!("name = \"x\"\nversion = \"1\"\n[build]\n{build}");
        std::fs::write(folder.path().join(FILE), manifest).expect("a file");
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, "").expect("a file");
        }
        symlink("../src", folder.path().join("src/circle")).expect("a link");
        symlink("/", folder.path().join("src/all")).expect("a link");
        symlink("../common", folder.path().join("src/common")).expect("a link");
        symlink("../common/a.h", folder.path().join("src/linked.h")).expect("a link");
        let project = Project::open(folder.path()).expect("a project");
        let below = |path: PathBuf| path.strip_prefix(folder.path()).expect("a path below").display().to_string();
        project.sources().into_keys().map(below).filter(|path| path != FILE).collect()
    }

    #[test]
    fn all_below_the_declared_sources_counts_whatever_it_is_called_but_what_the_build_makes() {
        let files = [
            "src/a.c",
            "src/target/a.h",
            "src/deps/a.h",
            "src/node_modules/a.js",
            "src/build/a.c",
            "src/generated/a.c",
            "src/__pycache__/a.pyc",
            "src/.a.c.swp",
            "common/a.h",
            "build/out.wasm",
            "build/a.o",
            "generated/a.c",
            "node_modules/y/a.js",
            "x.wasm",
            "README.md",
        ];
        let below_src = [
            "src/a.c",
            "src/build/a.c",
            "src/common/a.h",
            "src/deps/a.h",
            "src/generated/a.c",
            "src/linked.h",
            "src/node_modules/a.js",
            "src/target/a.h",
        ];
        for watch in ["[\"src\"]", "[\"./src/\", \"src\"]"] {
            assert_eq!(sources_of(watch, &files), below_src, "{watch}");
        }
        let all = sources_of("[\".\"]", &files);
        for made in ["build/out.wasm", "build/a.o", "generated/a.c", "node_modules/y/a.js", "x.wasm"] {
            assert!(!all.contains(&made.to_owned()), "{made}: {all:?}");
        }
        for source in ["src/target/a.h", "README.md"] {
            assert!(all.contains(&source.to_owned()), "{source}: {all:?}");
        }
        let beside = sources_of("[\"build/a.o\"]", &files);
        assert_eq!(beside, ["build/a.o"], "a source may lie in the folder of the output");
    }
}

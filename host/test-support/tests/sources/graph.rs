//! The files of a crate and their imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::code::{self, NamedPath};

/// The path of a module; empty for `lib.rs`.
type Module = Vec<String>;

/// The files of a crate and the imports between them.
pub(crate) struct Graph {
    /// The imports: for each importing file the imported files, each with the path as the code writes it.
    edges: BTreeMap<Module, BTreeMap<Module, String>>,
}

impl Graph {
    /// Reads the crate whose sources are in `folder`.
    pub(crate) fn of_crate(folder: &Path) -> Self {
        let mut sources = BTreeMap::new();
        read_files(folder, &mut Vec::new(), &mut sources);
        let modules: BTreeSet<Module> = sources.keys().cloned().collect();
        let re_exports = re_exports(&sources, &modules);
        let mut edges = BTreeMap::new();
        for (module, source) in &sources {
            let mut imported = BTreeMap::new();
            for path in code::paths(source, &children(module, &modules)) {
                // Paths in `lib.rs` are re-exports and create no dependency.
                let Some(target) = resolve(module, &path, &modules, &re_exports) else { continue };
                if target != *module && !(module.is_empty() && path.is_re_export) {
                    imported.insert(target, path.segments.join("::"));
                }
            }
            edges.insert(module.clone(), imported);
        }
        Self { edges }
    }

    /// The largest set of files that reach each other by imports; empty if there is no circle.
    pub(crate) fn largest_circle(&self) -> Vec<Module> {
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            self.edges.keys().map(|module| (module, self.reached_from(module))).collect();
        let circle = |module: &Module| -> Vec<Module> {
            let back = |other: &&Module| reached.get(*other).is_some_and(|others| others.contains(module));
            reached.get(module).into_iter().flatten().copied().filter(back).cloned().collect()
        };
        self.edges.keys().map(circle).max_by_key(Vec::len).unwrap_or_default()
    }

    /// The imports between `files`, one per line.
    pub(crate) fn edges_among(&self, files: &[Module]) -> String {
        let mut lines = String::new();
        for file in files {
            for (target, path) in self.edges.get(file).into_iter().flatten().filter(|(to, _)| files.contains(to)) {
                lines += &format!("  {} -> {} by {path}\n", name(file), name(target));
            }
        }
        lines
    }

    fn reached_from(&self, start: &Module) -> BTreeSet<&Module> {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![start];
        while let Some(module) = waiting.pop() {
            for target in self.edges.get(module).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(target) {
                    waiting.push(target);
                }
            }
        }
        reached
    }
}

/// The file of a module: `chain::member` is in `chain/member.rs`.
fn name(module: &[String]) -> String {
    if module.is_empty() { "lib.rs".to_owned() } else { format!("{}.rs", module.join("/")) }
}

fn read_files(folder: &Path, above: &mut Module, sources: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name in UTF-8").to_owned();
        if path.is_dir() {
            above.push(stem);
            read_files(&path, above, sources);
            above.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let is_root = above.is_empty() && ["lib", "main"].contains(&stem.as_str());
            let module = if is_root { Vec::new() } else { [above.as_slice(), &[stem]].concat() };
            sources.insert(module, fs::read_to_string(&path).expect("a source in UTF-8"));
        }
    }
}

fn children(module: &[String], modules: &BTreeSet<Module>) -> Vec<String> {
    let below = modules.iter().filter(|other| other.split_last().is_some_and(|(_, above)| above == module));
    below.filter_map(|child| child.last().cloned()).collect()
}

/// The names that `lib.rs` re-exports, each with its file. For example, `crate::Limits` is in `limits.rs`.
fn re_exports(sources: &BTreeMap<Module, String>, modules: &BTreeSet<Module>) -> BTreeMap<String, Module> {
    let root = Module::new();
    let source = sources.get(&root).map_or("", String::as_str);
    let named = code::paths(source, &children(&root, modules)).into_iter().filter(|path| path.is_re_export);
    named
        .filter_map(|path| Some((path.segments.last()?.clone(), resolve(&root, &path, modules, &BTreeMap::new())?)))
        .collect()
}

/// The file of the deepest module in the path; `None` for a path into another crate.
fn resolve(
    module: &[String],
    path: &NamedPath,
    modules: &BTreeSet<Module>,
    re_exports: &BTreeMap<String, Module>,
) -> Option<Module> {
    let mut place: Module = [module, &path.inside].concat();
    let mut segments = path.segments.as_slice();
    let mut is_of_crate = false;
    while let [first, rest @ ..] = segments {
        match first.as_str() {
            "crate" => place.clear(),
            "self" => {}
            "super" => {
                place.pop();
            }
            _ => break,
        }
        is_of_crate = true;
        segments = rest;
    }
    if is_of_crate
        && place.is_empty()
        && let Some(target) = segments.first().and_then(|name| re_exports.get(name))
    {
        return Some(target.clone());
    }
    let base = place.len();
    place.extend(segments.iter().cloned());
    while !modules.contains(&place) {
        place.pop()?;
    }
    // A path that begins with neither a keyword nor a child module belongs to another crate or to an item here.
    (is_of_crate || place.len() > base).then_some(place)
}

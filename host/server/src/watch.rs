//! Watches the files of components, and has them looked at again when they have changed and are quiet.

use std::collections::BTreeSet;
use std::path::{self, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::installer::Installer;

/// How long nothing must happen before a file counts as written.
const QUIET: Duration = Duration::from_millis(250);

/// Watches until it is told to stop. Where files cannot be watched, the log says so and the server goes on.
pub(crate) async fn watch(installer: Arc<Installer>, stop: CancellationToken) {
    let touched = Arc::new(Notify::new());
    let mut watching = match Watching::new(&touched) {
        Ok(watching) => watching,
        Err(error) => return cannot(&error),
    };
    loop {
        watching.follow(installer.watched());
        tokio::select! {
            () = stop.cancelled() => return,
            () = installer.moved.notified() => continue,
            () = touched.notified() => {}
        }
        while timeout(QUIET, touched.notified()).await.is_ok() {}
        installer.rescan().await;
    }
}

fn cannot(error: &notify::Error) {
    tracing::warn!(%error, "component files cannot be watched; reload the config after a change (SIGHUP)");
}

/// The files that matter: those that the config names, and all components of the managed folder with their settings.
#[derive(Default)]
pub(crate) struct Watched {
    files: BTreeSet<PathBuf>,
    folder: Option<PathBuf>,
}

impl Watched {
    /// Events have absolute paths, so the files get them too.
    pub(crate) fn new(named: impl Iterator<Item = PathBuf>, folder: Option<&Path>) -> Self {
        let absolute = |path: &Path| path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { files: named.map(|file| absolute(&file)).collect(), folder: folder.map(absolute) }
    }

    /// Files are replaced by renaming, which only their folder sees.
    fn folders(&self) -> BTreeSet<PathBuf> {
        let of_files = self.files.iter().filter_map(|file| file.parent().map(Path::to_owned));
        of_files.chain(self.folder.clone()).collect()
    }

    /// Other files of the folders, such as logs, change all the time.
    fn concerns(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let in_folder = self.folder.as_deref() == path.parent() && !name.starts_with('.');
        let is_kind = path.extension().is_some_and(|ending| ending == "wasm" || ending == "toml");
        // Kubernetes replaces mounted files by a link of this name.
        self.files.contains(path) || (in_folder && is_kind) || name == "..data"
    }
}

/// What the watcher looks at.
struct Watching {
    watcher: RecommendedWatcher,
    folders: BTreeSet<PathBuf>,
    watched: Arc<Mutex<Watched>>,
}

impl Watching {
    fn new(touched: &Arc<Notify>) -> notify::Result<Self> {
        let watched = Arc::<Mutex<Watched>>::default();
        let (touched, concerned) = (Arc::clone(touched), Arc::clone(&watched));
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let concerned = concerned.lock().unwrap_or_else(PoisonError::into_inner);
            if event.is_ok_and(|event| event.need_rescan() || (is_change(&event) && touches(&event, &concerned))) {
                touched.notify_one();
            }
        })?;
        Ok(Self { watcher, folders: BTreeSet::new(), watched })
    }

    fn follow(&mut self, watched: Watched) {
        let folders = watched.folders();
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = watched;
        for gone in self.folders.difference(&folders) {
            // A folder that was deleted is not watched any more.
            let _ = self.watcher.unwatch(gone);
        }
        for new in folders.difference(&self.folders) {
            if let Err(error) = self.watcher.watch(new, RecursiveMode::NonRecursive) {
                cannot(&error);
            }
        }
        self.folders = folders;
    }
}

fn touches(event: &Event, watched: &Watched) -> bool {
    event.paths.iter().any(|path| watched.concerns(path))
}

/// Reading the files is an event too.
fn is_change(event: &Event) -> bool {
    !matches!(event.kind, EventKind::Access(_))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::Watched;

    #[test]
    fn only_files_that_are_named_or_lie_in_the_folder_matter() {
        let named = ["/etc/annex/a.component", "b.wasm"].map(PathBuf::from);
        let watched = Watched::new(named.into_iter(), Some(Path::new("/var/extensions")));
        let folders: Vec<PathBuf> = watched.folders().into_iter().collect();
        let here = std::env::current_dir().expect("a folder");
        assert!(folders.contains(&here) && folders.contains(&PathBuf::from("/etc/annex")), "{folders:?}");
        assert!(watched.concerns(&here.join("b.wasm")));
        let relevant = ["/etc/annex/a.component", "/var/extensions/x.wasm", "/var/extensions/x.toml"];
        for path in relevant.into_iter().chain(["/etc/annex/..data"]) {
            assert!(watched.concerns(Path::new(path)), "{path}");
        }
        for path in ["/etc/annex/server.log", "/etc/annex/c.wasm", "/var/extensions/.x.wasm.new", "/var/extensions/log"]
        {
            assert!(!watched.concerns(Path::new(path)), "{path}");
        }
    }
}

//! Watches the files of components, and has them looked at again when they have changed and are quiet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::installation::installer::Installer;

mod watcher;

pub(crate) use watcher::FileWatcher;
use watcher::Number;

/// The time for which nothing must happen before a file counts as written.
const QUIET: Duration = Duration::from_millis(250);
/// The longest time that changes may put off the next look at the files.
const MAX_UNREST: Duration = Duration::from_secs(5);
/// The pause before a folder is tried again that cannot be watched, because it is not there.
const RETRY: Duration = Duration::from_secs(1);

/// Says when the files of one installer are to be looked at again.
pub(crate) struct Watch {
    watcher: Arc<FileWatcher>,
    number: Number,
    touched: Arc<Notify>,
    /// The folders that are followed, by their real paths.
    followed: BTreeSet<PathBuf>,
    /// Folders that could not be watched the last time.
    refused: BTreeSet<PathBuf>,
}

impl Watch {
    /// Watches from now on. Called before the files are read for the first time, so that no change falls between reading
    /// and watching. Where files cannot be watched, the log says so and the server goes on.
    pub(crate) fn begin(watcher: &Arc<FileWatcher>, watched: Watched) -> Self {
        let touched = Arc::new(Notify::new());
        let number = watcher.join(Arc::clone(&touched));
        let watcher = Arc::clone(watcher);
        let mut watch = Self { watcher, number, touched, followed: BTreeSet::new(), refused: BTreeSet::new() };
        watch.follow(watched);
        watch
    }

    /// Has the installer look whenever something has changed, until it is told to stop.
    pub(crate) async fn run(mut self, installer: Arc<Installer>, stop: CancellationToken) {
        loop {
            if self.follow(installer.watched()) {
                // What changed in a folder before it was watched is found by looking.
                self.touched.notify_one();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = installer.moved.notified() => continue,
                // A folder that is not watched tells nothing when it is there again.
                () = sleep(RETRY), if !self.refused.is_empty() => continue,
                () = self.touched.notified() => {}
            }
            // A file is written in many steps. It is read when they are over.
            let settled = async { while timeout(QUIET, self.touched.notified()).await.is_ok() {} };
            tokio::select! {
                () = stop.cancelled() => return,
                () = settled => {}
                // A file that is written to all the time must not keep the others from being read.
                () = sleep(MAX_UNREST) => {}
            }
            installer.rescan().await;
        }
    }

    /// Watches these files from now on. Returns whether a folder is watched that was not before.
    fn follow(&mut self, watched: Watched) -> bool {
        let (watched, mut refused) = watched.real();
        let folders = watched.folders();
        let (has_begun, unwatched) = self.watcher.follow(self.number, watched, &self.followed);
        refused.extend(unwatched);
        for (folder, error) in &refused {
            if !self.refused.contains(folder) {
                cannot(error);
            }
        }
        self.followed = folders;
        self.refused = refused.into_iter().map(|(folder, _)| folder).collect();
        has_begun
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watcher.part(self.number, &self.followed);
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
    /// The files by their absolute paths, because events have these.
    pub(crate) fn new(named: impl Iterator<Item = PathBuf>, folder: Option<&Path>) -> Self {
        let absolute = |path: &Path| path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { files: named.map(|file| absolute(&file)).collect(), folder: folder.map(absolute) }
    }

    /// The same by real paths, and the folders that are not there. What they would have is left out.
    fn real(self) -> (Self, Vec<(PathBuf, notify::Error)>) {
        let mut refused = Vec::new();
        let mut real = BTreeMap::new();
        for folder in self.folders() {
            match fs::canonicalize(&folder) {
                Ok(path) => drop(real.insert(folder, path)),
                Err(error) => refused.push((folder, notify::Error::io(error))),
            }
        }
        let file = |file: PathBuf| Some(real.get(file.parent()?)?.join(file.file_name()?));
        let folder = self.folder.and_then(|folder| real.get(&folder).cloned());
        (Self { files: self.files.into_iter().filter_map(file).collect(), folder }, refused)
    }

    /// The folders to watch. Files are replaced by renaming, which only a watch on their folder sees.
    fn folders(&self) -> BTreeSet<PathBuf> {
        let of_files = self.files.iter().filter_map(|file| file.parent().map(Path::to_owned));
        of_files.chain(self.folder.clone()).collect()
    }

    /// True for a file that matters. Other files of the folders, such as logs, change all the time.
    fn concerns(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let in_folder = self.folder.as_deref() == path.parent() && !name.starts_with('.');
        let is_kind = path.extension().is_some_and(|ending| ending == "wasm" || ending == "toml");
        // Kubernetes replaces mounted files by a link of this name.
        self.files.contains(path) || (in_folder && is_kind) || name == "..data"
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::{FileWatcher, Watch, Watched};

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

    /// Waits until the watch has been told.
    async fn told(watch: &Watch) {
        tokio::time::timeout(super::MAX_UNREST, watch.touched.notified()).await.expect("the watch is told");
    }

    #[tokio::test]
    async fn one_watcher_serves_all_who_follow_a_folder_by_whichever_name() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("components");
        let link = parent.path().join("link");
        fs::create_dir(&folder).expect("a folder");
        symlink(&folder, &link).expect("a link");
        let watcher = FileWatcher::start().expect("a watcher");
        let follow = |file: PathBuf| Watch::begin(&watcher, Watched::new([file].into_iter(), None));
        let one = follow(folder.join("a.wasm"));
        let linked = follow(link.join("a.wasm"));
        let other = follow(folder.join("b.wasm"));
        fs::write(folder.join("a.wasm"), "1").expect("a file");
        told(&one).await;
        told(&linked).await;
        drop((one, other));
        fs::write(folder.join("a.wasm"), "2").expect("a file");
        told(&linked).await;
    }

    #[tokio::test]
    async fn a_folder_that_is_gone_is_followed_again_when_it_is_there_again() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("components");
        let watched = || Watched::new([folder.join("a.wasm")].into_iter(), None);
        let watcher = FileWatcher::start().expect("a watcher");
        let mut watch = Watch::begin(&watcher, watched());
        assert!(!watch.refused.is_empty() && !watch.follow(watched()), "it is not there");
        for _ in 0..2 {
            fs::create_dir(&folder).expect("a folder");
            assert!(watch.follow(watched()) && watch.refused.is_empty());
            fs::remove_dir(&folder).expect("an empty folder");
            told(&watch).await;
        }
    }
}

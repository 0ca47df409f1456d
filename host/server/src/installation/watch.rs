//! Watches the files of components, and has them looked at again when they have changed and are quiet.
//!
//! The kernel tells of changes in the folders of the files at once. It does not tell of what a link leads to, nor of a volume
//! that is mounted later, so the files are also looked at twice a second ([`look`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::installation::installer::Installer;

mod look;
mod watcher;

use look::{Place, is_installed};
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
        let places = watched.places();
        let (watched, mut refused) = watched.real();
        let folders = watched.folders();
        let (has_begun, unwatched) = self.watcher.follow(self.number, watched, &self.followed);
        self.watcher.look_at(self.number, places);
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
    tracing::warn!(%error, "a folder of component files cannot be watched; its files are looked at twice a second instead");
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

    /// The places to look at, by the names that the config gives them: whatever they lead to counts.
    fn places(&self) -> BTreeSet<Place> {
        let files = self.files.iter().cloned().map(Place::File);
        files.chain(self.folder.clone().map(Place::Folder)).collect()
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
        let in_folder = self.folder.as_deref() == path.parent();
        // Kubernetes replaces mounted files by a link of this name.
        self.files.contains(path) || (in_folder && is_installed(path)) || name == "..data"
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
        let watcher = FileWatcher::start();
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

    /// Whatever a name leads to is looked at again and again, so each of these changes is told without an event in the folder of
    /// the name.
    #[tokio::test]
    async fn a_change_is_told_whatever_links_lead_to_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let put = |target: &str, link: &str| {
            symlink(target, at(".new")).expect("a link");
            fs::rename(at(".new"), at(link)).expect("it is put there");
        };
        for name in ["store", "releases/1", "releases/2", "linked", "extensions"] {
            fs::create_dir_all(at(name)).expect("a folder");
        }
        for name in ["store/a.wasm", "store/b.wasm", "store/c.toml", "releases/1/d.wasm", "releases/2/d.wasm"] {
            fs::write(at(name), "1").expect("a file");
        }
        put("../store/a.wasm", "linked/a.wasm");
        put("../linked/a.wasm", "linked/chain.wasm");
        put("releases/1", "current");
        put("../store/dangling", "linked/dangling.wasm");
        put("../store/b.wasm", "extensions/b.wasm");
        put("../store/c.toml", "extensions/b.toml");
        let watcher = FileWatcher::start();
        let named = ["linked/a.wasm", "linked/chain.wasm", "current/d.wasm", "linked/dangling.wasm"];
        let of_file = named.map(|name| Watch::begin(&watcher, Watched::new([at(name)].into_iter(), None)));
        let of_folder = Watch::begin(&watcher, Watched::new(std::iter::empty(), Some(&at("extensions"))));
        let [file, chain, current, dangling] = &of_file;
        // The same size and time as before: it is another file.
        let time = fs::metadata(at("store/a.wasm")).and_then(|file| file.modified()).expect("a time");
        fs::write(at("store/new"), "2").expect("a file");
        fs::File::options().write(true).open(at("store/new")).and_then(|file| file.set_modified(time)).expect("a time");
        fs::rename(at("store/new"), at("store/a.wasm")).expect("it is put there");
        told(file).await;
        told(chain).await;
        fs::write(at("store/a.wasm"), "33").expect("a file");
        told(file).await;
        put("releases/2", "current");
        told(current).await;
        fs::write(at("store/dangling"), "1").expect("a file");
        told(dangling).await;
        for changed in ["store/b.wasm", "store/c.toml"] {
            fs::write(at(changed), "22").expect("a file");
            told(&of_folder).await;
        }
        // As when a volume is mounted over it: another folder has its name.
        fs::rename(at("extensions"), at("before")).expect("it is moved");
        fs::create_dir(at("extensions")).expect("a folder");
        told(&of_folder).await;
    }

    #[tokio::test]
    async fn a_folder_that_is_gone_is_followed_again_when_it_is_there_again() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("components");
        let watched = || Watched::new([folder.join("a.wasm")].into_iter(), None);
        let watcher = FileWatcher::start();
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

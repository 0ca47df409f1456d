//! Watches the files of components. Starts a rescan after files have changed and then stayed unchanged for a moment.
//!
//! The kernel reports changes in the folders of the files at once. It does not report changes behind symbolic links or
//! in a volume that is mounted later. Therefore the files are also polled twice a second ([`look`]).

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

use look::{PolledPath, is_installed};
pub(crate) use watcher::FileWatcher;
use watcher::Number;

/// The time without a change after which a file counts as completely written.
const QUIET: Duration = Duration::from_millis(250);
/// The longest time that further changes can delay a rescan.
const MAX_UNREST: Duration = Duration::from_secs(5);
/// The pause before another attempt to watch a missing folder.
const RETRY: Duration = Duration::from_secs(1);

/// Notifies one installer of changed files.
pub(crate) struct Watch {
    watcher: Arc<FileWatcher>,
    number: Number,
    touched: Arc<Notify>,
    /// The watched folders, by their real paths.
    followed: BTreeSet<PathBuf>,
    /// Folders that could not be watched at the last attempt.
    refused: BTreeSet<PathBuf>,
}

impl Watch {
    /// Begins to watch. Must be called before the files are first read, so that no change after this read is missed. If
    /// files cannot be watched, the log says so and the server continues.
    pub(crate) fn begin(watcher: &Arc<FileWatcher>, watched: WatchedFiles) -> Self {
        let touched = Arc::new(Notify::new());
        let number = watcher.join(Arc::clone(&touched));
        let watcher = Arc::clone(watcher);
        let mut watch = Self { watcher, number, touched, followed: BTreeSet::new(), refused: BTreeSet::new() };
        watch.follow(watched);
        watch
    }

    /// Starts a rescan after each change, until `stop` is cancelled.
    pub(crate) async fn run(mut self, installer: Arc<Installer>, stop: CancellationToken) {
        loop {
            if self.follow(installer.watched()) {
                // Changes in a folder from before it was watched are found by a rescan.
                self.touched.notify_one();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = installer.moved.notified() => continue,
                // No event reports that a missing folder has come back, so watching is tried again.
                () = sleep(RETRY), if !self.refused.is_empty() => continue,
                () = self.touched.notified() => {}
            }
            // Programs write a file in several steps. The rescan waits for the last one.
            let settled = async { while timeout(QUIET, self.touched.notified()).await.is_ok() {} };
            tokio::select! {
                () = stop.cancelled() => return,
                () = settled => {}
                // A file that is written all the time must not keep the others from being read.
                () = sleep(MAX_UNREST) => {}
            }
            installer.rescan().await;
        }
    }

    /// Replaces the watched files. Returns true if one of their folders was not watched before.
    fn follow(&mut self, watched: WatchedFiles) -> bool {
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

/// The files to watch: the files that the config names, and all components and settings in the managed folder.
#[derive(Default)]
pub(crate) struct WatchedFiles {
    files: BTreeSet<PathBuf>,
    folder: Option<PathBuf>,
}

impl WatchedFiles {
    /// Makes all paths absolute, because the kernel's events also have absolute paths. `named` are the files of the
    /// config, and `folder` is the managed folder.
    pub(crate) fn new(named: impl Iterator<Item = PathBuf>, folder: Option<&Path>) -> Self {
        let absolute = |path: &Path| path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { files: named.map(|file| absolute(&file)).collect(), folder: folder.map(absolute) }
    }

    /// The files and the folder to poll, under their paths in the config. These paths lead through links, so polling
    /// finds changes behind links.
    fn places(&self) -> BTreeSet<PolledPath> {
        let files = self.files.iter().cloned().map(PolledPath::File);
        files.chain(self.folder.clone().map(PolledPath::Folder)).collect()
    }

    /// Returns the watched files and the managed folder with their real paths. Also returns the folders without a real
    /// path, such as missing folders. The first value then leaves out the files in these folders.
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

    /// The folders to watch. Editors replace a file by a rename, which only a watch on its folder reports.
    fn folders(&self) -> BTreeSet<PathBuf> {
        let of_files = self.files.iter().filter_map(|file| file.parent().map(Path::to_owned));
        of_files.chain(self.folder.clone()).collect()
    }

    /// True for a watched file. Other files in the folders, such as logs, change all the time.
    fn concerns(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let in_folder = self.folder.as_deref() == path.parent();
        // Kubernetes replaces mounted files through a link with this name.
        self.files.contains(path) || (in_folder && is_installed(path)) || name == "..data"
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::{FileWatcher, Watch, WatchedFiles};

    #[test]
    fn only_files_that_are_named_or_lie_in_the_folder_matter() {
        let named = ["/etc/annex/a.component", "b.wasm"].map(PathBuf::from);
        let watched = WatchedFiles::new(named.into_iter(), Some(Path::new("/var/extensions")));
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

    /// Waits for a notification.
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
        let follow = |file: PathBuf| Watch::begin(&watcher, WatchedFiles::new([file].into_iter(), None));
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

    /// Files behind links are polled, so each of these changes is noticed without an event in the folder of the link.
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
        let of_file = named.map(|name| Watch::begin(&watcher, WatchedFiles::new([at(name)].into_iter(), None)));
        let of_folder = Watch::begin(&watcher, WatchedFiles::new(std::iter::empty(), Some(&at("extensions"))));
        let [file, chain, current, dangling] = &of_file;
        // Another file with the same size and time.
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
        // Like a volume that is mounted over the folder: another folder gets its name.
        fs::rename(at("extensions"), at("before")).expect("it is moved");
        fs::create_dir(at("extensions")).expect("a folder");
        told(&of_folder).await;
    }

    #[tokio::test]
    async fn a_folder_that_is_gone_is_followed_again_when_it_is_there_again() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("components");
        let watched = || WatchedFiles::new([folder.join("a.wasm")].into_iter(), None);
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

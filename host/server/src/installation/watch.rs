//! Watches the files of components, and has them looked at again when they have changed and are quiet.

use std::collections::BTreeSet;
use std::path::{self, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::event::{ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::installation::installer::Installer;

/// The time for which nothing must happen before a file counts as written.
const QUIET: Duration = Duration::from_millis(250);
/// The longest time that changes may put off the next look at the files.
const MAX_UNREST: Duration = Duration::from_secs(5);
/// The pause before a folder is tried again that cannot be watched, because it is not there.
const RETRY: Duration = Duration::from_secs(1);

/// Says when the files are to be looked at again.
pub(crate) struct Watch {
    touched: Arc<Notify>,
    watching: Watching,
}

impl Watch {
    /// Watches from now on. Called before the files are read for the first time, so that no change falls between reading
    /// and watching. Where files cannot be watched, the log says so and the server goes on.
    pub(crate) fn begin(watched: Watched) -> Option<Self> {
        let touched = Arc::new(Notify::new());
        let mut watching = Watching::new(&touched).inspect_err(cannot).ok()?;
        watching.follow(watched);
        Some(Self { touched, watching })
    }

    /// Has the installer look whenever something has changed, until it is told to stop.
    pub(crate) async fn run(mut self, installer: Arc<Installer>, stop: CancellationToken) {
        loop {
            if self.watching.follow(installer.watched()) {
                // What changed in a folder before it was watched is found by looking.
                self.touched.notify_one();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = installer.moved.notified() => continue,
                // A folder that is not watched tells nothing when it is there again.
                () = sleep(RETRY), if !self.watching.refused.is_empty() => continue,
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

/// The watcher, and the files that it follows.
struct Watching {
    watcher: RecommendedWatcher,
    followed: Arc<Mutex<Followed>>,
    /// Folders that could not be watched the last time.
    refused: BTreeSet<PathBuf>,
}

/// The files and folders that events are compared with. Not locked while the watcher is called, which may wait for an
/// event to be taken.
#[derive(Default)]
struct Followed {
    watched: Watched,
    folders: BTreeSet<PathBuf>,
}

impl Followed {
    /// Tells whether files may have changed. A folder that is gone is not watched any more: what takes its name is
    /// another one.
    fn take(&mut self, event: notify::Result<Event>) -> bool {
        // The watcher did not get all events, so that any file may have changed.
        let Ok(event) = event else { return true };
        let is_gone =
            matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)));
        let before = self.folders.len();
        if is_gone {
            self.folders.retain(|folder| !event.paths.contains(folder));
        }
        let concerns = event.paths.iter().any(|path| self.watched.concerns(path));
        // Some events were lost, a folder is gone with all that was in it, or a file that matters has changed.
        event.need_rescan() || self.folders.len() < before || (is_change(&event) && concerns)
    }
}

impl Watching {
    fn new(touched: &Arc<Notify>) -> notify::Result<Self> {
        let followed = Arc::<Mutex<Followed>>::default();
        let touched = Arc::clone(touched);
        let shared = Arc::clone(&followed);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if lock(&shared).take(event) {
                // `Notify` keeps one permit, so a change that comes during a look leads to another look.
                touched.notify_one();
            }
        })?;
        Ok(Self { watcher, followed, refused: BTreeSet::new() })
    }

    /// Watches these files from now on. Returns whether a folder is watched that was not before.
    fn follow(&mut self, watched: Watched) -> bool {
        let wanted = watched.folders();
        let gone = {
            let mut followed = lock(&self.followed);
            followed.watched = watched;
            followed.folders.extract_if(.., |folder| !wanted.contains(folder)).collect::<Vec<_>>()
        };
        for folder in gone {
            // One that was deleted is not watched any more.
            let _ = self.watcher.unwatch(&folder);
        }
        let refused = std::mem::take(&mut self.refused);
        let mut has_begun = false;
        for folder in wanted {
            if !lock(&self.followed).folders.insert(folder.clone()) {
                continue;
            }
            // One that was moved away is still watched where it is now.
            let _ = self.watcher.unwatch(&folder);
            match self.watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => has_begun = true,
                Err(error) => {
                    if !refused.contains(&folder) {
                        cannot(&error);
                    }
                    lock(&self.followed).folders.remove(&folder);
                    self.refused.insert(folder);
                }
            }
        }
        has_begun
    }
}

fn lock(followed: &Mutex<Followed>) -> MutexGuard<'_, Followed> {
    followed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True unless the file was only read, which is an event too.
fn is_change(event: &Event) -> bool {
    !matches!(event.kind, EventKind::Access(_))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use notify::event::{DataChange, Flag, ModifyKind, RemoveKind};
    use notify::{Error, Event, EventKind};

    use super::{Followed, Watched};

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

    #[test]
    fn events_that_were_lost_and_folders_that_are_gone_have_everything_looked_at() {
        let folder = Path::new("/var/extensions");
        let mut followed = Followed {
            watched: Watched::new(std::iter::empty(), Some(folder)),
            folders: [folder.to_owned()].into_iter().collect(),
        };
        let changed =
            |path: &str| Event::new(EventKind::Modify(ModifyKind::Data(DataChange::Any))).add_path(path.into());
        assert!(followed.take(Ok(changed("/var/extensions/x.wasm"))));
        assert!(!followed.take(Ok(changed("/var/extensions/x.log"))));
        assert!(followed.take(Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan))), "the queue was full");
        assert!(followed.take(Err(Error::generic("cannot read"))));
        let removed = || Event::new(EventKind::Remove(RemoveKind::Folder)).add_path(folder.to_owned());
        assert!(followed.take(Ok(removed())) && followed.folders.is_empty());
        assert!(!followed.take(Ok(removed())), "it is gone already");
    }
}

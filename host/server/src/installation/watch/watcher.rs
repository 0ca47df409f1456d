//! The file watcher of the process. Each process has only one, because the kernel limits the watchers of a user (to 128
//! by default) and each watcher takes a thread.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use notify::event::{ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use super::WatchedFiles;
use super::look::{PolledPath, Sight};

/// Watches folders for any number of followers. Each follower is notified of changes of its own files. All paths are
/// real paths, because the kernel has one watch per folder, regardless of the links that lead to the folder.
pub(crate) struct FileWatcher {
    /// The watcher of the kernel's events. `None` if the kernel has no watcher left for this user.
    ///
    /// A change of the watched folders holds this lock from its beginning to its end, so that changes do not
    /// interleave. Events are processed without this lock, because the watcher may wait until an event is processed.
    watcher: Mutex<Option<RecommendedWatcher>>,
    followed: Arc<Mutex<Followers>>,
}

/// The interval at which the files and folders of all followers are polled.
const LOOK: Duration = Duration::from_millis(500);

/// The number of a follower.
pub(super) type Number = u64;

/// The followers with their files, and the watched folders.
#[derive(Default)]
struct Followers {
    followers: HashMap<Number, Follower>,
    /// The watched folders with their followers.
    folders: BTreeMap<PathBuf, BTreeSet<Number>>,
    /// The polled files and folders with their followers. Many tenants may share one component.
    places: BTreeMap<PolledPath, PolledState>,
    last: Number,
}

/// The last state of a polled file or folder, and its followers.
#[derive(Default)]
struct PolledState {
    sight: Sight,
    followers: BTreeSet<Number>,
}

struct Follower {
    watched: WatchedFiles,
    places: BTreeSet<PolledPath>,
    touched: Arc<Notify>,
}

impl FileWatcher {
    /// Starts watching and polling. If one of the two cannot be started, the log says so and the server continues
    /// without it.
    pub(crate) fn start() -> Arc<Self> {
        let followed = Arc::<Mutex<Followers>>::default();
        let shared = Arc::clone(&followed);
        let watcher = notify::recommended_watcher(move |event| lock(&shared).take(event));
        let watcher = watcher.inspect_err(super::cannot).ok();
        let looking = Arc::downgrade(&followed);
        // Polling has its own thread, so that a file system that hangs delays nothing else. The thread ends with the
        // watcher.
        if let Err(error) = thread::Builder::new().name("annex-look".to_owned()).spawn(move || look(&looking)) {
            tracing::warn!(%error, "component files behind links are not watched");
        }
        Arc::new(Self { watcher: Mutex::new(watcher), followed })
    }

    /// Replaces the polled files and folders of a follower.
    pub(super) fn look_at(&self, number: Number, places: BTreeSet<PolledPath>) {
        let followed = lock(&self.followed);
        let new: Vec<PolledPath> =
            places.iter().filter(|place| !followed.places.contains_key(place)).cloned().collect();
        drop(followed);
        // The lock is not held while files are polled, because a file system may be slow.
        let seen = new.into_iter().map(|place| (place.look(), place)).collect();
        lock(&self.followed).look_at(number, places, seen);
    }

    /// Adds a follower without files.
    pub(super) fn join(&self, touched: Arc<Notify>) -> Number {
        let mut followed = lock(&self.followed);
        followed.last += 1;
        let number = followed.last;
        followed
            .followers
            .insert(number, Follower { watched: WatchedFiles::default(), places: BTreeSet::new(), touched });
        number
    }

    /// Replaces the watched files of a follower. `before` are the folders that were watched for the follower until now.
    /// The first returned value is true if the follower has a new folder. The second one has the folders that cannot be
    /// watched.
    pub(super) fn follow(
        &self,
        number: Number,
        watched: WatchedFiles,
        before: &BTreeSet<PathBuf>,
    ) -> (bool, Vec<(PathBuf, notify::Error)>) {
        let mut watcher = lock(&self.watcher);
        let folders = watched.folders();
        if let Some(follower) = lock(&self.followed).followers.get_mut(&number) {
            follower.watched = watched;
        }
        for folder in before.difference(&folders) {
            self.leave(&mut watcher, number, folder);
        }
        let mut has_begun = false;
        let mut refused = Vec::new();
        for folder in folders {
            let (is_watched, is_followed) = lock(&self.followed).add(number, &folder);
            // A folder that was moved is still watched at its new path, so its old watch is removed first.
            let watch = |watcher: &mut Option<RecommendedWatcher>| {
                let Some(watcher) = watcher else { return Ok(()) };
                let _ = watcher.unwatch(&folder);
                watcher.watch(&folder, RecursiveMode::NonRecursive)
            };
            match if is_watched { Ok(()) } else { watch(&mut watcher) } {
                Ok(()) => has_begun |= !is_followed,
                Err(error) => {
                    lock(&self.followed).folders.remove(&folder);
                    refused.push((folder, error));
                }
            }
        }
        (has_begun, refused)
    }

    /// Removes a follower. The follower gets no more notifications.
    pub(super) fn part(&self, number: Number, folders: &BTreeSet<PathBuf>) {
        let mut watcher = lock(&self.watcher);
        let mut followed = lock(&self.followed);
        followed.look_at(number, BTreeSet::new(), Vec::new());
        followed.followers.remove(&number);
        drop(followed);
        for folder in folders {
            self.leave(&mut watcher, number, folder);
        }
    }

    /// Ends the watch on a folder after its last follower has left.
    fn leave(&self, watcher: &mut Option<RecommendedWatcher>, number: Number, folder: &Path) {
        if lock(&self.followed).remove(number, folder)
            && let Some(watcher) = watcher
        {
            // Unwatching fails for a deleted folder, whose watch has already ended.
            let _ = watcher.unwatch(folder);
        }
    }
}

/// Polls the files and folders of all followers until the watcher is dropped.
fn look(followed: &Weak<Mutex<Followers>>) {
    loop {
        thread::sleep(LOOK);
        let Some(followed) = followed.upgrade() else { return };
        let places: Vec<PolledPath> = lock(&followed).places.keys().cloned().collect();
        for place in places {
            let sight = place.look();
            lock(&followed).see(&place, sight);
        }
    }
}

impl Followers {
    /// Replaces the polled files and folders of a follower. `seen` has the present states of those that were not polled
    /// until now.
    fn look_at(&mut self, number: Number, places: BTreeSet<PolledPath>, seen: Vec<(Sight, PolledPath)>) {
        for (sight, place) in seen {
            self.places.entry(place).or_insert_with(|| PolledState { sight, followers: BTreeSet::new() });
        }
        for place in &places {
            self.places.entry(place.clone()).or_default().followers.insert(number);
        }
        let Some(follower) = self.followers.get_mut(&number) else { return };
        let before = std::mem::replace(&mut follower.places, places);
        for place in before.difference(&follower.places) {
            if let Some(seen) = self.places.get_mut(place) {
                seen.followers.remove(&number);
                if seen.followers.is_empty() {
                    self.places.remove(place);
                }
            }
        }
    }

    /// Stores the state of a polled file or folder. If the state has changed, notifies the followers of that file or
    /// folder.
    fn see(&mut self, place: &PolledPath, sight: Sight) {
        let Some(seen) = self.places.get_mut(place).filter(|seen| seen.sight != sight) else { return };
        seen.sight = sight;
        let followers: Vec<Number> = seen.followers.iter().copied().collect();
        followers.into_iter().for_each(|number| self.tell(number));
    }

    /// Adds a folder to those that a follower watches. Returns whether any follower already watched the folder, and
    /// whether this follower did.
    fn add(&mut self, number: Number, folder: &Path) -> (bool, bool) {
        let is_watched = self.folders.contains_key(folder);
        let followers = self.folders.entry(folder.to_owned()).or_default();
        (is_watched, !followers.insert(number))
    }

    /// Removes a folder from those that a follower watches. Returns true if no other follower watches the folder.
    fn remove(&mut self, number: Number, folder: &Path) -> bool {
        let Some(followers) = self.folders.get_mut(folder) else { return false };
        followers.remove(&number);
        let is_last = followers.is_empty();
        if is_last {
            self.folders.remove(folder);
        }
        is_last
    }

    /// Processes an event of the kernel: notifies the followers whose files may have changed.
    fn take(&mut self, event: notify::Result<Event>) {
        // Reading a file is an event as well, and happens all the time.
        let event = match event {
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => return,
            Ok(event) if !event.need_rescan() => event,
            // The kernel dropped events, so any file may have changed.
            Ok(_) | Err(_) => return self.followers.values().for_each(|follower| follower.touched.notify_one()),
        };
        let is_gone =
            matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)));
        for path in &event.paths {
            if is_gone {
                self.forget(path);
            }
            self.touch(path);
        }
    }

    /// Forgets a removed folder and all folders below it. A new folder with the same name is another folder, which must
    /// be watched again.
    fn forget(&mut self, gone: &Path) {
        let below = self.folders.range(gone.to_owned()..).map(|(folder, _)| folder);
        let below: Vec<PathBuf> = below.take_while(|folder| folder.starts_with(gone)).cloned().collect();
        for folder in below {
            let followers = self.folders.remove(&folder).unwrap_or_default();
            followers.iter().for_each(|number| self.tell(*number));
        }
    }

    /// Notifies the followers that watch the file at `path`.
    fn touch(&self, path: &Path) {
        for number in path.parent().and_then(|folder| self.folders.get(folder)).into_iter().flatten() {
            if self.followers.get(number).is_some_and(|follower| follower.watched.concerns(path)) {
                self.tell(*number);
            }
        }
    }

    fn tell(&self, number: Number) {
        if let Some(follower) = self.followers.get(&number) {
            // `Notify` keeps one permit, so a change during a rescan leads to another rescan.
            follower.touched.notify_one();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::Arc;

    use futures::FutureExt as _;
    use notify::event::{AccessKind, DataChange, Flag, ModifyKind, RemoveKind};
    use notify::{Error, Event, EventKind};
    use tokio::sync::Notify;

    use super::{Follower, Followers, WatchedFiles};

    /// Two followers: one of a managed folder, and one of a file in that folder.
    fn followed() -> (Followers, [Arc<Notify>; 2]) {
        let mut followed = Followers::default();
        let touched = [(); 2].map(|()| Arc::new(Notify::new()));
        let file = ["/var/e/one.component".into()].into_iter();
        let watched = [WatchedFiles::new(std::iter::empty(), Some(Path::new("/var/e"))), WatchedFiles::new(file, None)];
        for ((number, watched), touched) in (1..).zip(watched).zip(&touched) {
            let places = BTreeSet::new();
            followed.followers.insert(number, Follower { watched, places, touched: Arc::clone(touched) });
        }
        assert_eq!(followed.add(1, Path::new("/var/e")), (false, false));
        assert_eq!(followed.add(2, Path::new("/var/e")), (true, false));
        (followed, touched)
    }

    fn told(touched: &[Arc<Notify>; 2]) -> [bool; 2] {
        touched.each_ref().map(|touched| touched.notified().now_or_never().is_some())
    }

    #[test]
    fn whoever_a_file_matters_to_hears_of_it_and_nobody_else() {
        let (mut followed, touched) = followed();
        let changed =
            |path: &str| Event::new(EventKind::Modify(ModifyKind::Data(DataChange::Any))).add_path(path.into());
        for (path, expected) in [
            ("/var/e/x.wasm", [true, false]),
            ("/var/e/one.component", [false, true]),
            ("/var/e/..data", [true, true]),
            ("/var/e/x.log", [false, false]),
            ("/var/other/x.wasm", [false, false]),
        ] {
            followed.take(Ok(changed(path)));
            assert_eq!(told(&touched), expected, "{path}");
        }
        followed.take(Ok(Event::new(EventKind::Access(AccessKind::Any)).add_path("/var/e/x.wasm".into())));
        assert_eq!(told(&touched), [false; 2], "it was only read");
        assert!(!followed.remove(1, Path::new("/var/e")) && followed.remove(2, Path::new("/var/e")));
    }

    #[test]
    fn events_that_were_lost_and_folders_that_are_gone_have_everything_looked_at() {
        let (mut followed, touched) = followed();
        followed.take(Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan)));
        assert_eq!(told(&touched), [true; 2], "the queue was full");
        followed.take(Err(Error::generic("cannot read")));
        assert_eq!(told(&touched), [true; 2]);
        let removed = |path: &str| Event::new(EventKind::Remove(RemoveKind::Folder)).add_path(path.into());
        followed.take(Ok(removed("/var/e-2")));
        assert_eq!(told(&touched), [false; 2]);
        // Removing a folder also drops the folders below it.
        followed.take(Ok(removed("/var")));
        assert!(told(&touched) == [true; 2] && followed.folders.is_empty());
        followed.take(Ok(removed("/var")));
        assert_eq!(told(&touched), [false; 2], "it is gone already");
    }
}

//! The one watcher of the process. The kernel gives a user few of them (128 by default), and each takes a thread.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use notify::event::{ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use super::Watched;
use super::look::{Place, Sight};

/// Watches folders for any number of followers, each of which is told only of its own files. All paths are real ones: the
/// kernel has one watch per folder, whatever links lead there.
pub(crate) struct FileWatcher {
    /// Held for the whole of a change: whoever comes next finds what the one before has done. Events are taken without it,
    /// because the watcher may wait for one to be taken.
    ///
    /// `None` where the kernel has no watcher left for this user.
    watcher: Mutex<Option<RecommendedWatcher>>,
    followed: Arc<Mutex<Followed>>,
}

/// The time between two looks at the places of all followers.
const LOOK: Duration = Duration::from_millis(500);

/// A follower's number.
pub(super) type Number = u64;

/// The files and folders that events are compared with.
#[derive(Default)]
struct Followed {
    followers: HashMap<Number, Follower>,
    /// The folders that are watched, and who follows them.
    folders: BTreeMap<PathBuf, BTreeSet<Number>>,
    /// The places that are looked at, whoever follows them: many tenants have one component.
    places: BTreeMap<Place, Seen>,
    last: Number,
}

/// A place as it was seen last, and who follows it.
#[derive(Default)]
struct Seen {
    sight: Sight,
    followers: BTreeSet<Number>,
}

struct Follower {
    watched: Watched,
    places: BTreeSet<Place>,
    touched: Arc<Notify>,
}

impl FileWatcher {
    /// Starts it. Where a part of it is not possible, the log says so and the server goes on without.
    pub(crate) fn start() -> Arc<Self> {
        let followed = Arc::<Mutex<Followed>>::default();
        let shared = Arc::clone(&followed);
        let watcher = notify::recommended_watcher(move |event| lock(&shared).take(event));
        let watcher = watcher.inspect_err(super::cannot).ok();
        let looking = Arc::downgrade(&followed);
        // A thread of its own: a file system that does not answer must hold up nobody else. It ends with the watcher.
        if let Err(error) = thread::Builder::new().name("annex-look".to_owned()).spawn(move || look(&looking)) {
            tracing::warn!(%error, "what links to component files lead to is not watched");
        }
        Arc::new(Self { watcher: Mutex::new(watcher), followed })
    }

    /// Has the follower told of changes at these places from now on, and at no others.
    pub(super) fn look_at(&self, number: Number, places: BTreeSet<Place>) {
        let followed = lock(&self.followed);
        let new: Vec<Place> = places.iter().filter(|place| !followed.places.contains_key(place)).cloned().collect();
        drop(followed);
        // Without the lock, because a file system may take its time.
        let seen = new.into_iter().map(|place| (place.look(), place)).collect();
        lock(&self.followed).look_at(number, places, seen);
    }

    /// A new follower, who follows nothing yet.
    pub(super) fn join(&self, touched: Arc<Notify>) -> Number {
        let mut followed = lock(&self.followed);
        followed.last += 1;
        let number = followed.last;
        followed.followers.insert(number, Follower { watched: Watched::default(), places: BTreeSet::new(), touched });
        number
    }

    /// Has the follower told of these files from now on, and of no others: `before` are the folders that it followed. Returns
    /// whether it follows a folder that it did not before, and the folders that cannot be watched.
    pub(super) fn follow(
        &self,
        number: Number,
        watched: Watched,
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
            // One that was moved away is still watched where it is now.
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

    /// The follower is told of nothing more.
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

    /// Ends the watch on a folder that nobody else follows.
    fn leave(&self, watcher: &mut Option<RecommendedWatcher>, number: Number, folder: &Path) {
        if lock(&self.followed).remove(number, folder)
            && let Some(watcher) = watcher
        {
            // One that was deleted is not watched any more.
            let _ = watcher.unwatch(folder);
        }
    }
}

/// Looks at all places for as long as there is a watcher.
fn look(followed: &Weak<Mutex<Followed>>) {
    loop {
        thread::sleep(LOOK);
        let Some(followed) = followed.upgrade() else { return };
        let places: Vec<Place> = lock(&followed).places.keys().cloned().collect();
        for place in places {
            let sight = place.look();
            lock(&followed).see(&place, sight);
        }
    }
}

impl Followed {
    /// The follower follows these places and no others. `seen` are those that nobody has followed before.
    fn look_at(&mut self, number: Number, places: BTreeSet<Place>, seen: Vec<(Sight, Place)>) {
        for (sight, place) in seen {
            self.places.entry(place).or_insert_with(|| Seen { sight, followers: BTreeSet::new() });
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

    /// Tells the followers of a place if it is another than it was.
    fn see(&mut self, place: &Place, sight: Sight) {
        let Some(seen) = self.places.get_mut(place).filter(|seen| seen.sight != sight) else { return };
        seen.sight = sight;
        let followers: Vec<Number> = seen.followers.iter().copied().collect();
        followers.into_iter().for_each(|number| self.tell(number));
    }

    /// Returns whether the folder is watched already, and whether it has this follower already.
    fn add(&mut self, number: Number, folder: &Path) -> (bool, bool) {
        let is_watched = self.folders.contains_key(folder);
        let followers = self.folders.entry(folder.to_owned()).or_default();
        (is_watched, !followers.insert(number))
    }

    /// Returns whether that was the last who followed the folder.
    fn remove(&mut self, number: Number, folder: &Path) -> bool {
        let Some(followers) = self.folders.get_mut(folder) else { return false };
        followers.remove(&number);
        let is_last = followers.is_empty();
        if is_last {
            self.folders.remove(folder);
        }
        is_last
    }

    /// Tells those whose files may have changed.
    fn take(&mut self, event: notify::Result<Event>) {
        // Files are read all the time, which are events too.
        let event = match event {
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => return,
            Ok(event) if !event.need_rescan() => event,
            // The watcher did not get all events, so that any file may have changed.
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

    /// A folder that is gone is not watched any more, nor are those in it: what takes its name is another one.
    fn forget(&mut self, gone: &Path) {
        let below = self.folders.range(gone.to_owned()..).map(|(folder, _)| folder);
        let below: Vec<PathBuf> = below.take_while(|folder| folder.starts_with(gone)).cloned().collect();
        for folder in below {
            let followers = self.folders.remove(&folder).unwrap_or_default();
            followers.iter().for_each(|number| self.tell(*number));
        }
    }

    /// Tells those to whom the file matters.
    fn touch(&self, path: &Path) {
        for number in path.parent().and_then(|folder| self.folders.get(folder)).into_iter().flatten() {
            if self.followers.get(number).is_some_and(|follower| follower.watched.concerns(path)) {
                self.tell(*number);
            }
        }
    }

    fn tell(&self, number: Number) {
        if let Some(follower) = self.followers.get(&number) {
            // `Notify` keeps one permit, so a change that comes during a look leads to another look.
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

    use super::{Followed, Follower, Watched};

    /// Two followers: one of a managed folder, one of a file in it.
    fn followed() -> (Followed, [Arc<Notify>; 2]) {
        let mut followed = Followed::default();
        let touched = [(); 2].map(|()| Arc::new(Notify::new()));
        let file = ["/var/e/one.component".into()].into_iter();
        let watched = [Watched::new(std::iter::empty(), Some(Path::new("/var/e"))), Watched::new(file, None)];
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
        // With a folder go those in it.
        followed.take(Ok(removed("/var")));
        assert!(told(&touched) == [true; 2] && followed.folders.is_empty());
        followed.take(Ok(removed("/var")));
        assert_eq!(told(&touched), [false; 2], "it is gone already");
    }
}

//! The sources of a project, and waiting for them to change.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use annex_authoring::{FILE, Project};
use tokio::time::sleep;

/// The time between two looks. Sources are few, and looking at them costs less than a millisecond.
const INTERVAL: Duration = Duration::from_millis(300);

/// Folders that hold what tools make. They lie among the sources of some languages.
const MADE: [&str; 4] = ["__pycache__", "node_modules", "target", "deps"];

/// The sources as they were when they were last looked at. Only those that the project declares are: what a build makes must
/// not be a reason for the next one.
pub(super) struct Sources {
    roots: Vec<PathBuf>,
    seen: Seen,
}

/// Each file with the time of its last change and its size.
type Seen = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

impl Sources {
    pub(super) fn of(project: &Project) -> Self {
        let mut sources = Self { roots: Vec::new(), seen: Seen::new() };
        sources.follow(project);
        sources.seen = sources.look();
        sources
    }

    /// Watches what the project declares now. What was seen is kept, so that no change is missed.
    pub(super) fn follow(&mut self, project: &Project) {
        let declared = project.manifest.build.watch.iter().map(|path| project.folder.join(path));
        self.roots = declared.chain([project.folder.join(FILE)]).collect();
    }

    /// Resolves when something is another than when it resolved last, and nothing has changed for one more look: editors
    /// write in several steps.
    pub(super) async fn changed(&mut self) {
        let mut unsettled = false;
        loop {
            sleep(INTERVAL).await;
            let now = self.look();
            if now == self.seen {
                if unsettled {
                    return;
                }
                continue;
            }
            self.seen = now;
            unsettled = true;
        }
    }

    fn look(&self) -> Seen {
        let mut seen = Seen::new();
        self.roots.iter().for_each(|root| add(root, &mut seen));
        seen
    }
}

fn add(path: &Path, seen: &mut Seen) {
    // What has gone meanwhile is not there, which is a change as well.
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    if metadata.is_file() {
        seen.insert(path.to_owned(), (metadata.modified().ok(), metadata.len()));
    } else if metadata.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_made = MADE.iter().any(|made| name == *made) || name.to_string_lossy().starts_with('.');
            // A link to a folder above would have no end.
            if !is_made && entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                add(&entry.path(), seen);
            }
        }
    }
}

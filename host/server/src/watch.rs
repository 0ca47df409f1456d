//! Watches the files of components, and has them looked at again when they have changed and are quiet.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
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

/// The folders that are watched. Files are replaced by renaming, which only their folder sees.
struct Watching {
    watcher: RecommendedWatcher,
    folders: BTreeSet<PathBuf>,
}

impl Watching {
    fn new(touched: &Arc<Notify>) -> notify::Result<Self> {
        let touched = Arc::clone(touched);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the files is an event too.
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                touched.notify_one();
            }
        })?;
        Ok(Self { watcher, folders: BTreeSet::new() })
    }

    fn follow(&mut self, folders: BTreeSet<PathBuf>) {
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

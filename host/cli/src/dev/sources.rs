//! Waits until a source of a project changes.

use std::time::Duration;

use annex_authoring::{Project, Sources};
use tokio::time::sleep;

/// The time between two polls. A poll takes less than a millisecond, because a project has few sources.
const INTERVAL: Duration = Duration::from_millis(300);

/// The declared sources of a project, as the last poll read them. Build outputs are not sources, because a build would
/// otherwise trigger the next build.
pub(super) struct Watch {
    project: Project,
    seen: Sources,
}

impl Watch {
    pub(super) fn of(project: Project) -> Self {
        Self { seen: project.sources(), project }
    }

    /// Watches the sources that the project declares now. The last poll's result is kept, so no change is missed.
    pub(super) fn follow(&mut self, project: &Project) {
        self.project = project.clone();
    }

    /// Waits until a watched file changes, and then until a poll finds no further change. Editors save a file in
    /// several writes, so the first change may be incomplete.
    pub(super) async fn changed(&mut self) {
        let mut unsettled = false;
        loop {
            sleep(INTERVAL).await;
            let now = self.project.sources();
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
}

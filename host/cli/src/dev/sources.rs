//! Waiting for the sources of a project to change.

use std::time::Duration;

use annex_authoring::{Project, Sources};
use tokio::time::sleep;

/// The time between two looks. Sources are few, and looking at them costs less than a millisecond.
const INTERVAL: Duration = Duration::from_millis(300);

/// The sources as they were when they were last looked at. Only those that the project declares are: what a build makes must
/// not be a reason for the next one.
pub(super) struct Watch {
    project: Project,
    seen: Sources,
}

impl Watch {
    pub(super) fn of(project: Project) -> Self {
        Self { seen: project.sources(), project }
    }

    /// Watches what the project declares now. The sources that were seen are kept, so that no change is missed.
    pub(super) fn follow(&mut self, project: &Project) {
        self.project = project.clone();
    }

    /// Resolves when something is another than when it resolved last, and nothing has changed for one more look: editors
    /// write in several steps.
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

//! The tasks of a session as operators see them.

use annex_conversation::{StoreError, StoredTask, TaskQuery};
use annex_protocol::{Artifact, TaskState};

use super::{SessionName, Sessions, SessionsError, shown_part};
use crate::redaction::Redaction;

/// The maximum number of tasks in one answer. The newest tasks are shown.
const MAX_TASKS: usize = 20;

/// A task of a session.
pub(crate) struct SessionTask {
    pub(crate) id: String,
    pub(crate) state: TaskState,
    /// The time of the last change of the state, in RFC 3339.
    pub(crate) changed_at: Option<String>,
    /// True if a turn works on the task or waits for its place.
    pub(crate) is_worked_on: bool,
    /// The artifacts, in which hidden values are replaced.
    pub(crate) artifacts: Vec<Artifact>,
}

impl Sessions {
    /// The newest tasks of a session. The task that changed last comes first. `name` must have the user of the session.
    ///
    /// # Errors
    /// [`SessionsError::NoTenant`] and [`SessionsError::Store`].
    pub(crate) async fn tasks(&self, name: &SessionName) -> Result<Vec<SessionTask>, SessionsError> {
        let key = self.key(name)?;
        let query = TaskQuery {
            context: Some(key.context.clone()),
            state: None,
            status_after: None,
            after: None,
            limit: MAX_TASKS,
        };
        let mut tasks = self.store.tasks(key.owner(), &query).await?.tasks;
        tasks.retain(|task| task.key == key);
        let shown = move |redaction: &Redaction| {
            tasks.into_iter().map(|task| shown_task(&task, redaction)).collect::<Result<Vec<_>, _>>()
        };
        Ok(self.hidden(shown).await??)
    }
}

fn shown_task(stored: &StoredTask, redaction: &Redaction) -> Result<SessionTask, StoreError> {
    let task = stored.decode()?.into_task();
    let artifacts = task.artifacts.into_iter().map(|artifact| {
        let parts = artifact.parts.iter().map(|part| shown_part(part, redaction)).collect();
        Artifact { parts, metadata: redaction.state(&artifact.metadata), ..artifact }
    });
    Ok(SessionTask {
        id: stored.id.to_string(),
        state: task.status.state,
        changed_at: task.status.timestamp.map(|time| time.to_string()),
        is_worked_on: stored.is_worked_on,
        artifacts: artifacts.collect(),
    })
}
